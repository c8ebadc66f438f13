"""Text from a worker as a terminal may see it: no escape sequence, no control or direction character."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from harness.schema import Frozen

M = TypeVar("M", bound=Frozen)

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def without_escapes(text: str) -> str:
    """``text`` without the sequences that terminals obey; single control characters may be left."""
    return _ESCAPES.sub("", text)


def plain(text: str) -> str:
    """``text`` on one line, of printable characters only."""
    return "".join(c for c in " ".join(without_escapes(text).split()) if c.isprintable())


def cleaned(message: M) -> M:
    """``message`` with every text in it made plain."""
    changes = {name: _cleaned(getattr(message, name)) for name in message.__struct_fields__}
    return msgspec.structs.replace(message, **changes)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(key): _cleaned(item) for key, item in value.items()}
    return value
