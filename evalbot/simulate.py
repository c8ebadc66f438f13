"""Monte-Carlo of the judge: pairs drawn from a noise model, everything after them real.

A trial is one evaluation: launches of every case to its first look, further looks where the real rule asks
for them, the real gates and verdict, and a fresh second measurement where a gate failed. Tokens are those of
two engines that agree; what is drawn are times.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evalbot.scenarios import PLAN, SCORED, Scenario, timed
from evalbot.score import Seen, decide
from evalbot.types import Facts, Outcome, Verdict
from harness import compare, gates, noise, paired, sequential
from harness.paired import Axis, Looks, Pair
from harness.schedule import coin
from harness.schema import Case, Comparison, Interval, Policy


@dataclass(frozen=True)
class Trial:
    """One simulated evaluation."""

    verdict: Verdict
    headline: Comparison
    pairs: int
    """Pairs of the scored case in the measurement that decided."""


@dataclass(frozen=True)
class Summary:
    """Many trials. ``coverage``: of the 95 % interval; ``bounds_coverage``: of the bounds over all looks."""

    trials: int
    outcomes: dict[Outcome, int]
    tiers: dict[str, int]
    coverage: float
    bounds_coverage: float
    gain_bias_pct: float
    pairs: tuple[int, ...]
    """Of the scored case, trial by trial."""

    @property
    def pairs_median(self) -> float:
        return statistics.median(self.pairs)


def merged(parts: Sequence[Summary]) -> Summary:
    """Summaries of one scenario's parts, of equal or different sizes, as one."""
    trials = sum(part.trials for part in parts)

    def mean(name: str) -> float:
        return math.fsum(getattr(part, name) * part.trials for part in parts) / trials

    return Summary(
        trials=trials,
        outcomes=dict(sum((Counter(part.outcomes) for part in parts), Counter())),
        tiers=dict(sum((Counter(part.tiers) for part in parts), Counter())),
        coverage=mean("coverage"),
        bounds_coverage=mean("bounds_coverage"),
        gain_bias_pct=mean("gain_bias_pct"),
        pairs=tuple(count for part in parts for count in part.pairs),
    )


def simulate(
    scenario: Scenario,
    trials: int,
    seed: int,
    policy: Policy,
    report: Callable[[int], None] = lambda done: None,
) -> Summary:
    """``trials`` evaluations from ``seed``; ``report`` hears how many are done."""
    outcomes: Counter[Outcome] = Counter()
    tiers: Counter[str] = Counter()
    truth = 1 + scenario.gains_pct.get(SCORED, 0.0) / 100
    inside = bounded = 0
    gains, pairs = [], []
    for number in range(trials):
        seen = trial(scenario, seed * 1_000_003 + number, policy)
        outcomes[seen.verdict.outcome] += 1
        tiers[seen.verdict.tier or "no tier"] += 1
        inside += _holds(seen.headline.interval, truth)
        bounded += _holds(seen.headline.bounds, truth)
        gains.append(100 * (seen.headline.ratio - truth))
        pairs.append(seen.pairs)
        report(number + 1)
    return Summary(
        trials=trials,
        outcomes=dict(outcomes),
        tiers=dict(tiers),
        coverage=inside / trials,
        bounds_coverage=bounded / trials,
        gain_bias_pct=statistics.fmean(gains),
        pairs=tuple(pairs),
    )


def trial(scenario: Scenario, seed: int, policy: Policy) -> Trial:
    """One evaluation, or one round of several candidates and the winner's re-measurement."""
    fields = [_evaluation(scenario, f"{seed}/{number}", policy) for number in range(scenario.candidates)]
    if scenario.candidates == 1:
        return fields[0]
    improved = [each for each in fields if each.verdict.tier is not None]
    if not improved:
        return fields[0]
    # All candidates are equal, so a fresh measurement of any of them is one of the winner.
    return _evaluation(scenario, f"{seed}/again", policy)


def _evaluation(scenario: Scenario, seed: str, policy: Policy) -> Trial:
    runs = [_measurement(scenario, f"{seed}/measure", policy)]
    if runs[0].failed:
        runs.append(_measurement(scenario, f"{seed}/confirm", policy))
    headline = runs[-1].headline
    assert headline is not None
    return Trial(decide(tuple(runs), policy, Facts()), headline, headline.pairs)


def _measurement(scenario: Scenario, key: str, policy: Policy) -> Seen:
    """One run of the plan, look by look, by the rules that the manager follows."""
    machine = _Machine(scenario, key)
    quads = {case.name: machine.run(case, case.quads) for case in PLAN.cases}
    while True:
        axes = machine.axes(quads, policy)
        judged = (*gates.floors(PLAN, axes, policy), *gates.guards(PLAN, axes, policy))
        due = sequential.due(PLAN, axes, judged, policy)
        if not due:
            break
        for case in PLAN.cases:
            if case.name in due:
                quads[case.name] = machine.run(case, next(q for q in case.looks if q > quads[case.name]))
    failed = tuple(gate for gate in judged if gate.state == "FAIL")
    return Seen(gates=judged, failed=failed, headline=axes[SCORED].comparison)


class _Machine:
    """Draws launches one after the other and keeps the pairs they make."""

    def __init__(self, scenario: Scenario, key: str) -> None:
        self._gains = {axis: math.log1p(gain / 100) for axis, gain in scenario.gains_pct.items()}
        self._kinds = {case.name: timed(case) for case in PLAN.cases}
        self._key, self._launches, self._taus = key, 0, scenario.taus
        rows = sum(len(kinds) for kinds in self._kinds.values())
        planned = sum(4 * case.quads for case in PLAN.cases)
        most = sum(4 * case.looks[-1] for case in PLAN.cases)
        drawn = np.random.default_rng([*key.encode()]).integers(2**32)
        self._slowness = noise.slowness_of_axes(scenario.noise, int(drawn), most, rows, horizon=planned)
        self._row = {
            compare.axis(case.name, kind): index
            for index, (case, kind) in enumerate(
                (case, kind) for case in PLAN.cases for kind in self._kinds[case.name]
            )
        }
        self._pairs: dict[str, list[Pair]] = {axis: [] for axis in self._row}
        self._done: Counter[str] = Counter()

    def run(self, case: Case, quads: int) -> int:
        """Runs a case up to ``quads`` and returns that."""
        for quad in range(self._done[case.name], quads):
            first = coin(0, self._key, case.name, quad)
            for half in (0, 1):
                candidate_first = first != (half == 0)
                for kind in self._kinds[case.name]:
                    self._pair(compare.axis(case.name, kind), quad, candidate_first)
                self._launches += 2
        self._done[case.name] = quads
        return quads

    def _pair(self, axis: str, quad: int, candidate_first: bool) -> None:
        one, two = (-float(s) for s in self._slowness[self._row[axis], self._launches : self._launches + 2])
        main, candidate = (two, one) if candidate_first else (one, two)
        gain = self._gains.get(axis, 0.0)
        self._pairs[axis].append(Pair(quad, main, candidate + gain, candidate_first))

    def axes(self, quads: dict[str, int], policy: Policy) -> dict[str, Axis]:
        found = {}
        for case in PLAN.cases:
            looks = Looks.reached(case.looks, quads[case.name])
            for kind in self._kinds[case.name]:
                name = compare.axis(case.name, kind)
                found[name] = paired.judge(
                    name, compare.UNITS[kind], self._pairs[name], [], looks, policy.confidence
                )
        main, candidate = self._taus
        for kind, bonus in (("tau", 0), ("accepted", 1)):
            name = compare.axis("scored", kind)
            counted = Comparison(
                name=name,
                unit=compare.UNITS[kind],
                baseline=main - bonus,
                candidate=candidate - bonus,
                ratio=(candidate - bonus) / (main - bonus),
                interval=None,
                pairs=0,
            )
            found[name] = Axis(counted, None, Looks((1,), 0))
        return found


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high
