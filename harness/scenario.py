"""Scenarios for the emulator: what each arm does, as TOML.

Tables: ``[noise]`` (``NoiseModel``), ``[both]`` (defaults of both arms), ``[baseline]`` and ``[candidate]``
(``Behaviour``), and ``description``. An empty scenario is two equal, honest engines on a silent machine.
"""

from __future__ import annotations

import difflib
import math
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from harness.noise import NoiseModel
from harness.schema import Arm, Frozen, Mode

T = TypeVar("T")

Fault = Literal[
    "crash",
    "killed",
    "hang",
    "error",
    "garbage",
    "oversized",
    "duplicate",
    "wrong_id",
    "late",
    "empty",
    "short",
    "unknown_token",
    "nan_time",
]
"""crash and killed end the process, hang keeps silent, error is an engine's own sentence; garbage to late
break the protocol; the rest spoil one generation."""

TARGET_SHA256, DRAFT_SHA256 = "target", "draft"
"""What an honest arm says that it loaded: of an emulated model there are no files."""

Tokens = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Time = Annotated[float, msgspec.Meta(ge=0.0)]
Step = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]


class ScenarioError(Exception):
    """A scenario that cannot be used. The message is a sentence."""


class Where(Frozen, frozen=True):
    """Another behaviour in a part of the run. All conditions must hold; the last rule that does wins."""

    does: dict[str, Any]
    """Keys of ``Behaviour`` and their values there."""
    from_tokens: int = 0
    to_tokens: int | None = None
    """Prompt lengths, both ends included."""
    from_launch: int = 0
    to_launch: int | None = None
    """Numbers of launches in the run, both arms and retries counted, both ends included."""
    mode: Mode | None = None

    def applies(self, launch: int, tokens: int | None, mode: Mode | None) -> bool:
        """``tokens`` and ``mode`` are None while no prompt is being answered."""
        if tokens is None and (self.from_tokens or self.to_tokens is not None or self.mode is not None):
            return False
        if self.mode is not None and mode != self.mode:
            return False
        if tokens is not None and not _within(tokens, self.from_tokens, self.to_tokens):
            return False
        return _within(launch, self.from_launch, self.to_launch)


class Behaviour(Frozen, frozen=True):
    """What one arm does. The defaults are an honest engine: 2 ms an AR step, 2.6 ms a round of tau 2.5."""

    ar_ms: Step = 2.0
    """Milliseconds of an AR step."""
    round_ms: Step = 2.6
    """Milliseconds of a DSpark round."""
    prefill_us: Step = 20.0
    """Microseconds of prefill for each prompt token."""
    first_use_s: Time = 0.0
    """Sleep at the first use of a mode, and of each verify width, like a compiler's."""

    round_weights: Annotated[tuple[Time, ...], msgspec.Meta(min_length=1)] = (0.0, 1.0, 1.0)
    """How often a round commits 1, 2, 3, … tokens; drawn from the prompt alone, so all launches agree."""
    round_sizes: tuple[Tokens, ...] = ()
    """Tokens of successive rounds, repeated; where given, nothing is drawn."""
    proposals: Count = 4
    """Drafts verified in each round: the engine's block size."""
    widths: tuple[Count, ...] = ()
    """Drafts verified in successive rounds, repeated, where they vary. A round commits at most one more."""

    fault: Fault | None = None
    sentence: str = "The logits are not finite."
    """What the fault error says."""
    at: Literal["start", "load", "generate", "score", "stop"] = "generate"
    """Where ``fault`` strikes."""
    ar_wrong_at: Count | None = None
    """Index of a token that both modes get wrong: another text than an honest engine's."""
    strays_at: Count | None = None
    """Index from which both modes say the least likely word each time."""
    dspark_wrong_at: Count | None = None
    """Index of a token that DSpark alone gets wrong."""
    dspark_wrong_depth: Tokens | None = None
    """DSpark gets the last token wrong in every round of this many tokens."""
    margin_nats: float = 3.0
    """How much an honest engine prefers its token to the wrong one."""
    loops: bool = False
    """The text is one token, again and again."""
    stop_at: Count | None = None
    """Index at which the text holds a stop token."""
    runs_past_stop: bool = False
    """DSpark sees a stop token only at the end of a round."""
    overshoot: Count = 0
    """Tokens sent beyond the budget."""
    first_tokens: Tokens = 1
    """Tokens in the first message; those after the first take an AR step each before it."""
    chunk_steps: Tokens = 1
    """Steps whose tokens are held back and sent in one message."""
    score_noise: Time = 0.0
    """Standard deviation of noise on the logits that are scored."""
    score_nan: bool = False

    claimed_stop: bool = False
    """Every output is said to have ended at a stop token."""
    claimed_time: float = 1.0
    """Factor on the decode time that is reported."""
    claimed_rounds: Count = 0
    """Added to the number of rounds that is reported."""
    claimed_accepted: Count = 0
    """Added to the accepted drafts that are reported of each round."""
    claimed_proposed: int = 0
    """Added to the proposed drafts that are reported of each round."""
    claimed_prefill: int = 0
    """Added to the computed prompt tokens that are reported."""
    claimed_memory_bytes: Count | None = 1_000_000
    counters: Literal["true", "zero", "absent"] = "true"
    """zero: rounds with nothing accepted are reported; absent: no rounds at all."""
    prefix_cache: Literal["none", "honest", "hidden"] = "none"
    remembers: bool = False
    """DSpark proposes what AR said to the same prompt before it in the same process: all is accepted."""
    temperature: float | None = None
    """Reported instead of the one that was asked for."""
    overrides: dict[str, str] = {}
    commit_sha: str | None = None
    dtype: str = "float32"
    target_sha256: str = TARGET_SHA256
    draft_sha256: str = DRAFT_SHA256
    weights_bytes: Count = 1_000_000
    vocab_size: Tokens = 100
    context_tokens: Tokens = 4096
    printed: str = ""
    """Said on standard output at the start."""

    where: tuple[Where, ...] = ()

    def under(self, launch: int, tokens: int | None = None, mode: Mode | None = None) -> Behaviour:
        """The behaviour in one launch and, where a prompt is answered, for its length and mode."""
        changes: dict[str, Any] = {}
        for rule in self.where:
            if rule.applies(launch, tokens, mode):
                changes |= rule.does
        return msgspec.convert({**msgspec.to_builtins(self), **changes}, Behaviour) if changes else self


class Scenario(Frozen, frozen=True):
    """What both arms do, and the noise of the machine that they are played on."""

    description: str = ""
    noise: NoiseModel = NoiseModel()
    baseline: Behaviour = Behaviour()
    candidate: Behaviour = Behaviour()

    def behaviour(self, arm: Arm) -> Behaviour:
        """What one arm does."""
        return self.baseline if arm == "baseline" else self.candidate


def read(path: Path) -> Scenario:
    """Read a scenario. Raises ScenarioError that names the table and the key at fault."""
    try:
        return parse(msgspec.toml.decode(path.read_bytes()))
    except OSError as error:
        raise ScenarioError(f"The scenario {path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError, ScenarioError) as error:
        raise ScenarioError(f"The scenario {path.name} cannot be used: {str(error).rstrip('.')}.") from None


def parse(tables: dict[str, Any]) -> Scenario:
    """A scenario from its tables. Raises ScenarioError."""
    _known(tables, ("description", "noise", "both", "baseline", "candidate"), "it")
    noise = tables.get("noise", {})
    _known(noise, NoiseModel.__struct_fields__, "[noise]")
    both = tables.get("both", {})
    _behaviour(both, "both")
    return Scenario(
        description=_convert(tables.get("description", ""), str, "description"),
        noise=_convert(noise, NoiseModel, "[noise]"),
        baseline=_arm(both, tables.get("baseline", {}), "baseline"),
        candidate=_arm(both, tables.get("candidate", {}), "candidate"),
    )


def _arm(both: dict[str, Any], own: dict[str, Any], table: str) -> Behaviour:
    _behaviour(own, table)
    rules = [*both.get("where", ()), *own.get("where", ())]
    return _behaviour({**both, **own, "where": rules}, table)


def _behaviour(table: dict[str, Any], name: str) -> Behaviour:
    _known(table, Behaviour.__struct_fields__, f"[{name}]")
    rules = table.get("where", ())
    if not isinstance(rules, (list, tuple)):
        raise ScenarioError(f"where of [{name}] is not a list: each rule is a table [[{name}.where]]")
    for rule in rules:
        _known(rule, Where.__struct_fields__, f"[[{name}.where]]")
        inner = rule.get("does", {})
        _known(inner, set(Behaviour.__struct_fields__) - {"where"}, f"does of [[{name}.where]]")
        _does(inner, f"does of [[{name}.where]]")
    return _does(table, f"[{name}]")


def _does(table: dict[str, Any], where: str) -> Behaviour:
    found = _convert(table, Behaviour, where)
    if not 0.0 < sum(found.round_weights) < math.inf:
        raise ScenarioError(f"{where}: round_weights do not add up to a finite number above 0")
    return found


def _known(table: Any, keys: Any, where: str) -> None:
    if not isinstance(table, dict):
        raise ScenarioError(f"{where} is not a table")
    for key, value in table.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]}?" if near else "harness/scenario.py lists the keys"
            raise ScenarioError(f"{where} has the unknown key {key!r} ({hint})")
        if not _finite(value):
            raise ScenarioError(f"{where}: {key} is not a finite number")


def _finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _convert(value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ScenarioError(f"{where}: {error}") from None


def _within(value: int, least: int, most: int | None) -> bool:
    return value >= least and (most is None or value <= most)
