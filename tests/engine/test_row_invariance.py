"""A row's bits do not depend on the rows it travels with: the ground that losslessness stands on."""

from __future__ import annotations

import pytest
import torch

from engine.layers.rotary import Rotary
from engine.ops import attention, linear
from engine.ops.linear import LEAST_ROWS, onednn
from engine.ops.rms_norm import rms_norm
from engine.ops.swiglu import reference, swiglu
from engine.runtime.model_runner import ModelRunner
from tests.engine import checkpoints

FEWEST, WIDEST = LEAST_ROWS["cpu"], 8

needs_packing = pytest.mark.skipif(not onednn.available(), reason="this PyTorch is built without oneDNN")


@pytest.fixture(params=[1, 2], ids=["1-thread", "2-threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def assert_rows_equal(together: torch.Tensor, alone: list[torch.Tensor]) -> None:
    for row, expected in zip(together, alone, strict=True):
        assert torch.equal(row, expected)


@needs_packing
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 192), (576, 1536), (1536, 576), (3456, 576), (33, 65)])
def test_linear_rows_have_the_bits_of_the_least_padded_call(threads, inputs, outputs):
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs)
    packed = linear.pack(weight)
    x = torch.randn(WIDEST, inputs)
    alone = [linear.linear(x[i : i + 1].repeat(FEWEST, 1), weight, packed)[0] for i in range(WIDEST)]
    for rows in range(FEWEST, WIDEST + 1):
        assert_rows_equal(linear.linear(x[:rows], weight, packed), alone[:rows])


@needs_packing
def test_packed_linear_equals_the_reference():
    torch.manual_seed(0)
    weight, x = torch.randn(65, 33), torch.randn(2, 5, 33)
    expected = linear.linear(x, weight)
    torch.testing.assert_close(linear.linear(x, weight, linear.pack(weight)), expected, atol=1e-4, rtol=1e-5)


def test_a_weight_that_cannot_be_packed_is_used_as_it_is():
    weight, x = torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    assert linear.pack(weight) is None
    assert torch.equal(linear.linear(x, weight, linear.pack(weight)), x @ weight.T)


@pytest.mark.parametrize("size", [16, 48, 576, 577])
def test_norm_rows_have_the_bits_of_one_row_calls(threads, size):
    torch.manual_seed(0)
    x, weight = torch.randn(WIDEST, size), torch.randn(size)
    alone = [rms_norm(x[i : i + 1], weight, 1e-5)[0] for i in range(WIDEST)]
    for rows in range(1, WIDEST + 1):
        assert_rows_equal(rms_norm(x[:rows], weight, 1e-5), alone[:rows])


@pytest.mark.parametrize("size", [31, 80, 1536, 4864, 40000])
def test_swiglu_rows_have_the_bits_of_one_row_calls(threads, size):
    torch.manual_seed(0)
    gate, up = torch.randn(2, WIDEST, size)
    alone = [swiglu(gate[i : i + 1], up[i : i + 1])[0] for i in range(WIDEST)]
    for rows in range(1, WIDEST + 1):
        assert_rows_equal(swiglu(gate[:rows], up[:rows]), alone[:rows])


def test_swiglu_equals_its_reference_in_every_shape():
    torch.manual_seed(0)
    for shape in [(3, 31), (20, 64), (2, 5, 33)]:
        gate, up = torch.randn(2, *shape)
        torch.testing.assert_close(swiglu(gate, up), reference.swiglu(gate, up), atol=1e-6, rtol=1e-6)


def test_rotated_rows_have_the_bits_of_one_row_calls():
    rotary = Rotary(head_dim=64, theta=1e5, max_position=100)
    x = torch.randn(WIDEST, 9, 64)
    positions = torch.arange(40, 40 + WIDEST)
    alone = [rotary.at(positions[i : i + 1], x.dtype).rotate(x[i : i + 1])[0] for i in range(WIDEST)]
    assert_rows_equal(rotary.at(positions, x.dtype).rotate(x), alone)


@pytest.mark.parametrize("start", [1, 57, 63, 64, 300])
def test_attention_rows_have_the_bits_of_one_row_calls_across_key_strides(threads, start):
    torch.manual_seed(start)
    q = torch.randn(WIDEST, 9, 64)
    keys, values = torch.randn(2, 3, 512, 64)

    def attend(first: int, rows: int) -> torch.Tensor:
        end = -(-(start + first + rows) // attention.KEY_STRIDE) * attention.KEY_STRIDE
        return attention.decode(q[first : first + rows], keys[:, :end], values[:, :end], start + first)

    alone = [attend(i, 1)[0] for i in range(WIDEST)]
    for rows in range(1, WIDEST + 1):
        assert_rows_equal(attend(0, rows), alone[:rows])


@needs_packing
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("prompt_tokens", [5, 61, 130])
def test_verify_rows_have_the_bits_of_single_steps(tmp_path, threads, architecture, prompt_tokens):
    directory = checkpoints.save(checkpoints.random_model(architecture), tmp_path)
    runner = ModelRunner.build(checkpoints.load(directory), 160, taps=(0, 1))
    runner.prefill(checkpoints.random_ids(prompt_tokens))
    ids = checkpoints.random_ids(WIDEST, seed=1)
    steps = [runner.step(token) for token in ids]
    for rows in range(1, WIDEST + 1):
        runner.truncate(prompt_tokens)
        together = runner.verify(ids[:rows])
        assert_rows_equal(together.logits, [step.logits[0] for step in steps[:rows]])
        assert_rows_equal(together.features, [step.features[0] for step in steps[:rows]])


@pytest.mark.gpu
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_verify_rows_have_the_bits_of_single_steps_on_a_gpu(tmp_path, architecture):
    from engine.models import loading

    directory = checkpoints.save(checkpoints.random_model(architecture), tmp_path)
    model = loading.load(directory, device=torch.device("cuda"), dtype=torch.bfloat16)
    runner = ModelRunner.build(model, 160, taps=(0, 1))
    runner.prefill(checkpoints.random_ids(61))
    ids = checkpoints.random_ids(WIDEST, seed=1)
    steps = [runner.step(token) for token in ids]
    for rows in range(1, WIDEST + 1):
        runner.truncate(61)
        together = runner.verify(ids[:rows])
        assert_rows_equal(together.logits, [step.logits[0] for step in steps[:rows]])
