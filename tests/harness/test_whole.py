"""A run is judged whole or not at all: whatever is left out, doubled or moved is found."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from harness import whole
from harness.schema import HarnessResult, Launch, Sample
from tests.fakes.results import result

replace = msgspec.structs.replace


def samples(run: HarnessResult, change: Callable[[Sample], Sample | None]) -> HarnessResult:
    return replace(run, samples=tuple(s for s in map(change, run.samples) if s is not None))


def launches(run: HarnessResult, change: Callable[[Launch], Launch | None]) -> HarnessResult:
    return replace(run, launches=tuple(x for x in map(change, run.launches) if x is not None))


def without_quad(run: HarnessResult, quad: int) -> HarnessResult:
    return launches(
        samples(run, lambda s: None if (s.case, s.quad) == ("main", quad) else s),
        lambda x: None if (x.case, x.quad) == ("main", quad) else x,
    )


def test_a_whole_run_has_no_fault() -> None:
    assert whole.fault(result()) is None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda r: without_quad(r, 1), "1 quads were run, and it is judged at 2"),
        (lambda r: samples(r, lambda s: None if s.launch == 1 and s.mode == "ar" else s), "the same prompts"),
        (
            lambda r: samples(r, lambda s: replace(s, prompt_id="x") if s.launch == 1 else s),
            "the same prompts",
        ),
        (lambda r: samples(r, lambda s: replace(s, requested_tokens=5)), "was not asked for 21 tokens"),
        (
            lambda r: samples(r, lambda s: None if (s.case, s.mode) == ("main", "ar") else s),
            "1 prompts in ar and dspark",
        ),
        (
            lambda r: samples(r, lambda s: replace(s, launch=99) if s.launch == 1 else s),
            "belongs to no launch",
        ),
        (lambda r: samples(r, lambda s: replace(s, slot=3) if s.launch == 1 else s), "belongs to no launch"),
        (lambda r: launches(r, lambda x: None if x.launch == 1 else x), "belongs to no launch"),
        (lambda r: replace(r, launches=(*r.launches, r.launches[0])), "two launches have one number"),
        (lambda r: replace(r, samples=(*r.samples, r.samples[0])), "same prompts in the same modes"),
        (lambda r: replace(r, accuracy=(*r.accuracy, *r.accuracy)), "scored twice"),
        (
            lambda r: replace(r, accuracy=tuple(replace(w, positions=1) for w in r.accuracy)),
            "not scored at 8 positions",
        ),
        (
            lambda r: replace(r, accuracy=tuple(replace(w, kl_nats=-1.0) for w in r.accuracy)),
            "main's distributions is negative",
        ),
    ],
)
def test_what_is_missing_doubled_or_moved_is_named(
    harm: Callable[[HarnessResult], HarnessResult], said: str
) -> None:
    found = whole.fault(harm(result()))
    assert found is not None
    assert said in found


def test_a_slot_without_a_launch_that_worked_is_a_fault() -> None:
    run = result()
    gone = launches(
        samples(run, lambda s: None if s.launch == 2 else s), lambda x: None if x.launch == 2 else x
    )
    assert whole.fault(gone) == "case main: a quad does not hold four launches"


def test_what_was_rightly_not_run_is_no_fault() -> None:
    run = result()
    spared = launches(
        samples(run, lambda s: None if s.case == "long" else s), lambda x: None if x.case == "long" else x
    )
    assert whole.fault(spared) is not None
    assert whole.fault(replace(spared, accuracy=()), ("long", "accuracy")) is None
