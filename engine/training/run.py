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
from engine.training.dataset import Bucket, Sequences
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
    if resume:
        held, learnt, scales, budget = _read_data(out, model.device)
    else:
        held, learnt, scales = _make_data(model, tokenizer, recipe, texts, seed, log)
        budget = seconds - (time.monotonic() - began)
        torch.save((held, learnt, scales, budget), out / _DATA)

    def cached(sequences: Sequence[Sequences]) -> list[Bucket]:
        return [
            dataset.cache_features(model, part, recipe.taps, scales, recipe.compact) for part in sequences
        ]

    vocabulary = Vocabulary(model.embed_tokens, model.lm_head, model.config.vocab_size)
    draft = DSparkDraft(recipe.draft_config(model.config, tokenizer.sha256), vocabulary).to(model.device)
    with torch.no_grad():
        draft.norm.weight.copy_(model.norm.weight)
    if init is not None:
        _start_from(draft, init, model, scales)
    config = TrainConfig(
        seconds=budget,
        steps=steps,
        seed=seed,
        compile_loss=compile_loss,
        muon_lr=recipe.muon_lr,
        adam_lr=recipe.adam_lr,
    )
    trainer = Trainer(model, draft, cached(learnt), cached(held), config)
    if resume and (out / _STATE).exists():
        trainer.resume(out / _STATE)
        log(f"resumed at step {trainer.step_index}, {trainer.spent:.0f} of {budget:.0f} s spent")
    with _reporter(budget, log) as show:

        def report(point: Point) -> None:
            show(point)
            if point.held_out_tau is not None:
                _save(draft, scales, out)
                trainer.save(out / _STATE)
                curve = [(p.seconds, p.step, p.loss, p.held_out_tau) for p in trainer.curve]
                (out / _CURVE).write_text(json.dumps(curve) + "\n", encoding="utf-8")

        trainer.run(report)


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


def _make_data(
    model: CausalLM, tokenizer: tokenizers.Tokenizer, recipe: Recipe, path: Path, seed: int, log: Log
) -> tuple[list[Sequences], list[Sequences], Tensor]:
    rng = random.Random(seed)
    texts = list(_texts(path, tokenizer))
    log(f"{len(texts)} documents, {sum(len(text.ids) for text in texts)} tokens")
    if recipe.documents:
        written = dataset.write_documents(
            model, tokenizer, recipe.documents, recipe.document_tokens, recipe.document_batch, rng
        )
        total = sum(len(text.ids) for text in written)
        log(f"{len(written)} documents written by the target, {total} tokens")
        texts += written
    rng.shuffle(texts)
    held_texts = texts[::HELD_OUT_EVERY]
    learnt_texts = [text for index, text in enumerate(texts) if index % HELD_OUT_EVERY]
    builder = PromptBuilder(tokenizer, learnt_texts, seed)
    held_builder = PromptBuilder(tokenizer, held_texts, seed + 1)
    sample = torch.tensor([builder.raw(256) for _ in range(8)], device=model.device)
    scales = teacher.tap_scales(model, sample, recipe.taps)
    held = [
        dataset.generate(model, held_builder, plan, loops_kept=0.0, rng=rng, report=log)
        for plan in recipe.held_out
    ]
    learnt = [
        dataset.generate(model, builder, plan, loops_kept=_LOOPS_KEPT, rng=rng, report=log)
        for plan in recipe.buckets
    ]
    return held, learnt, scales


def _read_data(out: Path, device: torch.device) -> tuple[list[Sequences], list[Sequences], Tensor, float]:
    path = out / _DATA
    if not path.exists():
        raise ConfigError(f"{path} does not exist: there is no run to resume in {out}; start one first.")
    data: tuple[list[Sequences], list[Sequences], Tensor, float]
    data = torch.load(path, map_location=device, weights_only=False)
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
