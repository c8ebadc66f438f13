"""A thin, careful way to call ``git``: no shell, no hooks, no prompts, nothing written to the repository.

Objects made here (merges, patches, snapshots of a working tree) go to a scratch object store that
borrows from the repository's, so a run leaves no object, index, worktree or lock behind.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from evalbot.errors import BadRequest, InfraError

MINIMUM_VERSION = (2, 38)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class GitFailed(Exception):
    """A git command ended with an unexpected status. Callers turn it into a sentence of their own."""

    def __init__(self, arguments: tuple[str, ...], status: int, stderr: str) -> None:
        self.arguments, self.status, self.stderr = arguments, status, stderr.strip()
        super().__init__(f"git {arguments[0]} ended with status {status}: {self.stderr or 'no message'}")


def version() -> tuple[int, ...]:
    """Version of the installed git. Raises InfraError if there is none."""
    try:
        text = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise InfraError("git was not found on PATH: install git 2.38 or newer.") from None
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise InfraError(f"`git --version` printed {text.strip()!r}, which holds no version number.")
    return tuple(int(part) for part in found.groups() if part)


class Git:
    """The ``git`` program on one repository."""

    def __init__(self, repo: Path, scratch: Path) -> None:
        """``scratch`` is an empty private directory that outlives this object and belongs to the run."""
        have = version()
        if have < MINIMUM_VERSION:
            raise InfraError(
                f"git {'.'.join(map(str, have))} is too old: "
                "`git merge-tree --write-tree` needs 2.38 or newer."
            )
        self.root = repo
        self._environment = _environment()
        try:
            self.root = Path(self.text("rev-parse", "--show-toplevel"))
            objects = Path(self.text("rev-parse", "--path-format=absolute", "--git-path", "objects"))
            self.object_format = self.text("rev-parse", "--show-object-format")
        except (GitFailed, OSError) as error:
            detail = error.stderr if isinstance(error, GitFailed) else str(error)
            raise BadRequest(
                f"{repo} is not a git repository with a working tree ({_first_line(detail)}): "
                "run evalbot inside one or name it with --repo."
            ) from None
        store = scratch / "objects"
        (store / "info").mkdir(parents=True)
        (store / "info" / "alternates").write_text(f"{objects}\n")
        self._environment["GIT_OBJECT_DIRECTORY"] = str(store)
        self.scratch = scratch

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        expect: tuple[int, ...] = (0,),
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git and return what it printed. Raises GitFailed on a status outside ``expect``."""
        done = subprocess.run(
            [
                "git",
                "-c",
                "core.hooksPath=/dev/null",
                "-c",
                "core.fsmonitor=false",
                "--literal-pathspecs",
                *arguments,
            ],
            cwd=self.root,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env={**self._environment, **(environment or {})},
            check=False,
        )
        if done.returncode not in expect:
            raise GitFailed(arguments, done.returncode, done.stderr.decode(errors="replace"))
        return done

    def text(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Standard output of one command, stripped."""
        return self.run(*arguments, environment=environment).stdout.decode(errors="surrogateescape").strip()

    def sha(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """The object id that a command prints, checked to be one."""
        found = self.text(*arguments, environment=environment)
        if _SHA.fullmatch(found) is None:
            raise InfraError(f"git {arguments[0]} printed {found[:80]!r} where an object id was expected.")
        return found


def _environment() -> dict[str, str]:
    """The user's environment without variables that would point git at another repository or index."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
