"""What a simulation takes for true: a plan of thirteen axes, and scenarios of noise and gains over it."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from evalbot.errors import BadRequest
from harness import scenario as emulated
from harness.noise import NoiseModel
from harness.plans import PLANS
from harness.scenario import Behaviour, ScenarioError
from harness.schema import Case, Frozen, RunPlan

_LOOKS = {"quads": 4, "more": (6, 8, 12, 16)}
_KINDS = ("dspark", "ar", "prefill")
TAU = 2.5
MOST_FACTOR = 1_000_000
"""Between the speeds of two arms: more is a slip in the file, and its logarithm is soon none."""


def _guard(number: int, metrics: tuple[str, ...]) -> Case:
    return msgspec.convert(
        {
            "name": f"guard-{number}", "role": "guard", "model": "m", "context_tokens": 1, "new_tokens": 2,
            "domains": ["prose"], "modes": ["dspark"], "metrics": metrics, **_LOOKS,
        },
        Case,
    )  # fmt: skip


PLAN = RunPlan(
    name="simulated",
    cases=(
        Case(
            name="scored", role="scored", model="m", context_tokens=1, new_tokens=2, domains=("prose",),
            quads=4, more=(6, 8, 12, 16),
        ),
        *(_guard(number, ("decode", "prefill")) for number in range(1, 6)),
        _guard(6, ("decode",)),
    ),
)  # fmt: skip
"""Thirteen timed axes: DSpark and AR of the scored case, decode of six guards, prefill of five of them."""

SCORED, GUARDED = "scored:dspark", "guard:dspark"


def timed(case: Case) -> tuple[str, ...]:
    """Kinds of the case's timed axes."""
    kinds = (*case.modes, *(metric for metric in case.metrics if metric == "prefill"))
    return tuple(kind for kind in _KINDS if kind in kinds)


class Scenario(Frozen):
    """What is true: the machine's noise, and the candidate's gain by ``ROLE:KIND``, in percent (0 elsewhere).

    ``taus``: of main and of the candidate. ``prompt_sd``: standard deviation, from quad to quad, of what the
    prompts make of the candidate's acceptance, in log units. ``candidates``: how many equal ones compete; the
    winner's label is the one it gets when it is measured again.
    """

    description: str
    noise: NoiseModel = NoiseModel()
    gains_pct: dict[str, float] = {}
    taus: tuple[float, float] = (TAU, TAU)
    prompt_sd: float = 0.0
    candidates: int = 1


_NOISE = NoiseModel(launch_sd=0.006, stall_probability=0.02, stall_size=0.5)
_BAD_BOX = NoiseModel(launch_sd=0.03, stall_probability=0.05, stall_size=0.5)


def _drifting(kind: str, size: float) -> NoiseModel:
    return msgspec.convert(msgspec.to_builtins(_NOISE) | {"drift": kind, "drift_size": size}, NoiseModel)


BUILT_IN: dict[str, Scenario] = {
    "null": Scenario(description="equal engines, 0.6 % launch noise, 2 % stalls", noise=_NOISE),
    "null-linear": Scenario(
        description="the same on a box that slows by 5 %", noise=_drifting("linear", 0.05)
    ),
    "null-walk": Scenario(description="the same with a random walk of 5 %", noise=_drifting("walk", 0.05)),
    "null-thermal": Scenario(
        description="the same with four thermal steps of 5 %", noise=_drifting("thermal", 0.05)
    ),
    "gain-3": Scenario(description="3 % faster", noise=_NOISE, gains_pct={SCORED: 3.0}),
    "loss-3": Scenario(description="3 % slower", noise=_NOISE, gains_pct={SCORED: -3.0}),
    "gain-6": Scenario(description="6 % faster", noise=_NOISE, gains_pct={SCORED: 6.0}),
    "guards-minus-1": Scenario(
        description="1 % slower on each of six guards, which the floors allow",
        noise=_NOISE,
        gains_pct={GUARDED: -1.0},
    ),
    "null-prompts": Scenario(
        description="the same where acceptance changes by 2 % either way from prompt to prompt",
        noise=_NOISE,
        prompt_sd=0.02,
    ),
    "winner-of-10": Scenario(
        description="the best of ten equal engines, re-measured", noise=_NOISE, candidates=10
    ),
    "bad-box": Scenario(description="equal engines, 3 % launch noise, 5 % stalls", noise=_BAD_BOX),
    "bad-box-gain-6": Scenario(description="6 % faster on that box", noise=_BAD_BOX, gains_pct={SCORED: 6.0}),
}


def plan(name: str | None) -> RunPlan:
    """A shipped plan; ``PLAN`` without a name. Raises BadRequest for a name that is none."""
    if name is not None and name not in PLANS:
        raise BadRequest(f"There is no plan {name!r}; there are {', '.join(PLANS)}.")
    return PLAN if name is None else PLANS[name]


def find(name: str) -> Scenario:
    """A built-in scenario, or an emulator's scenario file read for its speeds.

    Raises BadRequest for a name that is neither, and for a file whose engines do more than differ in speed or
    have no speeds to compare.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    path = Path(name)
    if not path.is_file():
        raise BadRequest(f"There is no scenario {name!r}: name a file, or one of {', '.join(BUILT_IN)}.")
    try:
        read = emulated.read(path)
    except ScenarioError as error:
        raise BadRequest(str(error)) from None
    beyond = {key for arm in (read.baseline, read.candidate) for key in _beyond_speed(arm)}
    if beyond:
        raise BadRequest(
            f"{path.name} sets {', '.join(sorted(beyond))}, and only speeds can be simulated: "
            f"play it with `evalbot score --emulate {name}`."
        )
    arms = (read.baseline, read.candidate)
    still = sorted({key for arm in arms for key in _TIMES if getattr(arm, key) == 0})
    if still:
        raise BadRequest(
            f"{path.name} sets {', '.join(still)} to 0: what takes no time has no speed to compare. "
            "Give it a value above 0."
        )
    main, candidate = (_tau(arm) for arm in arms)
    if main <= 1:
        raise BadRequest(f"{path.name}: main accepts nothing: there is no acceptance to compare.")
    dspark = candidate / main * read.baseline.round_ms / read.candidate.round_ms
    by_kind = {
        "dspark": dspark,
        "ar": read.baseline.ar_ms / read.candidate.ar_ms,
        "prefill": read.baseline.prefill_us / read.candidate.prefill_us,
    }
    if not all(1 / MOST_FACTOR <= factor <= MOST_FACTOR for factor in by_kind.values()):
        raise BadRequest(f"{path.name}: the arms differ in speed by more than a factor of {MOST_FACTOR:,}.")
    return Scenario(
        description=read.description,
        noise=read.noise,
        gains_pct={
            f"{role}:{kind}": 100 * (factor - 1)
            for role in ("scored", "guard")
            for kind, factor in by_kind.items()
        },
        taus=(main, candidate),
    )


_TIMES = ("ar_ms", "round_ms", "prefill_us")
_SPEEDS = frozenset({*_TIMES, "round_weights", "round_sizes", "proposals"})


def _beyond_speed(arm: Behaviour) -> set[str]:
    """Fields by which an emulated engine differs from an honest one in more than speed."""
    honest = Behaviour()
    fields = set(Behaviour.__struct_fields__) - _SPEEDS
    return {name for name in fields if getattr(arm, name) != getattr(honest, name)}


def _tau(arm: Behaviour) -> float:
    if arm.round_sizes:
        return statistics.fmean(arm.round_sizes)
    weights = arm.round_weights
    return sum(size * weight for size, weight in enumerate(weights, 1)) / sum(weights)
