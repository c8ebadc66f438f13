"""Prompts of the pinned corpus as JSON, the way scored runs draw them.

``python -m harness.draw_prompts CORPUS MODEL=TARGET --contexts 1024 4096 --per-domain 8`` prints a list of
``{"domain", "context", "ids"}``: what an engine needs to be tried on scored prompts outside a run. They are
not admitted yet: that takes the continuation of an engine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import prompts
from harness.corpus import Corpus, CorpusError

DOMAINS = ("prose", "code", "chat", "math")


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 with a sentence when the corpus cannot give such prompts."""
    parser = argparse.ArgumentParser(prog="python -m harness.draw_prompts", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("model", metavar="MODEL=TARGET", help="name in the manifest, and its directory")
    parser.add_argument("--contexts", type=int, nargs="+", required=True, help="prompt lengths in tokens")
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--per-domain", type=int, default=8, help="prompts of each domain at each context")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    name, _, target = options.model.partition("=")
    try:
        view = Corpus(options.corpus).view(name, Path(target))
        drawn = [
            {"domain": domain, "context": context, "ids": list(prompt.ids)}
            for context in options.contexts
            for domain in options.domains
            for index in range(options.per_domain)
            for prompt in [prompts.draw(view, domain, context, f"{options.seed}/{context}/{index}")]
        ]
    except CorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    json.dump(drawn, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
