"""Command line of the engine: ``python -m engine fetch`` and ``python -m engine generate``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from engine.config import ConfigError, EngineError
from engine.models import digest, embedded

DRAFTS = Path(__file__).resolve().parents[1] / "corpus" / "models"
"""Where this repository keeps the draft of an embedded model, as ``<name>-dspark``."""

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (KeyboardInterrupt, BrokenPipeError):
        return INTERRUPTED
    except Exception as error:
        if options.debug:
            raise
        known = isinstance(error, EngineError)
        print(error if known else f"The engine failed: {error!r}; --debug shows where.", file=sys.stderr)
        return 1


def fetch(options: argparse.Namespace) -> int:
    """Print where an embedded model lies, fetching it if need be, and what its files hash to."""
    path = embedded.fetch(options.name)
    sums = {"files": digest.files_sha256(path), "sha256": digest.model_sha256(path)}
    print(json.dumps({"name": options.name, "path": str(path), **sums}))
    return 0


def generate(options: argparse.Namespace) -> int:
    """Stream the answer to one prompt, then print its rate, tau and rounds."""
    # torch takes seconds to import and fetch does not need it.
    from engine import stream, tokenizer
    from engine.llm import LLM

    target = embedded.resolve(options.model)
    draft = options.draft or (default_draft(options.model) if options.mode == "dspark" else None)
    words = tokenizer.load(target)
    llm = LLM.load(target, draft, device=options.device)
    if options.raw or words.chat_template is None:
        prompt = words.encode(options.prompt)
    else:
        prompt = words.chat([{"role": "user", "content": options.prompt}])
    steps = llm.generate(
        prompt,
        mode=options.mode,
        max_new_tokens=options.max_new,
        temperature=options.temperature,
        seed=options.seed,
    )
    if options.json:
        summary = stream.follow(steps, words, show=lambda text: None)
        print(json.dumps({"mode": options.mode, "prompt_tokens": len(prompt), **asdict(summary)}))
    else:
        summary = stream.follow(steps, words, show=lambda text: print(text, end="", flush=True))
        print(f"\n{options.mode}: {summary.line()}")
    return 0


def default_draft(model: str) -> Path:
    """The draft this repository ships for an embedded model. Raises ConfigError if there is none."""
    path = DRAFTS / f"{model}-dspark"
    if model not in embedded.SOURCES or not path.is_dir():
        raise ConfigError(f"No draft is known for {model}; name one with --draft or use --mode ar.")
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine", description="The engine by hand.")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("fetch", help="put an embedded model into the cache")
    command.add_argument("name", choices=sorted(embedded.SOURCES))
    command.set_defaults(run=fetch)

    command = commands.add_parser("generate", help="answer one prompt")
    command.add_argument("prompt")
    command.add_argument("--mode", choices=("ar", "dspark"), default="ar")
    command.add_argument("--max-new", type=int, default=64, metavar="N", help="new tokens at most")
    command.add_argument("--model", default=embedded.SMOLLM2.name, help="a path or an embedded model's name")
    command.add_argument("--draft", type=Path, help="directory of a DSpark draft")
    command.add_argument("--temperature", type=float, default=0.0)
    command.add_argument("--seed", type=int, help="of the draws at a temperature above 0")
    command.add_argument("--device", help="cpu, cuda, ...; CUDA where there is one")
    command.add_argument("--raw", action="store_true", help="encode the prompt without the chat template")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    command.set_defaults(run=generate)
    return parser


if __name__ == "__main__":
    sys.exit(main())
