"""The instrument against its own bars: ``python -m evalbot.bench_stats [--trials N] [--out FILE]``.

Every row is a scenario, what is counted over its trials, and the bar. Prints a Markdown table; exit status 1
if any bar is missed. A benchmark and no test: a rate near its bar may fall on either side of it by luck.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scipy import stats as distributions

from evalbot.scenarios import BUILT_IN, PLAN
from evalbot.simulate import Summary, merged, simulate
from evalbot.types import Outcome
from harness.plans import PLANS
from harness.schema import Policy, RunPlan

_PARTS = 16
"""Parts that a scenario's trials are split into; their seeds do not depend on the number of processes."""


@dataclass(frozen=True)
class Row:
    """One line of the table. ``share``: the value is a share of the trials."""

    scenario: str
    claim: str
    bar: str
    value: Callable[[Summary], float]
    met: Callable[[float], bool]
    share: bool = True


def _tier(seen: Summary) -> float:
    return 1 - seen.tiers.get("no tier", 0) / seen.trials


def _outcome(*names: str) -> Callable[[Summary], float]:
    return lambda seen: sum(count for name, count in seen.outcomes.items() if name in names) / seen.trials


def _at_most(bar: float) -> Callable[[float], bool]:
    return lambda value: value <= bar


def _at_least(bar: float) -> Callable[[float], bool]:
    return lambda value: value >= bar


def _coverage(seen: Summary) -> float:
    return seen.coverage


def _pairs(seen: Summary) -> float:
    return seen.pairs_median


_A_A = ("null", "null-linear", "null-walk", "null-thermal", "null-prompts")

ROWS: tuple[Row, ...] = (
    *(Row(name, "any tier", "<= 1 %", _tier, _at_most(0.01)) for name in _A_A),
    *(Row(name, "reject", "<= 0.5 %", _outcome("reject"), _at_most(0.005)) for name in _A_A),
    Row("gain-3", "improved", ">= 95 %", _outcome("improved"), _at_least(0.95)),
    Row("loss-3", "reject", ">= 95 %", _outcome("reject"), _at_least(0.95)),
    *(
        Row(name, "95 % interval holds the truth", "93-98 %", _coverage, lambda value: 0.93 <= value <= 0.98)
        for name in (*_A_A, "gain-3", "loss-3", "gain-6")
    ),
    Row("guards-minus-1", "reject", "<= 1 %", _outcome("reject"), _at_most(0.01)),
    Row("winner-of-10", "any tier", "<= 1 %", _tier, _at_most(0.01)),
    Row("gain-6", "median pairs", "<= 10", _pairs, _at_most(10), share=False),
    Row("bad-box", "any tier or reject", "<= 1 %", _outcome("improved", "reject"), _at_most(0.01)),
    Row("bad-box-gain-6", "none or reject", "<= 1 %", _outcome("none", "reject"), _at_most(0.01)),
)


SHIPPED = ("cpu-quick", "cpu", "gpu-4k")
SHIPPED_ROWS: tuple[tuple[str, Outcome], ...] = (
    ("null", "none"),
    ("gain-3", "improved"),
    ("gain-6", "improved"),
    ("loss-3", "reject"),
)


def run(trials: int, workers: int, seed: int = 1) -> tuple[dict[str, Summary], dict[str, dict[str, Summary]]]:
    """Every scenario of the table, that of ten candidates with fewer trials, and the shipped plans.

    Returns summaries by scenario, and by shipped plan and scenario.
    """
    with ProcessPoolExecutor(workers) as pool:

        def many(name: str, count: int, plan: RunPlan) -> Summary:
            part = max(1, count // _PARTS)
            jobs = [
                pool.submit(simulate, BUILT_IN[name], part, seed * _PARTS + index, Policy(), plan=plan)
                for index in range(_PARTS)
            ]
            found = merged([job.result() for job in jobs])
            print(f"{plan.name}, {name}: {found.outcomes}", file=sys.stderr, flush=True)
            return found

        names = dict.fromkeys(row.scenario for row in ROWS)
        found = {
            name: many(name, trials // (5 if BUILT_IN[name].candidates > 1 else 1), PLAN) for name in names
        }
        shipped = {
            plan: {name: many(name, trials // 10, PLANS[plan]) for name, _ in SHIPPED_ROWS}
            for plan in SHIPPED
        }
    return found, shipped


def shipped_table(found: dict[str, dict[str, Summary]]) -> str:
    """Markdown: how often each shipped plan reaches the outcome that is true. No bars: short plans cannot."""
    lines = [
        f"| plan | {' | '.join(f'{name}: {outcome}' for name, outcome in SHIPPED_ROWS)} | trials |",
        f"|---|{'---|' * (len(SHIPPED_ROWS) + 1)}",
    ]
    for plan, rows in found.items():
        shares = [
            _share(rows[name].outcomes.get(outcome, 0) / rows[name].trials, rows[name].trials)
            for name, outcome in SHIPPED_ROWS
        ]
        lines.append(f"| {plan} | {' | '.join(shares)} | {rows[SHIPPED_ROWS[0][0]].trials} |")
    return "\n".join(lines) + "\n"


def table(found: dict[str, Summary]) -> tuple[str, bool]:
    """Markdown and whether every bar is met. A share is shown with its exact 95 % interval."""
    lines = ["| scenario | what | bar | measured | trials | |", "|---|---|---|---|---|---|"]
    good = True
    for row in ROWS:
        seen = found[row.scenario]
        value = row.value(seen)
        met = row.met(value)
        good = good and met
        shown = _share(value, seen.trials) if row.share else f"{value:g}"
        mark = "met" if met else "**missed**"
        lines.append(f"| {row.scenario} | {row.claim} | {row.bar} | {shown} | {seen.trials} | {mark} |")
    return "\n".join(lines) + "\n", good


def _share(value: float, trials: int) -> str:
    exact = distributions.binomtest(round(value * trials), trials).proportion_ci(method="exact")
    return f"{100 * value:.2f} % [{100 * exact.low:.2f}, {100 * exact.high:.2f}]"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m evalbot.bench_stats", description=__doc__)
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a page whose table is replaced")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    found, shipped = run(options.trials, options.workers)
    text, good = table(found)
    text += f"\nShipped plans under the same noise, without bars:\n\n{shipped_table(shipped)}"
    took = time.monotonic() - started
    stamp = (
        f"Measured {datetime.now(UTC):%Y-%m-%d} in {took / 60:.0f} minutes with {options.workers} processes, "
        f"Python {platform.python_version()}.\n"
    )
    print(f"{text}\n{stamp}")
    if options.out is not None:
        _replace(options.out, f"{text}\n{stamp}")
    return 0 if good else 1


def _replace(page: Path, text: str) -> None:
    """Puts ``text`` between the page's two markers."""
    begin, end = "<!-- bench-stats -->\n", "<!-- /bench-stats -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
