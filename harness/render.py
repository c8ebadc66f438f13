"""Values of a run as plain text: ``python -m harness.render RESULT.json``. Needs nothing but the result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from harness import compare, figures, gates
from harness.schema import Arm, GateResult, HarnessResult, Policy


def table(result: HarnessResult, policy: Policy) -> list[tuple[str, str, str, str]]:
    """Rows of (axis, main, candidate, candidate against main) of everything that was measured."""
    measured = compare.measurements(result, policy)
    compared = compare.comparisons(result, policy)

    def row(name: str) -> tuple[str, str, str, str]:
        found = compare.find(compared, name)
        extra = figures.extra_digits([(found.candidate, found.baseline, figures.change)] if found else [])

        def value(arm: Arm) -> str:
            each = compare.value_of(measured, name, arm)
            return figures.measurement(each, extra, each.unit if each else "")

        against = figures.comparison(found) if found else figures.ABSENT
        return name, value("baseline"), value("candidate"), against

    return [row(name) for name in dict.fromkeys(item.name for item in measured)]


def gate(value: GateResult) -> tuple[str, str, str]:
    return value.name, value.state, value.reason


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Rows as columns two spaces apart."""
    table = [list(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """0, or 2 with a sentence for a file that is no result."""
    if len(arguments) != 1:
        print("usage: python -m harness.render RESULT.json", file=sys.stderr)
        return 2
    try:
        result = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=HarnessResult)
    except (OSError, msgspec.DecodeError) as error:
        print(f"{arguments[0]} is not a harness result: {error}.", file=sys.stderr)
        return 2
    policy = Policy()
    print(aligned([("axis", "main", "candidate", "against main"), *table(result, policy)]))
    print()
    print(aligned(gate(value) for value in gates.judge(result, policy)))
    if result.error is not None:
        print(f"\n{result.error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
