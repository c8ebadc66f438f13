"""The real manager against workers that crash, hang, lie and cheat."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from harness import environment, gates, probe
from harness.launch import WorkerProcess
from harness.manager import Run
from harness.manager import main as manager_main
from harness.progress import Progress
from harness.scenario import DRAFT_SHA256, TARGET_SHA256, Behaviour
from harness.schema import (
    AccuracyPlan,
    Arm,
    Case,
    Floors,
    GateResult,
    HarnessResult,
    ModelFiles,
    Policy,
    RunPlan,
    RunRequest,
    encode_json,
)
from tests.fakes import corpus as fake
from tests.fakes import scenario as scenarios
from tests.fakes.corpus import FakeCorpus

REPOSITORY = Path(__file__).parents[2]
POLICY = Policy(min_launches=2)
PATIENT = Policy(
    min_launches=2, floors=Floors(ar=0.01, dspark=0.01, guard=0.01, prefill=0.01),
    max_reported_gap=100.0, max_dspark_ar_per_tau=100.0,
)  # fmt: skip
"""Bars of time that no busy machine misses."""
HONEST = Behaviour()
CASE = Case(
    name="main", role="scored", model=fake.MODEL, context_tokens=200, new_tokens=24, domains=("prose", "code")
)
PLAN = RunPlan(
    name="fake",
    cases=(CASE,),
    accuracy=AccuracyPlan(model=fake.MODEL, context_tokens=200, windows=2, positions=8),
    launch_timeout_s=20.0,
    request_timeout_s=10.0,
    warmup_tokens=64,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> FakeCorpus:
    return fake.make(tmp_path_factory.mktemp("manager"))


@pytest.fixture(autouse=True)
def private_and_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(environment, "PROBE_BYTES", 8 * 1024 * 1024)
    monkeypatch.setattr(probe, "COPY_BYTES", 1024 * 1024)
    monkeypatch.setattr(probe.Probe, "seconds", lambda self: 0.025)
    monkeypatch.setattr(environment, "_foreign_pct", lambda since, own_since: 0.0)


Measure = Callable[..., HarnessResult]


def request_for(corpus: FakeCorpus, candidate: Behaviour, baseline: Behaviour, plan: RunPlan) -> RunRequest:
    scenario = scenarios.write(Path(tempfile.mkdtemp()) / "scenario.toml", candidate, baseline)
    return RunRequest(
        plan=plan,
        seed=1,
        baseline=scenarios.source(scenario, "baseline"),
        candidate=scenarios.source(scenario, "candidate"),
        models=(
            ModelFiles(
                name=fake.MODEL,
                target=str(corpus.target),
                target_sha256=TARGET_SHA256,
                draft_sha256=DRAFT_SHA256,
            ),
        ),
        corpus=str(corpus.root),
    )


@pytest.fixture
def measure(corpus: FakeCorpus) -> Measure:
    def run(
        candidate: Behaviour = HONEST, baseline: Behaviour = HONEST, plan: RunPlan = PLAN
    ) -> HarnessResult:
        request = request_for(corpus, candidate, baseline, plan)
        return Run(request, Progress(plan, io.StringIO())).execute()

    return run


def quick(**changes: object) -> RunPlan:
    """A plan without accuracy, with ``changes``."""
    return msgspec.structs.replace(PLAN, **{"accuracy": None, **changes})


def gate(run: HarnessResult, name: str) -> GateResult:
    return next(item for item in gates.judge(run, POLICY) if item.name == name)


def failures(run: HarnessResult, arm: Arm) -> list[str]:
    return [x.failure.detail for x in run.launches if x.arm == arm and x.failure is not None]


def test_an_honest_pair_is_measured_whole(measure: Measure) -> None:
    run = measure()
    assert run.error is None
    assert [launch.failure for launch in run.launches] == [None] * 7
    assert len(run.samples) == 4 * 2 * 2
    assert {s.arm for s in run.samples} == {"baseline", "candidate"}
    assert len(run.accuracy) == 2
    for sample in run.samples:
        assert sum(burst.tokens for burst in sample.bursts) == len(sample.token_ids) == 24
    assert all(x.before and x.after and x.before.probe_s == x.after.probe_s == 0.025 for x in run.launches)
    undecided = {"ar-floor", "dspark-floor", "plausibility:clock", "baseline"}
    assert {g.state for g in gates.judge(run, POLICY) if g.name not in undecided} == {"PASS"}
    assert msgspec.json.decode(encode_json(run), type=HarnessResult) == run


def test_both_arms_of_a_quad_decode_the_same_prompts_and_quads_differ(measure: Measure) -> None:
    run = measure(plan=quick(cases=(msgspec.structs.replace(CASE, quads=2),)))
    seen: dict[int, set[tuple[str, ...]]] = {}
    for launch in run.launches:
        prompts = tuple(s.prompt_id for s in run.samples if s.launch == launch.launch)
        if prompts:
            seen.setdefault(launch.quad, set()).add(prompts)
    assert [len(prompts) for prompts in seen.values()] == [1, 1]
    assert seen[0].isdisjoint(seen[1])


def test_a_result_on_standard_output_is_noise(measure: Measure) -> None:
    forged = json.dumps({"event": "launch_finished", "tok_s": 1e9, "schema_version": 1})
    run = measure(Behaviour(printed=forged), plan=quick())
    assert failures(run, "candidate") == []
    assert gate(run, "losslessness").state == "PASS"


@pytest.mark.parametrize("at", ["start", "load", "generate"])
def test_a_crash_is_recorded_twice_and_ends_the_run(measure: Measure, at: str) -> None:
    run = measure(Behaviour(fault="crash", at=at), plan=quick())
    assert run.error is None
    details = failures(run, "candidate")
    assert len(details) == 2
    assert "ended with status 7" in details[0]
    assert details[0].endswith("ValueError: broken on purpose")
    assert not any(s.arm == "candidate" for s in run.samples)
    assert gate(run, "baseline").state != "FAIL"


def test_a_hang_ends_at_the_request_timeout(measure: Measure) -> None:
    started = time.perf_counter()
    run = measure(Behaviour(fault="hang"), plan=quick(request_timeout_s=1.5))
    assert time.perf_counter() - started < 15
    assert {x.failure.kind for x in run.launches if x.failure} == {"timeout"}
    assert "did not answer in time while warming up" in failures(run, "candidate")[0]


def test_an_engine_error_is_passed_on_as_its_sentence(measure: Measure) -> None:
    run = measure(Behaviour(fault="error"), plan=quick())
    assert failures(run, "candidate")[0] == "The logits are not finite."


SPITEFUL = "\x1b]0;owned\x07\x1b[2J\x1b[31mNo\u202e\x9b1m\r\nlogits\x00."


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(fault="error", sentence=SPITEFUL),
        Behaviour(commit_sha=SPITEFUL),
        Behaviour(overrides={"KEY": SPITEFUL}, dtype=SPITEFUL),
        Behaviour(fault="crash", printed=SPITEFUL),
    ],
)
def test_nothing_a_worker_says_reaches_a_terminal_as_more_than_text(
    measure: Measure, behaviour: Behaviour
) -> None:
    run = measure(behaviour, plan=quick())
    said = [x.failure.detail for x in run.launches if x.failure]
    said += [line for x in run.launches if x.failure for line in x.failure.stderr_tail.split("\n")]
    said += [
        text for x in run.launches if x.engine for text in (x.engine.dtype, *x.engine.overrides.values())
    ]
    said += [item.reason for item in gates.judge(run, POLICY)]
    assert [text for text in said if not text.isprintable()] == []
    assert not any("owned" in text for text in said)


def test_main_failing_twice_is_our_error_and_not_the_candidates(measure: Measure) -> None:
    run = measure(baseline=Behaviour(fault="crash", at="load"), plan=quick())
    assert run.error is not None
    assert run.error.startswith("Main's own worker failed twice: The worker ended with status 7")
    assert failures(run, "candidate") == []


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (Behaviour(fault="garbage"), "malformed message"),
        (Behaviour(fault="oversized"), "exceeds the limit"),
        (Behaviour(fault="duplicate"), "message number"),
        (Behaviour(fault="wrong_id"), "arrived during request"),
        (Behaviour(fault="late", at="load"), "tokens arrived"),
        (Behaviour(fault="late", at="stop"), "after the worker was told to stop"),
        (Behaviour(fault="unknown_token"), "the vocabulary has 100"),
        (Behaviour(overshoot=1), "9 tokens arrived, 8 were asked for"),
        (Behaviour(fault="nan_time"), "decode_s"),
        (Behaviour(commit_sha="another"), "the worker reports commit another"),
    ],
)
def test_a_broken_protocol_voids_the_launch(measure: Measure, behaviour: Behaviour, sentence: str) -> None:
    run = measure(behaviour, plan=quick())
    kinds = [x.failure.kind for x in run.launches if x.failure]
    assert kinds == ["protocol", "protocol"]
    assert sentence in failures(run, "candidate")[0]
    assert not any(s.arm == "candidate" for s in run.samples)


@pytest.mark.parametrize("fault", ["empty", "short"])
def test_empty_and_short_output_is_kept_and_fails_losslessness(measure: Measure, fault: str) -> None:
    run = measure(Behaviour(fault=fault), plan=quick())
    assert failures(run, "candidate") == []
    assert gate(run, "losslessness").state == gate(run, "ar-tokens").state == "FAIL"


def test_one_wrong_token_of_dspark_fails_losslessness(measure: Measure) -> None:
    run = measure(Behaviour(dspark_wrong_at=11), plan=quick())
    assert gate(run, "losslessness").state == "FAIL"
    assert "token 11" in gate(run, "losslessness").reason
    assert gate(run, "ar-tokens").state == "PASS"


@pytest.mark.parametrize(("margin", "state"), [(3.0, "FAIL"), (0.01, "PASS")])
def test_another_text_is_weighed_by_main(measure: Measure, margin: float, state: str) -> None:
    baseline = Behaviour(margin_nats=margin)
    run = measure(Behaviour(ar_wrong_at=11, margin_nats=margin), baseline, plan=quick())
    assert gate(run, "losslessness").state == "PASS"
    assert gate(run, "ar-tokens").state == state
    assert [item.position for item in run.divergences] == [11, 11]
    assert run.launches[-1].case == "divergence"


def test_text_after_a_near_tie_must_be_what_main_would_say_there(measure: Measure) -> None:
    near = Behaviour(margin_nats=0.01)
    run = measure(Behaviour(margin_nats=0.01, ar_wrong_at=11, strays_at=15), near, plan=quick())
    assert {
        (item.position, item.worst_margin_nats and round(item.worst_margin_nats, 2))
        for item in (run.divergences)
    } == {(11, 0.89)}
    found = gate(run, "ar-tokens")
    assert found.state == "FAIL"
    assert "after the candidate's own text main prefers another token" in found.reason
    assert gate(run, "losslessness").state == "PASS"


def test_scores_that_are_not_numbers_fail_the_candidate(measure: Measure) -> None:
    run = measure(Behaviour(score_nan=True))
    assert "holds NaN or infinity" in failures(run, "candidate")[0]
    assert gate(run, "accuracy").state == "NOT_RUN"


def test_other_distributions_fail_accuracy(measure: Measure) -> None:
    run = measure(Behaviour(score_noise=5.0))
    assert gate(run, "accuracy").state == "FAIL"


def test_a_lying_rate_is_caught_by_the_managers_clock(measure: Measure) -> None:  # C01
    run = measure(Behaviour(claimed_time=0.1), plan=quick())
    assert gate(run, "plausibility:clock").state == "FAIL"


def test_rounds_that_did_not_happen_are_caught(measure: Measure) -> None:
    run = measure(Behaviour(claimed_rounds=3), plan=quick())
    assert gate(run, "plausibility:counters").state == "FAIL"


@pytest.mark.parametrize("cache", ["honest", "hidden"])
def test_a_prompt_cache_is_caught_whether_owned_up_to_or_not(measure: Measure, cache: str) -> None:
    run = measure(Behaviour(prefix_cache=cache, prefill_us=300.0), plan=quick())
    assert gate(run, "plausibility:prefill").state == "FAIL"


def test_an_override_makes_the_run_unscorable(measure: Measure) -> None:  # A02
    run = measure(Behaviour(overrides={"DSPARK_PROPOSALS": "7"}), plan=quick())
    assert gate(run, gates.CONFIGURATION).state == "FAIL"


def test_short_output_said_to_have_stopped_is_no_end(measure: Measure) -> None:
    run = measure(Behaviour(fault="short", claimed_stop=True), plan=quick())
    assert "no stop token" in gate(run, "losslessness").reason
    assert {s.observed_stop for s in run.samples} == {False}


@pytest.mark.parametrize("behaviour", [Behaviour(target_sha256="other"), Behaviour(draft_sha256="other")])
def test_other_files_than_were_handed_over_make_the_run_unscorable(
    measure: Measure, behaviour: Behaviour
) -> None:
    found = gate(measure(behaviour, plan=quick()), gates.CONFIGURATION)
    assert "The candidate reports a" in found.reason
    assert "but was handed" in found.reason


def test_warm_up_takes_what_the_first_use_costs(measure: Measure) -> None:  # B30
    run = measure(Behaviour(first_use_s=0.4), plan=quick())
    timed = [s for s in run.samples if s.arm == "candidate"]
    assert max(s.bursts[0].elapsed_s for s in timed) < 0.35
    assert max(s.bursts[-1].elapsed_s - s.bursts[0].elapsed_s for s in timed) < 0.35


def test_main_whose_text_loops_yields_no_prompts(measure: Measure) -> None:
    run = measure(baseline=Behaviour(loops=True), plan=quick())
    assert run.error is not None
    assert "without a loop" in run.error
    assert run.samples == ()


def test_a_context_the_engine_cannot_hold_is_said(measure: Measure) -> None:
    run = measure(Behaviour(context_tokens=100), plan=quick())
    assert "holds 100 tokens but 224 are needed" in failures(run, "candidate")[0]


def test_a_worker_that_cannot_start_is_a_failure_of_its_arm(corpus: FakeCorpus) -> None:
    request = request_for(corpus, HONEST, HONEST, quick())
    missing = msgspec.structs.replace(request.candidate, worker=("/nonexistent/worker",))
    request = msgspec.structs.replace(request, candidate=missing)
    run = Run(request, Progress(request.plan, io.StringIO())).execute()
    assert [x.failure.kind for x in run.launches if x.failure] == ["spawn", "spawn"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_full_machine_is_our_error_and_not_the_candidates(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    start = WorkerProcess._start

    def full_for_candidates(self: WorkerProcess) -> None:
        if self._source.arm == "candidate":
            raise OSError(number, os.strerror(number))
        start(self)

    monkeypatch.setattr(WorkerProcess, "_start", full_for_candidates)
    run = measure(plan=quick())
    assert run.error == f"This machine could not start a worker: {os.strerror(number)}."
    assert failures(run, "candidate") == []


ENVIRONMENT_PROBE = "import json, os; print(json.dumps(dict(os.environ))); raise SystemExit(3)"


def test_a_worker_inherits_no_environment(corpus: FakeCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do-not-leak")
    request = request_for(corpus, HONEST, HONEST, quick(engine_environment={"PLANNED": "1"}))
    probe = msgspec.structs.replace(
        request.candidate, worker=(sys.executable, "-c", ENVIRONMENT_PROBE), environment={"OWN": "2"}
    )
    request = msgspec.structs.replace(request, candidate=probe)
    run = Run(request, Progress(request.plan, io.StringIO())).execute()
    tail = next(x.failure.stderr_tail for x in run.launches if x.failure)
    seen = json.loads(tail)
    assert "SECRET_TOKEN" not in seen
    assert (seen["PLANNED"], seen["OWN"], seen["HOME"]) == ("1", "2", "~")


@pytest.mark.parametrize("emulated", [False, True])
def test_only_an_emulated_arm_is_told_where_its_launch_stands(corpus: FakeCorpus, emulated: bool) -> None:
    request = request_for(corpus, HONEST, HONEST, quick())
    probe = msgspec.structs.replace(
        request.candidate, worker=(sys.executable, "-c", ENVIRONMENT_PROBE), emulated=emulated
    )
    request = msgspec.structs.replace(request, candidate=probe)
    run = Run(request, Progress(request.plan, io.StringIO())).execute()
    seen = json.loads(next(x.failure.stderr_tail for x in run.launches if x.failure))
    told = {name for name in seen if name.startswith("EVALBOT_")}
    place = {"EVALBOT_LAUNCH", "EVALBOT_SLOT"}
    assert told == {"EVALBOT_FD", "EVALBOT_NONCE", "EVALBOT_COMMIT_SHA"} | (place if emulated else set())


@pytest.mark.parametrize("last", [1.0, 1e12])
def test_memory_is_read_at_the_start_and_the_end_alone_and_ends_no_run(
    corpus: FakeCorpus, monkeypatch: pytest.MonkeyPatch, last: float
) -> None:
    readings = iter([1.0, last])
    monkeypatch.setattr(environment, "_read_bandwidth", lambda: next(readings))
    monkeypatch.setattr(environment.gpu, "find", lambda: None)
    plan = quick(cases=(CASE, msgspec.structs.replace(CASE, name="second", role="guard")))
    request = msgspec.structs.replace(request_for(corpus, HONEST, HONEST, plan), policy=PATIENT)
    run = Run(request, Progress(plan, io.StringIO())).execute()
    assert next(readings, None) is None
    assert run.settled is None
    assert {sample.case for sample in run.samples} == {"main", "second"}
    assert run.environment.bandwidth_bytes_s == last
    assert gate(run, gates.BANDWIDTH).state == ("FAIL" if last == 1.0 else "PASS")


def test_progress_counts_up_to_the_plan(corpus: FakeCorpus) -> None:
    stream = io.StringIO()
    Run(request_for(corpus, HONEST, HONEST, PLAN), Progress(PLAN, stream)).execute()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert events[0] == {"event": "run_started", "total": 7, "plan": "fake"}
    finished = [event for event in events if event["event"] == "launch_finished"]
    assert [event["done"] for event in finished] == list(range(1, 8))
    assert finished[-1]["eta_s"] == 0.0


def test_a_request_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.json").write_text('{"plan": 1}')
    assert manager_main([str(tmp_path / "q.json"), str(tmp_path / "r.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


STDIN_PROBE = "import sys; print(repr(sys.stdin.read())); raise SystemExit(3)"


def test_a_request_on_standard_input_lies_in_no_file_and_reaches_no_worker(
    corpus: FakeCorpus, tmp_path: Path
) -> None:
    request = request_for(corpus, HONEST, HONEST, quick())
    nosy = msgspec.structs.replace(request.candidate, worker=(sys.executable, "-c", STDIN_PROBE))
    request = msgspec.structs.replace(request, candidate=nosy, watch=False)
    done = subprocess.run(
        [sys.executable, "-m", "harness.manager", "-", str(tmp_path / "r.json")],
        cwd=REPOSITORY,
        input=encode_json(request),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=HarnessResult)
    assert run.seed == request.seed
    assert {x.failure.stderr_tail for x in run.launches if x.failure} == {"''"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_no_process_no_files_and_no_result(
    corpus: FakeCorpus, tmp_path: Path, number: signal.Signals
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    asked, answered = tmp_path / "q.json", tmp_path / "r.json"
    request = request_for(corpus, HONEST, Behaviour(fault="hang"), quick())
    asked.write_bytes(encode_json(request))
    manager = subprocess.Popen(
        [sys.executable, "-m", "harness.manager", str(asked), str(answered)],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not (workers := psutil.Process(manager.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers
    manager.send_signal(number)
    _, said = manager.communicate(timeout=10)
    assert manager.returncode == 128 + number
    assert "Traceback" not in said
    assert not any(worker.is_running() for worker in workers)
    assert list(scratch.iterdir()) == []
    assert not answered.exists()
