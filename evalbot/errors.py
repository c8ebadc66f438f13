"""What can end a run early, in two families.

    EvalbotError
    ├── CandidateError        a sentence for the contributor
    │   ├── NeedsRebase         the change does not merge or apply onto the base
    │   ├── TouchesPinned       the change edits paths that are always main's
    │   ├── UnsafeTree          the tree cannot be laid out safely on this machine
    │   └── BuildFailed         the candidate's own build failed
    └── InfraError            a note to ourselves, never a verdict on somebody's work
        ├── BadRequest          the repository, ref, plan or file that was asked for does not exist
        ├── PinError            a pinned path on disk is not what main says it is
        ├── BaselineBroken      main itself does not build or run
        └── HarnessFailed       the instrument gave no usable result

Every message is a sentence that says what, what was expected, and what to do.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Cause = Literal[
    "candidate",
    "needs-rebase",
    "touches-pinned",
    "unsafe-tree",
    "build-failed",
    "infrastructure",
    "bad-request",
    "pin",
    "baseline-broken",
    "harness-failed",
]


class EvalbotError(Exception):
    """Base of everything that evalbot raises on purpose. ``str(error)`` is shown to a person."""

    cause: ClassVar[Cause] = "infrastructure"
    """Stable word for the record: which of the above this is."""


class CandidateError(EvalbotError):
    cause: ClassVar[Cause] = "candidate"


class NeedsRebase(CandidateError):
    cause: ClassVar[Cause] = "needs-rebase"


class TouchesPinned(CandidateError):
    cause: ClassVar[Cause] = "touches-pinned"


class UnsafeTree(CandidateError):
    cause: ClassVar[Cause] = "unsafe-tree"


class BuildFailed(CandidateError):
    cause: ClassVar[Cause] = "build-failed"


class InfraError(EvalbotError):
    cause: ClassVar[Cause] = "infrastructure"


class BadRequest(InfraError):
    cause: ClassVar[Cause] = "bad-request"


class PinError(InfraError):
    cause: ClassVar[Cause] = "pin"


class BaselineBroken(InfraError):
    cause: ClassVar[Cause] = "baseline-broken"


class HarnessFailed(InfraError):
    cause: ClassVar[Cause] = "harness-failed"
