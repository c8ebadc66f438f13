"""Pinned texts: ``manifest.toml`` says what they are, this module proves that they are still that.

A text is identified by the sha256 of its bytes and, for each model, by the sha256 of its token ids
under that model's tokenizer, so neither an edited text nor another tokenizer goes unnoticed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from tokenizers import Tokenizer

from harness.protocol import ids_sha256
from harness.schema import Frozen

T = TypeVar("T")
MANIFEST = "manifest.toml"
JOINT = "\n\n"
"""Between the texts of a domain where a window is longer than any one of them."""
PROBE = "The quick brown fox jumps over the lazy dog.\n\n\tdef f(x):\n\t\treturn x + 1\n"
"""Rendered and hashed per model: another chat template shows here, whatever the texts hold."""


class CorpusError(Exception):
    """The corpus is not what its manifest says. The message is a sentence."""


class TokenDigest(Frozen, frozen=True):
    count: int
    sha256: str


class TextEntry(Frozen, frozen=True):
    path: str
    domain: str
    origin: str
    bytes: int
    sha256: str
    tokens: dict[str, TokenDigest]
    """By model name."""


class ModelEntry(Frozen, frozen=True):
    """How prompts are rendered for a model: data, not a template language."""

    source: str
    license: str
    tokenizer: str
    """File beside the target's weights."""
    prefix: str
    """Text before the user's turn; special tokens are written out."""
    suffix: str
    """Text after the user's turn, up to where the model answers."""
    instructed: bool
    """Whether windows are put under an instruction, or stand alone."""
    stop_ids: tuple[int, ...]
    rendering_sha256: str
    """Of the token ids of ``prefix + PROBE + suffix``."""


class FileEntry(Frozen, frozen=True):
    path: str
    sha256: str


class Manifest(Frozen, frozen=True):
    schema_version: int
    instructions: FileEntry
    models: dict[str, ModelEntry]
    texts: tuple[TextEntry, ...] = ()


class Instruction(Frozen, frozen=True):
    """One task in several phrasings; ``{passage}`` stands where the window goes."""

    task: str
    domains: tuple[str, ...]
    phrasings: tuple[str, ...]


class Instructions(Frozen, frozen=True):
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Passage:
    """A stretch of natural text that windows are cut from."""

    path: str
    """Manifest path, or the domain's name where its texts are joined."""
    text: str
    spans: tuple[tuple[int, int], ...]
    """Start and end, in characters, of each token."""


class Corpus:
    """The texts of a manifest. Raises CorpusError if anything on disk differs from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = _decode(root / MANIFEST, Manifest)
        self._texts = {entry.path: self._read(entry.path, entry.sha256) for entry in self.manifest.texts}
        rows = self.manifest.instructions
        self._read(rows.path, rows.sha256)
        self.instructions = _decode(root / rows.path, Instructions).instructions

    def text(self, path: str) -> str:
        return self._texts[path]

    def view(self, model: str, target: Path) -> ModelView:
        """The corpus in the token ids of ``model``, whose files lie in ``target``."""
        entry = self.manifest.models.get(model)
        if entry is None:
            known = ", ".join(sorted(self.manifest.models))
            raise CorpusError(f"The corpus has no rendering for model {model!r}; it knows {known}.")
        return ModelView(self, model, entry, target / entry.tokenizer)

    def _read(self, path: str, sha256: str) -> str:
        file = self.root / path
        try:
            data = file.read_bytes()
        except OSError as error:
            raise CorpusError(f"The corpus file {path} cannot be read: {error.strerror}.") from error
        actual = hashlib.sha256(data).hexdigest()
        if actual != sha256:
            raise CorpusError(
                f"The corpus file {path} has sha256 {actual}, expected {sha256}: restore it, or pin the "
                "corpus anew with `python -m harness.pin_corpus` on main."
            )
        return data.decode()


class ModelView:
    """The corpus as one model sees it. Construction checks every token id against the manifest."""

    def __init__(self, corpus: Corpus, name: str, entry: ModelEntry, tokenizer: Path) -> None:
        self.corpus = corpus
        self.name = name
        self.entry = entry
        self._tokenizer = load_tokenizer(tokenizer)
        self._passages: dict[str, Passage] = {}
        for text in corpus.manifest.texts:
            expected = text.tokens.get(name)
            if expected is not None:
                self._check(text.path, corpus.text(text.path), expected.sha256)
        rendered = f"{entry.prefix}{PROBE}{entry.suffix}"
        self._check(f"the chat template of {name}", rendered, entry.rendering_sha256)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of ``text`` as it stands; special tokens written in it are recognised."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def passages(self, domain: str, tokens: int) -> list[Passage]:
        """Texts of a domain that hold ``tokens`` tokens; the joined domain if no single one does."""
        paths = [text.path for text in self.corpus.manifest.texts if text.domain == domain]
        if not paths:
            raise CorpusError(f"The corpus has no text of domain {domain!r}.")
        single = [self.passage(domain, path) for path in paths]
        long_enough = [passage for passage in single if len(passage.spans) >= tokens]
        if long_enough:
            return long_enough
        joined = self.passage(domain, domain)
        if len(joined.spans) < tokens:
            raise CorpusError(
                f"Domain {domain!r} holds {len(joined.spans)} tokens of {self.name}, but a window of "
                f"{tokens} is asked for: plan a shorter context."
            )
        return [joined]

    def passage(self, domain: str, path: str) -> Passage:
        """One text, or all of a domain joined where ``path`` is the domain itself."""
        if path not in self._passages:
            texts = self.corpus.manifest.texts
            parts = [t.path for t in texts if t.domain == domain] if path == domain else [path]
            text = JOINT.join(self.corpus.text(part) for part in parts)
            spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
            self._passages[path] = Passage(path, text, tuple(spans))
        return self._passages[path]

    def _check(self, what: str, text: str, expected: str) -> None:
        actual = ids_sha256(self.encode(text))
        if actual != expected:
            raise CorpusError(
                f"The token ids of {what} under {self.name} hash to {actual}, expected {expected}: "
                "the tokenizer is not the one that was pinned; fetch the model again."
            )


def load_tokenizer(file: Path) -> Tokenizer:
    """A tokenizer.json. Raises CorpusError, since there is no fallback for a scored prompt."""
    if not file.is_file():
        raise CorpusError(f"The tokenizer {file} does not exist: fetch the model again.")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception for every malformed file
        raise CorpusError(f"{file} is not a tokenizer ({error}): fetch the model again.") from error


def _decode(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise CorpusError(f"{file.name} of the corpus cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CorpusError(f"{file.name} of the corpus is malformed: {error}.") from error
