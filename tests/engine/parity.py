"""Recorded runs of the reference implementation, read from ``tests/data/parity``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

PARITY = Path(__file__).parents[1] / "data" / "parity"
TARGET = PARITY / "target"
DRAFT = PARITY / "draft"


@cache
def read_json(name: str) -> Any:
    return json.loads((PARITY / f"{name}.json").read_text())


@cache
def read_tensors(name: str) -> dict[str, Tensor]:
    return load_file(PARITY / f"{name}.safetensors")


@cache
def prompts() -> dict[str, dict[str, Any]]:
    return {prompt["id"]: prompt for prompt in read_json("greedy")["prompts"]}
