"""Harness results built by hand: exact rates and texts, no processes, no noise unless asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness import schedule
from harness.schema import (
    AccuracyPlan,
    AccuracySample,
    Arm,
    Burst,
    Case,
    EngineReport,
    Environment,
    HarnessResult,
    Launch,
    Mode,
    ReportedGeneration,
    RunPlan,
    Sample,
)

SCORED = Case(
    name="main", role="scored", model="m", context_tokens=100, new_tokens=21, domains=("prose",), quads=2
)
GUARD = Case(
    name="long",
    role="guard",
    model="m",
    context_tokens=200,
    new_tokens=21,
    domains=("prose",),
    metrics=("decode", "prefill"),
)
PLAN = RunPlan(
    name="test",
    cases=(SCORED, GUARD),
    accuracy=AccuracyPlan(model="m", context_tokens=100, windows=1, positions=8),
)
ENVIRONMENT = Environment(
    hostname_sha256="h", os="o", python="p", cpu="c", cores=2, memory_bytes=1, bandwidth_bytes_s=1e12
)
ENGINE = EngineReport(
    commit_sha="c",
    device="cpu",
    dtype="float32",
    torch_version="2",
    proposals=4,
    block_size=4,
    depth_policy="fixed",
    overrides={},
    target_sha256="t",
    draft_sha256="d",
    tokenizer_sha256="k",
    threads=2,
    weights_bytes=1000,
)
TEXT = tuple(range(100, 121))

Slowness = Callable[[Launch], float]
"""Factor on every time of a launch."""


def sample(
    *,
    arm: Arm = "candidate",
    mode: Mode = "dspark",
    rounds: Sequence[int] = (3, 2, 3, 2, 3, 2, 3, 2),
    round_s: float = 0.012,
    token_ids: tuple[int, ...] = TEXT,
    case: str = "main",
    launch: int = 0,
    quad: int = 0,
    slot: int = 0,
    prompt_id: str = "p",
    prefill_s: float = 0.1,
    accepted: Sequence[int] | None = None,
    proposed: Sequence[int] | None = None,
    requested: int = 21,
    domain: str = "prose",
) -> Sample:
    """One generation whose first burst holds one token; ``rounds`` are the later bursts."""
    sizes = [1, *rounds] if token_ids else []
    bursts = tuple(Burst(elapsed_s=prefill_s + i * round_s, tokens=n) for i, n in enumerate(sizes))
    spoken = mode == "dspark"
    return Sample(
        case=case,
        arm=arm,
        mode=mode,
        quad=quad,
        slot=slot,
        launch=launch,
        prompt_id=prompt_id,
        domain=domain,
        prompt_tokens=100,
        prompt_sha256="s",
        requested_tokens=requested,
        token_ids=token_ids,
        bursts=bursts,
        reported=ReportedGeneration(
            prefill_tokens=100,
            prompt_sha256="s",
            proposed=tuple(proposed if proposed is not None else [4] * len(rounds)) if spoken else (),
            accepted=tuple(accepted if accepted is not None else [n - 1 for n in rounds]) if spoken else (),
            decode_s=round_s * len(rounds),
            finish_reason="length",
            temperature=0.0,
        ),
    )


def result(
    *,
    ar: float = 1.0,
    dspark: float = 1.0,
    plan: RunPlan = PLAN,
    seed: int = 1,
    noise: Slowness = lambda launch: 1.0,
    top1: float = 1.0,
    kl: float = 0.0,
    engine: EngineReport = ENGINE,
) -> HarnessResult:
    """A run of an honest engine; ``ar`` and ``dspark`` are the candidate's speed as a factor of main's."""
    launches: list[Launch] = []
    samples: list[Sample] = []
    for case in plan.cases:
        for quad in range(case.quads):
            for slot in schedule.slots(seed, case, quad):
                launch = Launch(
                    launch=len(launches),
                    arm=slot.arm,
                    case=case.name,
                    quad=quad,
                    slot=slot.slot,
                    started_s=float(len(launches)),
                    duration_s=1.0,
                    engine=engine,
                )
                launches.append(launch)
                slow = noise(launch)
                speeds = {"ar": ar, "dspark": dspark} if slot.arm == "candidate" else {}
                for mode, rounds, base in (("ar", [1] * 20, 0.01), ("dspark", [3, 2] * 4, 0.012)):
                    samples.append(
                        sample(
                            arm=slot.arm,
                            mode="ar" if mode == "ar" else "dspark",
                            rounds=rounds,
                            round_s=base * slow / speeds.get(mode, 1.0),
                            case=case.name,
                            launch=launch.launch,
                            quad=quad,
                            slot=slot.slot,
                            prompt_id=f"{case.name}-{quad}",
                            prefill_s=0.1 * slow,
                        )
                    )
    windows = plan.accuracy.windows if plan.accuracy else 0
    return HarnessResult(
        schema_version=1,
        plan=plan,
        seed=seed,
        prompt_seed=seed,
        environment=ENVIRONMENT,
        launches=tuple(launches),
        samples=tuple(samples),
        accuracy=tuple(
            AccuracySample(
                window_id=f"w{i}",
                context_tokens=100,
                positions=8,
                top1_agreement=top1,
                kl_nats=kl,
                baseline_nll=2.0,
                candidate_nll=2.0,
            )
            for i in range(windows)
        ),
        duration_s=10.0,
    )
