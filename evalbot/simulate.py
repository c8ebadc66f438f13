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
from dataclasses import dataclass, replace

import numpy as np

from evalbot.scenarios import PLAN, SCORED, Scenario, timed
from evalbot.score import Seen, decide
from evalbot.types import Facts, Outcome, Verdict
from harness import compare, gates, noise, paired, sequential, stats
from harness.paired import Acceptance, Axis, Looks, Pair
from harness.schedule import coin
from harness.schema import Case, Comparison, Interval, Policy, RunPlan
from harness.stats import Estimate


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
    plan: RunPlan = PLAN,
) -> Summary:
    """``trials`` evaluations of ``plan`` from ``seed``; ``report`` hears how many are done."""
    outcomes: Counter[Outcome] = Counter()
    tiers: Counter[str] = Counter()
    truth = 1 + scenario.gains_pct.get(SCORED, 0.0) / 100
    inside = bounded = 0
    gains, pairs = [], []
    for number in range(trials):
        seen = trial(scenario, seed * 1_000_003 + number, policy, plan)
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


def trial(scenario: Scenario, seed: int, policy: Policy, plan: RunPlan = PLAN) -> Trial:
    """One evaluation, or one round of several candidates and the winner's re-measurement."""
    names = [f"{seed}/{number}" for number in range(scenario.candidates)]
    field = [_evaluation(scenario, name, policy, plan) for name in names]
    if scenario.candidates == 1 or all(each.verdict.tier is None for each in field):
        return field[0]
    # All candidates are equal, so a fresh measurement of any of them is one of the winner.
    return _evaluation(scenario, f"{seed}/again", policy, plan)


def _evaluation(scenario: Scenario, seed: str, policy: Policy, plan: RunPlan) -> Trial:
    runs = [_measurement(scenario, f"{seed}/measure", policy, plan)]
    if runs[0].failed:
        runs.append(_measurement(scenario, f"{seed}/confirm", policy, plan))
    headline = runs[-1].headline
    assert headline is not None
    return Trial(decide(tuple(runs), policy, Facts()), headline, headline.pairs)


def _measurement(scenario: Scenario, key: str, policy: Policy, plan: RunPlan) -> Seen:
    """One run of the plan, look by look, by the rules that the manager follows."""
    machine = _Machine(scenario, key, plan)
    for case in plan.cases:
        machine.run(case, case.quads)
    while True:
        axes = machine.axes(policy)
        judged = (*gates.floors(plan, axes, policy), *gates.guards(plan, axes, policy))
        due = sequential.due(plan, axes, judged, policy)
        if not due:
            break
        for case in plan.cases:
            if case.name in due:
                machine.run(case, next(q for q in case.looks if q > machine.quads[case.name]))
    failed = tuple(gate for gate in judged if gate.state == "FAIL")
    return Seen(
        gates=judged, failed=failed, headline=axes[compare.axis(scored(plan).name, "dspark")].comparison
    )


def scored(plan: RunPlan) -> Case:
    """The case that the tier is read from."""
    return next(case for case in plan.cases if case.role == "scored")


class _Machine:
    """Draws launches one after the other and keeps the pairs they make."""

    def __init__(self, scenario: Scenario, key: str, plan: RunPlan) -> None:
        self._scenario, self._key, self._plan = scenario, key, plan
        self._timed = [(case, kind) for case in plan.cases for kind in timed(case)]
        self._row = {compare.axis(case.name, kind): row for row, (case, kind) in enumerate(self._timed)}
        planned = sum(4 * case.quads for case in plan.cases)
        most = sum(4 * case.looks[-1] for case in plan.cases)
        dice = np.random.default_rng([*key.encode()])
        self._slowness = noise.slowness_of_axes(
            scenario.noise, int(dice.integers(2**32)), most, len(self._timed), horizon=planned
        )
        self._prompts = {
            case.name: scenario.prompt_sd * dice.standard_normal(case.looks[-1]) for case in plan.cases
        }
        self._pairs: dict[str, list[Pair]] = {axis: [] for axis in self._row}
        self._launches = 0
        self.quads: Counter[str] = Counter()

    def run(self, case: Case, quads: int) -> None:
        """Runs a case up to ``quads``."""
        for quad in range(self.quads[case.name], quads):
            first = coin(0, self._key, case.name, quad)
            for half in (0, 1):
                for kind in timed(case):
                    self._pair(case, kind, quad, candidate_first=first != (half == 0))
                self._launches += 2
        self.quads[case.name] = quads

    def _pair(self, case: Case, kind: str, quad: int, candidate_first: bool) -> None:
        axis = compare.axis(case.name, kind)
        one, two = (-float(s) for s in self._slowness[self._row[axis], self._launches : self._launches + 2])
        main, candidate = (two, one) if candidate_first else (one, two)
        gain = math.log1p(self._scenario.gains_pct.get(f"{case.role}:{kind}", 0.0) / 100)
        if kind == "dspark":
            gain += float(self._prompts[case.name][quad])
        self._pairs[axis].append(Pair(quad, main, candidate + gain, candidate_first))

    def axes(self, policy: Policy) -> dict[str, Axis]:
        """Every axis judged on the pairs so far."""
        found = {}
        for case, kind in self._timed:
            name = compare.axis(case.name, kind)
            found[name] = paired.judge(
                name,
                compare.UNITS[kind],
                self._pairs[name],
                self._of_kind(kind),
                Looks.reached(case.looks, self.quads[case.name]),
                policy.confidence,
                acceptance=self._acceptance(case) if kind == "dspark" else None,
            )
        case = scored(self._plan)
        for kind, bonus in (("tau", 0), ("accepted", 1)):
            name = compare.axis(case.name, kind)
            found[name] = self._counted(case, name, kind, bonus, policy)
        return found

    def _of_kind(self, kind: str) -> list[list[Pair]]:
        return [self._pairs[compare.axis(case.name, each)] for case, each in self._timed if each == kind]

    def _acceptance(self, case: Case) -> Acceptance | None:
        """What the prompts so far did to acceptance, and the pairs without it."""
        if not self._scenario.prompt_sd or self.quads[case.name] < 2:
            return None
        rest = [self._without_prompts(name) for name in (each.name for each in self._plan.cases)]
        own = [each.name for each in self._plan.cases].index(case.name)
        return Acceptance(self._moved(case), rest[own], rest)

    def _moved(self, case: Case) -> Estimate:
        """What the prompts so far did to tau, in log units."""
        return stats.ordinary(self._prompts[case.name][: self.quads[case.name]].tolist())

    def _without_prompts(self, case: str) -> list[Pair]:
        return [
            replace(pair, candidate=pair.candidate - float(self._prompts[case][pair.quad]))
            for pair in self._pairs[compare.axis(case, "dspark")]
        ]

    def _counted(self, case: Case, name: str, kind: str, bonus: int, policy: Policy) -> Axis:
        """tau or accepted drafts: the scenario's, moved by the prompts so far."""
        looks = Looks.reached(case.looks, self.quads[case.name])
        moved = self._moved(case)
        main, candidate = (tau - bonus for tau in self._scenario.taus)
        bounds = moved.bounds(looks.tail(1 - policy.confidence, 1))
        ratio = candidate / main
        counted = Comparison(
            name=name,
            unit=compare.UNITS[kind],
            baseline=main,
            candidate=candidate * math.exp(moved.mean),
            ratio=ratio * math.exp(moved.mean),
            interval=None,
            floor_bounds=bounds
            and Interval(low=ratio * math.exp(bounds.low), high=ratio * math.exp(bounds.high)),
            pairs=self.quads[case.name],
        )
        return Axis(counted, None, looks)


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high
