"""Every sentence of a verdict, whole."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbot import sentences
from harness.compare import Decomposition
from harness.schema import Comparison, GateResult, Interval

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
            sentences.within_noise(AXIS, 1.234),
            SAID + "that lies within what main differs from itself in this run (±1.23%)." + SEEN,
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
            sentences.rejected(GATE, 2),
            "chat:ar runs at 19.00 tok/s against main's 20.00: at most 0.9600 of it, which is below 0.98. "
            "It failed in two independent measurements. 2 more gates failed in both measurements too.",
        ),
        (
            sentences.unconfirmed((GATE,), fresh=True),
            "ar-floor failed in the first measurement (chat:ar runs at 19.00 tok/s against main's 20.00: at most "
            "0.9600 of it, which is below 0.98) but not in a fresh second one.",
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
            sentences.moved_by(Decomposition(0.86, 1.001, (68, 79), "acceptance")),
            "tau x0.860 (79 rounds against 68), time per round x1.001: mostly acceptance",
        ),
    ],
)
def test_a_sentence_reads_whole(said: str, whole: str) -> None:
    assert said == whole


@pytest.mark.parametrize(
    ("value", "shown"), [(9.9996, "+9.99%"), (10.0, "+10.00%"), (-0.001, "-0.01%"), (0.0, "+0.00%")]
)
def test_rounding_never_lifts_a_number_over_a_bar(value: float, shown: str) -> None:
    assert sentences.percent(value) == shown


@given(st.floats(-50.0, 50.0), st.sampled_from([2.0, 3.5, 6.0, 10.0, 18.0]))
def test_a_shown_percentage_is_on_its_own_side_of_every_bar(value: float, bar: float) -> None:
    assert (float(sentences.percent(value).rstrip("%")) >= bar) == (round(value, 9) >= bar)


@given(st.floats(0.5, 2000.0), st.floats(0.5, 2.0))
def test_the_shown_values_give_the_shown_percentage(main: float, ratio: float) -> None:
    change = main * ratio
    extra = sentences.extra_digits(main, change)
    shown = float(sentences.number(change, extra)) / float(sentences.number(main, extra))
    assert sentences.percent(100 * (shown - 1)) == sentences.percent(100 * (change / main - 1))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.909, "2.909"), (49.958, "49.96"), (112.44, "112.4"), (1538.3, "1538"), (0.0, "0.000")],
)
def test_a_number_keeps_four_significant_digits(value: float, shown: str) -> None:
    assert sentences.number(value) == shown
