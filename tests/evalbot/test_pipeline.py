"""From a ref to a record, with every stage real but the measurement itself."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from evalbot import publish
from evalbot.checkout import RefSpec
from evalbot.listener import Silent
from evalbot.pipeline import evaluate
from evalbot.types import Record
from harness.schema import encode_json
from tests.evalbot.fake_repo import FakeRepo

SEED = 7


def scored(repo: FakeRepo, head: str = "work", **spec: object) -> Record:
    wanted = RefSpec(head=head, **spec)
    return evaluate(repo.root, wanted, Silent(), seed=SEED)


def test_a_faster_branch_is_improved_and_both_arms_share_one_ruler(repo: FakeRepo) -> None:
    head = repo.branch("work", dspark_tok_s=55.0)
    record = scored(repo)
    assert record.verdict.label == "eval-dspark:M"
    identity = record.identity
    assert identity.head_sha == head
    assert identity.base_sha == repo.git("rev-parse", "main")
    assert identity.merge_tree_sha == repo.git("rev-parse", "work^{tree}")
    assert identity.candidate.tree_sha == identity.merge_tree_sha
    assert identity.baseline.tree_sha == repo.git("rev-parse", "main^{tree}")
    for name in ("harness_sha256", "corpus_sha256", "models_sha256"):
        assert getattr(identity.baseline, name)
        assert getattr(identity.baseline, name) == getattr(identity.candidate, name)


def test_a_branch_equal_to_main_is_none(repo: FakeRepo) -> None:
    repo.git("branch", "work")
    record = scored(repo)
    assert record.verdict.outcome == "none"
    assert "byte for byte" in record.verdict.reason
    assert record.runs


def test_a_harness_that_is_not_the_installed_one_is_noted_and_nothing_is_published(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    record = scored(repo)
    assert record.facts.stranger in record.notes
    assert record.facts.stranger is not None
    assert record.facts.stranger.startswith("Judged by ")
    assert (record.publishable, record.publishable_reason) == (False, publish.STRANGER)
    assert record.verdict.outcome == "improved"


def test_a_slower_branch_is_measured_twice_on_other_prompts_and_rejected(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=40.0)
    record = scored(repo)
    assert record.verdict.outcome == "reject"
    first, second = record.runs
    assert first.seed == SEED
    assert second.seed != first.seed


def test_what_is_measured_is_the_merge_onto_main(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    repo.write("other.txt", "main moved on")
    repo.commit("main moved")
    record = scored(repo)
    assert record.verdict.outcome == "improved"
    assert record.identity.merge_tree_sha != repo.git("rev-parse", "work^{tree}")


def test_a_conflict_needs_a_rebase_and_is_not_measured(repo: FakeRepo) -> None:
    repo.branch("work", {"README": "their words\n"})
    repo.write("README", "our words\n")
    repo.commit("main moved")
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert record.verdict.label == "dspark-needs-rebase"
    assert "conflicts with main" in record.verdict.reason
    assert "README" in record.verdict.reason
    assert record.runs == ()


def test_a_harness_copy_that_halves_its_times_is_set_aside(repo: FakeRepo) -> None:
    results = (repo.root / "harness/fake_results.py").read_text()
    repo.branch("work", {"harness/fake_results.py": results.replace("size / rate", "size / rate / 2")})
    record = scored(repo)
    assert record.verdict.outcome == "none"
    assert "harness/fake_results.py was set aside" in record.verdict.reason
    assert record.identity.baseline.harness_sha256 == record.identity.candidate.harness_sha256


@pytest.mark.parametrize("path", ["harness/manager.py", "corpus/text.txt", "evalbot.toml", "harness/new.py"])
def test_a_change_that_also_touches_a_pinned_path_is_told_which_and_not_scored(
    repo: FakeRepo, path: str
) -> None:
    repo.branch("work", {path: "# mine\n"}, dspark_tok_s=55.0)
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert path in record.verdict.reason
    assert record.runs == ()


def test_an_old_branch_with_an_older_harness_is_measured_by_mains(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    repo.write("harness/note.py", "# main's harness moved on\n")
    repo.commit("harness moved")
    record = scored(repo)
    assert record.verdict.outcome == "improved"
    assert record.identity.baseline.harness_sha256 == record.identity.candidate.harness_sha256


def test_a_branch_that_does_not_build_is_build_failed_with_its_last_words(repo: FakeRepo) -> None:
    repo.branch("work", {"engine/build.py": "import missing_kernel\n"})
    record = scored(repo)
    assert record.verdict.outcome == "build-failed"
    assert "No module named 'missing_kernel'" in record.verdict.reason


def test_a_build_that_hangs_is_stopped_and_build_failed(repo: FakeRepo) -> None:
    repo.branch("work", {"engine/build.py": "import time\ntime.sleep(60)\n"})
    record = scored(repo)
    assert record.verdict.outcome == "build-failed"
    assert "did not end within 5 s" in record.verdict.reason


def test_a_build_of_main_that_fails_is_an_error_and_nobodys_fault(repo: FakeRepo) -> None:
    repo.write("engine/build.py", "raise SystemExit('no compiler')\n")
    repo.commit("broken main")
    repo.branch("work", dspark_tok_s=55.0)
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert "no compiler" in record.verdict.reason


@pytest.mark.parametrize("path", ["harness/manager.py", "harness/sneaked_in.py", "corpus/text.txt"])
def test_a_build_that_rewrites_the_ruler_stops_the_run(repo: FakeRepo, path: str) -> None:
    cheat = f"import pathlib\npathlib.Path({path!r}).write_text('x')\n"
    repo.branch("work", {"engine/build.py": cheat})
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert f"pinned path {path.split('/')[0]}" in record.verdict.reason


def test_a_worker_that_rewrites_the_ruler_while_measured_stops_the_run(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=60.0, scribble="harness/manager.py")
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert "while it was measured" in record.verdict.reason
    assert record.runs == ()


def test_a_worker_that_crashes_twice_is_build_failed(repo: FakeRepo) -> None:
    repo.branch("work", crash=True)
    assert scored(repo).verdict.outcome == "build-failed"


def test_a_harness_without_a_result_is_an_error_with_its_last_words(repo: FakeRepo) -> None:
    repo.branch("work", kill_manager=True)
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert "no room left on the device" in record.verdict.reason


def test_the_policy_is_mains_and_never_the_changes(repo: FakeRepo) -> None:
    config = (repo.root / "evalbot.toml").read_text()
    repo.branch("work", {"evalbot.toml": config + "[policy]\ntiers_pct = { XS = 0.0 }\n"})
    record = scored(repo)
    assert record.policy.tiers_pct.XS == 2.0


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("wrok", "Did you mean work?"),
        ("--upload-pack=touch", "not a usable branch"),
        ("x$(touch${IFS}pwn);y", "does not exist"),
        ("work\nmain", "not a usable branch"),
    ],
)
def test_an_unusable_ref_is_an_error_with_a_sentence(repo: FakeRepo, head: str, said: str) -> None:
    repo.git("branch", "work")
    record = scored(repo, head)
    assert record.verdict.outcome == "error"
    assert said in record.verdict.reason


def test_no_repository_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    record = evaluate(tmp_path / "nowhere", RefSpec(), Silent())
    assert record.verdict.outcome == "error"
    assert "is not a git repository" in record.verdict.reason


def test_unrelated_histories_are_an_error_with_a_sentence(repo: FakeRepo) -> None:
    repo.git("checkout", "--quiet", "--orphan", "work")
    repo.commit("orphan")
    assert "share no commit" in scored(repo).verdict.reason


def test_an_unknown_plan_is_an_error_that_lists_the_plans(repo: FakeRepo) -> None:
    repo.git("branch", "work")
    record = evaluate(repo.root, RefSpec(head="work"), Silent(), plan="gpu-9k")
    assert record.verdict.outcome == "error"
    assert "the plans are fake" in record.verdict.reason


def test_a_base_without_configuration_is_an_error_with_a_sentence(repo: FakeRepo) -> None:
    repo.git("rm", "--quiet", "evalbot.toml")
    repo.commit("no config")
    assert "There is no evalbot.toml of main" in scored(repo, "main").verdict.reason


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[repo\n", "cannot be used"),
        ('pinned = ["harness"]\n', "cannot be used"),
        (
            '[repo]\npinned = ["../harness"]\n[engine]\nbuild=[]\nworker=[]\n',
            "relative to the repository's root",
        ),
        ('[repo]\npinned = ["evalbot.toml"]\n[engine]\nbuild=[]\nworker=[]\n', "does not pin harness"),
    ],
)
def test_a_wrong_configuration_is_an_error_that_names_the_fault(repo: FakeRepo, line: str, said: str) -> None:
    repo.write("evalbot.toml", line)
    repo.commit("config")
    record = scored(repo, "main")
    assert record.verdict.outcome == "error"
    assert said in record.verdict.reason


def test_a_patch_is_applied_to_the_base(repo: FakeRepo, tmp_path: Path) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    patch = tmp_path / "faster.patch"
    patch.write_text(repo.git("diff", "main", "work") + "\n")
    first, second = (scored(repo, patch=patch) for _ in range(2))
    assert first.verdict.label == "eval-dspark:M"
    assert first.identity == second.identity
    assert first.identity.merge_tree_sha == repo.git("rev-parse", "work^{tree}")


@pytest.mark.parametrize(
    ("content", "said"), [("not a patch", "does not apply"), ("", "does not apply"), (None, "cannot be read")]
)
def test_an_unusable_patch_is_an_error_with_a_sentence(
    repo: FakeRepo, tmp_path: Path, content: str | None, said: str
) -> None:
    patch = tmp_path / "some.patch"
    if content is not None:
        patch.write_text(content)
    record = scored(repo, patch=patch)
    assert record.verdict.outcome == "error"
    assert said in record.verdict.reason


def test_the_working_tree_is_scored_with_new_files_and_left_alone(repo: FakeRepo) -> None:
    repo.behave(dspark_tok_s=55.0)
    repo.write("engine/new_kernel.py", "SPEED = 1\n")
    repo.write(".gitignore", "scratch/\n")
    repo.write("scratch/large.bin", "ignored")
    before = repo.state()
    record = scored(repo, worktree=True)
    assert record.verdict.label == "eval-dspark:M"
    assert repo.state() == before


def test_a_working_tree_with_dirty_pinned_paths_is_told_which(repo: FakeRepo) -> None:
    repo.behave(dspark_tok_s=55.0)
    repo.write("harness/manager.py", "# mine\n")
    record = scored(repo, worktree=True)
    assert record.verdict.outcome == "error"
    assert "harness/manager.py" in record.verdict.reason


def test_uncommitted_changes_that_were_not_scored_are_mentioned(repo: FakeRepo) -> None:
    repo.behave(dspark_tok_s=55.0)
    record = scored(repo, "HEAD")
    assert record.verdict.outcome == "none"
    assert any("uncommitted" in note for note in record.notes)


def test_a_run_leaves_nothing_in_the_repository_or_in_tmp(repo: FakeRepo, private_places: Path) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    before = repo.state()
    scored(repo)
    assert repo.state() == before
    assert list(private_places.iterdir()) == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "engine/../../outside"])
def test_a_link_out_of_the_tree_is_refused(repo: FakeRepo, target: str) -> None:
    repo.git("checkout", "--quiet", "-b", "work")
    os.symlink(target, repo.root / "engine-link")
    repo.commit("link")
    repo.git("checkout", "--quiet", "main")
    record = scored(repo)
    assert record.verdict.outcome == "error"
    assert "points out of the repository" in record.verdict.reason


def test_a_chain_of_links_that_leaves_the_tree_is_refused(repo: FakeRepo) -> None:
    repo.git("checkout", "--quiet", "-b", "work")
    os.makedirs(repo.root / "deep")
    os.symlink("../engine", repo.root / "deep/down")
    os.symlink("deep/down/../../outside", repo.root / "innocent")
    repo.commit("links")
    repo.git("checkout", "--quiet", "main")
    assert "points out of the repository" in scored(repo).verdict.reason


def test_a_link_inside_the_tree_is_kept(repo: FakeRepo) -> None:
    repo.git("checkout", "--quiet", "-b", "work")
    os.symlink("behaviour.json", repo.root / "engine/other.json")
    repo.commit("link")
    repo.git("checkout", "--quiet", "main")
    record = scored(repo)
    assert record.identity.candidate.tree_sha == repo.git("rev-parse", "work^{tree}")


def test_a_submodule_is_refused(repo: FakeRepo) -> None:
    repo.git("checkout", "--quiet", "-b", "work")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},engine/vendored")
    repo.git("commit", "--quiet", "--message", "submodule")
    repo.git("checkout", "--quiet", "main")
    assert "is a submodule" in scored(repo).verdict.reason


def test_attributes_of_a_branch_cannot_change_a_byte_of_the_ruler(repo: FakeRepo) -> None:
    repo.branch("work", {".gitattributes": "*.py text eol=crlf\n*.txt ident\n"})
    record = scored(repo)
    assert record.verdict.outcome == "none"
    assert record.identity.candidate.tree_sha == repo.git("rev-parse", "work^{tree}")


def test_a_record_survives_a_round_trip_byte_for_byte(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    record = scored(repo)
    again = msgspec.json.decode(encode_json(record), type=Record)
    assert encode_json(again) == encode_json(record)
