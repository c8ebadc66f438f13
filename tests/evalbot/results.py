"""Synthetic runs with programmable arms, for everything that judges and speaks.

Standard library and ``harness.schema`` only: the fake manager of ``fake_repo`` runs this file too.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from harness.schema import (
    SCHEMA_VERSION,
    AccuracyPlan,
    AccuracySample,
    Arm,
    Burst,
    Case,
    EngineReport,
    Environment,
    HarnessResult,
    Launch,
    LaunchFailure,
    Mode,
    ReportedGeneration,
    RunPlan,
    Sample,
)

DOMAINS = ("prose", "code", "chat")
ABBA: tuple[Arm, ...] = ("baseline", "candidate", "candidate", "baseline")
FIRST_BURST_S = 0.5


@dataclass(frozen=True)
class Behaviour:
    """One arm. ``noise`` is the standard deviation of a launch's log-rate."""

    dspark_tok_s: float = 50.0
    ar_tok_s: float = 25.0
    prefill_scale: float = 1.0
    guard_scale: float = 1.0
    rounds: tuple[int, ...] = (3, 2, 4, 3)
    """Tokens per round, repeated."""
    noise: float = 0.002
    wrong_token_at: int | None = None
    """Position at which DSpark's output leaves AR's."""
    empty: bool = False
    top1: float = 1.0
    kl_nats: float = 0.0
    failures: tuple[LaunchFailure, ...] = ()
    """Failures of the first launches of the scored case."""
    modes: tuple[Mode, ...] = ("ar", "dspark")
    """What is measured at all."""
    overrides: tuple[tuple[str, str], ...] = ()


def plan(quads: int = 4, windows: int = 2) -> RunPlan:
    return RunPlan(
        name="fake",
        cases=(
            Case(
                name="chat", role="scored", model="tiny", context_tokens=192, new_tokens=33,
                domains=DOMAINS, quads=quads,
            ),
            Case(
                name="long", role="guard", model="tiny", context_tokens=768, new_tokens=17,
                domains=("prose",), metrics=("decode", "prefill"), quads=quads,
            ),
        ),
        accuracy=AccuracyPlan(model="tiny", context_tokens=192, windows=windows, positions=16),
    )  # fmt: skip


def run(
    baseline: Behaviour | None = None,
    candidate: Behaviour | None = None,
    *,
    quads: int = 4,
    seed: int = 0,
    error: str | None = None,
) -> HarnessResult:
    """One whole run of ``plan(quads)``."""
    arms = {"baseline": baseline or Behaviour(), "candidate": candidate or Behaviour()}
    noise = random.Random(seed)
    what = plan(quads)
    launches: list[Launch] = []
    samples: list[Sample] = []
    failed = {"baseline": 0, "candidate": 0}
    for case in what.cases:
        for quad in range(quads):
            for slot, arm in enumerate(ABBA):
                behaviour = arms[arm]
                while case.role == "scored" and failed[arm] < len(behaviour.failures):
                    broken = behaviour.failures[failed[arm]]
                    failed[arm] += 1
                    launches.append(_launch(len(launches), arm, case.name, quad, slot, behaviour, broken))
                    if failed[arm] > 1:
                        break
                else:
                    number = len(launches)
                    launches.append(_launch(number, arm, case.name, quad, slot, behaviour, None))
                    drift = 2.718281828 ** noise.gauss(0.0, behaviour.noise)
                    samples += _samples(case, arm, quad, slot, number, behaviour, drift)
            if max(failed.values()) > 1:
                return _result(what, seed, launches, samples, (), error)
    accuracy = tuple(
        AccuracySample(
            window_id=f"w{index}", context_tokens=192, positions=16, top1_agreement=arms["candidate"].top1,
            kl_nats=arms["candidate"].kl_nats, baseline_nll=2.0, candidate_nll=2.0,
        )
        for index in range(2)
    )  # fmt: skip
    return _result(what, seed, launches, samples, accuracy, error)


def failure(detail: str = "The worker exited with status 1.", stage: str = "load") -> LaunchFailure:
    return LaunchFailure(stage=stage, kind="exit", detail=detail)


def _result(
    what: RunPlan,
    seed: int,
    launches: list[Launch],
    samples: list[Sample],
    accuracy: tuple[AccuracySample, ...],
    error: str | None,
) -> HarnessResult:
    return HarnessResult(
        schema_version=SCHEMA_VERSION, plan=what, seed=seed, prompt_seed=seed,
        environment=Environment(
            hostname_sha256="0" * 64, os="Linux", python="3.11", cpu="fake", cores=2,
            memory_bytes=8 * 10**9, bandwidth_bytes_s=20e9,
        ),
        launches=tuple(launches), samples=tuple(samples), accuracy=accuracy, duration_s=1.0, error=error,
    )  # fmt: skip


def _launch(
    number: int, arm: Arm, case: str, quad: int, slot: int, behaviour: Behaviour, failed: LaunchFailure | None
) -> Launch:
    engine = EngineReport(
        commit_sha="c" * 40, device="cpu", dtype="float32", torch_version="2.13.0", proposals=5,
        block_size=7, depth_policy="5 proposals from 0 tokens", overrides=dict(behaviour.overrides),
        target_sha256="a" * 64, draft_sha256="b" * 64, tokenizer_sha256="d" * 64, threads=2,
        weights_bytes=1000,
    )  # fmt: skip
    return Launch(
        launch=number, arm=arm, case=case, quad=quad, slot=slot, started_s=float(number), duration_s=1.0,
        engine=None if failed else engine, failure=failed,
    )  # fmt: skip


def _samples(
    case: Case, arm: Arm, quad: int, slot: int, number: int, behaviour: Behaviour, drift: float
) -> list[Sample]:
    scale = drift * (behaviour.guard_scale if case.role == "guard" else 1.0)
    found = []
    for domain in case.domains:
        prompt = f"{domain}:{quad}"
        for mode in behaviour.modes:
            rate = (behaviour.ar_tok_s if mode == "ar" else behaviour.dspark_tok_s) * scale
            sizes = (1,) * (case.new_tokens - 1) if mode == "ar" else _rounds(behaviour, case.new_tokens - 1)
            tokens = list(range(100, 100 + case.new_tokens))
            if mode == "dspark" and behaviour.wrong_token_at is not None:
                tokens[behaviour.wrong_token_at] += 1
            first_s = FIRST_BURST_S / (behaviour.prefill_scale * scale)
            bursts, at = [Burst(elapsed_s=first_s, tokens=1)], first_s
            for size in sizes:
                at += size / rate
                bursts.append(Burst(elapsed_s=at, tokens=size))
            if behaviour.empty:
                tokens, bursts, sizes, at = [], [], (), first_s
            sha = hashlib.sha256(f"{case.name}{prompt}".encode()).hexdigest()
            proposed = () if mode == "ar" else (5,) * len(sizes)
            accepted = () if mode == "ar" else tuple(size - 1 for size in sizes)
            found.append(
                Sample(
                    case=case.name, arm=arm, mode=mode, quad=quad, slot=slot, launch=number, prompt_id=prompt,
                    domain=domain, prompt_tokens=case.context_tokens, prompt_sha256=sha,
                    requested_tokens=case.new_tokens, token_ids=tuple(tokens), bursts=tuple(bursts),
                    reported=ReportedGeneration(
                        prefill_tokens=case.context_tokens, prompt_sha256=sha, proposed=proposed,
                        accepted=accepted, decode_s=at - first_s, finish_reason="length", temperature=0.0,
                        peak_memory_bytes=10**9,
                    ),
                )
            )  # fmt: skip
    return found


def _rounds(behaviour: Behaviour, tokens: int) -> tuple[int, ...]:
    sizes: list[int] = []
    while sum(sizes) < tokens:
        size = behaviour.rounds[len(sizes) % len(behaviour.rounds)]
        sizes.append(min(size, tokens - sum(sizes)))
    return tuple(sizes)
