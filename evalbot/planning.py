"""What to plan for an effect on this machine: pairs from its calibration, minutes from the runs behind it."""

from __future__ import annotations

import math
import re

from evalbot import calibrations, sentences
from evalbot.errors import BadRequest
from evalbot.power import Planned, pairs_needed
from harness import figures
from harness.calibration import AxisNoise, Calibration
from harness.environment import machine
from harness.schema import Policy

WORTH_WHILE = 128
"""More pairs than this are a matter of a quieter machine, not of patience."""
_PLAIN = re.compile(r"(\d+(?:\.\d+)?|\.\d+) ?%?", re.ASCII)


def planned(effect: str, power: float, plan: str | None, noise: str | None) -> list[str]:
    """The answer as lines. Raises BadRequest without a calibration of this machine and without ``noise``."""
    wanted, confidence = _percentage(effect, "--effect"), Policy().confidence
    if noise is not None:
        sd = math.sqrt(2) * _percentage(noise, "--noise") / 100
        said = f"launches that vary by {figures.percent(_percentage(noise, '--noise'), signed=False)}"
        return _answer(wanted, power, pairs_needed(wanted, power, sd, confidence), said, None)
    calibration = _calibration(plan)
    axis = _scored(calibration)
    assert axis.sd is not None
    said = (
        f"pairs of {sentences.axis_title(axis.name)} that vary by "
        f"{figures.percent(100 * axis.sd, signed=False)} on this machine (plan {calibration.epoch.plan}, "
        f"calibrated {calibration.measured_at[:10]})"
    )
    found = pairs_needed(wanted, power, axis.sd, confidence)
    return _answer(wanted, power, found, said, calibration.pair_s(axis.name))


def _answer(wanted: float, power: float, found: Planned | None, said: str, pair_s: float | None) -> list[str]:
    goal = f"To see a gain of {figures.percent(wanted, signed=False)} with a probability of {power:.0%}"
    if found is None:
        return [f"{goal}, no number of pairs is enough with {said}: a quieter machine is."]
    lines = [f"{goal}, plan {found.pairs} pairs ({found.pairs // 2} quads): {said}."]
    if len(found.looks) > 1:
        lines.append(f"Judged at {', '.join(map(str, found.looks))} pairs, a larger gain needs fewer.")
    if pair_s is not None:
        lines.append(f"On this case a pair took {pair_s:.0f} s: {found.pairs * pair_s / 60:.0f} minutes.")
    if found.pairs > WORTH_WHILE:
        lines.append("That is long: a quieter machine or longer generations are worth more than more pairs.")
    return lines


def _calibration(plan: str | None) -> Calibration:
    here = machine()
    known = [c for c in calibrations.stored() if c.machine == here and plan in (None, c.epoch.plan)]
    if not known:
        named = f" --plan {plan}" if plan else ""
        raise BadRequest(
            f"This machine has no calibration{' of plan ' + plan if plan else ''}: run "
            f"`evalbot calibrate{named}`, or say how much a launch varies with --noise."
        )
    return known[0]


def _scored(calibration: Calibration) -> AxisNoise:
    """The noisiest DSpark axis stands for the scored one, whose name a calibration does not hold."""
    axes = [axis for axis in calibration.axes if axis.name.endswith(":dspark") and axis.sd is not None]
    if not axes:
        raise BadRequest("The calibration has no DSpark axis with enough pairs: calibrate once more.")
    return max(axes, key=lambda axis: axis.sd or 0.0)


def _percentage(text: str, option: str) -> float:
    plain = _PLAIN.fullmatch(text.strip())
    value = float(plain[1]) if plain else math.nan
    if not 0 < value < 1000:
        raise BadRequest(f"{option} {text!r} is no percentage above 0: write it as 1% or 0.6%.")
    return value
