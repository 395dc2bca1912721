"""The counter against counts made by hand."""

from __future__ import annotations

import pytest
import torch

from trainers.profile.counter import Counter

BATCH, WIDE, NARROW = 8, 32, 16


def test_a_step_of_a_linear_model_is_counted_exactly():
    model = torch.nn.Linear(WIDE, NARROW, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(BATCH, WIDE)
    with Counter() as counter:
        model(inputs).sum().backward()
        optimizer.step()
    # Forward, and backward for the weights; the inputs need no gradient.
    assert counter.flops == 2 * 2 * BATCH * WIDE * NARROW
    assert counter.half_flops == 0
    # It reads inputs and weights, and writes outputs, twice at least.
    assert counter.traffic_bytes > 2 * 4 * (BATCH * WIDE + WIDE * NARROW + BATCH * NARROW)
    assert 4 <= counter.operations < 20
    counter.ignore(model.parameters())
    assert counter.activation_bytes == 4 * BATCH * WIDE


def test_nothing_is_counted_outside_and_views_are_free():
    values = torch.randn(4, 4)
    with Counter() as counter:
        values.t().reshape(2, 8)[0]
        copied = values.t().contiguous()
    counted = counter.operations
    assert copied @ values is not None
    # reshape of a transposed matrix copies, and so does contiguous
    assert (counter.operations, counter.flops) == (counted, 0)
    assert counted == 2
    assert counter.traffic_bytes == 2 * 2 * 64


def test_half_precision_and_lookups_are_distinguished():
    table = torch.randn(1000, 8)
    with Counter() as counter:
        torch.nn.functional.embedding(torch.tensor([1, 2]), table)
        assert counter.traffic_bytes == 2 * 2 * 8 * 4
        torch.ones(4, 4, dtype=torch.bfloat16) @ torch.ones(4, 4, dtype=torch.bfloat16)
        torch.ones(4, 4) @ torch.ones(4, 4)
    assert (counter.flops, counter.half_flops) == (2 * 2 * 64, 2 * 64)


@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_layers_count_although_torch_has_no_formula_for_them(layers):
    model = torch.nn.LSTM(WIDE, NARROW, num_layers=layers)
    inputs = torch.randn(10, BATCH, WIDE)
    with Counter() as counter:
        model(inputs)[0].sum().backward()
    weights = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    assert counter.flops == pytest.approx(3 * 2 * 10 * BATCH * weights, rel=0.3)


@pytest.mark.parametrize(
    ("kind", "precision"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "fp16")]
)
def test_the_precision_is_the_one_that_most_flops_are_done_in(kind, precision):
    with Counter() as counter:
        torch.ones(8, 8, dtype=kind) @ torch.ones(8, 8, dtype=kind)
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert counter.precision == precision
    with Counter() as nothing:
        torch.ones(4) + 1
    assert nothing.precision is None


def test_products_that_torch_may_round_to_tf32_are_tf32(monkeypatch):
    with Counter() as exact:
        torch.ones(8, 8) @ torch.ones(8, 8)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    with Counter() as rounded:
        torch.ones(8, 8) @ torch.ones(8, 8)
    with Counter() as convolved:
        torch.nn.functional.conv2d(torch.ones(1, 8, 9, 9), torch.ones(8, 8, 3, 3))
    # cuDNN rounds unless that is disabled, which is torch's own default.
    assert (exact.precision, rounded.precision, convolved.precision) == ("fp32", "tf32", "tf32")


def test_the_sort_of_work_is_that_of_most_flops_or_lookups_where_there_are_hardly_any():
    def sort(work) -> str:
        with Counter() as counter:
            work()
        return counter.sort

    image, kernel = torch.ones(1, 8, 9, 9), torch.ones(8, 8, 3, 3)
    assert sort(lambda: torch.ones(64, 64) @ torch.ones(64, 64)) == "matrices"
    assert sort(lambda: torch.nn.functional.conv2d(image, kernel)) == "convolutions"
    model, inputs = torch.nn.LSTM(64, 64), torch.randn(10, 64, 64)
    assert sort(lambda: model(inputs)) == "recurrences"
    table = torch.randn(1000, 64)
    assert sort(lambda: torch.nn.functional.embedding(torch.arange(500), table).sum()) == "lookups"
