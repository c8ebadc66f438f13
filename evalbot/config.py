"""``evalbot.toml``: what ties the bot to a repository. Always read from the base ref."""

from __future__ import annotations

import hashlib
import sys
from pathlib import PurePosixPath

import msgspec

from evalbot.errors import BadRequest
from harness.schema import Frozen, Policy, encode_json

CONFIG_FILE = "evalbot.toml"
HARNESS = "harness"
"""The package in the base's tree that measures."""


class RepoConfig(Frozen):
    pinned: tuple[str, ...]
    """Paths of the measured tree that are always main's, relative to the root."""
    default_branch: str = "main"


class EngineConfig(Frozen):
    build: tuple[str, ...]
    worker: tuple[str, ...]
    build_timeout_s: float = 600.0


class MeasureConfig(Frozen):
    default_plan: str = "cpu-quick"
    corpus: str = "corpus"
    fetch_timeout_s: float = 600.0
    timeout_s: float = 7200.0
    """Limit for one whole measurement; single launches have their own in the plan."""


class ModelSource(Frozen):
    """Where a model named by a plan comes from: a path in the tree, or a command that fetches it."""

    target: str | None = None
    fetch: tuple[str, ...] | None = None
    """Prints one JSON object with ``path`` and ``sha256``; runs in main's tree."""
    draft: str | None = None


class GithubConfig(Frozen):
    label_prefix: str = "eval-dspark"
    close_on_reject: bool = False


class Config(Frozen):
    repo: RepoConfig
    engine: EngineConfig
    measure: MeasureConfig = MeasureConfig()
    models: dict[str, ModelSource] = {}
    policy: Policy = Policy()
    github: GithubConfig = GithubConfig()


def parse(text: bytes, where: str) -> Config:
    """Config from TOML. ``where`` names the source in errors. Raises BadRequest with the offending field."""
    try:
        config = msgspec.toml.decode(text, type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{where} cannot be used: {error}. Correct {CONFIG_FILE} on the base ref.") from None
    for path in config.repo.pinned:
        parts = PurePosixPath(path)
        if not path or parts.is_absolute() or ".." in parts.parts or str(parts) != path:
            raise BadRequest(
                f"{where} pins {path!r}: a pinned path is relative to the repository's root, "
                "without '..' and without a trailing slash."
            )
    for path in (CONFIG_FILE, HARNESS, config.measure.corpus):
        if path not in config.repo.pinned:
            raise BadRequest(f"{where} does not pin {path}: add it to [repo] pinned.")
    for name, model in config.models.items():
        if (model.target is None) == (model.fetch is None):
            raise BadRequest(f"{where}: [models.{name}] needs exactly one of target and fetch.")
    return config


def command(argv: tuple[str, ...]) -> tuple[str, ...]:
    """``argv`` with ``{python}`` replaced by the interpreter that runs evalbot."""
    return tuple(sys.executable if part == "{python}" else part for part in argv)


def policy_sha256(policy: Policy) -> str:
    return hashlib.sha256(encode_json(policy)).hexdigest()
