"""Main against itself, through every real stage but the measurement itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from evalbot import calibrations, doctor, pipeline, publish
from evalbot.calibrate import calibrate, run_of
from evalbot.checkout import RefSpec
from evalbot.errors import BadRequest, BaselineBroken, InfraError
from evalbot.listener import Silent
from evalbot.pipeline import evaluate
from evalbot.rescore import rescore
from harness import compare, environment
from harness.calibration import Calibration
from harness.schema import Fitness, Policy, encode_json
from tests.evalbot.fake_repo import FakeRepo
from tests.evalbot.results import Behaviour, plan, run
from tests.evalbot.test_cli import evalbot

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the machine that the fake manager names, and the fake main's harness is the installed one."""
    monkeypatch.setattr(environment, "machine", lambda: publish.machine_of(run().environment))
    monkeypatch.setattr(pipeline, "stranger", lambda tree: None)


def test_runs_alternate_between_one_build_and_a_rebuild_and_are_not_cut_short(repo: FakeRepo) -> None:
    found = calibrate(repo.root, "main", Silent(), runs=4)
    assert [made.kind for made in found.runs] == ["same", "rebuild", "same", "rebuild"]
    assert len({made.seed for made in found.runs}) == 4
    assert {axis.name for axis in found.axes} == {
        f"{case}:{kind}" for case in ("chat", "long") for kind in compare.RATES
    }
    headline = found.axis("chat:dspark")
    assert headline is not None
    assert (headline.pairs, headline.differences, headline.rebuilds) == (8, 32, 2)
    assert headline.noise_floor_pct is not None
    assert 0.05 < headline.noise_floor_pct < 0.6
    assert found.pair_s("chat:dspark") == 2.0
    assert found.runs[0].looks == {case.name: tuple(2 * n for n in case.looks) for case in plan().cases}
    assert found.false_positives == 0


def test_each_arm_of_a_rebuild_run_comes_from_its_own_directory(repo: FakeRepo) -> None:
    repo.write(
        "engine/build.py",
        "import json, os, pathlib\n"
        "told = {'dspark_tok_s': 50.0 if pathlib.Path.cwd().name == 'baseline' else 50.5}\n"
        "pathlib.Path('engine/behaviour.json').write_text(json.dumps(told))\n",
    )
    repo.commit("a build that depends on where it lies")
    found = calibrate(repo.root, "main", Silent(), runs=4)
    headline, other = found.axis("chat:dspark"), found.axis("chat:ar")
    assert headline is not None
    assert other is not None
    assert headline.tau2 == pytest.approx(0.00995**2, rel=0.6)
    assert other.tau2 is not None
    assert other.tau2 < headline.tau2 / 20


def test_calibrating_again_pools_and_a_later_harness_starts_afresh(repo: FakeRepo) -> None:
    calibrate(repo.root, "main", Silent(), runs=1)
    again = calibrate(repo.root, "main", Silent(), runs=1)
    assert len(again.runs) == 2
    assert calibrations.stored() == (again,)
    repo.write("harness/note.py", "# another ruler\n")
    repo.commit("harness moved")
    assert len(calibrate(repo.root, "main", Silent(), runs=1).runs) == 1
    assert len(calibrations.stored()) == 2


def test_a_score_after_calibration_is_publishable_and_judged_again_from_the_record_alone(
    repo: FakeRepo, ours: None
) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    before = evaluate(repo.root, RefSpec(head="work"), Silent(), seed=7)
    assert not before.publishable
    assert "no calibration yet: run evalbot calibrate --plan fake" in before.publishable_reason
    found = calibrate(repo.root, "main", Silent())
    after = evaluate(repo.root, RefSpec(head="work"), Silent(), seed=7)
    assert after.publishable, after.publishable_reason
    assert after.calibration == after.facts.calibration == found
    assert after.verdict.label == before.verdict.label
    for path in calibrations.directory().iterdir():
        path.unlink()
    assert rescore(after) == after.verdict


def test_a_calibration_of_another_harness_is_named_in_the_record(repo: FakeRepo, ours: None) -> None:
    calibrate(repo.root, "main", Silent(), runs=1)
    repo.write("harness/note.py", "# another ruler\n")
    repo.commit("harness moved")
    repo.branch("work", dspark_tok_s=55.0)
    record = evaluate(repo.root, RefSpec(head="work"), Silent())
    assert record.calibration is None
    assert "is for another harness" in record.publishable_reason


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ({"wrong_token_at": 5}, "baseline does not pass: Main is not a valid baseline"),
        ({"overrides": [["ENGINE_FAST", "1"]]}, "configuration does not pass"),
        ({"crash": True}, "baseline does not pass: Main's worker failed 2 times"),
    ],
)
def test_a_main_that_is_no_baseline_calibrates_nothing(
    repo: FakeRepo, behaviour: dict[str, object], said: str
) -> None:
    repo.behave(**behaviour)
    repo.commit("broken main")
    with pytest.raises(BaselineBroken, match=said):
        calibrate(repo.root, "main", Silent())
    assert calibrations.stored() == ()


def test_a_base_or_plan_that_does_not_exist_is_a_sentence(repo: FakeRepo) -> None:
    with pytest.raises(BadRequest, match="does not exist"):
        calibrate(repo.root, "nowhere", Silent())
    with pytest.raises(BadRequest, match="the plans are fake"):
        calibrate(repo.root, "main", Silent(), plan="gpu-9k")


def test_a_rebuild_of_main_that_fails_is_nobodys_fault(repo: FakeRepo) -> None:
    repo.write(
        "engine/build.py", "import pathlib, sys\nsys.exit(pathlib.Path.cwd().name != 'baseline' and 'no')\n"
    )
    repo.commit("a build that works in one place only")
    with pytest.raises(BaselineBroken, match="on the base itself"):
        calibrate(repo.root, "main", Silent())


def test_tiers_and_failed_gates_of_main_against_itself_are_false_positives() -> None:
    faster = run_of(run(candidate=Behaviour(dspark_tok_s=55.0)), "same", Policy(), NOW)
    assert faster.false_positives == ("tier M",)
    slower = run_of(run(candidate=Behaviour(dspark_tok_s=40.0)), "same", Policy(), NOW)
    assert "dspark-floor" in slower.false_positives
    assert run_of(run(), "same", Policy(), NOW).false_positives == ()


def test_a_run_on_an_unfit_machine_calibrates_nothing() -> None:
    seen = run()
    busy, quiet = Fitness(steal_pct=40.0), Fitness(steal_pct=0.0)
    launches = tuple(
        msgspec.structs.replace(x, after=busy if x.launch % 4 == 0 else quiet) for x in seen.launches
    )
    with pytest.raises(InfraError, match=r"50% of the pairs .* the host gave 40.0% of the CPU"):
        run_of(msgspec.structs.replace(seen, launches=launches), "same", Policy(), NOW)


def test_the_command_shows_the_floor_and_writes_a_copy(repo: FakeRepo, tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    done = evalbot("calibrate", "--json", str(out), cwd=repo.root)
    assert done.returncode == 0, done.stderr
    assert "noise floor" in done.stdout
    assert "DSpark decode (chat)" in done.stdout
    assert "1 of one build and 1 against a rebuild" in done.stdout
    assert "False positives: none in 2 runs." in done.stdout
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        "check out", "pin", "plan", "build", "measure", "build", "measure",
    ]  # fmt: skip
    copy = msgspec.json.decode(out.read_bytes(), type=Calibration)
    assert encode_json(copy) == encode_json(calibrations.stored()[0])
    assert json.loads(out.read_bytes())["epoch"]["plan"] == "fake"


def test_the_command_fails_with_a_sentence_where_main_is_broken(repo: FakeRepo) -> None:
    repo.behave(wrong_token_at=5)
    repo.commit("broken main")
    done = evalbot("calibrate", cwd=repo.root)
    assert done.returncode == 4
    assert "Nothing was calibrated, because baseline does not pass" in done.stderr
    assert "Traceback" not in done.stderr
    assert evalbot("calibrate", "--runs", "0", cwd=repo.root).returncode == 2


def test_doctor_lists_the_calibrations_of_this_machine_with_their_age(repo: FakeRepo) -> None:
    def listed() -> list[str]:
        return [check.found for check in doctor.calibrated(datetime.now(UTC))]

    assert listed() == ["none of this machine"]
    calibrate(repo.root, "main", Silent(), runs=1)
    assert listed() == ["plan fake, 0 days old, 1 run, no false positive"]


def test_a_calibration_leaves_nothing_in_the_repository_or_in_tmp(
    repo: FakeRepo, private_places: Path
) -> None:
    before = repo.state()
    calibrate(repo.root, "main", Silent())
    assert repo.state() == before
    assert list(private_places.iterdir()) == []
