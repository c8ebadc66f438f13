"""One launch as a value: start a worker, let it load, give it a task, and record how that went."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from harness.client import Client, WorkerSaidNo
from harness.launch import WorkerProcess
from harness.printable import plain
from harness.protocol import ChannelClosed, ChannelTimeout, ProtocolError, Ready
from harness.schema import (
    ArmSource,
    EngineReport,
    Launch,
    LaunchFailure,
    LaunchStage,
    ModelFiles,
    RunPlan,
)

T = TypeVar("T")
OURS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors of a start that say that this machine is full, whatever was to be started."""
Kind = Literal["exit", "timeout", "protocol", "engine_error", "spawn"]
DETAIL_CHARACTERS = 600

DOING: dict[LaunchStage, str] = {
    "start": "while starting",
    "load": "while loading the model",
    "warmup": "while warming up",
    "generate": "while generating",
    "score": "while scoring",
    "stop": "while stopping",
}


class MachineFull(Exception):
    """This machine cannot start a process. The message is a sentence."""


@dataclass(frozen=True)
class Place:
    """Where in a run a launch belongs."""

    number: int
    case: str
    quad: int = 0
    slot: int = 0


def launch(
    source: ArmSource,
    plan: RunPlan,
    model: ModelFiles,
    max_tokens: int,
    place: Place,
    run_started: float,
    task: Callable[[Client, int], T],
) -> tuple[Launch, T | None]:
    """Run ``task`` (client, launch number) in a fresh worker. The value is None exactly if that failed.

    ``run_started`` is the ``time.perf_counter`` instant that ``Launch.started_s`` counts from. Raises
    MachineFull where no worker at all could be started here.
    """
    started = time.perf_counter()
    value: T | None = None
    ready: Ready | None = None
    failure: LaunchFailure | None = None
    try:
        with WorkerProcess(source, plan.engine_environment, place.number, place.slot) as worker:
            client = Client(worker.channel, plan.launch_timeout_s, plan.request_timeout_s)
            try:
                ready = client.load(model, max_tokens)
                if ready.commit_sha != source.commit_sha:
                    raise ProtocolError(
                        f"the worker reports commit {ready.commit_sha[:12]}, "
                        f"but {source.commit_sha[:12]} was built"
                    )
                value = task(client, place.number)
                client.shutdown()
            except (ProtocolError, ChannelClosed, ChannelTimeout, WorkerSaidNo) as error:
                failure = _failure(error, client.stage, worker, time.perf_counter() - started)
    except OSError as error:
        if error.errno in OURS:
            raise MachineFull(f"This machine could not start a worker: {error.strerror}.") from None
        detail = f"The worker could not be started: {error.strerror}."
        failure = LaunchFailure(stage="start", kind="spawn", detail=detail)
    record = Launch(
        launch=place.number,
        arm=source.arm,
        case=place.case,
        quad=place.quad,
        slot=place.slot,
        started_s=started - run_started,
        duration_s=time.perf_counter() - started,
        engine=None if ready is None else _report(ready),
        failure=failure,
    )
    return record, None if failure is not None else value


def _failure(error: Exception, stage: LaunchStage, worker: WorkerProcess, after_s: float) -> LaunchFailure:
    doing = DOING[stage]
    kind: Kind
    if isinstance(error, WorkerSaidNo):
        kind, detail = "engine_error", str(error)
    elif isinstance(error, ProtocolError):
        kind, detail = "protocol", f"The worker broke the protocol {doing}: {error}."
    elif isinstance(error, ChannelTimeout):
        kind, detail = (
            "timeout",
            f"The worker did not answer in time {doing} ({after_s:.0f} s after its start).",
        )
    else:
        kind, detail = "exit", f"The worker {_ending(worker.wait())} {doing}"
    tail = worker.tail()
    if kind == "exit":
        last = tail.rsplit("\n", 1)[-1].strip()
        detail += f": {last}" if last else "."
    # A decoder's complaint quotes what it cannot read, so it is made plain like what a worker says.
    return LaunchFailure(stage=stage, kind=kind, detail=plain(detail)[:DETAIL_CHARACTERS], stderr_tail=tail)


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its socket but kept running"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _report(ready: Ready) -> EngineReport:
    return EngineReport(
        commit_sha=ready.commit_sha,
        device=ready.device,
        dtype=ready.dtype,
        torch_version=ready.torch_version,
        proposals=ready.proposals,
        block_size=ready.block_size,
        depth_policy=ready.depth_policy,
        overrides=ready.overrides,
        target_sha256=ready.target_sha256,
        draft_sha256=ready.draft_sha256,
        tokenizer_sha256=ready.tokenizer_sha256,
        threads=ready.threads,
        weights_bytes=ready.weights_bytes,
    )
