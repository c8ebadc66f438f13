"""How a machine disturbs launches: a model of noise, as data, and a generator of it. Pure.

Slowness is a log factor on every time of a launch: 0.01 is about 1 % slower. It belongs to the machine and
not to an arm, so launch i of a run gets the same whoever runs in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from harness.schema import Fraction, Frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Stall = Annotated[float, msgspec.Meta(ge=0.0, le=100.0)]
Shift = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]

THERMAL_STEPS = 4
"""Steps of a thermal drift in one run, at random times."""


class NoiseModel(Frozen, frozen=True):
    """What disturbs launches. All sizes are fractions; the default disturbs nothing."""

    launch_sd: Fraction = 0.0
    """Standard deviation of a launch's log-slowness."""
    stall_probability: Fraction = 0.0
    stall_size: Stall = 0.5
    """A stalled launch is slower by up to this, uniformly."""
    drift: Literal["none", "linear", "walk", "thermal"] = "none"
    drift_size: Shift = 0.0
    """linear: log-slowness gained over the run, negative on a box that gets faster · walk: standard deviation
    accumulated over the run · thermal: size of each step, up or down."""
    slot_effect: Shift = 0.0
    """Further log-slowness of the second launch of a pair."""

    @property
    def silent(self) -> bool:
        """Whether nothing is disturbed."""
        drifts = self.drift != "none" and self.drift_size != 0.0
        return not (self.launch_sd or self.stall_probability or self.slot_effect or drifts)


def slowness(model: NoiseModel, seed: int, launches: int) -> NDArray[np.float64]:
    """Log-slowness [launches] of one run, whose launches are pairs of neighbours (0, 1), (2, 3), …"""
    shared, own = _parts(model, seed, launches, launches, 1)
    found: NDArray[np.float64] = shared + own[0]
    found[1::2] += model.slot_effect
    return found


def slowness_of_axes(
    model: NoiseModel, seed: int, launches: int, axes: int, horizon: int | None = None
) -> NDArray[np.float64]:
    """Log-slowness [axes, launches] of several measurements in the same launches.

    Drift and slot effect are the machine's and shared; launch noise and stalls are each axis's own. Drift is
    sized for ``horizon`` launches and goes on beyond them.
    """
    shared, own = _parts(model, seed, launches, horizon or launches, axes)
    shared[1::2] += model.slot_effect
    return own + shared


def at(model: NoiseModel, seed: int, launch: int, horizon: int, second: bool | None = None) -> float:
    """Log-slowness of one launch of a run that was planned with ``horizon`` launches.

    Equals ``slowness(model, seed, horizon)[launch]``. A run that is extended goes on beyond its horizon.
    ``second`` says whether it is the second of its pair where its number does not (a retry shifts numbers).
    """
    if model.silent:
        return 0.0
    shared, own = _parts(model, seed, max(horizon, launch + 1), horizon, 1)
    late = launch % 2 == 1 if second is None else second
    return float(shared[launch] + own[0, launch] + (model.slot_effect if late else 0.0))


def _parts(
    model: NoiseModel, seed: int, launches: int, horizon: int, axes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Drift [launches] and launch noise with stalls [axes, launches]."""
    # A worker that starts for one launch needs no numpy where nothing disturbs it.
    import numpy as np

    dice = np.random.default_rng(seed)
    steps = dice.random((2, THERMAL_STEPS))
    # One row of draws a launch: a longer run begins like a shorter one of the same seed.
    rows = dice.random((launches, 2 + 4 * axes)).T
    if model.drift == "linear":
        drift = model.drift_size * np.arange(launches) / horizon
    elif model.drift == "walk":
        drift = np.cumsum(_normal(rows[0], rows[1])) * (model.drift_size / np.sqrt(horizon))
    elif model.drift == "thermal":
        signs = np.where(steps[1] < 0.5, -model.drift_size, model.drift_size)
        drift = (np.arange(launches)[:, None] / horizon >= steps[0]) @ signs
    else:
        drift = np.zeros(launches)
    first, second, stalled, size = rows[2:].reshape(4, axes, launches)
    own = model.launch_sd * _normal(first, second)
    own += np.where(stalled < model.stall_probability, np.log1p(model.stall_size * size), 0.0)
    return drift, own


def _normal(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal draws from two uniform ones each (Box and Muller 1958)."""
    import numpy as np

    drawn: NDArray[np.float64] = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)
    return drawn
