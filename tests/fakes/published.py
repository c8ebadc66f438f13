"""Published evaluations of others, as the file states them. None: the record does not say."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from harness import compare
from harness.schema import Frozen

FILE = Path(__file__).parent.parent / "data" / "public_records.jsonl"
Kind = Literal["dspark", "ar", "prefill"]


class Pair(Frozen, frozen=True):
    axis: str
    pr: float | None
    main: float | None

    @property
    def kind(self) -> Kind:
        mode, _, what = self.axis.partition("@")[0].partition("-")
        return "prefill" if what == "prefill" else "dspark" if mode == "dspark" else "ar"

    @property
    def name(self) -> str:
        return compare.axis(self.axis, self.kind)

    @property
    def gain_pct(self) -> float | None:
        return 100 * (self.pr / self.main - 1) if self.pr and self.main else None


class Guard(Frozen, frozen=True):
    name: str
    context: str
    decode_tok_s: float | None
    prefill_tok_s: float | None
    passed: bool
    measured: bool | None


class PublicRecord(Frozen, frozen=True):
    """One line of the file; tests/data/PUBLIC_RECORDS.md defines the fields."""

    id: str
    pr: int
    run: int
    date: str
    source: tuple[str, ...]
    excerpt_truncated: bool
    axis: str
    axis_inferred: bool
    context: str
    declared_axes: tuple[str, ...]
    axes: tuple[Pair, ...]
    pr_dspark_tok_s: float
    main_dspark_tok_s: float
    pr_ar_tok_s: float | None
    main_ar_tok_s: float | None
    dspark_vs_ar: float | None
    pr_tau: float | None
    main_tau: float | None
    tau_ceiling: int | None
    top1: float | None
    kl: float | None
    lossless: bool | None
    lossless_runs: int | None
    guards: tuple[Guard, ...]
    published_label: str
    published_delta_pct: float | None
    published_reason: str | None
    conditions: tuple[str, ...]
    rows_contradict: tuple[str, ...]
    gates_not_stated: tuple[str, ...]
    axis_gain_pct: float | None
    best_dspark_gain_pct: float | None
    borderline: bool
    rule_label: str | None
    rule_evidence: tuple[str, ...]
    consistent: bool | None
    right_outcome: str
    why: str

    @property
    def scored(self) -> Pair:
        """DSpark decode where AR and tau were taken: at 16k where there are several contexts."""
        decode = [pair for pair in self.axes if pair.kind == "dspark"]
        return next((pair for pair in decode if pair.axis.endswith("@16k")), decode[0])

    def contradicts(self, subject: str) -> bool:
        """Whether the record's own rows contradict what it states of ``subject``."""
        return any(row.startswith(subject) for row in self.rows_contradict)


RECORDS = tuple(
    msgspec.json.decode(line, type=PublicRecord) for line in FILE.read_bytes().splitlines() if line.strip()
)


def _spreads_pct() -> dict[str, float]:
    found: dict[str, float] = {}
    for record in RECORDS:
        for pair in record.axes if record.axis.startswith("cb-") else ():
            if pair.gain_pct is not None:
                found[pair.axis] = max(found.get(pair.axis, 0.0), abs(pair.gain_pct))
    return found


SPREADS_PCT = _spreads_pct()
"""Largest change of each axis between arms that do not differ on it: those of the changes that acted on
concurrent decode, outside of what their records show."""
