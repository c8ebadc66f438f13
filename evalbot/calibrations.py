"""Where calibrations are kept: one JSON file per machine and instrument in the cache."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from evalbot.record import cache_directory, write_whole
from harness.calibration import Calibration, CalibrationRun, Epoch, key_of, pooled
from harness.schema import Machine, encode_json


def directory() -> Path:
    """Where all of them lie; it need not exist yet."""
    return cache_directory() / "calibrations"


def path_of(key: str) -> Path:
    """Where the one of a key (``key_of``) lies, or would lie."""
    return directory() / f"{key}.json"


def stored() -> tuple[Calibration, ...]:
    """All calibrations that can be read, the latest first. A file that cannot be read calibrates nothing."""
    found = [read(path) for path in sorted(directory().glob("*.json"))]
    known = [calibration for calibration in found if calibration is not None]
    return tuple(sorted(known, key=lambda calibration: calibration.measured_at, reverse=True))


def read(path: Path) -> Calibration | None:
    """What the runs in a file give; None if there is no such file, or it is not whole."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
        return pooled(found.machine, found.epoch, found.runs)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None


def add(machine: Machine, epoch: Epoch, runs: Iterable[CalibrationRun]) -> Calibration:
    """Pool ``runs`` with what is kept for this machine and instrument, and keep the result."""
    path = path_of(key_of(machine, epoch))
    before = read(path)
    calibration = pooled(machine, epoch, (*(before.runs if before else ()), *runs))
    write(calibration, path)
    return calibration


def write(calibration: Calibration, path: Path) -> None:
    """Write it whole or not at all. Raises InfraError if the place cannot be written."""
    write_whole(encode_json(calibration) + b"\n", path, "calibration")
