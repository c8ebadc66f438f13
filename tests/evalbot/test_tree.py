"""Trees on disk and git's idea of them must agree, byte for byte and mode for mode."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalbot.errors import UnsafeTree
from evalbot.git import Git
from evalbot.tree import Entry, digest, entries, export, is_under, model_sha256
from tests.evalbot.fake_repo import FakeRepo

NAMES = st.sampled_from(["a", "a.b", "a-b", "a0", "b", "é", "z z", "A"])
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=40), min_size=1, max_size=6
)


def without_clashes(files: dict[str, bytes]) -> dict[str, bytes]:
    """A path cannot be a file and a directory at once."""
    return {p: b for p, b in files.items() if not any(other.startswith(f"{p}/") for other in files)}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=FILES)
def test_the_digest_of_a_directory_is_gits_own_tree_id(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for path, content in without_clashes(files).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    environment = {**os.environ, "GIT_DIR": str(tmp_path_factory.mktemp("git")), "GIT_WORK_TREE": str(root)}
    for argv in (["init", "--quiet"], ["-c", "core.autocrlf=false", "add", "--all", "--force", "."]):
        subprocess.run(["git", *argv], cwd=root, env=environment, check=True)
    done = subprocess.run(["git", "write-tree"], cwd=root, env=environment, capture_output=True, check=True)
    assert digest(root).git_sha == done.stdout.decode().strip()


def test_modes_links_and_bytes_survive_the_export(repo: FakeRepo, tmp_path: Path) -> None:
    repo.write("engine/run.sh", "#!/bin/sh\n")
    (repo.root / "engine/run.sh").chmod(0o755)
    os.symlink("run.sh", repo.root / "engine/link")
    (repo.root / "engine/bytes").write_bytes(b"\r\n\0\xff$Id$\r\n")
    repo.write(".gitattributes", "* text=auto eol=crlf ident\n")
    repo.git("-c", "core.autocrlf=false", "commit", "--quiet", "--allow-empty", "-m", "x")
    repo.commit("files")
    (tmp_path / "scratch").mkdir()
    git = Git(repo.root, tmp_path / "scratch")
    tree = repo.git("rev-parse", "HEAD^{tree}")
    export(git, entries(git, tree), tmp_path / "out")
    assert digest(tmp_path / "out").git_sha == tree


def test_every_byte_mode_and_name_enters_the_digest(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "file").write_text("content")
    seen = {digest(root)}
    (root / "file").write_text("Content")
    seen.add(digest(root))
    (root / "file").chmod(0o755)
    seen.add(digest(root))
    (root / "file").rename(root / "other")
    seen.add(digest(root))
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "other.pyc").write_bytes(b"")
    seen.add(digest(root))
    assert len({found.git_sha for found in seen}) == len({found.sha256 for found in seen}) == 5


@pytest.mark.parametrize(
    "path", ["../out", "a/../../out", ".git/hooks/post-checkout", "a/.GIT/config", "a//b"]
)
def test_a_name_that_leaves_the_tree_is_refused(repo: FakeRepo, tmp_path: Path, path: str) -> None:
    (tmp_path / "scratch").mkdir()
    git = Git(repo.root, tmp_path / "scratch")
    blob = repo.git("rev-parse", "HEAD:README")
    with pytest.raises(UnsafeTree):
        export(git, [Entry("100644", blob, path)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pinned_path_is_itself_and_what_lies_in_it_and_nothing_else() -> None:
    assert is_under("harness", ["harness"])
    assert is_under("harness/a/b.py", ["harness"])
    assert not is_under("harness2/a.py", ["harness"])
    assert not is_under("engine/harness/a.py", ["harness"])


def test_notes_beside_a_model_do_not_change_its_hash_and_one_byte_of_it_does(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = model_sha256(tmp_path)
    (tmp_path / "README.md").write_text("notes")
    assert model_sha256(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"weightz")
    assert model_sha256(tmp_path) != before


@pytest.mark.parametrize("below", ["link", "link/note.txt", "link/deep/note.txt"])
def test_nothing_is_written_below_a_link_or_over_a_file(repo: FakeRepo, tmp_path: Path, below: str) -> None:
    crafted = (Entry("120000", "0" * 40, "link"), Entry("100644", "1" * 40, below))
    with pytest.raises(UnsafeTree, match="twice or below a file"):
        export(Git(repo.root, tmp_path), crafted, tmp_path / "out")
    assert not (tmp_path / "out").exists()
