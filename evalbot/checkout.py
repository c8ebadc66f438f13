"""RefSpec -> Checkout: what exactly is compared, as object ids.

Head is a branch, tag or sha, a patch on the base, or a snapshot of the working tree. What is measured
is the *merge* of head onto base, computed here with ``git merge-tree --write-tree``; a conflict ends
the run before anything is built.
"""

from __future__ import annotations

import difflib
import shutil
from dataclasses import dataclass
from pathlib import Path

from evalbot.errors import BadRequest, InfraError, NeedsRebase
from evalbot.git import Git, GitFailed


@dataclass(frozen=True)
class RefSpec:
    """What the user asked for. At most one of ``patch`` and ``worktree``; neither means ``head``."""

    head: str = "HEAD"
    base: str = "main"
    patch: Path | None = None
    worktree: bool = False

    def spelled(self) -> str:
        """The head as the user would type it."""
        if self.patch is not None:
            # Below the working directory the path can be pasted again; elsewhere it tells of the machine.
            patch, here = self.patch.resolve(), Path.cwd()
            return f"--patch {patch.relative_to(here) if patch.is_relative_to(here) else patch.name}"
        return "--worktree" if self.worktree else self.head


@dataclass(frozen=True)
class Checkout:
    """Object ids of the two arms."""

    base_sha: str
    base_tree_sha: str
    head_sha: str
    merge_base_sha: str
    merge_tree_sha: str
    """Tree of head merged onto base."""


def resolve_base(git: Git, ref: str) -> str:
    return _commit(git, ref, "base")


def checkout(git: Git, spec: RefSpec, base_sha: str) -> Checkout:
    """Resolve head, merge it onto ``base_sha``.

    Raises BadRequest (unknown ref, unreadable patch) and NeedsRebase (conflict, patch that does not apply).
    """
    if spec.patch is not None:
        head_sha = _patched(git, spec.patch, base_sha, spec.base)
    elif spec.worktree:
        head_sha = _snapshot(git)
    else:
        head_sha = _commit(git, spec.head, "branch")
    merge_base = git.run("merge-base", base_sha, head_sha, expect=(0, 1)).stdout.decode().split()
    if not merge_base:
        raise BadRequest(
            f"{spec.spelled()} ({head_sha[:10]}) and {spec.base} ({base_sha[:10]}) share no commit: "
            "fetch more history (git fetch --unshallow) or name another base."
        )
    return Checkout(
        base_sha=base_sha,
        base_tree_sha=git.sha("rev-parse", f"{base_sha}^{{tree}}"),
        head_sha=head_sha,
        merge_base_sha=merge_base[0],
        merge_tree_sha=_merge(git, spec, base_sha, head_sha),
    )


def _merge(git: Git, spec: RefSpec, base_sha: str, head_sha: str) -> str:
    done = git.run(
        "merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", base_sha, head_sha, expect=(0, 1)
    )
    tree, *conflicts = (part.decode(errors="replace") for part in done.stdout.split(b"\0") if part)
    if done.returncode == 1:
        files = ", ".join(sorted(set(conflicts))[:5]) or "unnamed files"
        more = f" and {len(set(conflicts)) - 5} more" if len(set(conflicts)) > 5 else ""
        raise NeedsRebase(
            f"{spec.spelled()} ({head_sha[:10]}) conflicts with {spec.base} ({base_sha[:10]}) in "
            f"{files}{more}: rebase it onto {spec.base} and score it again. Nothing was measured."
        )
    return tree


def _commit(git: Git, ref: str, role: str) -> str:
    """The commit that ``ref`` names. Refs that start with a dash are options in disguise and refused."""
    if not ref or ref.startswith("-") or any(ord(c) < 32 for c in ref):
        raise BadRequest(f"{ref!r} is not a usable {role}: give a branch, a tag or a commit sha.")
    try:
        return git.sha("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except GitFailed:
        known = git.text(
            "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags"
        )
        near = difflib.get_close_matches(ref, known.splitlines(), n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`git branch --all` lists what exists."
        raise BadRequest(f"The {role} {ref!r} does not exist in {git.root}. {hint}") from None


def _patched(git: Git, patch: Path, base_sha: str, base: str) -> str:
    """Commit object: ``patch`` applied to the base."""
    try:
        content = patch.read_bytes()
    except OSError as error:
        raise BadRequest(f"The patch {patch} cannot be read: {error.strerror}.") from None
    index = {"GIT_INDEX_FILE": str(git.scratch / "patch-index")}
    git.run("read-tree", base_sha, environment=index)
    try:
        git.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=content, environment=index)
    except GitFailed as error:
        detail = error.stderr.splitlines()[0] if error.stderr else "no message"
        raise NeedsRebase(
            f"The patch {patch.name} does not apply to {base} ({base_sha[:10]}): {detail}. "
            f"Make it again from a branch that is based on {base}. Nothing was measured."
        ) from None
    return _make_commit(git, git.sha("write-tree", environment=index), base_sha, f"{patch.name} on {base}")


def _snapshot(git: Git) -> str:
    """Commit object: HEAD plus everything in the working tree that git does not ignore."""
    try:
        parent = git.sha("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed:
        raise BadRequest(
            f"{git.root} has no commit yet: commit something before scoring the working tree."
        ) from None
    index = git.scratch / "worktree-index"
    own = Path(git.text("rev-parse", "--path-format=absolute", "--git-path", "index"))
    if own.exists():
        # The copy keeps the recorded file times, so unchanged files need not be read again.
        shutil.copyfile(own, index)
    environment = {"GIT_INDEX_FILE": str(index)}
    try:
        git.run("add", "--all", "--", ".", environment=environment)
        tree = git.sha("write-tree", environment=environment)
    except GitFailed as error:
        raise InfraError(
            f"The working tree of {git.root} cannot be recorded: {error.stderr or error}. "
            "Finish any merge in progress and make sure that every file is readable."
        ) from None
    return _make_commit(git, tree, parent, "working tree")


def _make_commit(git: Git, tree: str, parent: str, message: str) -> str:
    """A commit with a fixed author and the parent's date: the same content always gets the same sha."""
    date = git.text("show", "--no-patch", "--format=%cI", parent)
    who = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", "evalbot"), ("EMAIL", "evalbot@localhost"), ("DATE", date))
    }
    return git.sha("commit-tree", tree, "-p", parent, "-m", message, environment=who)
