"""A small corpus and a model directory with a character tokenizer, pinned by the real tool."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from harness.pin_corpus import pin, to_toml

MODEL = "fake"
DOMAINS = ("prose", "code", "chat")
WORDS = ("the", "a", "river", "stone", "boat", "light", "under", "over", "went", "came", "old", "new", "and")

INSTRUCTIONS = """
[[instructions]]
task = "continue"
domains = ["prose", "code", "chat"]
phrasings = ["Go on:\\n\\n{passage}", "{passage}\\n\\nWhat next?"]
"""

MANIFEST = """
schema_version = 1
[instructions]
path = "instructions.toml"
sha256 = ""
[models.fake]
source = "made by the tests"
license = "none"
tokenizer = "tokenizer.json"
prefix = "<user>"
suffix = "<answer>"
instructed = true
stop_ids = [98]
rendering_sha256 = ""
"""


@dataclass(frozen=True)
class FakeCorpus:
    root: Path
    target: Path
    """Directory of the model that the tokenizer belongs to."""


def make(directory: Path) -> FakeCorpus:
    """Write and pin a corpus of natural-looking lines below ``directory``."""
    root, target = directory / "corpus", directory / "model"
    target.mkdir(parents=True)
    tokenizer().save(str(target / "tokenizer.json"))
    for domain in (*DOMAINS, "accuracy"):
        for index in range(2):
            file = root / "texts" / domain / f"{index}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(story(f"{domain}{index}"))
    (root / "instructions.toml").write_text(INSTRUCTIONS)
    (root / "manifest.toml").write_text(MANIFEST)
    (root / "manifest.toml").write_text(to_toml(pin(root, {MODEL: target})))
    return FakeCorpus(root, target)


def story(seed: str, lines: int = 60) -> str:
    dice = random.Random(seed)
    return "".join(" ".join(dice.choices(WORDS, k=8)) + ".\n" for _ in range(lines))


def tokenizer() -> Tokenizer:
    """One id for each printable ASCII character, 95 for anything else."""
    vocabulary = {chr(code): code - 32 for code in range(32, 127)} | {"\n": 95}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="\n"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return made
