"""What to plan for an effect: percentages as people write them, and nothing else."""

from __future__ import annotations

import pytest

from evalbot.errors import BadRequest
from evalbot.planning import planned


@pytest.mark.parametrize("text", ["2", "2%", "2.0%", " 2 % "])
def test_a_plain_decimal_number_is_a_percentage(text: str) -> None:
    assert planned(text, 0.9, None, "0.6%") == planned("2%", 0.9, None, "0.6%")
    assert planned("2%", 0.9, None, ".6") == planned("2%", 0.9, None, "0.6%")


@pytest.mark.parametrize(
    "text", ["1_0%", "1e1", "+2%", "-2%", "0", "0.0%", "1000", "nan", "inf%", "", "%", "2%%", "٢%"]
)
def test_what_is_no_plain_percentage_is_refused_by_its_option(text: str) -> None:
    for effect, noise, option in ((text, "1%", "--effect"), ("1%", text, "--noise")):
        with pytest.raises(BadRequest, match=f"{option} .* is no percentage above 0"):
            planned(effect, 0.9, None, noise)
