"""What is known so far of one evaluation, and how it ends up in a record.

A story (``pipeline``, ``emulate``) fills an account stage by stage. However early it ends, the account
still makes a record: what is known by then, and a verdict that says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from evalbot import __version__, by_round, publish
from evalbot.errors import EvalbotError
from evalbot.listener import Listener
from evalbot.sandbox import Sandbox
from evalbot.score import deciding, needs_confirmation, score
from evalbot.types import RECORD_VERSION, Facts, Identity, Record, Request, Stop
from harness.schema import HarnessResult, Policy

SEED_BITS = 31

Measured = Callable[[str, int], HarnessResult]
"""One measurement: the name of its stage and its seed."""


class Account:
    """The state that the stages of an evaluation fill in, and nothing of how they do it."""

    def __init__(self, listener: Listener, plan: str | None, seed: int | None) -> None:
        self.listener, self.plan_name, self.seed = listener, plan, seed
        self.created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.sandbox = Sandbox()
        self.policy = Policy()
        self.identity = Identity()
        self.facts = Facts()
        self.runs: list[HarnessResult] = []
        self.uncalibrated = ""
        """Why no calibration matches, where one was looked for."""
        self.notes: list[str] = []
        self.timings: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        """Tell the listener that a stage begins, and add what it takes to ``timings``, failed or not."""
        self.listener.stage(name, detail)
        started = time.monotonic()
        try:
            yield
        finally:
            spent = self.timings.get(name, 0.0) + time.monotonic() - started
            self.timings[name] = round(spent, 3)

    def measure(self, plan: str, once: Measured) -> None:
        """Measure; where a gate failed, measure once more on fresh prompts before it counts."""
        seed = secrets.randbits(SEED_BITS) if self.seed is None else self.seed
        for stage, number in (("measure", seed), ("confirm", _confirmation_seed(seed))):
            with self.stage(stage, f"plan {plan}, seed {number}"):
                result = once(stage, number)
            self.runs.append(result)
            if not needs_confirmation(result, self.policy, self.facts):
                return

    def stop(self, error: EvalbotError) -> None:
        """Keep what ended the evaluation: the verdict will say it."""
        self.facts = msgspec.structs.replace(self.facts, stop=Stop(cause=error.cause, sentence=str(error)))

    def record(self, head: str, base: str) -> Record:
        """The record of what is known by now; ``head`` and ``base`` are the user's own words."""
        runs = tuple(self.runs)
        analysis = deciding(runs, self.policy)
        publishable, why = publish.judge(
            self.facts, self.identity.baseline, runs, self.created_at, self.uncalibrated
        )
        return Record(
            schema_version=RECORD_VERSION,
            created_at=self.created_at,
            evalbot_version=__version__,
            request=Request(head=head, base=base, plan=self.plan_name or "", seed=self.seed),
            identity=self.identity,
            policy=self.policy,
            facts=self.facts,
            runs=runs,
            measurements=analysis.measurements,
            comparisons=analysis.comparisons,
            gates=analysis.gates,
            verdict=score(runs, self.policy, self.facts),
            sandbox=self.sandbox.kind,
            notes=tuple(self.notes),
            timings=self.timings,
            calibration=self.facts.calibration,
            acceptance=by_round.acceptance(runs),
            definitions=by_round.DEFINITIONS,
            publishable=publishable,
            publishable_reason=why,
        )


def _confirmation_seed(seed: int) -> int:
    """Another seed that follows from the first, so that one number reproduces both measurements."""
    drawn = hashlib.sha256(f"confirmation of {seed}".encode()).digest()
    return int.from_bytes(drawn[:8]) >> (64 - SEED_BITS)
