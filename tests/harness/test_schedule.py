"""The order of a run follows from its seed and favours neither arm."""

from __future__ import annotations

from harness import plans, schedule
from tests.fakes.results import SCORED


def orders(seeds: range) -> set[tuple[str, ...]]:
    return {tuple(slot.arm for slot in schedule.slots(seed, SCORED, 0)) for seed in seeds}


def test_a_quad_is_abba_or_baab_and_both_occur() -> None:
    assert orders(range(30)) == {schedule.ABBA, schedule.BAAB}


def test_the_same_seed_gives_the_same_order() -> None:
    assert schedule.slots(5, SCORED, 1) == schedule.slots(5, SCORED, 1)


def test_the_coin_is_fair_and_quads_do_not_share_it() -> None:
    heads = sum(schedule.coin(1, "case", quad, "order") for quad in range(2000))
    assert 900 < heads < 1100


def test_both_arms_of_a_quad_meet_the_modes_in_one_order() -> None:
    # The order depends on quad and prompt only: no arm is part of its key.
    first, last = (schedule.Slot("candidate", 0, slot) for slot in (1, 2))
    assert {schedule.modes(1, SCORED, first, i) for i in range(20)} == {("ar", "dspark"), ("dspark", "ar")}
    for prompt in range(20):
        assert schedule.modes(1, SCORED, first, prompt) == schedule.modes(1, SCORED, last, prompt)[::-1]


def test_every_planned_launch_is_counted() -> None:
    for plan in plans.PLANS.values():
        planned = schedule.launches(plan)
        quads = sum(case.quads for case in plan.cases)
        models = len({case.model for case in plan.cases})
        assert sum(count for count, _ in planned.values()) == 4 * quads + models + 2


def test_every_plan_holds_the_prefill_of_its_scored_case() -> None:
    for plan in plans.PLANS.values():
        assert ["prefill" in case.metrics for case in plan.cases if case.role == "scored"] == [True]


def test_every_plan_scores_one_case_and_guards_two_architectures() -> None:
    for plan in plans.PLANS.values():
        roles = [case.role for case in plan.cases]
        assert roles.count("scored") == 1
        (scored,) = (case for case in plan.cases if case.role == "scored")
        guards = {case.model for case in plan.cases if case.role == "guard"}
        # The emulator has no architecture; it is measured at another context in each case instead.
        emulated = plan is plans.EMULATOR and len({case.context_tokens for case in plan.cases}) == 3
        assert guards > {scored.model} or len(guards) > 1 or emulated
        assert len(set(scored.domains)) >= 3
        assert plan.accuracy is not None
        assert plan.accuracy.context_tokens == scored.context_tokens
