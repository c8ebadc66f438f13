"""Record -> the rows a person reads, as text without layout. The table and the Markdown share them."""

from __future__ import annotations

from dataclasses import dataclass

from evalbot import sentences
from evalbot.types import Record
from harness import compare
from harness.schema import Arm, Case, Comparison, GateResult, Measurement

ABSENT = "not measured"


@dataclass(frozen=True)
class Row:
    """One axis: main, the change, and the change against main."""

    title: str
    main: str
    change: str
    against: str = ""


def summary(record: Record) -> list[tuple[str, str]]:
    """What was judged, and how it may be judged again: pairs of title and text."""
    found = [
        ("label", record.verdict.label),
        ("scored at", _scored_at(record)),
        *_arms(record),
    ]
    if record.runs:
        seeds = ", ".join(str(run.seed) for run in record.runs)
        found.append(
            ("measured", f"{len(record.runs)} time{'s' if len(record.runs) > 1 else ''}, seed {seeds}")
        )
        found += _moved_by(record)
    return found


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
            for kind in _guard_kinds(guard):
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


def value(measured: Measurement | None, extra: int = 0) -> str:
    """``112.4 [111.9, 113.0] n=16``; the unit stands in the row's title. ``extra``: digits of the value."""
    if measured is None:
        return ABSENT
    bounds = measured.interval
    spread = f" [{sentences.number(bounds.low)}, {sentences.number(bounds.high)}]" if bounds else ""
    return f"{sentences.number(measured.value, extra)}{spread} n={measured.n}"


def against(found: Comparison | None) -> str:
    """``+10.08% [+9.20%, +11.00%] n=8``, n being pairs, or prompts for counts per round."""
    if found is None:
        return ""
    text = sentences.percent(100 * (found.ratio - 1))
    if found.interval is None:
        return text
    return f"{text} {sentences.interval(sentences.in_percent(found.interval))} n={found.pairs}"


def _moved_by(record: Record) -> list[tuple[str, str]]:
    """What moved the scored rate, where it moved beyond its interval: acceptance or the cost of a round."""
    run = record.runs[-1]
    headline = compare.headline(record.comparisons, run)
    if headline is None or headline.interval is None or headline.interval.low <= 1 <= headline.interval.high:
        return []
    found = compare.decompose(run, headline.name.partition(":")[0])
    return [("moved by", sentences.moved_by(found))] if found else []


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
    def axis(kind: str, title: str) -> Row:
        return _compared(record, compare.axis(case.name, kind), title)

    rows = [
        axis("dspark", "DSpark decode, tok/s"),
        axis("ar", "AR decode, tok/s"),
        _dspark_vs_ar(record, case),
        axis("tau", _tau_title(record)),
        axis("accepted", "accepted drafts/round"),
        axis("round", "time per round, ms"),
    ]
    return rows + [axis(f"tau:{domain}", f"tau, {domain}") for domain in case.domains]


def _guard_kinds(guard: Case) -> list[str]:
    decode = "dspark" if "dspark" in guard.modes else "ar"
    return [decode if metric == "decode" else metric for metric in guard.metrics]


def _compared(record: Record, axis: str, title: str) -> Row:
    found = compare.find(record.comparisons, axis)
    extra = sentences.extra_digits(found.baseline, found.candidate) if found else 0
    row = _valued(record, axis, title, extra)
    return Row(row.title, row.main, row.change, against(found))


def _valued(record: Record, axis: str, title: str, extra: int = 0) -> Row:
    main, change = (value(compare.value_of(record.measurements, axis, arm), extra) for arm in compare.ARMS)
    return Row(title, main, change)


def _dspark_vs_ar(record: Record, case: Case) -> Row:
    def ratio(arm: Arm) -> str:
        dspark, ar = (
            compare.value_of(record.measurements, compare.axis(case.name, kind), arm)
            for kind in ("dspark", "ar")
        )
        return f"{dspark.value / ar.value:.3f}x" if dspark and ar else ABSENT

    return Row("DSpark against AR", ratio("baseline"), ratio("candidate"))


def _tau_title(record: Record) -> str:
    """tau with its ceiling: every proposal accepted, and the bonus token."""
    reported = {launch.engine.block_size for run in record.runs for launch in run.launches if launch.engine}
    return f"tau (ceiling {max(reported) + 1})" if reported else "tau"


def _short(sha: str | None) -> str:
    return sha[:12] if sha else "unknown"
