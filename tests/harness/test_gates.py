"""Gates: PASS needs a value that clears the bar, FAIL one that misses it, and the rest is NOT_RUN."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import gates, paired
from harness.paired import Looks, Pair
from harness.schema import (
    Divergence,
    GateResult,
    HarnessResult,
    Launch,
    LaunchFailure,
    ModelHashes,
    Policy,
    Sample,
)
from tests.fakes.results import ENGINE, GUARD, PLAN, TEXT, result, sample

POLICY = Policy()
replace = msgspec.structs.replace


def gate(run: HarnessResult, name: str, policy: Policy = POLICY) -> GateResult:
    return next(item for item in gates.judge(run, policy) if item.name == name)


def states(run: HarnessResult) -> dict[str, str]:
    return {item.name: item.state for item in gates.judge(run, POLICY)}


def edit(run: HarnessResult, arm: str, **changes: object) -> HarnessResult:
    """The run with ``changes`` made to every sample of an arm."""
    return replace(run, samples=tuple(replace(s, **changes) if s.arm == arm else s for s in run.samples))


def claim(run: HarnessResult, arm: str, **changes: object) -> HarnessResult:
    def changed(s: Sample) -> Sample:
        return replace(s, reported=replace(s.reported, **changes)) if s.arm == arm else s

    return replace(run, samples=tuple(map(changed, run.samples)))


def test_an_honest_equal_run_passes_every_gate() -> None:
    assert set(states(result()).values()) == {"PASS"}


def test_the_set_of_gates_depends_on_the_plan_alone() -> None:
    assert states(result()).keys() == states(replace(result(), samples=(), accuracy=())).keys()


def test_unmeasured_gates_are_neither_passed_nor_failed() -> None:  # A04
    empty = replace(result(), samples=(), accuracy=(), launches=())
    assert set(states(empty).values()) == {"NOT_RUN"}


@given(st.sets(st.integers(0, 23)), st.booleans())
def test_missing_metrics_never_fail_a_gate(dropped: set[int], accurate: bool) -> None:
    run = result()
    kept = tuple(s for i, s in enumerate(run.samples) if i not in dropped)
    partial = replace(run, samples=kept, accuracy=run.accuracy if accurate else ())
    assert "FAIL" not in states(partial).values()


def test_every_reason_is_a_sentence() -> None:
    for run in (result(), result(ar=0.5), replace(result(), samples=())):
        for item in gates.judge(run, POLICY):
            assert item.reason.endswith(".")
            assert len(item.reason.split()) >= 3


def test_a_slower_path_fails_its_floor_and_names_both_rates() -> None:
    found = gate(result(ar=0.9), "ar-floor")
    assert found.state == "FAIL"
    assert "90.00 tok/s against main's 100.00" in found.reason
    assert gate(result(ar=0.9), "dspark-floor").state == "PASS"


def prefilling(factor: float) -> HarnessResult:
    """A run whose scored case asks for prefill; the candidate takes ``factor`` times as long for it."""
    run = result()
    scored, *rest = run.plan.cases
    asks = replace(run.plan, cases=(replace(scored, metrics=("decode", "prefill")), *rest))

    def later(s: Sample) -> Sample:
        shift = (factor - 1) * s.bursts[0].elapsed_s if s.arm == "candidate" else 0.0
        return replace(s, bursts=tuple(replace(b, elapsed_s=b.elapsed_s + shift) for b in s.bursts))

    return replace(run, plan=asks, samples=tuple(map(later, run.samples)))


@pytest.mark.parametrize(("factor", "state"), [(1.0, "PASS"), (1.03, "PASS"), (1.1, "FAIL")])
def test_work_moved_before_the_first_token_fails_the_prefill_floor(factor: float, state: str) -> None:
    assert gate(prefilling(factor), "prefill-floor").state == state
    assert gate(prefilling(factor), "dspark-floor").state == "PASS"


def test_prefill_of_the_scored_case_is_a_gate_only_where_the_case_asks_for_it() -> None:
    assert "prefill-floor" not in states(result())


def test_a_floor_that_noise_straddles_is_undecided() -> None:
    wobble = [0.0, 0.06, -0.05, 0.03, 0.05, -0.06, 0.0, 0.02, 0.0, 0.0, 0.0, 0.0]
    found = gate(result(noise=lambda launch: math.exp(wobble[launch.launch])), "ar-floor")
    assert found.state == "NOT_RUN"
    assert found.reason.startswith("Undecided")
    assert "straddles 0.98" in found.reason


def test_a_guard_fails_where_only_the_guard_is_slow() -> None:
    def long_only(launch: Launch) -> float:
        return 1.1 if launch.case == "long" and launch.arm == "candidate" else 1.0

    found = states(result(noise=long_only))
    assert found["guard:long:decode"] == found["guard:long:prefill"] == "FAIL"
    assert found["dspark-floor"] == "PASS"


def rounds(run: HarnessResult, arm: str, sizes: list[int]) -> HarnessResult:
    def spoken(s: Sample) -> Sample:
        if s.arm != arm or s.mode != "dspark":
            return s
        text = tuple(range(sum(sizes) + 1))
        made = sample(arm=s.arm, rounds=sizes, token_ids=text, requested=len(text))
        return replace(s, bursts=made.bursts, reported=made.reported, token_ids=text)

    return replace(run, samples=tuple(map(spoken, run.samples)))


def test_speculating_less_fails_although_tau_keeps_its_floor() -> None:  # A30
    main = rounds(result(), "baseline", [2] * 2 + [1] * 83)
    less = rounds(main, "candidate", [1] * 87)
    assert gate(less, "tau-floor").state == "PASS"
    assert gate(less, "accepted-floor").state == "FAIL"


def test_a_small_loss_of_acceptance_passes() -> None:  # A30, the other way round
    main = rounds(result(), "baseline", [2] * 73 + [1] * 27)
    slightly = rounds(main, "candidate", [2] * 72 + [1] * 28)
    assert gate(slightly, "accepted-floor").state == "PASS"


def test_wrong_tokens_fail_losslessness() -> None:
    wrong = (*TEXT[:9], 5, *TEXT[10:])
    run = result()
    bad = replace(
        run,
        samples=tuple(
            replace(s, token_ids=wrong) if (s.arm, s.mode) == ("candidate", "dspark") else s
            for s in run.samples
        ),
    )
    found = gate(bad, "losslessness")
    assert found.state == "FAIL"
    assert "token 9 is 5 with DSpark and 109 with AR" in found.reason
    assert gate(bad, "baseline").state == "PASS"


def test_too_few_processes_do_not_prove_losslessness() -> None:
    run = result()
    one = replace(run, samples=tuple(s for s in run.samples if s.arm == "baseline" or s.launch < 2))
    assert gate(one, "losslessness").state == "NOT_RUN"


def test_empty_outputs_on_both_paths_are_no_equality() -> None:  # A08
    assert gate(edit(result(), "candidate", token_ids=(), bursts=()), "losslessness").state == "FAIL"


def test_a_broken_main_is_a_broken_baseline_and_not_a_broken_candidate() -> None:  # A10
    def other(s: Sample) -> Sample:
        return replace(s, token_ids=(*TEXT[:9], 5, *TEXT[10:])) if s.mode == "dspark" else s

    run = result()
    both = replace(run, samples=tuple(map(other, run.samples)))
    only_main = replace(run, samples=tuple(other(s) if s.arm == "baseline" else s for s in run.samples))
    assert gate(both, "baseline").state == "FAIL"
    assert gate(only_main, "baseline").state == "FAIL"
    assert gate(only_main, "losslessness").state == "PASS"


def test_main_that_cannot_repeat_its_own_text_is_a_broken_baseline() -> None:
    run = result()
    first = next(launch.launch for launch in run.launches if launch.arm == "baseline")
    wobbling = replace(
        run, samples=tuple(replace(s, token_ids=TEXT[::-1]) if s.launch == first else s for s in run.samples)
    )
    assert "differs between processes" in gate(wobbling, "baseline").reason


def other_text(margin: float | None, rest: float | None = 0.0) -> HarnessResult:
    wrong = (*TEXT[:9], 5, *TEXT[10:])
    run = edit(result(), "candidate", token_ids=wrong)
    seen = tuple(
        Divergence(
            case=case,
            prompt_id=prompt,
            position=9,
            baseline_token=109,
            candidate_token=5,
            margin_nats=margin,
            worst_position=14,
            worst_margin_nats=rest,
        )
        for case, prompt in {(s.case, s.prompt_id) for s in run.samples}
    )
    return replace(run, divergences=seen)


@pytest.mark.parametrize(("margin", "state"), [(0.01, "PASS"), (1.5, "FAIL"), (None, "NOT_RUN")])
def test_other_ar_text_passes_only_as_a_measured_near_tie(margin: float | None, state: str) -> None:
    found = gate(other_text(margin), "ar-tokens")
    assert found.state == state
    if state == "PASS":
        assert "3 near-ties" in found.observed


@pytest.mark.parametrize(("rest", "state"), [(0.05, "PASS"), (0.06, "FAIL"), (None, "NOT_RUN")])
def test_what_follows_a_near_tie_must_be_mains_choice_or_a_near_tie(rest: float | None, state: str) -> None:
    found = gate(other_text(0.01, rest), "ar-tokens")
    assert found.state == state
    if state == "FAIL":
        assert "prefers another token 14 by 0.060 nats" in found.reason


@pytest.mark.parametrize(
    ("top1", "kl", "state"), [(0.9, 0.1, "PASS"), (0.89, 0.0, "FAIL"), (1.0, 0.2, "FAIL")]
)
def test_accuracy_needs_both_bars(top1: float, kl: float, state: str) -> None:
    assert gate(result(top1=top1, kl=kl), "accuracy").state == state


def test_accuracy_at_another_context_than_the_score_proves_nothing() -> None:  # A11
    run = result()
    plan = replace(run.plan, accuracy=replace(run.plan.accuracy, context_tokens=50))
    assert gate(replace(run, plan=plan), "accuracy").state == "NOT_RUN"


def test_a_lead_over_ar_beyond_tau_is_implausible() -> None:
    found = gate(result(ar=0.5), "plausibility:speculation")
    assert found.state == "FAIL"
    assert "tau of 2.500" in found.reason


def test_more_traffic_than_the_memory_has_is_implausible() -> None:  # C05
    run = result(engine=replace(ENGINE, weights_bytes=14_000_000_000))
    assert gate(run, "plausibility:bandwidth").state == "FAIL"


def test_an_unknown_bandwidth_is_not_a_pass() -> None:
    run = result()
    blind = replace(run, environment=replace(run.environment, bandwidth_bytes_s=None))
    assert gate(blind, "plausibility:bandwidth").state == "NOT_RUN"


def test_a_reported_time_apart_from_the_observed_one_fails() -> None:  # C01
    assert gate(claim(result(), "candidate", decode_s=0.001), "plausibility:clock").state == "FAIL"


def test_counters_at_zero_while_drafts_arrive_fail() -> None:  # B07
    run = result()
    zero = replace(
        run,
        samples=tuple(
            replace(s, reported=replace(s.reported, accepted=(0,) * 8)) if s.mode == "dspark" else s
            for s in run.samples
        ),
    )
    assert gate(zero, "plausibility:counters").state == "FAIL"


@pytest.mark.parametrize("claims", [{"prefill_tokens": 3}, {"prompt_sha256": "other"}, {"temperature": 0.7}])
def test_a_prompt_not_computed_as_sent_fails(claims: dict[str, object]) -> None:  # B28, B33, B25
    assert gate(claim(result(), "candidate", **claims), "plausibility:prefill").state == "FAIL"


def test_a_prompt_cache_that_is_denied_shows_in_the_second_first_token() -> None:  # B28
    run = result()
    seen: set[int] = set()
    samples = []
    for s in run.samples:
        fast = s.launch in seen and s.arm == "candidate"
        seen.add(s.launch)
        shift = 0.09 if fast else 0.0
        bursts = tuple(replace(b, elapsed_s=b.elapsed_s - shift) for b in s.bursts)
        samples.append(replace(s, bursts=bursts))
    found = gate(replace(run, samples=tuple(samples)), "plausibility:prefill")
    assert found.state == "FAIL"
    assert "prompt cache" in found.reason


def other_rounds(run: HarnessResult, arm: str) -> HarnessResult:
    """The run in which one launch of ``arm`` has every draft of its DSpark run accepted."""
    first = next(launch.launch for launch in run.launches if launch.arm == arm)
    made = sample(rounds=(5, 5, 5, 5))
    return replace(
        run,
        samples=tuple(
            replace(s, bursts=made.bursts, reported=made.reported)
            if (s.launch, s.mode) == (first, "dspark")
            else s
            for s in run.samples
        ),
    )


def test_rounds_that_differ_between_launches_mean_that_one_knew_more_than_the_prompt() -> None:
    found = gate(other_rounds(result(), "candidate"), "plausibility:repeatable")
    assert found.state == "FAIL"
    assert "burst 1 of dspark differs" in found.reason
    assert "(5 tokens and 3 tokens)" in found.reason
    broken = gate(other_rounds(result(), "baseline"), "baseline")
    assert (broken.state, "burst 1 of dspark" in broken.reason) == ("FAIL", True)


def test_tokens_that_differ_between_launches_of_the_candidate_fail() -> None:
    run = result()
    last = max(launch.launch for launch in run.launches if launch.arm == "candidate")
    wobbling = replace(
        run, samples=tuple(replace(s, token_ids=TEXT[::-1]) if s.launch == last else s for s in run.samples)
    )
    assert gate(wobbling, "plausibility:repeatable").state == "FAIL"


def test_one_launch_alone_repeats_nothing() -> None:
    run = result()
    once = replace(run, samples=tuple(s for s in run.samples if s.slot < 2))
    assert gate(once, "plausibility:repeatable").state == "NOT_RUN"


def test_output_that_loops_voids_the_rate() -> None:
    assert gate(edit(result(), "candidate", token_ids=(7,) * 21), "plausibility:output").state == "FAIL"


def arm_engine(run: HarnessResult, arm: str, **changes: object) -> HarnessResult:
    return replace(
        run,
        launches=tuple(
            replace(x, engine=replace(x.engine, **changes)) if x.arm == arm and x.engine else x
            for x in run.launches
        ),
    )


def test_an_override_the_plan_does_not_name_makes_a_run_unscorable() -> None:  # A02
    run = arm_engine(result(), "candidate", overrides={"NSPLITS": "1"})
    found = gate(run, gates.CONFIGURATION)
    assert found.state == "FAIL"
    assert "NSPLITS=1" in found.reason
    assert gates.CONFIGURATION in gates.UNSCORABLE
    named = replace(run, plan=replace(run.plan, engine_environment={"NSPLITS": "1"}))
    assert gate(named, gates.CONFIGURATION).state == "PASS"


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "cuda"},
        {"dtype": "bfloat16"},
        {"draft_sha256": "x"},
        {"tokenizer_sha256": "x"},
        {"torch_version": "9"},
        {"target_sha256": "x"},
    ],
)
def test_arms_on_different_ground_make_a_run_unscorable(changes: dict[str, object]) -> None:
    assert gate(arm_engine(result(), "candidate", **changes), gates.CONFIGURATION).state == "FAIL"


@pytest.mark.parametrize("handed", [("other", "d"), ("t", "other"), ("t", None)])
def test_a_worker_that_loaded_other_files_makes_a_run_unscorable(handed: tuple[str, str | None]) -> None:
    target, draft = handed
    as_handed = {"m": ModelHashes(target_sha256="t", draft_sha256="d")}
    assert gate(replace(result(), models=as_handed), gates.CONFIGURATION).state == "PASS"
    other = {"m": ModelHashes(target_sha256=target, draft_sha256=draft)}
    found = gate(replace(result(), models=other), gates.CONFIGURATION)
    assert found.state == "FAIL"
    assert "but was handed" in found.reason


def test_the_candidates_own_word_bounds_nothing() -> None:
    heavy = replace(ENGINE, weights_bytes=14_000_000_000)
    light = arm_engine(result(engine=heavy), "candidate", weights_bytes=1)
    assert gate(light, "plausibility:bandwidth").state == "FAIL"
    deep = arm_engine(claim_of_depth(9), "candidate", block_size=9)
    assert "at depth 4" in gate(deep, "plausibility:counters").reason


def claim_of_depth(proposed: int) -> HarnessResult:
    """A run whose candidate reports ``proposed`` drafts in every round."""
    run = result()

    def deep(s: Sample) -> Sample:
        claims = replace(s.reported, proposed=(proposed,) * len(s.reported.proposed))
        return replace(s, reported=claims) if s.arm == "candidate" else s

    return replace(run, samples=tuple(map(deep, run.samples)))


def test_an_end_that_no_stop_token_made_is_no_end() -> None:
    run = edit(result(), "candidate", observed_stop=False)
    said = claim(run, "candidate", finish_reason="stop")
    assert gate(run, "losslessness").state == "PASS"
    assert gate(said, "losslessness").state == gate(said, "ar-tokens").state == "FAIL"
    assert "no stop token" in gate(said, "losslessness").reason
    ended = claim(edit(result(), "candidate", observed_stop=True), "candidate", finish_reason="stop")
    assert gate(ended, "losslessness").state == "PASS"


def test_another_depth_is_a_change_and_not_a_configuration() -> None:
    assert gate(arm_engine(result(), "candidate", proposals=2), gates.CONFIGURATION).state == "PASS"


def test_main_that_fails_twice_is_a_broken_baseline() -> None:
    failed = LaunchFailure(stage="load", kind="exit", detail="The worker ended with status 1.")
    run = result()
    mine = [x.launch for x in run.launches if x.arm == "baseline"][:2]
    broken = replace(
        run,
        launches=tuple(replace(x, failure=failed) if x.launch in mine else x for x in run.launches),
    )
    assert gate(broken, gates.BASELINE).state == "FAIL"


def _guards(ratios: dict[str, float], measured: tuple[str, ...]) -> dict[str, str]:
    """States of guard gates over six cases of 4 pairs each with a spread of 1 %."""
    cases = tuple(msgspec.structs.replace(GUARD, name=name, metrics=("decode",)) for name in ratios)
    axes = {}
    for name in measured:
        effect, looks = math.log(ratios[name]), Looks.reached((2,), 2)
        given = [Pair(i // 2, 0.0, effect + e, i % 2 == 1) for i, e in enumerate((0.01, -0.01, 0.01, -0.01))]
        axes[f"{name}:dspark"] = paired.judge(f"{name}:dspark", "tok/s", given, [given], looks, 0.95)
    plan = msgspec.structs.replace(PLAN, cases=cases)
    return {gate.name.split(":")[1]: gate.state for gate in gates.guards(plan, axes, POLICY)}


def test_one_guard_among_many_fails_only_by_more_than_it_would_alone() -> None:
    names = [f"g{i}" for i in range(6)]
    slightly = dict.fromkeys(names, 1.0) | {"g0": 0.962}
    badly = dict.fromkeys(names, 1.0) | {"g0": 0.90}
    assert _guards({"g0": 0.962}, ("g0",)) == {"g0": "FAIL"}
    assert _guards(slightly, tuple(names))["g0"] == "NOT_RUN"
    assert _guards(badly, tuple(names))["g0"] == "FAIL"


def test_a_guard_is_judged_alike_before_and_after_the_others_were_measured() -> None:
    names = [f"g{i}" for i in range(6)]
    slightly = dict.fromkeys(names, 1.0) | {"g0": 0.962}
    assert _guards(slightly, ("g0",))["g0"] == _guards(slightly, tuple(names))["g0"]
