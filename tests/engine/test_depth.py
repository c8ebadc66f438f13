from __future__ import annotations

import pytest

from engine.config import OverrideError
from engine.decoding.depth import SERVED, Band, DepthPolicy, load_policy


def test_served_policy_has_no_overrides_and_covers_every_context():
    policy = load_policy(7, {})
    assert policy.bands == SERVED
    assert policy.overrides == ()
    assert SERVED[0].min_context == 0
    assert list(SERVED) == sorted(SERVED, key=lambda band: band.min_context)


def test_band_holds_from_its_first_token_on():
    policy = DepthPolicy((Band(0, 5), Band(512, 3), Band(4096, 0)))
    assert [policy.proposals(n) for n in (1, 511, 512, 4095, 4096, 9999)] == [5, 5, 3, 3, 0, 0]
    assert policy.describe() == "5 proposals from 0 tokens, 3 from 512, 0 from 4096"


def test_pinned_depth_holds_at_every_context_and_is_reported():
    policy = load_policy(7, {"DSPARK_PROPOSALS": "3"})
    assert {policy.proposals(n) for n in (1, 100, 100_000)} == {3}
    assert policy.overrides == (("DSPARK_PROPOSALS", "3"),)


def test_moved_boundary_keeps_the_narrow_depth():
    policy = load_policy(7, {"DSPARK_NARROW_MIN_SEQ": "64"})
    assert policy.proposals(63) == SERVED[0].proposals
    assert policy.proposals(64) == SERVED[-1].proposals
    assert policy.overrides == (("DSPARK_NARROW_MIN_SEQ", "64"),)


def test_boundary_at_zero_makes_everything_narrow():
    assert load_policy(7, {"DSPARK_NARROW_MIN_SEQ": "0"}).proposals(1) == SERVED[-1].proposals


def test_served_depth_never_exceeds_the_trained_block():
    assert max(band.proposals for band in load_policy(2, {}).bands) == 2


def test_pinned_depth_beyond_the_trained_block_is_refused():
    with pytest.raises(OverrideError, match=r"DSPARK_PROPOSALS is 8, .* blocks of 7: set it to 0\.\.7"):
        load_policy(7, {"DSPARK_PROPOSALS": "8"})


@pytest.mark.parametrize("name", ["DSPARK_PROPOSALS", "DSPARK_NARROW_MIN_SEQ"])
@pytest.mark.parametrize("text", ["", " 3", "-1", "3.0", "0x3", "three", "٣", "1_0"])
def test_override_that_is_not_a_whole_number_is_refused(name, text):
    with pytest.raises(OverrideError, match=f"{name} is .*digits only"):
        load_policy(7, {name: text})
