"""Record -> the rows a person reads, as text without layout. The table and the Markdown share them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evalbot import sentences
from evalbot.types import Record
from harness import compare, figures, gates
from harness.figures import ABSENT, Derived
from harness.schema import Arm, Case, Comparison, GateResult

AXES = ("axis", "main", "this change", "against main", "could see")
TIMED = ("dspark", "ar", "round")
GATES = ("gate", "state", "observed", "bar")


@dataclass(frozen=True)
class Row:
    """One axis: main, the change, the change against main, and the smallest effect that could be seen."""

    title: str
    main: str
    change: str
    against: str = ""
    could_see: str = ""

    @property
    def absent(self) -> bool:
        """Whether an arm lacks the value."""
        return ABSENT in (self.main, self.change)

    @property
    def cells(self) -> tuple[str, ...]:
        """One for each of ``AXES``."""
        return self.title, self.main, self.change, self.against, self.could_see


def summary(record: Record) -> list[tuple[str, str]]:
    """What was judged, and how it may be judged again: pairs of title and text."""
    found = [
        ("label", record.verdict.label),
        ("scored at", _scored_at(record)),
        *_arms(record),
    ]
    if record.runs:
        found.append(("measured", sentences.measured(tuple(run.seed for run in record.runs))))
        found += _ended_early(record)
        found += _moved_by(record)
        found += _order_effect(record)
    return found


def _ended_early(record: Record) -> list[tuple[str, str]]:
    settled = record.runs[-1].settled
    return [("ended early", sentences.ended_early(settled))] if settled else []


def _arms(record: Record) -> list[tuple[str, str]]:
    identity, request = record.identity, record.request
    if record.facts.emulated:
        return [("change", request.head), ("main", request.base)]
    change = f"{request.head} {_short(identity.head_sha)}, merged tree {_short(identity.merge_tree_sha)}"
    return [("change", change), ("main", f"{request.base} {_short(identity.base_sha)}")]


def axes(record: Record) -> list[Row]:
    """Every axis of the run that is shown: the scored case first, then the guards."""
    if not record.runs:
        return []
    run = record.runs[-1]
    case = compare.scored_case(run)
    rows = _scored(record, case) if case else []
    for guard in run.plan.cases:
        if guard.role == "guard":
            for metric in guard.metrics:
                kind = gates.guarded_kind(guard, metric)
                title = f"guard {guard.name}: {sentences.KINDS[kind]}, {compare.UNITS[kind]}"
                rows.append(_compared(record, compare.axis(guard.name, kind), title))
    rows.append(_valued(record, "accuracy:ppl", "perplexity"))
    return rows


def gate_rows(record: Record) -> list[tuple[str, str, str, str]]:
    """Name, state, what was seen, bar. Where nothing was seen, why not."""
    return [(gate.name, _state(gate), gate.observed or gate.reason, gate.bar) for gate in record.gates]


def _state(gate: GateResult) -> str:
    if gate.undecided:
        return "undecided"
    return {"PASS": "pass", "FAIL": "FAIL", "NOT_RUN": "not run"}[gate.state]


def publishable(record: Record) -> str:
    """Whether this machine may publish the numbers; empty where there are none."""
    return sentences.publishable(record.publishable, record.publishable_reason) if record.runs else ""


def reproduce(record: Record) -> str:
    """The command that measures the same thing again."""
    request = record.request
    head = request.head
    if not head.startswith("--") and record.identity.head_sha:
        head = record.identity.head_sha[:12]
    parts = ["evalbot score", head]
    if not record.facts.emulated:
        parts += ["--base", (record.identity.base_sha or request.base)[:12]]
    if request.plan:
        parts += ["--plan", request.plan]
    if record.runs:
        parts += ["--seed", str(record.runs[0].seed)]
    return " ".join(parts)


def could_see(found: Comparison | None) -> str:
    """The smallest effect that the axis could show, where it shows none."""
    if found is None or found.smallest_effect is None or found.bounds is None:
        return ""
    return sentences.smallest(found.smallest_effect) if found.bounds.low <= 1 <= found.bounds.high else ""


def _moved_by(record: Record) -> list[tuple[str, str]]:
    """What moved the scored rate, where it moved beyond its interval: acceptance or the cost of a round.

    By the same estimates as the rows of tau and of time per round, so that the two cannot disagree.
    """
    run = record.runs[-1]
    headline = compare.headline(record.comparisons, run)
    if headline is None or headline.interval is None or headline.interval.low <= 1 <= headline.interval.high:
        return []
    case = headline.name.partition(":")[0]
    found = compare.decompose(run, case)
    tau, step = (compare.find(record.comparisons, compare.axis(case, kind)) for kind in ("tau", "round"))
    if found is None or tau is None or step is None:
        return []
    shown = replace(found, tau_ratio=tau.ratio, round_ratio=step.ratio)
    return [("moved by", sentences.moved_by(shown))]


def _order_effect(record: Record) -> list[tuple[str, str]]:
    """What running second did to each timed axis of the scored case."""
    case = compare.scored_case(record.runs[-1])
    kinds = (
        [(kind, compare.find(record.comparisons, compare.axis(case.name, kind))) for kind in TIMED]
        if case
        else []
    )
    effects = [(kind, axis.order_effect) for kind, axis in kinds if axis and axis.order_effect is not None]
    return [("order effect", sentences.running_second(effects))] if effects else []


def _scored_at(record: Record) -> str:
    if not record.runs:
        return "nothing was measured"
    plan = record.runs[-1].plan
    case = compare.scored_case(record.runs[-1])
    if case is None:
        return f"plan {plan.name} scores no case"
    return (
        f"DSpark decode of {case.model}, context {case.context_tokens}, {case.new_tokens} new tokens, "
        f"{', '.join(case.domains)} (plan {plan.name})"
    )


def _scored(record: Record, case: Case) -> list[Row]:
    rates = _extra_of_rates(record, case)

    def axis(kind: str, title: str, extra: int | None = None) -> Row:
        return _compared(record, compare.axis(case.name, kind), title, extra)

    rows = [
        axis("dspark", "DSpark decode, tok/s", rates),
        axis("ar", "AR decode, tok/s", rates),
        _dspark_vs_ar(record, case),
        axis("tau", _tau_title(record)),
        axis("accepted", "accepted drafts/round"),
        axis("round", "time per round, ms"),
    ]
    return rows + [axis(f"tau:{domain}", f"tau, {domain}") for domain in case.domains]


def _extra_of_rates(record: Record, case: Case) -> int:
    """Digits of both rates that give both changes and both ratios of DSpark to AR as they are shown."""
    dspark, ar = (
        [compare.value_of(record.measurements, compare.axis(case.name, kind), arm) for arm in compare.ARMS]
        for kind in ("dspark", "ar")
    )
    derived: list[Derived] = [
        (above.value, below.value, figures.times)
        for above, below in zip(dspark, ar, strict=True)
        if above and below
    ]
    for main, changed in (dspark, ar):
        if main and changed:
            derived.append((changed.value, main.value, figures.change))
    return figures.extra_digits(derived)


def _compared(record: Record, axis: str, title: str, extra: int | None = None) -> Row:
    """``extra``: digits beyond four of both values; None: as many as their change needs."""
    found = compare.find(record.comparisons, axis)
    if extra is None:
        extra = figures.extra_digits([(found.candidate, found.baseline, figures.change)] if found else [])
    row = _valued(record, axis, title, extra)
    against = figures.comparison(found) if found else ""
    return replace(row, against=against, could_see=could_see(found))


def _valued(record: Record, axis: str, title: str, extra: int = 0) -> Row:
    main, change = (
        figures.measurement(compare.value_of(record.measurements, axis, arm), extra) for arm in compare.ARMS
    )
    return Row(title, main, change)


def _dspark_vs_ar(record: Record, case: Case) -> Row:
    def ratio(arm: Arm) -> str:
        dspark, ar = (
            compare.value_of(record.measurements, compare.axis(case.name, kind), arm)
            for kind in ("dspark", "ar")
        )
        return figures.times(dspark.value / ar.value) if dspark and ar else ABSENT

    return Row("DSpark against AR", ratio("baseline"), ratio("candidate"))


def _tau_title(record: Record) -> str:
    """tau with its ceiling: every proposal accepted, and the bonus token."""
    reported = {launch.engine.block_size for run in record.runs for launch in run.launches if launch.engine}
    return f"tau (ceiling {max(reported) + 1})" if reported else "tau"


def _short(sha: str | None) -> str:
    return sha[:12] if sha else "unknown"
