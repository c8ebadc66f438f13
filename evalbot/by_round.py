"""What happened in DSpark's rounds, case by case: values for the record, and a fold for the Markdown."""

from __future__ import annotations

from evalbot.comment import escape
from evalbot.types import Acceptance, Record
from harness import compare
from harness.metrics import acceptance as rounds
from harness.schema import Arm, HarnessResult

DEFINITIONS = {"tau": rounds.TAU}
HEADER = (
    "case",
    "arm",
    "rounds",
    "tau",
    "proposed per round",
    "rounds without a draft",
    "rounds by accepted drafts",
    "share accepted at depth",
)
UNKNOWN = "not known"


def acceptance(runs: tuple[HarnessResult, ...]) -> tuple[Acceptance, ...]:
    """Of the run that is shown: each case and arm that spoke with DSpark, in the order of the plan."""
    if not runs:
        return ()
    run = runs[-1]
    found = (_pooled(run, case.name, arm) for case in run.plan.cases for arm in compare.ARMS)
    return tuple(item for item in found if item is not None)


def folded(record: Record) -> str:
    """A folded table in Markdown; empty where no round was seen."""
    if not record.acceptance:
        return ""
    lines = [HEADER, ("---",) * len(HEADER), *(_cells(item) for item in record.acceptance)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    said = "\n".join(escape(sentence) for sentence in record.definitions.values())
    return f"\n<details><summary>Acceptance, round by round</summary>\n\n{table}\n\n{said}\n\n</details>\n"


def _pooled(run: HarnessResult, case: str, arm: Arm) -> Acceptance | None:
    found = rounds.pooled(compare.of(run, case, arm, "dspark"))
    if found is None:
        return None
    return Acceptance(
        case=case,
        arm=arm,
        rounds=found.rounds,
        committed_tokens=found.committed,
        accepted_drafts=found.accepted,
        histogram=found.histogram,
        proposed_drafts=found.proposed,
        idle_rounds=found.idle_rounds,
        survival=found.survival,
    )


def _cells(item: Acceptance) -> tuple[str, ...]:
    proposed, idle, survival = item.proposed_drafts, item.idle_rounds, item.survival
    return (
        escape(item.case),
        {"baseline": "main", "candidate": "this change"}[item.arm],
        str(item.rounds),
        f"{item.committed_tokens / item.rounds:.3f}",
        UNKNOWN if proposed is None else f"{proposed / item.rounds:.3f}",
        UNKNOWN if idle is None else str(idle),
        ", ".join(f"{drafts}: {count}" for drafts, count in enumerate(item.histogram)),
        UNKNOWN
        if survival is None
        else ", ".join(f"{depth}: {share:.2f}" for depth, share in enumerate(survival, 1)),
    )
