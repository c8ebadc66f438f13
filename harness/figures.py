"""Numbers as a person reads them: the one place that rounds. Pure.

Rounding may not contradict what was judged. Gains and bounds are rounded down, so that 9.9996 % is shown as
9.99 % and not as the 10 % that it does not reach; what is claimed to be enough is rounded up. Two values that
stand beside a percentage are shown with as many digits as it takes to work it out from what is shown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation

from harness.schema import Comparison, Interval, Measurement

ABSENT = "not measured"
_MOST = 12
"""Digits beyond which a float has nothing more to say."""

Derived = tuple[float, float, Callable[[float], str]]
"""Numerator, denominator, and how their ratio is shown."""


def percent(value: float, signed: bool = True, up: bool = False) -> str:
    """A percentage with two decimals, rounded down or ``up``. Digits that floating point invents are none.

    Raises OverflowError for one with more digits than can be rounded.
    """
    known = Decimal(repr(round(value, 9)))
    try:
        rounded = known.quantize(Decimal("0.01"), rounding=ROUND_CEILING if up else ROUND_FLOOR)
    except InvalidOperation:
        raise OverflowError(f"{value:g} % has too many digits to be shown") from None
    return f"{rounded or abs(rounded):{'+' if signed else ''}}%"


def change(ratio: float) -> str:
    """A ratio as the change in percent: ``+10.08%``."""
    return percent(100 * (ratio - 1))


def changes(ratios: Interval) -> str:
    """Bounds of a ratio as bounds of the change in percent: ``[+9.20%, +11.00%]``."""
    return f"[{change(ratios.low)}, {change(ratios.high)}]"


def times(ratio: float) -> str:
    """``1.758x``."""
    return f"{ratio:.3f}x"


def number(value: float, extra: int = 0) -> str:
    """Four significant digits and ``extra``, more before the point: ``2.909``, ``49.96``, ``112.4``."""
    decimals = next((3 - power for power in (0, 1, 2) if abs(value) < 10 ** (power + 1)), 0)
    return f"{value:.{decimals + extra}f}"


def extra_digits(derived: Iterable[Derived]) -> int:
    """Digits beyond four with which all values, as shown, give every ratio as it is shown."""
    wanted = [(above, below, shown, shown(above / below)) for above, below, shown in derived]
    for extra in range(_MOST):
        if all(_gives(number(a, extra), number(b, extra), show, text) for a, b, show, text in wanted):
            return extra
    return _MOST


def _gives(above: str, below: str, shown: Callable[[float], str], text: str) -> bool:
    return float(below) != 0 and shown(float(above) / float(below)) == text


def beside(value: float, bar: float, digits: int = 2, most: bool = False) -> str:
    """``value`` with enough decimals to stay on its side of ``bar``: 9.9996 beside 10 is not 10.00.

    The bar is the least that is good enough, or the ``most``.
    """
    holds = operator.le if most else operator.ge
    for decimals in range(digits, _MOST):
        text = f"{value:.{decimals}f}"
        if holds(float(text), bar) == holds(value, bar):
            return text
    return repr(value)


def apart(value: float, bar: float, digits: int = 2) -> tuple[str, str]:
    """Both rounded, with enough decimals to keep their order: for a bar that is itself a measured number."""
    for decimals in range(digits, _MOST):
        shown, limit = f"{value:.{decimals}f}", f"{bar:.{decimals}f}"
        if (float(shown) >= float(limit)) == (value >= bar):
            return shown, limit
    return repr(value), repr(bar)


def measurement(measured: Measurement | None, extra: int = 0, unit: str = "") -> str:
    """``112.4 [111.9, 113.0] n=16``; ``extra``: digits beyond four; ``unit`` stands behind the value."""
    if measured is None:
        return ABSENT
    bounds = measured.interval
    spread = f" [{number(bounds.low, extra)}, {number(bounds.high, extra)}]" if bounds else ""
    return f"{number(measured.value, extra)}{' ' if unit else ''}{unit}{spread} n={measured.n}"


def comparison(found: Comparison) -> str:
    """``+10.08% [+9.20%, +11.00%] n=8``, n being pairs, or prompts for counts per round."""
    if found.interval is None:
        return change(found.ratio)
    return f"{change(found.ratio)} {changes(found.interval)} n={found.pairs}"
