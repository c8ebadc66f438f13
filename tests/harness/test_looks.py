"""The real manager from look to look: on while the answer is open, over when nothing can change it."""

from __future__ import annotations

import msgspec
import pytest

from evalbot.score import reduce, score
from evalbot.types import Facts
from harness import compare, gates
from harness.schema import HarnessResult, Settled
from tests.fakes.emulated import GUARD, GUARD_FIRST, ONCE, POLICY, SCORED, SPEED, measure

LOOKS = msgspec.structs.replace(
    ONCE,
    cases=(msgspec.structs.replace(SCORED, quads=1, more=(2, 3)), msgspec.structs.replace(GUARD, more=(2,))),
)


def quads(run: HarnessResult, case: str) -> set[int]:
    return {sample.quad for sample in run.samples if sample.case == case}


@pytest.fixture(scope="module")
def open_run() -> HarnessResult:
    return measure("c29-a-box-too-noisy", LOOKS)


def test_an_open_answer_takes_every_look_with_fresh_prompts(open_run: HarnessResult) -> None:
    assert quads(open_run, "short") == {0, 1, 2}
    assert quads(open_run, "long") == {0, 1}
    prompts = {(s.quad, s.prompt_id) for s in open_run.samples if s.case == "short"}
    assert len({prompt for _, prompt in prompts}) == len(prompts) == 6
    headline = compare.headline(compare.comparisons(open_run, POLICY), open_run)
    assert headline is not None
    assert (headline.look, headline.looks, headline.pairs) == (3, 3, 6)
    assert open_run.settled is None


def test_a_clear_answer_takes_one_look() -> None:
    case = msgspec.structs.replace(SCORED, quads=2, more=(4,))
    assert quads(measure("faster", msgspec.structs.replace(LOOKS, cases=(case,))), "short") == {0, 1}


def test_a_failed_gate_ends_the_run_and_names_what_was_not_run() -> None:
    run = measure("a11-garbage-at-the-guards-context", GUARD_FIRST)
    assert run.settled == Settled(gate="ar-tokens", not_run=("short",))
    assert quads(run, "short") == set()
    reasons = {gate.name: gate.reason for gate in gates.judge(run, POLICY) if gate.state == "NOT_RUN"}
    assert reasons["tau-floor"] == "Not reached: ar-tokens had failed."
    assert score((run, run), POLICY, Facts()).outcome == "reject"


def test_what_was_spared_is_missing_again_where_the_gate_does_not_fail() -> None:
    run = measure("equal", SPEED)
    forged = msgspec.structs.replace(
        run,
        samples=tuple(s for s in run.samples if s.mode == "ar"),
        settled=Settled(gate="losslessness", not_run=("short", "accuracy")),
    )
    seen = reduce(forged, POLICY)
    assert "short:dspark" in seen.absent
    assert score((forged, forged), POLICY, Facts()).outcome == "error"
