"""Every sentence of a verdict, whole."""

from __future__ import annotations

import msgspec
import pytest

from evalbot import sentences
from harness.compare import Decomposition
from harness.schema import Comparison, GateResult, Interval, Settled

AXIS = Comparison(
    name="chat:dspark", unit="tok/s", baseline=50.0, candidate=55.0, ratio=1.1,
    interval=Interval(low=1.092, high=1.109), bounds=Interval(low=1.08, high=1.12), pairs=8, look=1, looks=5,
    smallest_effect=0.0123, mean_ratio=1.2, quad_ratio=1.1999,
)  # fmt: skip
SAID = "DSpark decode (chat) 55.00 tok/s against main's 50.00 tok/s: +10.00% [+9.20%, +10.90%], 8 pairs, look 1 of 5; "
SEEN = " A true effect of 1.23% would have been seen with a probability of 80%."
GATE = GateResult(
    name="ar-floor", state="FAIL", observed="0.95", bar=">= 98% of main",
    reason="chat:ar runs at 19.00 tok/s against main's 20.00: at most 0.9600 of it, which is below 0.98.",
)  # fmt: skip
PASSED = msgspec.structs.replace(GATE, state="PASS")


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        (
            sentences.improved(AXIS, "M", 6.0, 8.0),
            SAID + "the lower bound over all 5 looks +8.00% reaches M (bar +6.00%) and every gate passed.",
        ),
        (
            sentences.below_tiers(AXIS, 1.5, 2.0),
            SAID + "even the upper bound over all 5 looks +1.50% is below XS (bar +2.00%)." + SEEN,
        ),
        (
            sentences.unaudited(msgspec.structs.replace(AXIS, sign_flip_p=0.25)),
            SAID + "the exact sign-flip test over quads does not confirm it (p = 0.250)." + SEEN,
        ),
        (
            sentences.unstable(AXIS),
            SAID + "unstable: it is +20.00% by the plain mean of pairs, +19.99% by the mean of quads, "
            "so a few launches carry the result." + SEEN,
        ),
        (
            sentences.identical(None),
            "Outside pinned paths the change equals main byte for byte, so nothing measured can differ.",
        ),
        (
            sentences.set_aside_only(["harness/a.py"]),
            "Your copy of harness/a.py was set aside and main's was used; nothing measured differs, "
            "so there was nothing to measure.",
        ),
        (
            sentences.touches_pinned([f"harness/{name}.py" for name in "abcdefg"]),
            "Not scored: the change touches harness/a.py, harness/b.py, harness/c.py, harness/d.py, harness/e.py "
            "and 2 more, which always come from main when something is measured. "
            "Move that part to a pull request of its own.",
        ),
        (
            sentences.unproven(AXIS, ()),
            SAID + "the bounds over all 5 looks [+8.00%, +12.00%] reach from below XS to above it." + SEEN,
        ),
        (
            sentences.unproven(AXIS, (GATE, GATE)),
            SAID
            + "not decided: ar-floor (chat:ar runs at 19.00 tok/s against main's 20.00: at most 0.9600 of "
            "it, which is below 0.98) and 1 more." + SEEN,
        ),
        (
            sentences.ended_early(Settled(gate="tau-floor", not_run=("long", "accuracy"))),
            "tau-floor failed, so long, accuracy were not run",
        ),
        (
            sentences.unproven(
                AXIS, (msgspec.structs.replace(GATE, reason="Undecided: it straddles 0.98."),)
            ),
            SAID + "not decided: ar-floor (it straddles 0.98)." + SEEN,
        ),
        (
            sentences.rejected(GATE, 2),
            "chat:ar runs at 19.00 tok/s against main's 20.00: at most 0.9600 of it, which is below 0.98. "
            "It failed in two independent measurements. 2 more gates failed in both measurements too.",
        ),
        (
            sentences.unconfirmed(GATE, PASSED),
            "ar-floor failed in the first measurement (chat:ar runs at 19.00 tok/s against main's 20.00: at most "
            "0.9600 of it, which is below 0.98) and did not fail in a fresh second one.",
        ),
        (
            sentences.unscorable(GATE),
            "Nothing was judged, because the run itself is not valid (ar-floor): chat:ar runs at 19.00 tok/s "
            "against main's 20.00: at most 0.9600 of it, which is below 0.98.",
        ),
        (
            sentences.launch_failed("load", "It exited with status 1.", 2),
            "The candidate's worker failed 2 times, at last while it was to load: It exited with status 1.",
        ),
        (
            sentences.stopped("The corpus has no text."),
            "The measurement stopped: The corpus has no text. The change was not judged.",
        ),
        (
            sentences.unmeasured(["chat:dspark", "accuracy"]),
            "The run lacks DSpark decode (chat), accuracy on at least one arm, and an incomplete run judges nobody.",
        ),
        (
            sentences.moved_by(Decomposition(0.86, 1.001, (68, 79))),
            "mostly acceptance: tau -14.00% (79 rounds against 68), time per round +0.10%",
        ),
        (
            sentences.running_second([("dspark", -0.0031), ("round", 0.0025)]),
            "running second in a pair: DSpark decode -0.31%, time per round +0.25%",
        ),
        (sentences.measured((5,)), "1 time, seed 5"),
        (sentences.measured((5, 9)), "2 times, seeds 5, 9; the tables show the last"),
        (
            sentences.legend(0.95),
            "Brackets: 95% interval. n: launches (of tau rounds, of perplexity windows); against main, pairs of "
            "launches (of tau prompts). Could see: the smallest true effect that this run would have told from none "
            "80 times in 100, where it proved none.",
        ),
    ],
)
def test_a_sentence_reads_whole(said: str, whole: str) -> None:
    assert said == whole
