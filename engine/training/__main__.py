"""Train a DSpark draft for a target: ``python -m engine.training collect | train | average | evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.config import EngineError
from engine.training import run
from engine.training.recipe import RECIPES


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
    train.add_argument("--resume", action="store_true", help="go on from the state in --out")
    train.add_argument("--init", type=Path, help="checkpoint of a trained draft to start from")
    train.set_defaults(run=_train)
    average = commands.add_parser("average", help="the mean of two checkpoints of one shape")
    average.add_argument("first", type=Path)
    average.add_argument("second", type=Path)
    average.add_argument("out", type=Path)
    average.set_defaults(run=_average)
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


def _train(options: argparse.Namespace) -> None:
    run.train(
        options.target,
        RECIPES[options.recipe],
        options.texts,
        options.out,
        seconds=options.seconds,
        seed=options.seed,
        compile_loss=not options.no_compile,
        resume=options.resume,
        init=options.init,
    )


def _average(options: argparse.Namespace) -> None:
    run.average(options.first, options.second, options.out)


def _evaluate(options: argparse.Namespace) -> None:
    from engine.training.report import evaluate_prompts, table

    model, tokenizer = run.load_target(options.target)
    prompts = json.loads(options.prompts.read_text(encoding="utf-8"))
    result = evaluate_prompts(model, tokenizer, options.draft, prompts, options.new_tokens)
    print(table(result))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
