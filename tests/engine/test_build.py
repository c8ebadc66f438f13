"""The build step tells a tree that can start from one that cannot, in one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "engine"


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(ENGINE, tmp_path / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine.build"], cwd=tree, capture_output=True, text=True, check=False
    )


def test_a_sound_tree_builds(tree):
    done = build(tree)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("engine: ")
    assert list(tree.rglob("*.pyc"))


def test_a_syntax_error_is_named_with_its_line(tree):
    (tree / "engine" / "training" / "__init__.py").write_text("x = 1\ndef f(:\n")
    done = build(tree)
    assert (done.returncode, done.stderr) == (1, "engine/training/__init__.py, line 2: invalid syntax.\n")


def test_a_broken_import_is_named_with_its_line(tree):
    file = tree / "engine" / "decoding" / "verify.py"
    file.write_text("import no_such_library\n" + file.read_text().replace("from __future__", "# "))
    done = build(tree)
    assert done.returncode == 1
    expected = "engine.llm does not import: ModuleNotFoundError: No module named 'no_such_library'"
    assert done.stderr == f"{expected} (engine/decoding/verify.py, line 1).\n"
