"""Scenarios that tests build as values, written as the TOML that the emulator reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from harness.noise import NoiseModel
from harness.scenario import Behaviour, Scenario, read
from harness.schema import Arm, ArmSource

REPOSITORY = Path(__file__).parents[2]


def write(
    path: Path,
    candidate: Behaviour | None = None,
    baseline: Behaviour | None = None,
    noise: NoiseModel | None = None,
) -> Path:
    """Write a scenario to ``path``; what is not given is honest, equal and silent. Returns ``path``."""
    scenario = Scenario(
        candidate=candidate or Behaviour(), baseline=baseline or Behaviour(), noise=noise or NoiseModel()
    )
    tables = msgspec.to_builtins(scenario)
    path.write_text("".join(f"{key} = {_value(value)}\n" for key, value in tables.items()))
    assert read(path) == scenario
    return path


def source(scenario: Path, arm: Arm, seed: int = 1, launches: int = 7) -> ArmSource:
    """One arm of a scenario as the manager starts it."""
    worker = (sys.executable, "-m", "harness.emulator", str(scenario), arm, str(seed), str(launches))
    return ArmSource(arm=arm, tree=str(REPOSITORY), worker=worker, commit_sha=arm, emulated=True)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        # TOML knows no null: a key that is not there means the same.
        known = {key: item for key, item in value.items() if item is not None}
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in known.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)
