"""SHA-256 of model files."""

from __future__ import annotations

import hashlib
from pathlib import Path

MODEL_SUFFIXES = (".gguf", ".json", ".safetensors")


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_sha256(directory: Path) -> dict[str, str]:
    """Digest of each model file directly in ``directory``, by name. Notes beside them do not count."""
    files = (path for path in directory.iterdir() if path.suffix in MODEL_SUFFIXES and path.is_file())
    return {path.name: file_sha256(path) for path in sorted(files)}


def listing(files: dict[str, str]) -> str:
    """The digests as ``sha256sum`` prints them, ordered by name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))


def model_sha256(path: Path) -> str:
    """One digest for a model: of the file itself, or of the :func:`listing` of its directory."""
    if path.is_file():
        return file_sha256(path)
    return hashlib.sha256(listing(files_sha256(path)).encode()).hexdigest()
