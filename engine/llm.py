"""The engine's front door: load a target and its draft, then generate, score and describe."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from engine import tokenizer
from engine.config import ConfigError, PromptError
from engine.decoding import autoregressive, speculative
from engine.decoding.depth import DepthPolicy, load_policy
from engine.decoding.proposal import DSparkProposer
from engine.decoding.step import Step
from engine.models import digest, draft_checkpoint, loading
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft
from engine.runtime import threads
from engine.runtime.draft_runner import DraftRunner
from engine.runtime.model_runner import ModelRunner

__all__ = ["LLM", "EngineDescription", "Mode", "Step"]

Mode = Literal["ar", "dspark"]


@dataclass(frozen=True)
class EngineDescription:
    """Effective configuration, as loaded."""

    device: str
    dtype: str
    torch_version: str
    proposals: int
    """Draft tokens per round in the first band of the depth policy; 0 without a draft."""
    block_size: int
    """Most draft tokens per round; 0 without a draft."""
    depth_policy: str
    overrides: dict[str, str]
    """Engine environment variables in force; empty in the served configuration."""
    target_sha256: str
    draft_sha256: str | None
    tokenizer_sha256: str | None
    threads: int
    weights_bytes: int
    """Weights that one decode step reads: all of the target's but an untied embedding table."""


@dataclass(frozen=True)
class Speculation:
    """What DSpark decoding needs beside the target."""

    runner: DraftRunner
    policy: DepthPolicy


class LLM:
    """One loaded target, with or without a draft. Generations run one at a time."""

    def __init__(
        self,
        model: CausalLM,
        draft: DSparkDraft | None,
        *,
        target_path: Path,
        draft_path: Path | None,
        max_tokens: int,
    ) -> None:
        """``max_tokens``: prompt and new tokens together that one generation may reach."""
        self.model = model
        self.draft = draft
        self.context_tokens = max_tokens
        self._target_path = target_path
        self._draft_path = draft_path
        taps = () if draft is None else draft.config.target_layer_ids
        positions = self._positions(max_tokens)
        self._runner = ModelRunner.build(model, positions, taps)
        self._speculation = None
        if draft is not None:
            policy = load_policy(draft.config.block_size)
            self._speculation = Speculation(DraftRunner.build(draft, positions), policy)

    @classmethod
    def load(
        cls,
        target: Path,
        draft: Path | None = None,
        *,
        device: str | None = None,
        max_tokens: int | None = None,
    ) -> LLM:
        """Load onto ``device`` (CUDA where there is one, else CPU): bfloat16 on CUDA, float32 on CPU.

        ``max_tokens`` defaults to the model's context and may not exceed it. Raises an EngineError
        naming what is wrong with the files, the pairing or the environment.
        """
        chosen = _device(device)
        threads.set_threads()
        dtype = torch.bfloat16 if chosen.type == "cuda" else torch.float32
        model = loading.load(target, device=chosen, dtype=dtype)
        context = model.config.max_position
        if max_tokens is not None and not 0 < max_tokens <= context:
            raise ConfigError(f"max_tokens is {max_tokens}; {target} supports 1 to {context}.")
        loaded = None
        if draft is not None:
            loaded = draft_checkpoint.load(draft, model, tokenizer_sha256=_tokenizer_sha256(target))
        return cls(model, loaded, target_path=target, draft_path=draft, max_tokens=max_tokens or context)

    @property
    def vocab_size(self) -> int:
        return self.model.config.vocab_size

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self.model.config.eos_ids

    def generate(
        self,
        prompt_ids: Sequence[int],
        *,
        mode: Mode,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop_ids: Sequence[int] | None = None,
        seed: int | None = None,
    ) -> Iterator[Step]:
        """Yield one Step per burst: the prefill's token, then one per decode step or DSpark round.

        ``stop_ids`` None: the model's own; empty: none. ``seed`` (None: 0) matters at a temperature above
        0. Raises PromptError, before anything runs, for a prompt that cannot be decoded in full. A new
        generation ends the one before it.
        """
        self._check(prompt_ids, max_new_tokens)
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"The temperature is {temperature}; it should be a finite number, 0 or more.")
        stops = self.stop_ids if stop_ids is None else tuple(stop_ids)
        generator = torch.Generator(self.model.device)
        generator.manual_seed(0 if seed is None else seed)
        tokens = len(prompt_ids) + max_new_tokens
        if mode == "ar":
            return autoregressive.generate(
                self._empty_runner(tokens),
                prompt_ids,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                stop_ids=stops,
                generator=generator,
            )
        if self._speculation is None:
            raise ConfigError("DSpark decoding needs a draft and none was loaded; load one or use mode 'ar'.")
        self._speculation.runner.reset()
        return speculative.generate(
            self._empty_runner(tokens),
            DSparkProposer(self._speculation.runner),
            prompt_ids,
            proposals=self._speculation.policy.proposals(len(prompt_ids)),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            stop_ids=stops,
            generator=generator,
        )

    def score(self, ids: Sequence[int], positions: int) -> Tensor:
        """Log-probabilities of the last ``positions`` ids given what precedes each, float32 on CPU.

        Returns [positions, V]: row i is the law of ids[len(ids) - positions + i].
        """
        if not 0 < positions < len(ids):
            raise PromptError(
                f"{positions} positions of {len(ids)} ids cannot be scored: ask for 1 to {len(ids) - 1}, "
                "the first id has nothing before it."
            )
        self._check(ids[:-1], 1)
        return self._empty_runner(len(ids)).score(ids[:-1], positions).cpu()

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that the last generation computed: all of them, there is no prompt cache."""
        return self._runner.prefilled

    def describe(self) -> EngineDescription:
        """What was loaded and how it decodes. Reads the model files again to hash them."""
        policy = None if self._speculation is None else self._speculation.policy
        return EngineDescription(
            device=str(self.model.device),
            dtype=str(self.model.dtype).removeprefix("torch."),
            torch_version=torch.__version__,
            proposals=0 if policy is None else policy.proposals(0),
            block_size=0 if self.draft is None else self.draft.config.block_size,
            depth_policy="no draft" if policy is None else policy.describe(),
            overrides={} if policy is None else dict(policy.overrides),
            target_sha256=digest.model_sha256(self._target_path),
            draft_sha256=None if self._draft_path is None else digest.model_sha256(self._draft_path),
            tokenizer_sha256=_tokenizer_sha256(self._target_path),
            threads=torch.get_num_threads(),
            weights_bytes=self._weights_bytes(),
        )

    def peak_memory_bytes(self) -> int:
        """Most memory ever held: allocated on the GPU, or resident in this process on the CPU."""
        if self.model.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.model.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Linux counts kibibytes, macOS bytes.
        return peak if sys.platform == "darwin" else peak * 1024

    def _check(self, prompt_ids: Sequence[int], max_new_tokens: int) -> None:
        if not prompt_ids:
            raise PromptError("The prompt is empty; a generation needs at least one token to start from.")
        if max_new_tokens < 1:
            raise PromptError(f"max_new_tokens is {max_new_tokens}; ask for at least 1.")
        needed = len(prompt_ids) + max_new_tokens
        if needed > self.context_tokens:
            raise PromptError(
                f"The prompt has {len(prompt_ids)} tokens and {max_new_tokens} new ones are asked for, "
                f"{needed} together, but the context holds {self.context_tokens}; shorten the prompt or "
                "ask for fewer."
            )
        low, high = min(prompt_ids), max(prompt_ids)
        if low < 0 or high >= self.vocab_size:
            stray = low if low < 0 else high
            raise PromptError(
                f"The prompt holds token id {stray}, but this model's ids are 0 to {self.vocab_size - 1}; "
                "encode it with the model's own tokenizer."
            )

    def _empty_runner(self, tokens: int) -> ModelRunner:
        self._runner.reset(self._positions(tokens))
        return self._runner

    def _positions(self, tokens: int) -> int:
        """Cache positions for a sequence of ``tokens``: the same in both modes, so that shapes are too."""
        block = 0 if self.draft is None else self.draft.config.block_size
        return speculative.positions_needed(tokens, 0, block)

    def _weights_bytes(self) -> int:
        read = {id(weight): weight.nbytes for weight in self.model.parameters()}
        if not self.model.config.tie_embeddings:
            del read[id(self.model.embed_tokens.weight)]
        return sum(read.values())


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"Device {name!r} is not supported; use 'cpu' or 'cuda'.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"Device {name!r} is asked for, but PyTorch finds no GPU here; use 'cpu'.")
    return torch.device(name)


def _tokenizer_sha256(target: Path) -> str | None:
    file = target / tokenizer.FILE
    return digest.file_sha256(file) if file.is_file() else None
