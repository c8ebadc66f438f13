"""The record of one evaluation: written atomically, read strictly, judged again at any time."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from evalbot.errors import BadRequest, InfraError
from evalbot.types import RECORD_VERSION, Record
from harness.schema import encode_json


def cache_directory() -> Path:
    """Where models and records lie: ``$EVALBOT_CACHE`` or ``~/.cache/evalbot``."""
    named = os.environ.get("EVALBOT_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "evalbot"


def default_path(record: Record) -> Path:
    """``runs/<time>-<head sha>.json`` in the cache."""
    time = record.created_at.replace("-", "").replace(":", "")
    head = "emulated" if record.facts.emulated else (record.identity.head_sha or "unresolved")[:10]
    return cache_directory() / "runs" / f"{time}-{head}.json"


def require_writable(path: Path, what: str = "record") -> None:
    """Raise InfraError if a file could not be written to ``path``. Leaves nothing behind."""
    place = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise InfraError(
            f"The {what} could not be written to {path}: {error.strerror}. Nothing was measured; "
            "name another place with --json."
        ) from None


def write(record: Record, path: Path) -> None:
    """Write ``record`` whole or not at all. Raises InfraError if the place cannot be written."""
    write_whole(encode_json(record) + b"\n", path, "record")


def write_whole(content: bytes, path: Path, what: str) -> None:
    """Write a file whole or not at all. Raises InfraError, which calls it ``what``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InfraError(
            f"The {what} cannot be written to {path}: {error.strerror}. Name another place with --json."
        ) from None


def read(path: Path) -> Record:
    """Read a record. Raises BadRequest with the place of the fault if it is not one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"The record {path} cannot be read: {error.strerror}.") from None
    try:
        version = msgspec.json.decode(content, type=_Version).schema_version
        if version != RECORD_VERSION:
            raise BadRequest(
                f"{path} has schema version {version}, this evalbot reads {RECORD_VERSION}: "
                "use the evalbot version that wrote it."
            )
        record = msgspec.json.decode(content, type=Record)
        encode_json(record)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadRequest(f"{path} is not a record of an evaluation: {error}.") from None
    return record


def json_schema() -> dict[str, Any]:
    """JSON Schema of a record."""
    return msgspec.json.schema(Record)


class _Version(msgspec.Struct):
    schema_version: int
