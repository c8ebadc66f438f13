"""What runs of main against itself say about a machine: noise, builds, and false alarms. Pure.

A run is either of one build against itself (``same``) or of one build against a rebuild of the same source
(``rebuild``). The raw pair differences are kept, so that runs made at different times pool exactly.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import numpy as np

from harness import spending, stats
from harness.schema import Frozen, Machine, Policy, encode_json

VALID_FOR = timedelta(days=30)
MAX_RUNS = 20
"""Only the latest runs are kept: the machine may have changed slowly."""
CONFIDENCE = Policy().confidence
"""A calibration belongs to a machine and not to a policy, so it speaks of the usual one."""


class Epoch(Frozen, frozen=True):
    """The instrument: whatever of it changes, earlier calibrations do not hold any more."""

    harness_sha256: str
    plan: str
    plan_sha256: str
    models_sha256: str
    driver: str | None = None


class CalibrationRun(Frozen, frozen=True):
    """One run of main against itself."""

    measured_at: str
    """UTC, ISO 8601."""
    kind: Literal["same", "rebuild"]
    seed: int
    differences: dict[str, tuple[float, ...]]
    """log-ratio of every pair, by axis."""
    false_positives: tuple[str, ...] = ()
    """The tier and the failed gates that this run would have given to a change."""
    launch_s: dict[str, float] = {}
    """Median seconds of a launch, by case."""
    looks: dict[str, tuple[int, ...]] = {}
    """Pairs at each look that the plan has, by case; a case that is not here is judged once."""


class AxisNoise(Frozen, frozen=True):
    """What the runs say about one axis. None: too few pairs to say."""

    name: str
    pairs: int
    """Pairs in one run of the plan: the median over the runs."""
    differences: int
    """Pairs of all runs together."""
    sd: float | None
    """Standard deviation of pair differences within runs, in log units."""
    noise_floor_pct: float | None
    """Half-width of the 95 % interval that one run of main against itself has."""
    tau2: float | None
    """Variance between builds of one source, in squared log units; None without a rebuild."""
    rebuilds: int
    detectable_pct: float | None
    """Gain that one run shows with a probability of 80 % as early as at its first look, which tests more
    strictly than 5 % where there are later ones."""


class Calibration(Frozen, frozen=True):
    """What is known of one machine under one instrument. All but the runs follows from the runs."""

    key: str
    machine: Machine
    epoch: Epoch
    measured_at: str
    """When the latest run was made."""
    runs: tuple[CalibrationRun, ...]
    axes: tuple[AxisNoise, ...]

    @property
    def false_positives(self) -> int:
        """Runs that would have given a tier or failed a gate although nothing had changed."""
        return sum(bool(run.false_positives) for run in self.runs)

    def axis(self, name: str) -> AxisNoise | None:
        return next((axis for axis in self.axes if axis.name == name), None)

    def between_builds(self) -> dict[str, float]:
        """tau2 by axis, where it was measured."""
        return {axis.name: axis.tau2 for axis in self.axes if axis.tau2 is not None}

    def pair_s(self, axis: str) -> float | None:
        """Seconds that a pair takes on the case of an axis; None where no run timed it."""
        case = axis.partition(":")[0]
        known = [run.launch_s[case] for run in self.runs if case in run.launch_s]
        return 2 * statistics.median(known) if known else None

    def expired(self, at: datetime) -> bool:
        return at - datetime.fromisoformat(self.measured_at) > VALID_FOR


def key_of(machine: Machine, epoch: Epoch) -> str:
    """Name under which calibrations of this machine and instrument are kept."""
    return hashlib.sha256(encode_json(machine) + b"\n" + encode_json(epoch)).hexdigest()


def pooled(machine: Machine, epoch: Epoch, runs: Iterable[CalibrationRun]) -> Calibration:
    """The calibration that follows from ``runs``: of the last 20, those within 30 days of the latest.

    Raises ValueError without runs.
    """
    ordered = sorted(runs, key=lambda run: run.measured_at)[-MAX_RUNS:]
    if not ordered:
        raise ValueError("a calibration needs at least one run")
    latest = datetime.fromisoformat(ordered[-1].measured_at)
    kept = tuple(run for run in ordered if latest - datetime.fromisoformat(run.measured_at) <= VALID_FOR)
    # Sorted, because a run that was read back from JSON has its axes in that order.
    names = sorted({name for run in kept for name in run.differences})
    return Calibration(
        key=key_of(machine, epoch),
        machine=machine,
        epoch=epoch,
        measured_at=kept[-1].measured_at,
        runs=kept,
        axes=tuple(axis_noise(name, kept) for name in names),
    )


def axis_noise(name: str, runs: Sequence[CalibrationRun]) -> AxisNoise:
    """Noise floor, sd, tau2 and detectable effect of one axis. Raises ValueError if no run has it."""
    found = [(run.kind, np.array(run.differences[name])) for run in runs if run.differences.get(name)]
    groups = [differences for _, differences in found]
    if not groups:
        raise ValueError(f"no run has pairs on {name}")
    pairs = round(statistics.median(len(group) for group in groups))
    sd = _sd(groups)
    spread = None if sd is None else _spread(groups, pairs, sd)
    rebuilt = [group for kind, group in found if kind == "rebuild"]
    tau2 = between_builds(rebuilt, sd)
    planned = [run.looks.get(name.partition(":")[0]) for run in runs if run.differences.get(name)]
    looks = planned[-1] or (pairs,)
    return AxisNoise(
        name=name,
        pairs=pairs,
        differences=sum(map(len, groups)),
        sd=sd,
        noise_floor_pct=None if spread is None else _percent(_half_width(spread, pairs)),
        tau2=tau2,
        rebuilds=len(rebuilt),
        detectable_pct=None if sd is None else _percent(_detectable(groups, looks, sd, tau2 or 0.0)),
    )


def between_builds(rebuilt: Sequence[np.ndarray], sd: float | None) -> float | None:
    """Variance of the rebuilds' offsets beyond what noise makes of them, floored at 0.

    An offset is the mean of n pairs; noise alone gives it a variance of sd^2 / n. Its expectation is zero,
    since which of the two builds is called the rebuild is nobody's choice.
    """
    if not rebuilt or sd is None:
        return None
    excess = [float(group.mean()) ** 2 - sd**2 / len(group) for group in rebuilt]
    return max(0.0, statistics.mean(excess))


def _sd(groups: Sequence[np.ndarray]) -> float | None:
    """Standard deviation within runs: each is centred on its own mean."""
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return math.sqrt(squares / freedom) if freedom else None


def _spread(groups: Sequence[np.ndarray], pairs: int, sd: float) -> float:
    """sd / sqrt(n) is the standard error of a mean of n; this is what takes its place for a trimmed mean.

    Where a run has too few pairs for its estimate to trim any, it is the standard deviation itself.
    """
    if int(stats.TRIM * pairs) == 0:
        return sd
    centred = np.concatenate([group - group.mean() for group in groups])
    freedom = len(centred) - len(groups)
    se = stats.trimmed(list(centred)).se
    return sd if se is None else se * len(centred) / math.sqrt(freedom)


def _half_width(spread: float, pairs: int) -> float | None:
    """Half-width of the interval of one run, in log units."""
    freedom = _freedom(pairs)
    return None if freedom < 1 else stats.t_beyond((1 - CONFIDENCE) / 2, freedom) * spread / math.sqrt(pairs)


def _detectable(groups: Sequence[np.ndarray], looks: tuple[int, ...], sd: float, tau2: float) -> float | None:
    """Effect in log units that the first look finds in 80 of 100 runs, where the mean also varies by tau2."""
    first, freedom = looks[0], _freedom(looks[0])
    if freedom < 1:
        return None
    tail = spending.tails(looks, 1 - CONFIDENCE, 2)[0]
    se = math.sqrt(_spread(groups, first, sd) ** 2 / first + tau2)
    return stats.detectable(tail, freedom) * se


def _freedom(pairs: int) -> int:
    """Degrees of freedom of the trimmed mean of so many pairs."""
    return pairs - 2 * int(stats.TRIM * pairs) - 1


def _percent(log_units: float | None) -> float | None:
    return None if log_units is None else 100 * math.expm1(log_units)
