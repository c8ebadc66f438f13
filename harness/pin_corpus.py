"""Write ``manifest.toml`` from the texts on disk: ``python -m harness.pin_corpus CORPUS NAME=TARGET...``.

Counts and hashes are computed; what a person decides (origin, licence, template, stop ids) is kept from
the manifest that is there. Each NAME=TARGET gives the directory that holds a model's tokenizer; models not
given keep their token digests where the text has not changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from harness.corpus import (
    MANIFEST,
    PROBE,
    CorpusError,
    FileEntry,
    Manifest,
    ModelEntry,
    TextEntry,
    TokenDigest,
    load_tokenizer,
)
from harness.protocol import ids_sha256

TEXTS = "texts"
DEFAULT_ORIGIN = "written for this project"


def pin(root: Path, targets: dict[str, Path]) -> Manifest:
    """The manifest of what lies in ``root``. Raises CorpusError."""
    old = msgspec.toml.decode((root / MANIFEST).read_bytes(), type=Manifest)
    unknown = sorted(targets.keys() - old.models.keys())
    if unknown:
        raise CorpusError(f"{MANIFEST} has no [models.{unknown[0]}]: add its template and stop ids first.")
    tokenizers = {
        name: load_tokenizer(target / old.models[name].tokenizer) for name, target in targets.items()
    }
    models = {
        name: _rendered(entry, tokenizers[name]) if name in tokenizers else entry
        for name, entry in old.models.items()
    }
    known = {text.path: text for text in old.texts}
    texts = tuple(_text(root, path, known, tokenizers) for path in sorted((root / TEXTS).rglob("*.txt")))
    instructions = FileEntry(
        path=old.instructions.path, sha256=_sha256((root / old.instructions.path).read_bytes())
    )
    return Manifest(schema_version=old.schema_version, instructions=instructions, models=models, texts=texts)


def to_toml(manifest: Manifest) -> str:
    """The manifest as TOML, one line for each token digest."""
    return "\n".join(_lines(manifest)) + "\n"


def _text(root: Path, file: Path, known: dict[str, TextEntry], tokenizers: dict[str, Tokenizer]) -> TextEntry:
    path, data = file.relative_to(root).as_posix(), file.read_bytes()
    digest, old = _sha256(data), known.get(path)
    kept = old.tokens if old is not None and old.sha256 == digest else {}
    fresh = {name: _tokens(tokenizer, data.decode()) for name, tokenizer in tokenizers.items()}
    return TextEntry(
        path=path,
        domain=file.parent.name,
        origin=old.origin if old is not None else DEFAULT_ORIGIN,
        bytes=len(data),
        sha256=digest,
        tokens={**kept, **fresh},
    )


def _tokens(tokenizer: Tokenizer, text: str) -> TokenDigest:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return TokenDigest(count=len(ids), sha256=ids_sha256(ids))


def _rendered(entry: ModelEntry, tokenizer: Tokenizer) -> ModelEntry:
    digest = _tokens(tokenizer, f"{entry.prefix}{PROBE}{entry.suffix}").sha256
    return msgspec.structs.replace(entry, rendering_sha256=digest)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _lines(manifest: Manifest) -> Iterator[str]:
    # JSON and TOML spell strings, integers and arrays of integers alike.
    spell = json.dumps
    yield f"schema_version = {manifest.schema_version}"
    yield "\n[instructions]"
    yield f"path = {spell(manifest.instructions.path)}"
    yield f"sha256 = {spell(manifest.instructions.sha256)}"
    for name, model in sorted(manifest.models.items()):
        yield f"\n[models.{name}]"
        for key, value in msgspec.to_builtins(model).items():
            yield f"{key} = {spell(value)}"
    for text in manifest.texts:
        yield "\n[[texts]]"
        for key in ("path", "domain", "origin", "bytes", "sha256"):
            yield f"{key} = {spell(getattr(text, key))}"
        for name, tokens in sorted(text.tokens.items()):
            yield f"tokens.{name} = {{ count = {tokens.count}, sha256 = {spell(tokens.sha256)} }}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.pin_corpus", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("targets", nargs="+", metavar="NAME=TARGET")
    options = parser.parse_args(arguments)
    pairs = [target.partition("=") for target in options.targets]
    try:
        manifest = pin(options.corpus, {name: Path(target) for name, _, target in pairs})
    except (OSError, CorpusError, msgspec.DecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    (options.corpus / MANIFEST).write_text(to_toml(manifest), encoding="utf-8")
    for domain in sorted({text.domain for text in manifest.texts}):
        mine = [text for text in manifest.texts if text.domain == domain]
        counts = ", ".join(
            f"{sum(text.tokens[name].count for text in mine if name in text.tokens)} {name} tokens"
            for name in sorted(manifest.models)
        )
        print(f"{domain}: {len(mine)} texts, {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
