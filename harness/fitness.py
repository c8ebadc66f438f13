"""Whether the machine was fit to be measured on during a launch. Pure rules that never look at a result.

An unfit launch invalidates its pair, slots (0, 1) or (2, 3) of its quad: the other launch of the pair has
nothing left to be compared with. Rates leave such pairs out; equality of tokens is judged on all launches.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.schema import Fitness, HarnessResult, Launch

PROBE_BAND = 1.5
"""Ratio, either way, to the session's median probe: it tells a machine whose cores are all taken or slow, and
``FOREIGN_MAX_PCT`` one of which some are taken. On a 2-core virtual machine 60 probes stayed within 1.13
of their median when it was idle and within 1.15 with one core busy (a shorter probe once reached 1.34); with
both cores busy, which leaves half the speed, they took 2.0 times as long."""
STEAL_MAX_PCT = 2.0
"""A launch that lost more is off by more than the floors (2 %) and the lowest tier (2 %) allow for; a shared
virtual machine lost 0.1 to 0.5 % in launches of a real engine."""
FOREIGN_MAX_PCT = 30.0
"""Share of all cores. On two cores a program that takes one throughout has 50 % beside a worker of one thread
and its fair share, 33 %, beside one that fills both: the bound lies below either, and far above what an idle
system does. Four such programs had 74 to 78 % beside a worker of two threads; where none of them ended
meanwhile, their own CPU times came to within 0.2 % of that."""
SLOWING = frozenset({"hw slowdown", "hw thermal slowdown", "sw thermal slowdown", "hw power brake"})
"""Throttle reasons that come from heat or from failing power. A power cap is not one of them: a large GPU
runs into its cap in ordinary work, on both arms alike."""
MAX_INVALID_SHARE = 0.20
"""With more invalid pairs than this the session says nothing about any change."""

PairPosition = tuple[str, int, int]
"""Case, quad, and pair of the quad: 0 for slots (0, 1), 1 for slots (2, 3)."""


def unfit(launch: Launch, session: Sequence[Launch]) -> str | None:
    """Why ``launch`` cannot be used, as a sentence; None if nothing speaks against it.

    ``session`` holds all launches of the run, this one too; what was not read speaks against nobody.
    """
    for when, seen in (("before", launch.before), ("after", launch.after)):
        if seen is None:
            continue
        why = _probe(when, seen, session) or _steal(seen) or _foreign(seen) or _gpu(when, seen)
        if why is not None:
            return f"Launch {launch.launch} is unfit: {why}."
    return None


def invalid_positions(result: HarnessResult) -> frozenset[PairPosition]:
    """Pairs that hold an unfit launch. Launches that failed hold no sample and spoil no pair."""
    return frozenset(
        _position(launch) for launch in _timed(result) if unfit(launch, result.launches) is not None
    )


def invalid_share(result: HarnessResult) -> float:
    """Invalid pairs over all pairs of which a launch was timed; 0 where none was."""
    begun = {_position(launch) for launch in _timed(result)}
    return len(invalid_positions(result)) / len(begun) if begun else 0.0


def _timed(result: HarnessResult) -> list[Launch]:
    cases = {case.name for case in result.plan.cases}
    return [launch for launch in result.launches if launch.case in cases and launch.failure is None]


def _position(launch: Launch) -> PairPosition:
    return launch.case, launch.quad, launch.slot // 2


def _probe(when: str, seen: Fitness, session: Sequence[Launch]) -> str | None:
    if seen.probe_s is None:
        return None
    usual = statistics.median(_probes(session))
    ratio = seen.probe_s / usual
    if 1 / PROBE_BAND <= ratio <= PROBE_BAND:
        return None
    return (
        f"the control probe {when} it took {1000 * seen.probe_s:.1f} ms, {ratio:.2f} times the session's "
        f"median of {1000 * usual:.1f} ms (bound {PROBE_BAND:g} either way)"
    )


def _probes(session: Sequence[Launch]) -> list[float]:
    read = [seen for launch in session for seen in (launch.before, launch.after) if seen is not None]
    return [seen.probe_s for seen in read if seen.probe_s is not None]


def _steal(seen: Fitness) -> str | None:
    if seen.steal_pct is None or seen.steal_pct <= STEAL_MAX_PCT:
        return None
    return f"the host gave {seen.steal_pct:.1f}% of the CPU to others during it (bound {STEAL_MAX_PCT:g}%)"


def _foreign(seen: Fitness) -> str | None:
    if seen.foreign_cpu_pct is None or seen.foreign_cpu_pct <= FOREIGN_MAX_PCT:
        return None
    return (
        f"other programs took {seen.foreign_cpu_pct:.0f}% of all cores during it (bound {FOREIGN_MAX_PCT:g}%)"
    )


def _gpu(when: str, seen: Fitness) -> str | None:
    slowing = [reason for reason in seen.gpu_throttle or () if reason in SLOWING]
    if slowing:
        return f"the GPU's clocks were held down {when} it ({', '.join(slowing)})"
    if seen.gpu_foreign_processes:
        count = seen.gpu_foreign_processes
        return f"{count} foreign process{'es' if count > 1 else ''} computed on the GPU {when} it (bound 0)"
    return None
