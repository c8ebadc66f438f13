"""A bundled change, scored against main in a temporary clone: what `make demo` shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

from evalbot.errors import BadRequest

PROJECT = Path(__file__).resolve().parent.parent
PATCHES = PROJECT / "demo"


def bundled_patch(directory: Path = PATCHES) -> Path:
    """The one patch of the demo. Raises BadRequest if there is none or more than one."""
    found = sorted(directory.glob("*.patch"))
    if len(found) != 1:
        raise BadRequest(
            f"The demo needs exactly one patch in {directory}, found {len(found)}: restore it from git."
        )
    return found[0]


def clone(destination: Path, source: Path = PROJECT) -> Path:
    """A clone of ``source``'s HEAD, on a branch called main, below ``destination``."""
    for argv in (
        ("clone", "--quiet", "--no-tags", str(source), str(destination)),
        ("-C", str(destination), "checkout", "--quiet", "-B", "main"),
    ):
        done = subprocess.run(
            ["git", *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise BadRequest(
                f"The demo cannot clone {source} ({said[-1] if said else 'no message'}): "
                "it runs from a git checkout with at least one commit."
            )
    return destination
