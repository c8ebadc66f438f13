"""Generated runs for property tests of the verdict: pairs of every timed axis, counts, gates of any state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from evalbot.score import Fault, Seen
from harness import compare, gates, paired
from harness.paired import Axis, Looks, Pair
from harness.schema import Comparison, GateResult, Interval, Policy
from tests.fakes.results import PLAN

POLICY = Policy()
TIMED = ("main:dspark", "main:ar", "long:dspark", "long:prefill")
OTHER = ("losslessness", "ar-tokens", "accuracy", "plausibility:clock")
BARS = tuple(getattr(POLICY.tiers_pct, tier) for tier in POLICY.tiers_pct.__struct_fields__)


@dataclass(frozen=True)
class World:
    """One run: log-ratios of the pairs of each timed axis, tau of both arms, and gates that hold no time."""

    pairs: dict[str, tuple[float, ...]]
    taus: tuple[float, float]
    other: tuple[GateResult, ...]

    def faster(self, axis: str, by: float) -> World:
        """The same launches, the candidate's faster by ``by`` in log units on one axis."""
        return replace(self, pairs={**self.pairs, axis: tuple(d + by for d in self.pairs[axis])})

    def seen(self) -> Seen:
        axes = {name: self._axis(name, differences) for name, differences in self.pairs.items()}
        for kind, bonus in (("tau", 0), ("accepted", 1)):
            main, candidate = (tau - bonus for tau in self.taus)
            name = compare.axis("main", kind)
            counted = Comparison(
                name=name, unit=compare.UNITS[kind], baseline=main, candidate=candidate,
                ratio=candidate / main, interval=None, pairs=0,
            )  # fmt: skip
            axes[name] = Axis(counted, None, Looks((1,), 0))
        judged = (*gates.floors(PLAN, axes, POLICY), *gates.guards(PLAN, axes, POLICY), *self.other)
        failed = tuple(gate for gate in judged if gate.state == "FAIL")
        return Seen(gates=judged, failed=failed, headline=axes["main:dspark"].comparison)

    def _axis(self, name: str, differences: tuple[float, ...]) -> Axis:
        made = [
            Pair(number // 2, 4.0, 4.0 + difference, candidate_first=number % 2 == 1)
            for number, difference in enumerate(differences)
        ]
        looks = Looks((len(made),), 0)
        return paired.judge(name, "tok/s", made, [made], looks, POLICY.confidence)


def gate(name: str, state: str, undecided: bool = False) -> GateResult:
    return GateResult(
        name=name, state=state, observed="", bar="", reason=f"{name} is {state}.",
        undecided=undecided and state == "NOT_RUN",
    )  # fmt: skip


KINDS_OF_GATES = ("passed", "passed", "but one", "but one", "any")


@st.composite
def gates_of(draw: st.DrawFn, names: tuple[str, ...], clean: bool = False) -> tuple[GateResult, ...]:
    """One gate for each name: all passed, or all but one, or any."""
    states = dict.fromkeys(names, "PASS")
    kind = "passed" if clean else draw(st.sampled_from(KINDS_OF_GATES))
    if kind != "passed":
        changed = names if kind == "any" else (draw(st.sampled_from(names)),)
        states |= {name: draw(st.sampled_from(["FAIL", "NOT_RUN"])) for name in changed}
    return tuple(gate(name, state, draw(st.booleans())) for name, state in states.items())


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any run. Every second one is clean: quiet, and equal but for the scored speed."""
    clean = draw(st.booleans())
    quads = draw(st.sampled_from([4, 6] if clean else [2, 4, 6]))
    noise = 0.0005 if clean else draw(st.sampled_from([0.0005, 0.004, 0.02]))
    pairs = {}
    for name in TIMED:
        moved = name == "main:dspark" or not clean
        center = draw(st.floats(-0.03, 0.12)) if moved else 0.0
        deviations = draw(st.lists(st.floats(-2.5, 2.5), min_size=2 * quads, max_size=2 * quads))
        pairs[name] = tuple(center + noise * deviation for deviation in deviations)
    main = draw(st.floats(1.5, 4.0))
    taus = (main, main * (1.0 if clean else draw(st.sampled_from([1.0, 1.1, 0.9]))))
    return World(pairs, taus, draw(gates_of(OTHER, clean)))


@st.composite
def comparisons(draw: st.DrawFn, name: str = "main:dspark") -> Comparison:
    """Any comparison. Bounds like to lie at a bar, and in two of three the audits agree."""
    at_a_bar = st.tuples(st.sampled_from(BARS), st.floats(-0.001, 0.001)).map(lambda p: 1 + sum(p) / 100)
    low = draw(st.floats(0.8, 1.3) | at_a_bar | at_a_bar)
    high = draw(st.floats(low, 1.35) | at_a_bar.map(lambda value: max(low, value)))
    ratio = draw(st.sampled_from([low, high, (low * high) ** 0.5]))
    main, sound = draw(st.floats(0.5, 5000.0)), draw(st.sampled_from([True, True, False]))
    quads = 8 if sound else draw(st.sampled_from([1, 4, 8]))
    bounds = Interval(low=low, high=high)
    inside = Interval(low=(low * ratio) ** 0.5, high=(high * ratio) ** 0.5)
    return Comparison(
        name=name, unit="tok/s", baseline=main, candidate=main * ratio, ratio=ratio,
        interval=draw(st.none() | st.just(inside)),
        bounds=bounds if sound else draw(st.none() | st.just(bounds)),
        pairs=2 * quads, quads=quads, look=1, looks=draw(st.sampled_from([1, 5])),
        sign_flip_p=0.0078125 if sound else draw(st.sampled_from([0.0078125, 0.0504, 0.25, None])),
        mean_ratio=ratio, quad_ratio=ratio, unstable=not sound and draw(st.booleans()),
        order_effect=draw(st.none() | st.floats(-0.1, 0.1)),
        smallest_effect=draw(st.none() | st.floats(0.0001, 0.3)),
    )  # fmt: skip


@st.composite
def runs_seen(draw: st.DrawFn) -> Seen:
    """Any run, consistent in itself: what failed is among its gates."""
    judged = draw(gates_of((*OTHER, "ar-floor", "guard:long:decode")))
    fault = Fault("error", "The run is not valid.", "baseline")
    broken = draw(st.sampled_from(["no"] * 12 + ["fault", "absent", "unfit", "headline"]))
    return Seen(
        gates=judged,
        failed=tuple(each for each in judged if each.state == "FAIL"),
        headline=None if broken == "headline" else draw(comparisons()),
        fault=fault if broken == "fault" else None,
        absent=("main:ar",) if broken == "absent" else (),
        unfit="The machine was busy." if broken == "unfit" else None,
    )
