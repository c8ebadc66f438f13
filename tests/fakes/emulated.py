"""Scenarios of tests/emulator measured by the real manager in this process, on plans of seconds."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec

from harness.manager import Run
from harness.plans import QWEN3
from harness.progress import Progress
from harness.scenario import DRAFT_SHA256, TARGET_SHA256
from harness.schema import AccuracyPlan, Case, HarnessResult, ModelFiles, Policy, RunPlan, RunRequest
from tests.fakes.scenario import REPOSITORY, source

SCENARIOS = REPOSITORY / "tests" / "emulator"
POLICY = Policy(max_reported_gap=0.5)
"""A busy machine delays messages by more than the 5 % that a measurement is allowed; lies are larger."""
SCORED = Case(
    name="short",
    role="scored",
    model=QWEN3,
    context_tokens=100,
    new_tokens=24,
    domains=("prose", "code"),
)
GUARD = Case(
    name="long",
    role="guard",
    model=QWEN3,
    context_tokens=200,
    new_tokens=24,
    domains=("prose", "code"),
    metrics=("decode", "prefill"),
)
ONCE = RunPlan(name="once", cases=(SCORED,), launch_timeout_s=20.0, request_timeout_s=5.0, warmup_tokens=32)
"""One quad of the scored case: enough for what is wrong in every launch."""
SPEED = msgspec.structs.replace(
    ONCE,
    name="speed",
    cases=(msgspec.structs.replace(SCORED, quads=2),),
    accuracy=AccuracyPlan(model=QWEN3, context_tokens=100, windows=1, positions=8),
)
"""Enough pairs of the scored case for a tier."""
PREFILLED = msgspec.structs.replace(
    SPEED,
    name="prefilled",
    cases=(msgspec.structs.replace(SCORED, quads=2, metrics=("decode", "prefill")),),
)
"""Where the time to the first token of the scored case counts too."""
GUARDED = msgspec.structs.replace(SPEED, name="guarded", cases=(*SPEED.cases, GUARD))
"""With a guard, whose prompts alone are longer than 150 tokens."""
GUARD_FIRST = msgspec.structs.replace(ONCE, name="guard-first", cases=(GUARD, SCORED))
"""What is wrong at the guard's context is found in one quad."""


def scenario(name: str) -> Path:
    return SCENARIOS / f"{name}.toml"


def run(request: RunRequest) -> HarnessResult:
    """Answer a request here: starting a manager for each test would take longer than the test."""
    return Run(request, Progress(request.plan, io.StringIO())).execute()


def measure(name: str, plan: RunPlan = ONCE, seed: int = 1) -> HarnessResult:
    """Measure one scenario once."""
    target = REPOSITORY / "corpus" / "models" / "qwen3-tiny" / "target"
    return run(
        RunRequest(
            plan=plan,
            seed=seed,
            baseline=source(scenario(name), "baseline", seed),
            candidate=source(scenario(name), "candidate", seed),
            models=(
                ModelFiles(
                    name=QWEN3, target=str(target), target_sha256=TARGET_SHA256, draft_sha256=DRAFT_SHA256
                ),
            ),
            corpus=str(REPOSITORY / "corpus"),
            watch=False,
        )
    )
