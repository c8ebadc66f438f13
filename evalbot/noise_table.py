"""Calibration -> terminal. Only here and in ``table`` do such values meet rich."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evalbot import sentences
from harness import figures
from harness.calibration import VALID_FOR, AxisNoise, Calibration

ABSENT = "not known"


def show(calibration: Calibration, console: Console, path: Path) -> None:
    """Print what is known of this machine's noise; ``path`` is where that lies."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("axis")
    for title in ("noise floor", "detectable", "builds", "a run", "pairs"):
        table.add_column(title, justify="right")
    for axis in calibration.axes:
        table.add_row(*map(Text, cells(axis)))
    console.print(table)
    console.print()
    for line in foot(calibration):
        console.print(Text(line))
    console.print(Text(f"calibration\n  {path}"), soft_wrap=True)


def cells(axis: AxisNoise) -> tuple[str, ...]:
    """Axis, noise floor, smallest gain, standard deviation between builds, pairs in a run and in all."""
    between = None if axis.tau2 is None else 100 * math.expm1(math.sqrt(axis.tau2))
    return (
        sentences.axis_title(axis.name),
        _percent(axis.noise_floor_pct, "±"),
        _percent(axis.detectable_pct, "+"),
        _percent(between, "±"),
        str(axis.pairs),
        str(axis.differences),
    )


def foot(calibration: Calibration) -> list[str]:
    """How it was made, what it found wrong, and how long it holds."""
    kinds = [run.kind for run in calibration.runs]
    names = dict.fromkeys(name for run in calibration.runs for name in run.false_positives)
    alarms = f"{sentences.listing(names)}, in {calibration.false_positives} of" if names else "none in"
    until = (datetime.fromisoformat(calibration.measured_at) + VALID_FOR).date()
    return [
        f"Plan {calibration.epoch.plan}: main against itself, {kinds.count('same')} of one build and "
        f"{kinds.count('rebuild')} against a rebuild.",
        f"False positives: {alarms} {len(kinds)} runs.",
        "Noise floor: half-width of the 95% interval of one run. Detectable: gain that one run shows with a "
        "probability of 80% at its first look. Builds: standard deviation between builds of one source.",
        f"Valid until {until}, and as long as harness, plan, driver and models stay what they are.",
    ]


def _percent(value: float | None, sign: str) -> str:
    return ABSENT if value is None else f"{sign}{figures.percent(value, signed=False)}"
