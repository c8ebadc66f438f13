"""Checkout -> two PinnedTrees: main's ruler laid over the candidate, and proven.

Every pinned path of the measured tree is the base's. That is not assumed but computed from disk, on
both arms, when the trees are laid out and again after everything that ran inside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evalbot.checkout import Checkout
from evalbot.errors import PinError
from evalbot.git import Git
from evalbot.tree import Digest, Entry, digest, entries, export, is_under
from harness.schema import Arm


@dataclass(frozen=True)
class PinnedTree:
    """One arm on disk."""

    arm: Arm
    path: Path
    commit_sha: str
    tree_sha: str
    """Git id of the whole tree as laid out, from disk."""
    pinned: Mapping[str, Digest | None]
    """Digest of each pinned path, from disk; None where the base has no such path."""


@dataclass(frozen=True)
class Pinned:
    """Both arms, and what the change did to pinned paths."""

    baseline: PinnedTree
    candidate: PinnedTree
    identical: bool
    """The measured trees are byte for byte the same."""
    set_aside: tuple[str, ...]
    """Pinned paths that the change edits; its copies were replaced by the base's."""


def pin(git: Git, found: Checkout, pinned: tuple[str, ...], directory: Path) -> Pinned:
    """Lay out both arms below ``directory`` and prove their pinned paths.

    Raises UnsafeTree for a tree that cannot be laid out, PinError for a pinned path that is not main's.
    """
    base = entries(git, found.base_tree_sha)
    merged = entries(git, found.merge_tree_sha)
    ruler = tuple(entry for entry in base if is_under(entry.path, pinned))
    measured = (*(entry for entry in merged if not is_under(entry.path, pinned)), *ruler)
    expected = expected_ids(git, found.base_tree_sha, pinned)
    return Pinned(
        baseline=_lay(git, "baseline", found.base_sha, base, pinned, expected, directory),
        candidate=_lay(git, "candidate", found.head_sha, measured, pinned, expected, directory),
        identical=sorted(measured, key=_path) == sorted(base, key=_path),
        set_aside=touched(git, found, pinned),
    )


def touched(git: Git, found: Checkout, pinned: tuple[str, ...]) -> tuple[str, ...]:
    """Pinned paths that differ between the merge base and head."""
    listing = git.run(
        "diff-tree",
        "-r",
        "-z",
        "--name-only",
        "--no-renames",
        found.merge_base_sha,
        found.head_sha,
        "--",
        *pinned,
    ).stdout
    return tuple(sorted(part.decode(errors="replace") for part in listing.split(b"\0") if part))


def expected_ids(git: Git, tree: str, pinned: tuple[str, ...]) -> dict[str, str]:
    """Git id of each pinned path that exists in ``tree``."""
    listing = git.run("ls-tree", "-z", "--full-tree", tree, "--", *pinned).stdout
    found = {}
    for line in listing.decode(errors="surrogateescape").split("\0"):
        if line:
            head, _, path = line.partition("\t")
            found[path] = head.split(" ")[2]
    return found


def prove(tree: PinnedTree, object_format: str, when: str) -> None:
    """Check that the pinned paths on disk are still what was laid out.

    ``when`` says in the sentence of a PinError what ran in between.
    """
    for path, before in tree.pinned.items():
        now = _digest(tree.path / path, object_format)
        if now != before:
            raise PinError(
                f"The pinned path {path} of the {tree.arm} tree changed {when}: expected {_short(before)}, "
                f"found {_short(now)}. Nothing measured with it can be used."
            )


def _lay(
    git: Git,
    arm: Arm,
    commit: str,
    files: tuple[Entry, ...],
    pinned: tuple[str, ...],
    expected: Mapping[str, str],
    directory: Path,
) -> PinnedTree:
    path = directory / arm
    export(git, files, path)
    found = {name: _digest(path / name, git.object_format) for name in pinned}
    for name, now in found.items():
        sha = expected.get(name)
        if (now.git_sha if now else None) != sha:
            raise PinError(
                f"The pinned path {name} of the {arm} tree is {_short(now)} on disk and "
                f"{sha[:12] if sha else 'absent'} on the base: the two arms would be measured with different "
                "rulers. Run again; if it stays, check the disk."
            )
    whole = digest(path, git.object_format)
    return PinnedTree(arm=arm, path=path, commit_sha=commit, tree_sha=whole.git_sha, pinned=found)


def _digest(path: Path, object_format: str) -> Digest | None:
    exists = path.exists() or path.is_symlink()
    return digest(path, object_format) if exists else None


def _short(found: Digest | None) -> str:
    return found.git_sha[:12] if found else "absent"


def _path(entry: Entry) -> str:
    return entry.path
