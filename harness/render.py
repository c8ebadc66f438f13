"""Values of a run as plain text: ``python -m harness.render RESULT.json``. Needs nothing but the result.

A number is shown with its interval and n, with as many decimals as keep it on its own side of a bar.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from harness import compare, gates
from harness.schema import Comparison, GateResult, HarnessResult, Measurement, Policy

ABSENT = "not measured"
DECIMALS = {"tok/s": 1, "ms": 2, "MB": 0}


def measurement(value: Measurement | None) -> str:
    """``112.4 tok/s [111.9, 113.0] n=16``."""
    if value is None:
        return ABSENT
    digits = DECIMALS.get(value.unit, 3)
    interval = value.interval
    spread = f" [{interval.low:.{digits}f}, {interval.high:.{digits}f}]" if interval else ""
    unit = f" {value.unit}" if value.unit else ""
    return f"{value.value:.{digits}f}{unit}{spread} n={value.n}"


def comparison(value: Comparison | None) -> str:
    """``+4.2 % [+3.1, +5.3] 8 pairs``."""
    if value is None:
        return ABSENT
    interval = value.interval
    spread = f" [{100 * (interval.low - 1):+.2f}, {100 * (interval.high - 1):+.2f}]" if interval else ""
    pairs = f" {value.pairs} pairs" if value.pairs else ""
    return f"{100 * (value.ratio - 1):+.2f} %{spread}{pairs}"


def beside(value: float, bar: float, digits: int = 2) -> str:
    """``value`` with enough decimals to stay on its side of ``bar``: 9.9996 beside 10 is not 10.00."""
    while digits < 12:
        text = f"{value:.{digits}f}"
        if (float(text) >= bar) == (value >= bar):
            return text
        digits += 1
    return repr(value)


def table(result: HarnessResult, policy: Policy) -> list[tuple[str, str, str, str]]:
    """Rows of (axis, main, candidate, candidate against main) of everything that was measured."""
    measured = compare.measurements(result, policy)
    compared = compare.comparisons(result, policy)
    names = dict.fromkeys(item.name for item in measured)
    return [
        (
            name,
            measurement(compare.value_of(measured, name, "baseline")),
            measurement(compare.value_of(measured, name, "candidate")),
            comparison(compare.find(compared, name)),
        )
        for name in names
    ]


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
