"""PinnedTree -> Build: run the engine's build step inside the measured tree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from evalbot.config import EngineConfig, command
from evalbot.errors import BaselineBroken, BuildFailed, EvalbotError
from evalbot.pin import PinnedTree, prove
from evalbot.sandbox import Finished, Sandbox

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Build:
    """One arm, ready to be started."""

    tree: PinnedTree
    worker: tuple[str, ...]
    duration_s: float


def build(tree: PinnedTree, config: EngineConfig, sandbox: Sandbox, object_format: str) -> Build:
    """Build one arm.

    Raises BuildFailed for the candidate and BaselineBroken for main, with the last line of the log;
    PinError if the build changed a pinned path.
    """
    argv = command(config.build)
    spelled = " ".join(config.build).replace("{python}", "python")
    try:
        finished = sandbox.run(argv, tree.path, config.build_timeout_s)
    except OSError as error:
        raise BaselineBroken(f"The build step `{spelled}` cannot be started: {error.strerror}.") from None
    if finished.status != 0:
        raise _failure(tree, spelled, finished, config.build_timeout_s)
    prove(tree, object_format, "while it was built")
    return Build(tree=tree, worker=sandbox.wrap(command(config.worker)), duration_s=finished.duration_s)


def _failure(tree: PinnedTree, spelled: str, finished: Finished, timeout_s: float) -> EvalbotError:
    if finished.status is None:
        what = f"did not end within {timeout_s:g} s"
    elif finished.status < 0:
        what = f"was ended by signal {-finished.status}"
    else:
        what = f"ended with status {finished.status}"
    said = last_line(finished.log, str(tree.path))
    ending = f": {said}" if said else " and printed nothing"
    if tree.arm == "candidate":
        return BuildFailed(
            f"The build step `{spelled}` {what} in the merged tree{ending}. "
            "Run it in your checkout, mend it, and score again."
        )
    return BaselineBroken(
        f"The build step `{spelled}` {what} on the base itself{ending}. "
        "Mend the base first; the change was not judged."
    )


def last_line(log: str, tree: str) -> str:
    """The last line of a log that says something, without colours, redraws and the run's own paths."""
    lines = [_ANSI.sub("", line.rsplit("\r", 1)[-1]).strip() for line in log.splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    said = said.replace(f"{tree}/", "").rstrip(".")
    return said if len(said) <= 300 else said[:297] + "..."
