"""Markov heads against their formulas, written out slot by slot."""

from __future__ import annotations

import pytest
import torch

from engine.models.markov import MARKOV_HEADS

V, R, D, N = 11, 4, 6, 5


def vanilla(head, e, h, state):
    return head.markov_w2.weight @ e, state


def gated(head, e, h, state):
    gate = torch.sigmoid(head.gate_proj.weight @ torch.cat((h, e)) + head.gate_proj.bias)
    return head.markov_w2.weight @ (gate * e), state


def rnn(head, e, h, state):
    z = head.joint_proj.weight @ torch.cat((state, e, h)) + head.joint_proj.bias
    gate, candidate, output = torch.sigmoid(z[:R]), torch.tanh(z[R : 2 * R]), torch.tanh(z[2 * R :])
    return head.markov_w2.weight @ output, gate * state + (1 - gate) * candidate


FORMULAS = {"vanilla": vanilla, "gated": gated, "rnn": rnn}


def made(name):
    torch.manual_seed(7)
    head = MARKOV_HEADS[name](V, R, D).requires_grad_(False)
    for parameter in head.parameters():
        parameter.normal_()
    return head


def by_formula(name, head, prev, h):
    state, biases = torch.zeros(R), []
    for token, row in zip(prev, h, strict=True):
        bias, state = FORMULAS[name](head, head.markov_w1.weight[token], row, state)
        biases.append(bias)
    return torch.stack(biases)


@pytest.mark.parametrize("name", FORMULAS)
def test_steps_along_a_block_follow_the_formula(name):
    head, prev, h = made(name), torch.tensor([3, 0, 10, 3, 7]), torch.randn(N, D)
    state, biases = head.start(h[:1]), []
    for slot in range(N):
        bias, state = head.step(head.embed(prev[slot : slot + 1]), h[slot : slot + 1], state)
        biases.append(bias)
    torch.testing.assert_close(torch.cat(biases), by_formula(name, head, prev, h), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
def test_known_blocks_get_the_biases_of_their_steps(name):
    head, prev, h = made(name), torch.randint(V, (3, N)), torch.randn(3, N, D)
    expected = torch.stack([by_formula(name, head, *block) for block in zip(prev, h, strict=True)])
    torch.testing.assert_close(head.block(prev, h), expected, rtol=0, atol=1e-5)


def test_recurrent_head_remembers_earlier_tokens_and_the_others_do_not():
    h = torch.randn(2, D)
    for name in FORMULAS:
        head = made(name)
        last = [head.block(torch.tensor([first, 5]), h)[1] for first in (1, 2)]
        assert torch.equal(*last) == (name != "rnn")
