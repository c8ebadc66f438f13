"""What the bot says about a verdict: functions from values to text.

Percentages are rounded down, never to nearest: a bound of 9.9996 % is shown as 9.99 % and not as the
10 % that it does not reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_FLOOR, Decimal

from evalbot.types import Outcome, Tier
from harness.compare import Decomposition
from harness.schema import Comparison, GateResult, Interval

KINDS = {
    "dspark": "DSpark decode",
    "ar": "AR decode",
    "prefill": "prefill",
    "ttft": "time to first token",
    "round": "time per round",
    "tau": "tau",
    "accepted": "accepted drafts per round",
}

ADVICE: dict[Outcome, str] = {
    "improved": "Nothing to do: the gain is proven at this confidence and every gate passed.",
    "none": "Nothing to do: this says how large the effect is and is no judgement of the change.",
    "reject": "Mend what the reason names, then score again; `evalbot render RECORD` shows every gate.",
    "inconclusive": "Score again on a quiet machine, with a plan that runs more pairs (--plan).",
    "error": "This says nothing about the change: mend what the reason names and score again.",
    "build-failed": "Make the engine build and start in the merged tree, then score again.",
}


def axis_title(name: str) -> str:
    """``chat:dspark`` -> ``DSpark decode (chat)``."""
    case, _, kind = name.partition(":")
    return f"{KINDS.get(kind, kind)} ({case})" if kind else name


def percent(value: float, signed: bool = True) -> str:
    """A percentage with two decimals, rounded down."""
    rounded = Decimal(repr(value)).quantize(Decimal("0.01"), rounding=ROUND_FLOOR)
    return f"{rounded:{'+' if signed else ''}}%"


def number(value: float) -> str:
    """Four significant digits, more before the point: ``2.909``, ``49.96``, ``112.4``, ``1538``."""
    decimals = next((3 - power for power in (0, 1, 2) if abs(value) < 10 ** (power + 1)), 0)
    return f"{value:.{decimals}f}"


def interval(bounds: Interval) -> str:
    return f"[{percent(bounds.low)}, {percent(bounds.high)}]"


def compared(axis: Comparison, gain_pct: float, interval_pct: Interval | None) -> str:
    """``DSpark decode (chat) 55.00 tok/s against main's 50.00 tok/s: +10.00% [+9.20%, +10.90%], 8 pairs``."""
    spread = f" {interval(interval_pct)}" if interval_pct else ""
    return (
        f"{axis_title(axis.name)} {number(axis.candidate)} {axis.unit} against main's "
        f"{number(axis.baseline)} {axis.unit}: {percent(gain_pct)}{spread}, {axis.pairs} pairs"
    )


def improved(comparison: str, tier: Tier, bar_pct: float, low_pct: float) -> str:
    return (
        f"{comparison}; the lower bound {percent(low_pct)} reaches {tier} "
        f"(bar {percent(bar_pct)}) and every gate passed."
    )


def below_tiers(comparison: str, high_pct: float, bar_pct: float) -> str:
    return f"{comparison}; even the upper bound {percent(high_pct)} is below XS (bar {percent(bar_pct)})."


def within_noise(comparison: str, floor_pct: float) -> str:
    return (
        f"{comparison}; that lies within what main differs from itself in this run "
        f"(±{percent(floor_pct, signed=False)})."
    )


def identical(comparison: str | None) -> str:
    read = f" This run read {comparison}: noise of this machine." if comparison else ""
    return f"Outside pinned paths the change equals main byte for byte, so nothing measured can differ.{read}"


def set_aside_only(paths: Iterable[str]) -> str:
    listed = listing(paths)
    return (
        f"Your copy of {listed} was set aside and main's was used; nothing measured differs, "
        "so there was nothing to measure."
    )


def touches_pinned(paths: Iterable[str]) -> str:
    listed = listing(paths)
    return (
        f"Not scored: the change touches {listed}, which always come from main when something is measured. "
        "Move that part to a pull request of its own."
    )


def unproven(comparison: str, undecided: tuple[GateResult, ...], smallest_pct: float | None) -> str:
    """Neither better nor equal is proven."""
    why = (
        f"not decided: {undecided[0].name} ({undecided[0].reason.rstrip('.')})"
        if undecided
        else "the interval reaches from below XS to above it"
    )
    more = f" and {len(undecided) - 1} more" if len(undecided) > 1 else ""
    seen = (
        f" The smallest effect this run could see is {percent(smallest_pct, signed=False)}."
        if smallest_pct
        else ""
    )
    return f"{comparison}; {why}{more}.{seen}"


def unconfirmed(first: tuple[GateResult, ...], fresh: bool) -> str:
    """A gate failed once. ``fresh``: a second measurement was made and did not fail on it."""
    gate, why = first[0].name, first[0].reason.rstrip(".")
    if fresh:
        return f"{gate} failed in the first measurement ({why}) but not in a fresh second one."
    return f"{gate} failed ({why}); a failure counts only after a fresh second measurement."


def rejected(gate: GateResult, others: int) -> str:
    more = (
        f" {others} more gate{'s' if others > 1 else ''} failed in both measurements too." if others else ""
    )
    return f"{gate.reason.rstrip('.')}. It failed in two independent measurements.{more}"


def unscorable(gate: GateResult) -> str:
    return (
        f"Nothing was judged, because the run itself is not valid ({gate.name}): {gate.reason.rstrip('.')}."
    )


def stopped(error: str) -> str:
    return f"The measurement stopped: {error.rstrip('.')}. The change was not judged."


def launch_failed(stage: str, detail: str, times: int) -> str:
    return (
        f"The candidate's worker failed {times} times, at last while it was to {stage}: {detail.rstrip('.')}."
    )


def baseline_launch_failed(stage: str, detail: str, times: int) -> str:
    return (
        f"main's own worker failed {times} times, at last while it was to {stage}: {detail.rstrip('.')}. "
        "The change was not judged."
    )


def unmeasured(axes: Iterable[str], fault: GateResult | None = None) -> str:
    """``fault`` is a gate that failed in the same run, which often says why the values are missing."""
    missing = listing(axis_title(axis) for axis in axes) or "any axis"
    why = f" {fault.name} failed: {fault.reason}" if fault else ""
    return f"The run lacks {missing} on at least one arm, and an incomplete run judges nobody.{why}"


def moved_by(found: Decomposition) -> str:
    """``tau x0.998, time per round x0.908: mostly step cost``."""
    return (
        f"tau x{found.tau_ratio:.3f} ({found.rounds[1]} rounds against {found.rounds[0]}), "
        f"time per round x{found.round_ratio:.3f}: mostly {found.attributed_to}"
    )


def listing(paths: Iterable[str]) -> str:
    """Up to five paths, then a count."""
    found = list(paths)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(found[:5]) + more
