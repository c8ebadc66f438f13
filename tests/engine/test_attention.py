"""The fast attention paths agree with their plain definition."""

from __future__ import annotations

import pytest
import torch

from engine.ops import attention
from engine.ops.attention.reference import attention as reference
from engine.ops.attention.tiled import attention as tiled

SHAPES = [(1, 1, 16), (6, 2, 16), (9, 3, 64), (5, 5, 32), (4, 1, 8)]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
@pytest.mark.parametrize(("start", "rows"), [(0, 1), (0, 7), (13, 1), (13, 4), (13, 5), (63, 8), (64, 9)])
def test_decode_equals_the_reference(heads, kv_heads, head_dim, start, rows):
    torch.manual_seed(0)
    q = torch.randn(rows, heads, head_dim)
    k, v = torch.randn(2, kv_heads, 128, head_dim)
    expected = reference(q, k, v, torch.arange(start, start + rows))
    torch.testing.assert_close(attention.decode(q, k, v, start), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
@pytest.mark.parametrize(("start", "rows"), [(0, 1), (0, 33), (17, 16)])
def test_prefill_equals_the_reference(heads, kv_heads, head_dim, start, rows):
    torch.manual_seed(0)
    q = torch.randn(rows, heads, head_dim)
    k, v = torch.randn(2, kv_heads, start + rows, head_dim)
    expected = reference(q, k, v, torch.arange(start, start + rows))
    torch.testing.assert_close(attention.prefill(q, k, v, start), expected, atol=1e-5, rtol=1e-5)


def test_dense_causal_attention_equals_the_reference_for_each_sequence_of_a_batch():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 11, 6, 16), torch.randn(2, 11, 2, 16), torch.randn(2, 11, 2, 16)
    out = attention.causal(q, k, v)
    for i in range(2):
        expected = reference(q[i], k[i].transpose(0, 1), v[i].transpose(0, 1), torch.arange(11))
        torch.testing.assert_close(out[i], expected, atol=1e-5, rtol=1e-5)


def test_keys_beyond_a_query_are_invisible_whatever_they_hold():
    torch.manual_seed(0)
    q, (k, v) = torch.randn(3, 6, 16), torch.randn(2, 2, 64, 16)
    before = attention.decode(q, k, v, 20)
    k[:, 23:], v[:, 23:] = 1e4, -1e4
    assert torch.equal(attention.decode(q, k, v, 20), before)


def test_the_tile_height_changes_no_result():
    torch.manual_seed(0)
    q, (k, v) = torch.randn(8, 6, 16), torch.randn(2, 2, 64, 16)
    torch.testing.assert_close(tiled(q, k, v, 20, tile=4), tiled(q, k, v, 20, tile=8), atol=1e-6, rtol=1e-6)
