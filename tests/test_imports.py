"""Imports point one way. The linter does not see what a package's ``__init__`` pulls in; this does."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import importlib, sys
importlib.import_module({module!r})
print(*sorted(name for name in {forbidden!r} if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("evalbot.cli", ("torch", "triton", "transformers", "engine", "harness.manager", "harness.worker")),
        (
            "evalbot.pipeline",
            ("torch", "triton", "transformers", "engine", "harness.manager", "harness.worker"),
        ),
        ("harness.manager", ("torch", "triton", "engine", "evalbot")),
        ("harness.gates", ("torch", "triton", "engine", "evalbot", "harness.manager")),
        ("harness.worker", ("torch", "triton", "engine", "evalbot")),
        ("engine.llm", ("harness", "evalbot")),
    ],
)
def test_importing_a_room_loads_nothing_it_may_not_know(module: str, forbidden: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module, forbidden=forbidden)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
