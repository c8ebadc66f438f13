"""Simulations -> terminal and JSON."""

from __future__ import annotations

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evalbot.scenarios import Scenario
from evalbot.simulate import Summary
from evalbot.types import EXIT_CODES


def document(found: Summary) -> str:
    """The summary as JSON; outcomes and tiers are numbers of trials."""
    values = {
        "trials": found.trials,
        "outcomes": {outcome: found.outcomes.get(outcome, 0) for outcome in EXIT_CODES},
        "tiers": dict(sorted(found.tiers.items())),
        "coverage": found.coverage,
        "bounds_coverage": found.bounds_coverage,
        "gain_bias_pct": found.gain_bias_pct,
        "pairs_median": found.pairs_median,
    }
    return msgspec.json.encode(values).decode() + "\n"


def show(name: str, scenario: Scenario, found: Summary, console: Console) -> None:
    """Outcome rates and what the numbers of a verdict are worth under this scenario."""
    console.print(Text(f"{name}: {scenario.description or 'no description'}, {found.trials} evaluations"))
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for outcome in EXIT_CODES:
        count = found.outcomes.get(outcome, 0)
        if count or outcome != "build-failed":
            table.add_row(outcome, share(count, found.trials))
    for tier, count in sorted(found.tiers.items()):
        if tier != "no tier":
            table.add_row(f"  tier {tier}", share(count, found.trials))
    table.add_row("95% interval holds the truth", f"{100 * found.coverage:.1f}%")
    table.add_row("bounds over all looks hold it", f"{100 * found.bounds_coverage:.1f}%")
    table.add_row("bias of the shown gain", f"{found.gain_bias_pct:+.3f} points")
    table.add_row("pairs, median", f"{found.pairs_median:g}")
    console.print(table)


def share(count: int, trials: int) -> str:
    return f"{100 * count / trials:.2f}%"
