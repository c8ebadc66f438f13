from __future__ import annotations

from pathlib import Path

import pytest

from tests.evalbot.fake_repo import FakeRepo


@pytest.fixture
def repo(tmp_path: Path) -> FakeRepo:
    return FakeRepo(tmp_path / "repo")


@pytest.fixture(autouse=True)
def private_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache and temporary directories of the test alone, so that leftovers are seen. Returns the latter."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("EVALBOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    return temporary
