"""One training run from texts to a checkpoint, in the order it happens.

The output directory holds the checkpoint, the curve, and what a resumed run needs: the generated sequences
and the trainer's state. Features are computed again on resuming; they are large and cheap.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file
from torch import Tensor

from engine import tokenizer as tokenizers
from engine.config import ConfigError
from engine.models import draft_checkpoint, embedded, loading
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft, Vocabulary
from engine.models.weights import SINGLE, read_tensors
from engine.training import dataset, teacher
from engine.training.dataset import Bucket, BucketPlan, Sequences
from engine.training.prompts import PromptBuilder, Text
from engine.training.recipe import Recipe
from engine.training.trainer import Point, TrainConfig, Trainer

HELD_OUT_EVERY = 25
"""Every 25th document is kept for evaluation; its windows are never trained on."""

_LOOPS_KEPT = 0.25
_DATA, _STATE, _CURVE = "sequences.pt", "state.pt", "curve.json"

Log = Callable[[str], None]


def load_target(name: str) -> tuple[CausalLM, tokenizers.Tokenizer]:
    """An embedded model's name or a model directory: bfloat16 on a GPU, float32 on a CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    directory = embedded.resolve(name)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return loading.load(directory, device=device, dtype=dtype), tokenizers.load(directory)


def train(
    target: str,
    recipe: Recipe,
    texts: Path,
    out: Path,
    *,
    seconds: float,
    steps: int | None = None,
    seed: int = 0,
    compile_loss: bool = True,
    resume: bool = False,
    init: Path | None = None,
) -> None:
    """Generates data, trains for what is left of ``seconds``, and writes a DeepSpec checkpoint to ``out``.

    ``steps`` sets the length of the training itself instead. A resumed run takes the budget it began with.
    ``init``: checkpoint of a trained draft of the same shape to start from.
    Raises ConfigError when there is nothing to resume from.
    """
    began = time.monotonic()

    def log(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    torch.manual_seed(seed)
    out.mkdir(parents=True, exist_ok=True)
    model, tokenizer = load_target(target)
    material = _Material(model, tokenizer, recipe, texts, seed, log)
    if resume:
        data = _read_data(out, model.device)
    else:
        held, scales = material.held_out()
        loaded = time.monotonic() - began
        learnt = material.round(0)
        left = seconds - loaded - recipe.rounds * (time.monotonic() - began - loaded)
        data = _Data(0, held, learnt, scales, left)
        torch.save(data, out / _DATA)

    def cached(sequences: Sequence[Sequences]) -> list[Bucket]:
        return [
            dataset.cache_features(model, part, recipe.taps, data.scales, recipe.compact)
            for part in sequences
        ]

    vocabulary = Vocabulary(model.embed_tokens, model.lm_head, model.config.vocab_size)
    draft = DSparkDraft(recipe.draft_config(model.config, tokenizer.sha256), vocabulary).to(model.device)
    with torch.no_grad():
        draft.norm.weight.copy_(model.norm.weight)
    if init is not None:
        _start_from(draft, init, model, data.scales)
    config = TrainConfig(
        seconds=data.budget,
        steps=steps,
        seed=seed,
        compile_loss=compile_loss,
        muon_lr=recipe.muon_lr,
        adam_lr=recipe.adam_lr,
        natural_share=recipe.natural_share,
    )
    trainer = Trainer(model, draft, cached(data.learnt), cached(data.held), config)
    if resume and (out / _STATE).exists():
        trainer.resume(out / _STATE)
        log(f"resumed at step {trainer.step_index}, {trainer.spent:.0f} of {data.budget:.0f} s spent")
    with _reporter(data.budget, log) as show:

        def report(point: Point) -> None:
            show(point)
            if point.held_out_tau is not None:
                _save(draft, data.scales, out)
                trainer.save(out / _STATE)
                curve = [(p.seconds, p.step, p.loss, p.held_out_tau) for p in trainer.curve]
                (out / _CURVE).write_text(json.dumps(curve) + "\n", encoding="utf-8")

        trainer.run(report, until=(data.round + 1) / recipe.rounds)
        for index in range(data.round + 1, recipe.rounds):
            trainer.learn_from(())
            data = replace(data, round=index, learnt=material.round(index))
            torch.save(data, out / _DATA)
            trainer.learn_from(cached(data.learnt))
            trainer.run(report, until=(index + 1) / recipe.rounds)


def average(first: Path, second: Path, out: Path) -> None:
    """Writes the mean of two checkpoints, tensor by tensor in float32, with the second's config.

    A draft and the same draft trained further lie in one valley; their mean predicts better than either.
    Raises ConfigError when their tensors differ in name or shape.
    """
    ours, theirs = read_tensors(first), read_tensors(second)
    shapes = [{name: tuple(value.shape) for name, value in each.items()} for each in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"{first} and {second} hold tensors of different names or shapes: average one draft."
        )
    out.mkdir(parents=True, exist_ok=True)
    mean = {name: ((ours[name].float() + theirs[name].float()) / 2).to(theirs[name].dtype) for name in ours}
    save_file(mean, out / SINGLE, metadata={"format": "pt"})
    shutil.copyfile(second / "config.json", out / "config.json")


@dataclass(frozen=True)
class _Data:
    """What a resumed run reads back. ``budget``: seconds of training over all rounds."""

    round: int
    held: list[Sequences]
    learnt: list[Sequences]
    scales: Tensor
    budget: float


class _Material:
    """Texts, and sequences made of them: held-out ones once, and others for every round of training."""

    def __init__(
        self,
        model: CausalLM,
        tokenizer: tokenizers.Tokenizer,
        recipe: Recipe,
        path: Path,
        seed: int,
        log: Log,
    ) -> None:
        self._model, self._tokenizer, self._recipe = model, tokenizer, recipe
        self._path, self._seed, self._log = path, seed, log

    @cached_property
    def _natural(self) -> tuple[list[Text], list[Text]]:
        """(learnt, held out), a split that depends on nothing but the seed."""
        texts = list(_texts(self._path, self._tokenizer))
        self._log(f"{len(texts)} documents, {sum(len(text.ids) for text in texts)} tokens")
        return _split(texts, random.Random(self._seed))

    def held_out(self) -> tuple[list[Sequences], Tensor]:
        """Held-out sequences, and the scale of each tap [L]."""
        rng = random.Random(f"{self._seed}/held out")
        learnt, held = self._natural
        written = self._written(rng, self._recipe.documents // HELD_OUT_EVERY)
        builder = PromptBuilder(self._tokenizer, learnt, self._seed)
        sample = torch.tensor([builder.raw(256) for _ in range(8)], device=self._model.device)
        scales = teacher.tap_scales(self._model, sample, self._recipe.taps)
        return self._generated(held + written, self._recipe.held_out, 0.0, rng), scales

    def round(self, index: int) -> list[Sequences]:
        """Sequences of a round, from the natural texts and from documents that no other round has."""
        rng = random.Random(f"{self._seed}/{index}")
        if self._model.device.type == "cuda":
            # What the last round cached is gone; its segments would crowd out the decode caches.
            torch.cuda.empty_cache()
        texts = self._natural[0] + self._written(rng, self._recipe.documents)
        return self._generated(texts, self._recipe.buckets, _LOOPS_KEPT, rng)

    def _written(self, rng: random.Random, count: int) -> list[Text]:
        recipe = self._recipe
        if not count:
            return []
        written = dataset.write_documents(
            self._model, self._tokenizer, count, recipe.document_tokens, recipe.document_batch, rng
        )
        total = sum(len(text.ids) for text in written)
        self._log(f"{len(written)} documents written by the target, {total} tokens")
        return written

    def _generated(
        self, texts: Sequence[Text], plans: Sequence[BucketPlan], loops_kept: float, rng: random.Random
    ) -> list[Sequences]:
        builder = PromptBuilder(self._tokenizer, texts, rng.randrange(2**31))
        return [
            dataset.generate(self._model, builder, plan, loops_kept=loops_kept, rng=rng, report=self._log)
            for plan in plans
        ]


def _split(texts: list[Text], rng: random.Random) -> tuple[list[Text], list[Text]]:
    rng.shuffle(texts)
    learnt = [text for index, text in enumerate(texts) if index % HELD_OUT_EVERY]
    return learnt, texts[::HELD_OUT_EVERY]


def _read_data(out: Path, device: torch.device) -> _Data:
    path = out / _DATA
    if not path.exists():
        raise ConfigError(f"{path} does not exist: there is no run to resume in {out}; start one first.")
    data: _Data = torch.load(path, map_location=device, weights_only=False)
    return data


def _texts(path: Path, tokenizer: tokenizers.Tokenizer) -> Iterator[Text]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    encoded = tokenizer.encode_batch([text for _, _, text in rows])
    for (_, domain, _), ids in zip(rows, encoded, strict=True):
        yield Text(domain, tuple(ids))


def _start_from(draft: DSparkDraft, checkpoint: Path, model: CausalLM, scales: Tensor) -> None:
    """Copies a checkpoint's weights into ``draft``, ``scales`` [L] taken out of ``fc`` again."""
    trained = draft_checkpoint.load(checkpoint, model)
    draft.load_state_dict({name: value.float() for name, value in trained.state_dict().items()})
    weight = draft.fc.weight
    weight.data = (weight.data.unflatten(1, (len(scales), -1)) * scales[:, None]).flatten(1)


def _save(draft: DSparkDraft, scales: Tensor, directory: Path) -> None:
    """Writes the checkpoint, ``scales`` [L] folded into ``fc`` so that inference feeds plain features."""
    weight = draft.fc.weight
    trained = weight.data
    weight.data = (trained.unflatten(1, (len(scales), -1)) / scales[:, None]).flatten(1)
    try:
        draft_checkpoint.save(draft, directory)
    finally:
        weight.data = trained


@contextmanager
def _reporter(budget: float, log: Log) -> Iterator[Callable[[Point], None]]:
    """A progress bar with loss and held-out tau on a terminal, a line for each point elsewhere."""
    if not sys.stdout.isatty():
        yield lambda point: log(str(point))
        return
    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=budget)
        tau = ""

        def show(point: Point) -> None:
            nonlocal tau
            tau = tau if point.held_out_tau is None else f"  held-out tau {point.held_out_tau:.3f}"
            bar.update(task, completed=point.seconds, description=f"loss {point.loss:.4f}{tau}")

        yield show
