"""Whose code judges: the installed evalbot and harness, which should be those that main pins."""

from __future__ import annotations

import hashlib
from pathlib import Path

import evalbot
import harness

PACKAGES = {"evalbot": Path(evalbot.__file__).parent, "harness": Path(harness.__file__ or "").parent}
"""Where the code that reads, compares and speaks was imported from."""
_SHOWN = 12


def stranger(tree: Path) -> str | None:
    """A sentence if what is installed is not what ``tree`` has; None if it is, package by package.

    A package that the tree does not have cannot be main's, which is a difference too.
    """
    for name, installed in PACKAGES.items():
        ours, theirs = source_sha256(installed), source_sha256(tree / name)
        if ours != theirs:
            has = f"main has {theirs[:_SHOWN]}" if theirs else "main has none"
            return f"Judged by {name} {(ours or 'unknown')[:_SHOWN]}, {has}."
    return None


def source_sha256(package: Path) -> str | None:
    """Digest of the source files below ``package``, names and bytes; None where there are none.

    What Python writes beside them does not count, so that a used checkout equals a fresh one.
    """
    files = sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).as_posix())
    total = hashlib.sha256()
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{content}  {path.relative_to(package).as_posix()}\n".encode())
    return total.hexdigest() if files else None
