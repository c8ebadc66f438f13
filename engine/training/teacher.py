"""The target as a teacher: batched continuations of equally long prompts, and tapped features.

Inference proper is batch one (``engine.runtime``). Here throughput counts and exactness does not:
1,000 sequences decode together, from one captured CUDA graph per shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from engine.layers.attention import attend_causal
from engine.models.decoder import CausalLM


class _BatchCache:
    """Static keys and values of a whole batch: one [B, KV, S, hd] pair a layer."""

    def __init__(self, model: CausalLM, batch: int, slots: int) -> None:
        config = model.config
        shape = (config.num_layers, 2, batch, config.num_kv_heads, slots, config.head_dim)
        self.slots = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.positions = torch.arange(slots, device=model.device)

    def prefill(self, rows: slice) -> Callable[[int, Tensor, Tensor, Tensor], Tensor]:
        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.slots[layer, 0, rows, :, : k.shape[1]] = k.transpose(1, 2)
            self.slots[layer, 1, rows, :, : v.shape[1]] = v.transpose(1, 2)
            return attend_causal(layer, q, k, v)

        return attend

    def decode(self, position: Tensor) -> Callable[[int, Tensor, Tensor, Tensor], Tensor]:
        """position: [1], where this step's token stands; read on the device, so a graph may replay it."""
        visible = (self.positions <= position).view(1, 1, 1, -1)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.slots[layer, 0], self.slots[layer, 1]
            keys.index_copy_(2, position, k.transpose(1, 2))
            values.index_copy_(2, position, v.transpose(1, 2))
            batch, _, heads, head_dim = q.shape
            # The heads of a group stand as query rows, so that their keys are read once.
            grouped = q.reshape(batch, keys.shape[1], -1, head_dim)
            with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
                mixed = scaled_dot_product_attention(grouped, keys, values, attn_mask=visible)
            return mixed.reshape(batch, 1, heads, head_dim)

        return attend


def _choose(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """logits: [B, V]; returns [B]. Gumbel noise instead of a multinomial, which a graph cannot hold."""
    if temperature == 0.0:
        return logits.argmax(-1)
    values, ids = logits.topk(top_k, dim=-1)
    noise = -torch.log(-torch.log(torch.rand_like(values).clamp_(1e-9, 1 - 1e-7)))
    return ids.gather(-1, (values / temperature + noise).argmax(-1, keepdim=True)).squeeze(-1)


@torch.no_grad()
def continuations(
    model: CausalLM,
    prompts: Tensor,
    new_tokens: int,
    temperature: float = 0.0,
    top_k: int = 40,
    chunk_tokens: int = 65_536,
) -> Tensor:
    """prompts: [B, P] int64, equally long; returns [B, new_tokens]. Stop tokens do not end a row."""
    batch, length = prompts.shape
    chunk = max(1, chunk_tokens // length)
    cache = _BatchCache(model, batch, -(-(length + new_tokens) // 8) * 8)
    first = []
    positions = torch.arange(length, device=prompts.device)
    for start in range(0, batch, chunk):
        rows = slice(start, min(start + chunk, batch))
        hidden, _ = model(prompts[rows], positions, cache.prefill(rows))
        first.append(model.logits(hidden[:, -1]))
    token = _choose(torch.cat(first), temperature, top_k)
    position = torch.full((1,), length, device=prompts.device)
    out = torch.empty(batch, new_tokens, dtype=torch.int64, device=prompts.device)
    out[:, 0] = token

    def step() -> None:
        hidden, _ = model(token.unsqueeze(1), position, cache.decode(position))
        token.copy_(_choose(model.logits(hidden[:, 0]), temperature, top_k))
        position.add_(1)

    replay = _captured(step, (token, position)) if prompts.is_cuda else step
    for index in range(1, new_tokens):
        replay()
        out[:, index] = token
    return out


def _captured(step: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
    """``step`` as a CUDA graph; warm-up runs it, so the tensors it changes are put back afterwards."""
    saved = [tensor.clone() for tensor in state]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for tensor, value in zip(state, saved, strict=True):
        tensor.copy_(value)
    return graph.replay


@torch.no_grad()
def tap_scales(model: CausalLM, ids: Tensor, taps: Sequence[int]) -> Tensor:
    """Median RMS of each tap over ids [B, T]. Returns [L] float32.

    Late layers are ten times as large as early ones, and position 0 is far larger still: dividing by the
    median lets ``fc`` start from comparable inputs.
    """
    tapped, _ = features(model, ids, taps, 0, torch.ones(len(taps), device=ids.device))
    rms = tapped.float().unflatten(-1, (len(taps), -1)).square().mean(-1).sqrt()
    return rms.flatten(0, 1).median(0).values


@torch.no_grad()
def features(
    model: CausalLM, ids: Tensor, taps: Sequence[int], hidden_from: int, scales: Tensor
) -> tuple[Tensor, Tensor]:
    """One dense pass over ids [B, T].

    Returns the features divided by ``scales`` [L], [B, T, L*d], and the final-normed hidden states from
    position ``hidden_from`` on, [B, T - hidden_from, d].
    """
    positions = torch.arange(ids.shape[1], device=ids.device)
    hidden, tapped = model(ids, positions, attend_causal, taps)
    assert tapped is not None
    scaled = tapped.unflatten(-1, (len(taps), -1)) / scales.to(tapped.dtype).unsqueeze(-1)
    return scaled.flatten(-2), hidden[:, hidden_from:]


def attend_block(
    context: Sequence[tuple[Tensor, Tensor]], visible: Tensor
) -> Callable[[int, Tensor, Tensor, Tensor], Tensor]:
    """Draft attention in training: every anchor's block over its own context prefix and itself.

    context: per draft layer (keys, values), [B, T, KV, hd] each. visible: bool [B, 1, Q, T + Q], where Q
    counts the slots of all anchors. The queries' own keys follow the context's.
    """

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = context[layer]
        groups = q.shape[-2] // k.shape[-2]

        def joined(past: Tensor, own: Tensor) -> Tensor:
            return torch.cat([past, own], dim=1).transpose(1, 2).repeat_interleave(groups, dim=1)

        out = scaled_dot_product_attention(
            q.transpose(1, 2), joined(keys, k), joined(values, v), attn_mask=visible
        )
        return out.transpose(1, 2)

    return attend
