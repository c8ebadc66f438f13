"""Whether a run holds all that its plan asks for, each thing once. Pure.

A rate over whatever happens to be there could be chosen by leaving things out: both arms of every quad must
have decoded the same prompts in the same modes to the same length, in launches that the run knows of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.schema import Case, HarnessResult, Launch, Sample

_ROUNDING = 1e-6


def fault(result: HarnessResult, spared: Iterable[str] = ()) -> str | None:
    """What is missing, doubled or out of place, as the end of a sentence; None for a whole run.

    ``spared``: cases, and ``accuracy``, that were rightly not run.
    """
    spared = set(spared)
    launches = {launch.launch: launch for launch in result.launches}
    if len(launches) != len(result.launches):
        return "two launches have one number"
    for sample in result.samples:
        launch = launches.get(sample.launch)
        if launch is None or _place(launch) != _place(sample):
            return f"a sample of case {sample.case} belongs to no launch of the run"
    for case in result.plan.cases:
        if case.name not in spared:
            found = _case_fault(case, result)
            if found is not None:
                return f"case {case.name}: {found}"
    return None if "accuracy" in spared else _accuracy_fault(result)


def _place(item: Launch | Sample) -> tuple[str, str, int, int]:
    return item.arm, item.case, item.quad, item.slot


def _case_fault(case: Case, result: HarnessResult) -> str | None:
    worked = [x for x in result.launches if x.case == case.name and x.failure is None]
    places = Counter((launch.quad, launch.slot) for launch in worked)
    quads = len({quad for quad, _ in places})
    if quads not in case.looks:
        return f"{quads} quads were run, and it is judged at {', '.join(map(str, case.looks))}"
    if (
        set(places) != {(quad, slot) for quad in range(quads) for slot in range(4)}
        or max(places.values()) > 1
    ):
        return "a quad does not hold four launches"
    for quad in range(quads):
        of_quad = [launch for launch in worked if launch.quad == quad]
        if Counter(launch.arm for launch in of_quad) != {"baseline": 2, "candidate": 2}:
            return f"quad {quad} does not hold two launches of each arm"
        sets = [_decoded(launch, result) for launch in of_quad]
        if any(each != sets[0] for each in sets):
            return f"the launches of quad {quad} did not decode the same prompts in the same modes"
        prompts = {prompt for prompt, _, _, _ in sets[0]}
        modes = {mode for _, _, mode, _ in sets[0]}
        if len(prompts) != len(case.domains) or modes != set(case.modes):
            return f"quad {quad} does not hold {len(case.domains)} prompts in {' and '.join(case.modes)}"
        if len(sets[0]) != len(prompts) * len(modes) or max(sets[0].values()) > 1:
            return f"a prompt of quad {quad} lacks a mode, or has one twice"
        if {requested for _, _, _, requested in sets[0]} != {case.new_tokens}:
            return f"quad {quad} was not asked for {case.new_tokens} tokens"
    return None


def _decoded(launch: Launch, result: HarnessResult) -> Counter[tuple[str, str, str, int]]:
    return Counter(
        (sample.prompt_id, sample.prompt_sha256, sample.mode, sample.requested_tokens)
        for sample in result.samples
        if sample.launch == launch.launch
    )


def _accuracy_fault(result: HarnessResult) -> str | None:
    plan = result.plan.accuracy
    if plan is None or not result.accuracy:
        return None
    if len({window.window_id for window in result.accuracy}) != len(result.accuracy):
        return "an accuracy window was scored twice"
    if any(window.positions != plan.positions for window in result.accuracy):
        return f"an accuracy window was not scored at {plan.positions} positions"
    if any(window.kl_nats < -_ROUNDING for window in result.accuracy):
        return "a divergence from main's distributions is negative"
    return None
