"""The record of one evaluation: written atomically, read strictly, judged again at any time."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from evalbot.errors import BadRequest, InfraError
from evalbot.types import RECORD_VERSION, Record
from harness.schema import encode_json

MOST_TOKENS = 65_536
"""Tokens of one burst, or drafts of one round, beyond which a count comes from no engine: rounds are counted
one depth after the other, which would not end."""


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
    try:
        place = next(parent for parent in _file(path).parents if parent.exists())
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
    """Write a file whole or not at all, where a link leads. Raises InfraError, which calls it ``what``."""
    try:
        place = _file(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, place)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InfraError(
            f"The {what} cannot be written to {path}: {error.strerror}. Name another place with --json."
        ) from None


def _file(path: Path) -> Path:
    """Where a file for ``path`` lies, links followed. Raises OSError for what is none, as a device."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file")
    return path.resolve()


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
        _require_countable(record, path)
        encode_json(record)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"{path} is not a record of an evaluation: {error}.") from None
    return record


def _require_countable(record: Record, path: Path) -> None:
    """Raise BadRequest where a count is too large to be worked with."""
    for sample in (sample for run in record.runs for sample in run.samples):
        sizes = (*(burst.tokens for burst in sample.bursts), *sample.reported.proposed)
        if max(sizes, default=0) > MOST_TOKENS:
            raise BadRequest(
                f"{path} is not a whole record: a sample of case {sample.case} has a burst or a round of "
                f"more than {MOST_TOKENS:,} tokens, which no engine sends."
            )


def json_schema() -> dict[str, Any]:
    """JSON Schema of a record."""
    return msgspec.json.schema(Record)


class _Version(msgspec.Struct):
    schema_version: int
