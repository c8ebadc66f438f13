"""The everyday model of the tests: the trained character-level target and draft of the parity set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from engine.decoding import autoregressive, speculative
from engine.decoding.proposal import DSparkProposer, Proposal
from engine.decoding.step import Step
from engine.models import draft_checkpoint, loading
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft
from engine.runtime.draft_runner import DraftRunner
from engine.runtime.model_runner import ModelRunner
from tests.engine.parity import DRAFT, TARGET

CAPACITY = 512


@cache
def target() -> CausalLM:
    return loading.load(TARGET, device=torch.device("cpu"), dtype=torch.float32)


@cache
def draft() -> DSparkDraft:
    return draft_checkpoint.load(DRAFT, target())


def target_runner(capacity: int = CAPACITY) -> ModelRunner:
    return ModelRunner.build(target(), capacity, draft().config.target_layer_ids)


def proposer(threshold: float = 0.0, capacity: int = CAPACITY) -> DSparkProposer:
    return DSparkProposer(DraftRunner.build(draft(), capacity), threshold)


def dspark(prompt_ids: Sequence[int], *, proposals: int = 7, threshold: float = 0.0, **options) -> list[Step]:
    return list(
        speculative.generate(target_runner(), proposer(threshold), prompt_ids, proposals=proposals, **options)
    )


def ar(prompt_ids: Sequence[int], **options) -> list[Step]:
    return list(autoregressive.generate(target_runner(), prompt_ids, **options))


def tokens(steps: Sequence[Step]) -> list[int]:
    return [token for step in steps for token in step.token_ids]


class ScriptedProposer:
    """Proposes what ``script(position, count)`` says should follow the anchor at ``position``."""

    def __init__(self, script):
        self.script = script
        self.length = 0

    def observe(self, features):
        self.length += features.shape[0]

    def propose(self, anchor, count, temperature, generator):
        return Proposal(torch.tensor(self.script(self.length, count), dtype=torch.int64), None)
