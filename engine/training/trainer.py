"""The training loop: random anchors of a random bucket, mixed loss, Muon and AdamW, a time budget.

The budget is wall-clock time rather than steps, because what is rented is the GPU's time: the learning
rate follows the share of the budget that is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft
from engine.training import loss as losses
from engine.training.dataset import Bucket
from engine.training.evaluate import held_out
from engine.training.forward import block_hidden, choose_anchors
from engine.training.optim import Muon, one_cycle


@dataclass(frozen=True)
class TrainConfig:
    """Hyperparameters. ``seconds`` is the budget of the whole run, resumed parts included.

    ``steps`` counts the budget in steps instead, where a run must not depend on the machine's speed.
    """

    seconds: float
    steps: int | None = None
    sequences: int = 16
    anchors: int = 128
    natural_share: float = 0.25
    muon_lr: float = 4e-3
    adam_lr: float = 6e-3
    kl_share: float = 0.5
    ce_share: float = 0.5
    clip: float = 1.0
    evaluate_every_s: float = 60.0
    seed: int = 0
    compile_loss: bool = True


@dataclass(frozen=True)
class Point:
    """One line of the training curve."""

    step: int
    seconds: float
    loss: float
    overlap: float
    held_out_tau: float | None

    def __str__(self) -> str:
        tau = "" if self.held_out_tau is None else f"  held-out tau {self.held_out_tau:.3f}"
        return f"step {self.step}  loss {self.loss:.4f}  overlap {self.overlap:.3f}{tau}"


class Trainer:
    """Trains ``draft`` in place; ``head`` and embedding are the target's and stay frozen."""

    def __init__(
        self,
        model: CausalLM,
        draft: DSparkDraft,
        train: Sequence[Bucket],
        held: Sequence[Bucket],
        config: TrainConfig,
    ) -> None:
        if draft.config.markov_head_type != "vanilla" or draft.confidence_head is None:
            raise ValueError(
                "the trainer supports drafts with a vanilla Markov head and a confidence head only"
            )
        self.draft, self.held, self.config = draft, held, config
        self.learn_from(train)
        self.head = model.lm_head.weight.detach()
        self.device = model.device
        own = list(draft.named_parameters())
        matrices = [p for n, p in own if p.ndim == 2 and n.startswith(("layers.", "fc."))]
        chosen = {id(p) for p in matrices}
        rest = [p for _, p in own if id(p) not in chosen]
        self.params: list[nn.Parameter] = matrices + rest
        self.muon = Muon(matrices, lr=config.muon_lr)
        self.adam = torch.optim.AdamW(rest, lr=config.adam_lr, betas=(0.9, 0.95), weight_decay=0.0)
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.choice = torch.Generator().manual_seed(config.seed)
        self.kernel = losses.compiled_rows() if config.compile_loss else losses.rows_statistics
        self.step_index, self.spent = 0, 0.0
        self.curve: list[Point] = []

    def learn_from(self, train: Sequence[Bucket]) -> None:
        """Takes other sequences to train on; optimisers and schedule go on."""
        self.train = train
        self.shares = torch.tensor([bucket.plan.share for bucket in train])

    def run(self, report: Callable[[Point], None], until: float = 1.0) -> None:
        """Trains until the share ``until`` of the budget is spent.

        Reports every 200 steps and at every evaluation, of which the last comes at the end.
        """
        began, before = time.monotonic(), self.spent
        next_evaluation = self.spent + self.config.evaluate_every_s
        while self._progress() < until:
            value, overlap = self._step()
            self.spent = before + time.monotonic() - began
            evaluate = self._progress() >= until or self.spent >= next_evaluation
            if evaluate:
                next_evaluation = self.spent + self.config.evaluate_every_s
            if evaluate or self.step_index % 200 == 0:
                tau = self.held_out_tau() if evaluate else None
                self.curve.append(Point(self.step_index, self.spent, float(value), float(overlap), tau))
                report(self.curve[-1])

    def _progress(self) -> float:
        if self.config.steps is not None:
            return self.step_index / self.config.steps
        return self.spent / self.config.seconds if self.config.seconds > 0 else 1.0

    def held_out_tau(self) -> float | None:
        """Pooled greedy tau over all held-out buckets at the full block."""
        rounds = committed = 0
        for bucket in self.held:
            with torch.autocast(self.device.type, torch.bfloat16):
                block = self.draft.config.block_size
                found = held_out(self.draft, self.head, bucket, (block,))[block]
            rounds, committed = rounds + found.rounds, committed + found.committed
        return committed / rounds if rounds else None

    def _step(self) -> tuple[Tensor, Tensor]:
        factor = one_cycle(self._progress())
        for optimiser, rate in ((self.muon, self.config.muon_lr), (self.adam, self.config.adam_lr)):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        bucket = self.train[int(torch.multinomial(self.shares, 1, generator=self.choice))]
        count = min(self.config.sequences, len(bucket.ids))
        rows = bucket.rows(
            torch.randint(len(bucket.ids), (count,), generator=self.generator, device=self.device)
        )
        with torch.autocast(self.device.type, torch.bfloat16):
            total, overlap = self._loss(rows)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.params, self.config.clip)
        self.muon.step()
        self.adam.step()
        for param in self.params:
            param.grad = None
        self.step_index += 1
        return total.detach(), overlap

    def _loss(self, rows: Bucket) -> tuple[Tensor, Tensor]:
        draft, config = self.draft, self.config
        block = draft.config.block_size
        anchors = choose_anchors(rows, config.anchors, block, config.natural_share, self.generator)
        hidden = block_hidden(draft, rows, anchors.positions)
        slots = anchors.positions.unsqueeze(-1) + torch.arange(block, device=self.device)
        slots = slots.clamp_max(rows.ids.shape[1] - 1)
        previous = rows.ids.unsqueeze(1).expand(-1, slots.shape[1], -1).gather(2, slots)
        teacher_rows = (slots - rows.hidden_from).flatten(1)
        teacher = rows.hidden.gather(1, teacher_rows.unsqueeze(-1).expand(-1, -1, rows.hidden.shape[-1]))
        weights = losses.slot_weights(anchors.valid).flatten()
        assert draft.markov_head is not None and draft.confidence_head is not None
        embedded = draft.markov_head.embed(previous)
        total, stats = losses.head_loss(
            hidden.flatten(0, 2),
            embedded.flatten(0, 2),
            draft.markov_head.markov_w2.weight,
            self.head,
            teacher.flatten(0, 1),
            weights,
            shares=(config.kl_share, config.ce_share),
            kernel=self.kernel,
        )
        confidence = draft.confidence_head(hidden, embedded).flatten()
        surprise = binary_cross_entropy_with_logits(confidence, stats.overlap.clamp(0, 1), reduction="none")
        weight_sum = weights.sum() + 1e-6
        return total + (weights * surprise).sum() / weight_sum, (weights * stats.overlap).sum() / weight_sum

    def save(self, path: Path) -> None:
        """State to resume from, written whole or not at all."""
        state: dict[str, Any] = {
            "params": [param.detach().cpu() for param in self.params],
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "step": self.step_index,
            "spent": self.spent,
            "generator": self.generator.get_state(),
            "choice": self.choice.get_state(),
            "curve": self.curve,
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        """Continues from :meth:`save`, with the same data and config."""
        state = torch.load(path, weights_only=False)
        with torch.no_grad():
            for param, value in zip(self.params, state["params"], strict=True):
                param.copy_(value)
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.step_index, self.spent, self.curve = state["step"], state["spent"], state["curve"]
        self.generator.set_state(state["generator"])
        self.choice.set_state(state["choice"])
