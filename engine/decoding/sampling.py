"""From logits to a token: the one place where a distribution is formed and drawn from.

Every distribution is float32 whatever the model's dtype, so that the tensor a draft token is drawn
from is the very tensor it is judged by (speculative sampling is exact only then).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.config import NumericsError

GREEDY_BELOW = 1e-5
"""Temperatures below this mean "always the most probable token"."""


def is_greedy(temperature: float) -> bool:
    """Whether ``temperature`` selects by argmax. Raises ValueError when it is negative or not finite."""
    if not 0.0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}: expected a finite number, 0 or more")
    return temperature < GREEDY_BELOW


def argmax(logits: Tensor) -> Tensor:
    """Ids ``[...]`` of the largest entry of ``[..., V]``; of equal entries the lowest id wins."""
    return logits.argmax(dim=-1)


def greedy_ids(logits: Tensor) -> list[int]:
    """Argmax of each row of ``[n, V]``, as numbers. Raises NumericsError where a row is not finite."""
    top = logits.max(dim=-1)
    require_finite(top.values)
    return top.indices.tolist()


def sample(logits: Tensor, temperature: float, generator: torch.Generator | None = None) -> int:
    """The token that one row ``[V]`` of the target's logits gives. Raises NumericsError as above."""
    if is_greedy(temperature):
        return greedy_ids(logits.unsqueeze(0))[0]
    require_finite(logits.max())
    return int(draw(probabilities(logits, temperature), generator))


def require_finite(maxima: Tensor) -> None:
    """Raise NumericsError unless the row maxima are finite; a NaN anywhere in a row is its maximum."""
    if not bool(maxima.isfinite().all()):
        raise NumericsError(
            "The target's logits are not finite numbers, so no token can be chosen: "
            "the weights or a kernel are broken."
        )


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Float32 law ``[..., V]`` of the next token: softmax(logits / T), or one-hot of the argmax at T = 0."""
    if is_greedy(temperature):
        return torch.nn.functional.one_hot(argmax(logits), logits.shape[-1]).to(torch.float32)
    return torch.softmax(logits.float() / temperature, dim=-1)


def draw(probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One id ``[...]`` from each row of ``probs`` ``[..., V]``."""
    rows = probs.reshape(-1, probs.shape[-1])
    return torch.multinomial(rows, 1, generator=generator).reshape(probs.shape[:-1])


def residual(p: Tensor, q: Tensor, floor: float) -> Tensor:
    """Law of the token that replaces a rejected draft token: max(p - q, 0), normalised.

    ``p`` and ``q`` are ``[V]``. Where the two laws leave no more than ``floor`` of mass between them,
    a rejection is a rounding accident and ``p`` itself is the law.
    """
    excess = (p - q).clamp_min(0)
    mass = excess.sum()
    return torch.where(mass > floor, excess / mass, p)
