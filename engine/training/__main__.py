"""Train a DSpark draft for a target: ``python -m engine.training collect | train | evaluate``."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from engine import tokenizer as tokenizers
from engine.config import EngineError
from engine.models import draft_checkpoint, embedded, loading
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft, Vocabulary
from engine.training import dataset, teacher
from engine.training.prompts import PromptBuilder, Text
from engine.training.recipe import RECIPES, Recipe
from engine.training.trainer import Progress, TrainConfig, Trainer

_HELD_OUT_EVERY = 25
"""Every 25th document is kept for evaluation; its windows are never trained on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 1 after a sentence on standard error."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (EngineError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.training", description=__doc__)
    commands = parser.add_subparsers(required=True)
    collect = commands.add_parser("collect", help="fetch the natural text into one JSON-lines file")
    collect.add_argument("texts", type=Path)
    collect.set_defaults(run=_collect)
    train = commands.add_parser("train", help="generate continuations, train, write a checkpoint")
    train.add_argument(
        "--target", default="smollm2-135m", help="an embedded model's name or a model directory"
    )
    train.add_argument("--recipe", default="smollm2-135m", choices=sorted(RECIPES))
    train.add_argument("--texts", type=Path, required=True)
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--seconds", type=float, default=1100.0, help="wall-clock budget, generation included")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--no-compile", action="store_true")
    train.set_defaults(run=_train)
    evaluate = commands.add_parser("evaluate", help="greedy acceptance on given prompts, loops told apart")
    evaluate.add_argument("--target", default="smollm2-135m")
    evaluate.add_argument("--draft", type=Path, required=True)
    evaluate.add_argument("--prompts", type=Path, required=True, help="JSON list of {domain, context, ids}")
    evaluate.add_argument("--new-tokens", type=int, default=128)
    evaluate.add_argument("--out", type=Path)
    evaluate.set_defaults(run=_evaluate)
    return parser


def _collect(options: argparse.Namespace) -> None:
    from engine.training.sources import collect

    with options.texts.open("w", encoding="utf-8") as file:
        for document in collect():
            file.write(json.dumps([document.source, document.domain, document.text]) + "\n")


def _load(name: str) -> tuple[CausalLM, tokenizers.Tokenizer]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    directory = embedded.resolve(name)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return loading.load(directory, device=device, dtype=dtype), tokenizers.load(directory)


def _texts(path: Path, tokenizer: tokenizers.Tokenizer) -> Iterator[Text]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            _, domain, text = json.loads(line)
            yield Text(domain, tuple(tokenizer.encode(text)))


def _split(texts: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    held = [text for index, text in enumerate(texts) if index % _HELD_OUT_EVERY == 0]
    return [text for index, text in enumerate(texts) if index % _HELD_OUT_EVERY], held


def _train(options: argparse.Namespace) -> None:
    began = time.monotonic()

    def log(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    torch.manual_seed(options.seed)
    recipe: Recipe = RECIPES[options.recipe]
    rng = random.Random(options.seed)
    model, tokenizer = _load(options.target)
    texts = list(_texts(options.texts, tokenizer))
    log(f"{len(texts)} documents, {sum(len(text.ids) for text in texts)} tokens")
    if recipe.documents:
        written = dataset.write_documents(
            model, tokenizer, recipe.documents, recipe.document_tokens, recipe.document_batch, rng
        )
        log(
            f"{len(written)} documents written by the target, {sum(len(text.ids) for text in written)} tokens"
        )
        texts += written
    rng.shuffle(texts)
    train_texts, held_texts = _split(texts)
    builder = PromptBuilder(tokenizer, train_texts, options.seed)
    held_builder = PromptBuilder(tokenizer, held_texts, options.seed + 1)
    sample = torch.tensor([builder.raw(256) for _ in range(8)], device=model.device)
    scales = teacher.tap_scales(model, sample, recipe.taps)

    def build(source: PromptBuilder, plan: dataset.BucketPlan, loops: float) -> dataset.Bucket:
        return dataset.build_bucket(
            model, source, plan, recipe.taps, scales, loops_kept=loops, rng=rng, report=log
        )

    held = [build(held_builder, plan, 0.0) for plan in recipe.held_out]
    train = [build(builder, plan, 0.25) for plan in recipe.buckets]
    vocabulary = Vocabulary(model.embed_tokens, model.lm_head, model.config.vocab_size)
    draft = DSparkDraft(recipe.draft_config(model.config, tokenizer.sha256), vocabulary).to(model.device)
    with torch.no_grad():
        draft.norm.weight.copy_(model.norm.weight)
    budget = options.seconds - (time.monotonic() - began)
    config = TrainConfig(seconds=budget, seed=options.seed, compile_loss=not options.no_compile)
    trainer = Trainer(model, draft, train, held, config)
    options.out.mkdir(parents=True, exist_ok=True)

    def report(line: Progress) -> None:
        tau = "" if line.held_out_tau is None else f"  held-out tau {line.held_out_tau:.3f}"
        log(f"step {line.step}  loss {line.loss:.4f}  overlap {line.overlap:.3f}{tau}")
        if line.held_out_tau is not None:
            _save(draft, scales, options.out)
            curve = [(point.seconds, point.step, point.loss, point.held_out_tau) for point in trainer.curve]
            (options.out / "curve.json").write_text(json.dumps(curve) + "\n", encoding="utf-8")

    trainer.run(report)


def _save(draft: DSparkDraft, scales: torch.Tensor, directory: Path) -> None:
    """Writes the checkpoint with ``scales`` [L] folded into ``fc``, so that inference feeds plain features."""
    weight = draft.fc.weight
    trained = weight.data
    weight.data = (trained.unflatten(1, (len(scales), -1)) / scales[:, None]).flatten(1)
    try:
        draft_checkpoint.save(draft, directory)
    finally:
        weight.data = trained


def _evaluate(options: argparse.Namespace) -> None:
    from engine.training.report import evaluate_prompts, table

    model, tokenizer = _load(options.target)
    prompts = json.loads(options.prompts.read_text(encoding="utf-8"))
    result = evaluate_prompts(model, tokenizer, options.draft, prompts, options.new_tokens)
    print(table(result))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
