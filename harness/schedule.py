"""The order of launches and modes, from the logged seed alone. Pure.

A quad is ABBA or BAAB by a fair coin, so that drift which is linear in time cancels within it. Both arms of
a pair decode the same prompts in the same order of modes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.schema import Arm, Case, Mode, RunPlan

ABBA: tuple[Arm, ...] = ("baseline", "candidate", "candidate", "baseline")
BAAB: tuple[Arm, ...] = ("candidate", "baseline", "baseline", "candidate")


@dataclass(frozen=True)
class Slot:
    """One launch of a quad."""

    arm: Arm
    quad: int
    slot: int


def slots(seed: int, case: Case, quad: int) -> tuple[Slot, ...]:
    order = ABBA if coin(seed, case.name, quad, "order") else BAAB
    return tuple(Slot(arm, quad, index) for index, arm in enumerate(order))


def modes(seed: int, case: Case, slot: Slot, prompt: int) -> tuple[Mode, ...]:
    """Modes of one prompt in the order they run: neither mode always meets a colder process.

    The two launches that an arm has in a quad run them in opposite orders, so that whatever DSpark could keep
    from an AR run of the same prompt is missing in one of them.
    """
    turned = coin(seed, case.name, slot.quad, "modes", prompt) == (slot.slot < 2)
    return case.modes if turned else case.modes[::-1]


def coin(seed: int, *key: str | int) -> bool:
    return random.Random(f"{seed}/{'/'.join(map(str, key))}").random() < 0.5


def expected_s(case: Case) -> float:
    """Rough seconds of one launch. Only the relative sizes matter: they weigh the estimate of time left."""
    per_prompt = case.context_tokens / 450 + case.new_tokens * 0.033
    return 6.0 + len(case.domains) * len(case.modes) * per_prompt


def launches(plan: RunPlan) -> dict[str, tuple[int, float]]:
    """Planned launches and expected seconds of each, by the name that ``Launch.case`` gives them."""
    planned: dict[str, tuple[int, float]] = {}
    for model in dict.fromkeys(case.model for case in plan.cases):
        mine = [case for case in plan.cases if case.model == model]
        planned[admission(model)] = (1, 6.0 + sum((expected_s(case) - 6.0) * case.quads / 2 for case in mine))
    for case in plan.cases:
        planned[case.name] = (4 * case.quads, expected_s(case))
    if plan.accuracy is not None:
        planned["accuracy"] = (2, 6.0 + plan.accuracy.windows * plan.accuracy.context_tokens / 450)
    return planned


def admission(model: str) -> str:
    """Name of the launch in which main's own continuations admit the prompts of a model."""
    return f"admission:{model}"
