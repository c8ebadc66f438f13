"""Trusted parent of every worker: ``python -m harness.manager REQUEST.json RESULT.json``.

``-`` as request stands for standard input: the seed, which no worker may know, then lies in no file.

Owns the clock, the prompts and the order. Cases run as the plan lists them, the cheap and the most likely
to fail first; then those that are undecided run on from look to look. A failed gate ends the run, since
nothing can undo it. A failed launch is tried once more; an arm whose launches fail twice ends the run too.
Progress goes to standard output, one JSON object a line; the result is written whole or not at all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import msgspec
import numpy as np

from harness import compare, gates, schedule, sequential, session, tasks
from harness.client import Client
from harness.corpus import Corpus, CorpusError, ModelView
from harness.environment import Observer, Unwatched, Watch
from harness.metrics import accuracy, losslessness
from harness.metrics.accuracy import Matrix
from harness.progress import Progress
from harness.prompts import SyntheticPrompt, accuracy_window
from harness.schema import (
    SCHEMA_VERSION,
    AccuracyPlan,
    AccuracySample,
    Admission,
    Arm,
    ArmSource,
    Case,
    Divergence,
    HarnessResult,
    Launch,
    ModelFiles,
    ModelHashes,
    RunRequest,
    Sample,
    Settled,
    encode_json,
)

T = TypeVar("T")
ACCURACY_DOMAIN = "accuracy"
MAX_LAUNCH_FAILURES = 2
MAX_DIVERGENCES = 64
"""Differences of a model that main is asked about; more than these are no near-ties."""


class ArmFailed(Exception):
    """An arm has failed too often: the run is over, and what it saw until here stands."""


class Interrupted(BaseException):
    """The run was told to stop by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Run:
    """One run of one plan. ``execute`` returns whatever was seen, however it ended."""

    def __init__(self, request: RunRequest, progress: Progress) -> None:
        self.request = request
        self.plan = request.plan
        self.progress = progress
        self.prompt_seed = random.Random(f"{request.seed}/prompts").getrandbits(32)
        self._watch = Watch() if request.watch else Unwatched()
        self.started = time.perf_counter()
        self.launches: list[Launch] = []
        self.samples: list[Sample] = []
        self.accuracy: list[AccuracySample] = []
        self.admissions: list[Admission] = []
        self.divergences: tuple[Divergence, ...] = ()
        self._drawn: tasks.Drawn = {}
        self._views: dict[str, ModelView] = {}
        self._failures: Counter[Arm] = Counter()
        self._quads: Counter[str] = Counter()
        self._observer = Observer()

    def execute(self) -> HarnessResult:
        """Measure the plan. A run that ends before it says why in ``error``, ``settled`` or its launches."""
        error: str | None = None
        settled: Settled | None = None
        try:
            settled = self._measure()
        except ArmFailed:
            if self._failures["baseline"] >= MAX_LAUNCH_FAILURES:
                last = next(x for x in reversed(self.launches) if x.arm == "baseline" and x.failure)
                assert last.failure is not None
                error = f"Main's own worker failed twice: {last.failure.detail}"
        except (CorpusError, SyntheticPrompt, session.MachineFull) as fault:
            error = str(fault)
        self._observer.ended()
        return self._result(error, settled)

    def _result(self, error: str | None = None, settled: Settled | None = None) -> HarnessResult:
        return HarnessResult(
            schema_version=SCHEMA_VERSION,
            plan=self.plan,
            seed=self.request.seed,
            prompt_seed=self.prompt_seed,
            environment=self._observer.environment(),
            launches=tuple(self.launches),
            samples=tuple(self.samples),
            accuracy=tuple(self.accuracy),
            duration_s=time.perf_counter() - self.started,
            admissions=tuple(self.admissions),
            divergences=self.divergences,
            error=error,
            settled=settled,
            between_builds=self.request.between_builds,
            models={
                model.name: ModelHashes(target_sha256=model.target_sha256, draft_sha256=model.draft_sha256)
                for model in self.request.models
            },
        )

    def _measure(self) -> Settled | None:
        """Every case to its first look, then the undecided ones on. Returns what made an early end."""
        corpus = Corpus(Path(self.request.corpus))
        for case in self.plan.cases:
            if case.model not in self._views:
                model = self._files(case.model)
                self._views[case.model] = corpus.view(case.model, Path(model.target))
                mine = [each for each in self.plan.cases if each.model == case.model]
                self._admit(case.model, [(each, range(each.quads)) for each in mine])
                if self.plan.accuracy is not None and self.plan.accuracy.model == case.model:
                    self._score(self.plan.accuracy)
            self._run_to(case, case.quads)
            _, settled = self._judge()
            if settled is not None:
                return settled
        due, _ = self._judge()
        while due:
            for case in due:
                quads = next(look for look in case.looks if look > self._quads[case.name])
                self.progress.extended(case, quads - self._quads[case.name])
                self._admit(case.model, [(case, range(self._quads[case.name], quads))])
                self._run_to(case, quads)
                due, settled = self._judge()
                if settled is not None:
                    return settled
        return None

    def _run_to(self, case: Case, quads: int) -> None:
        for quad in range(self._quads[case.name], quads):
            for slot in schedule.slots(self.request.seed, case, quad):
                self._time(case, slot)
        self._quads[case.name] = quads
        self.divergences += self._weigh(self._new_differences())

    def _judge(self) -> tuple[tuple[Case, ...], Settled | None]:
        """Cases that need another look, or why none does although the plan has not been run."""
        seen, policy = self._result(), self.request.policy
        # The memory is read once more at the end, so a bound that is missed now may hold then.
        judged = tuple(gate for gate in gates.judge(seen, policy) if gate.name != gates.BANDWIDTH)
        names = sequential.due(self.plan, compare.judged(seen, policy), judged, policy)
        due = tuple(case for name in names for case in self.plan.cases if case.name == name)
        failed = sequential.failed(judged)
        not_run = [case.name for case in self.plan.cases if not self._quads[case.name]]
        if self.plan.accuracy is not None and not self.accuracy:
            not_run.append("accuracy")
        if failed is None or not not_run:
            return due, None
        return due, Settled(gate=failed.name, not_run=tuple(not_run))

    def _new_differences(self) -> tuple[Divergence, ...]:
        known = {(item.case, item.prompt_id) for item in self.divergences}
        found = losslessness.between_arms(self.samples)
        return tuple(item for item in found if (item.case, item.prompt_id) not in known)

    def _admit(self, model: str, wanted: Sequence[tuple[Case, range]]) -> None:
        view, policy = self._views[model], self.request.policy
        longest = max(_room(case) for case, _ in wanted)
        admitted = self._launch(
            self.request.baseline,
            model,
            longest,
            schedule.admission(model),
            lambda client, _: tasks.admit(client, view, wanted, policy, self.prompt_seed),
        )
        self._drawn |= admitted.prompts
        self.admissions += admitted.record

    def _time(self, case: Case, slot: schedule.Slot) -> None:
        view, chosen = self._views[case.model], self._drawn[case.name, slot.quad]
        self.samples += self._launch(
            self._source(slot.arm),
            case.model,
            _room(case),
            case.name,
            lambda client, number: tasks.time_prompts(
                client, view, case, slot, chosen, self.plan, self.prompt_seed, number
            ),
            slot.quad,
            slot.slot,
        )

    def _score(self, plan: AccuracyPlan) -> None:
        view = self._views[plan.model]
        windows = [
            accuracy_window(view, ACCURACY_DOMAIN, plan.context_tokens, i, plan.windows, self.prompt_seed)
            for i in range(plan.windows)
        ]
        scores: dict[Arm, list[Matrix]] = {}
        for source in (self.request.baseline, self.request.candidate):
            scores[source.arm] = self._launch(
                source,
                plan.model,
                plan.context_tokens + 1,
                "accuracy",
                lambda client, _: tasks.score_windows(client, windows, plan.positions),
            )
        for window, main, candidate in zip(windows, scores["baseline"], scores["candidate"], strict=True):
            targets = np.array(window.ids[-plan.positions :], dtype=np.int64)
            seen = accuracy.compare(main, candidate, targets)
            self.accuracy.append(
                AccuracySample(
                    window_id=window.id,
                    context_tokens=len(window.ids),
                    positions=plan.positions,
                    top1_agreement=seen.top1_agreement,
                    kl_nats=seen.kl_nats,
                    baseline_nll=seen.baseline_nll,
                    candidate_nll=seen.candidate_nll,
                )
            )

    def _weigh(self, found: tuple[Divergence, ...]) -> tuple[Divergence, ...]:
        """Ask main how close its choice was at each first difference between AR outputs, and after it."""
        prompts = {
            (name, prompt.id): prompt for (name, _), chosen in self._drawn.items() for prompt in chosen
        }

        def spoken(item: Divergence) -> tuple[tuple[int, ...], tuple[int, ...]]:
            output = next(s.token_ids for s in self.samples if losslessness.found_in(s, item))
            return prompts[item.case, item.prompt_id].ids, output

        weighed: list[Divergence] = []
        for model in self._views:
            cases = [case for case in self.plan.cases if case.model == model]
            names = {case.name for case in cases}
            mine = [item for item in found if item.case in names][:MAX_DIVERGENCES]
            if mine:
                room = max(_room(case) for case in cases)
                task = partial(_weigh, mine, spoken)
                weighed += self._launch(self.request.baseline, model, room, "divergence", task)
        return tuple(weighed)

    def _launch(
        self,
        source: ArmSource,
        model: str,
        max_tokens: int,
        case: str,
        task: Callable[[Client, int], T],
        quad: int = 0,
        slot: int = 0,
    ) -> T:
        """One launch, tried again once. Raises ArmFailed when its arm has failed too often."""
        while True:
            place = session.Place(len(self.launches), case, quad, slot)
            self.progress.launch_started(source.arm, place)
            before = self._watch.before()
            record, value = session.launch(
                source,
                self.plan,
                self._files(model),
                max_tokens,
                place,
                self.started,
                task,
            )
            record = msgspec.structs.replace(record, before=before, after=self._watch.after())
            self.launches.append(record)
            self.progress.launch_finished(record)
            if value is not None:
                return value
            self._failures[source.arm] += 1
            if self._failures[source.arm] >= MAX_LAUNCH_FAILURES:
                raise ArmFailed

    def _source(self, arm: Arm) -> ArmSource:
        return self.request.baseline if arm == "baseline" else self.request.candidate

    def _files(self, model: str) -> ModelFiles:
        for files in self.request.models:
            if files.name == model:
                return files
        raise CorpusError(f"The plan names model {model!r}, but the request does not say where it lies.")


def main(arguments: list[str]) -> int:
    """0 with a result written; 2 for a request that cannot be read; 128 + n when stopped by signal n."""
    if len(arguments) != 2:
        print("usage: python -m harness.manager REQUEST.json|- RESULT.json", file=sys.stderr)
        return 2
    asked, answered = arguments[0], Path(arguments[1])
    try:
        content = sys.stdin.buffer.read() if asked == "-" else Path(asked).read_bytes()
        request = msgspec.json.decode(content, type=RunRequest)
    except (OSError, msgspec.DecodeError) as error:
        print(f"The request {asked} cannot be read: {error}.", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        result = Run(request, Progress(request.plan)).execute()
        _write(answered, encode_json(result))
    except Interrupted as stop:
        print(f"The run was stopped by {stop}.", file=sys.stderr)
        return 128 + stop.number
    return 0


def _weigh(
    found: Sequence[Divergence], spoken: tasks.Spoken, client: Client, _: int
) -> tuple[Divergence, ...]:
    return tasks.weigh(client, found, spoken)


def _room(case: Case) -> int:
    return case.context_tokens + case.new_tokens


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # A second signal must not cut short the cleaning up that the first one started.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
