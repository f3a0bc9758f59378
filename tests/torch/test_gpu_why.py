"""On a GPU, why a peak is where it is, beside the allocator's maximum."""

from __future__ import annotations

import gc

import pytest
import torch
from test_torch_why import Picture, Words
from torch import nn

from pebbling.testing import assert_peak
from pebbling.torch import why

pytestmark = pytest.mark.gpu


def allocated(model: nn.Module, batch: torch.Tensor) -> int:
    def step() -> None:
        found = model(batch)
        (found["loss"] if isinstance(found, dict) else found).sum().backward()
        model.zero_grad(set_to_none=True)

    step()
    del step
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = model(batch)
    (found["loss"] if isinstance(found, dict) else found).sum().backward()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    model.zero_grad(set_to_none=True)
    return peak


@pytest.fixture(params=["words", "picture"])
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if request.param == "words":
        return Words().cuda(), torch.randint(400, (32, 256), device="cuda")
    return Picture().cuda(), torch.randn(64, 8, 4096, device="cuda")


def test_the_peak_is_the_allocators(case) -> None:
    model, batch = case
    measured = allocated(model, batch)
    assert why(model, batch).above == pytest.approx(measured, rel=0.02)


def test_a_peak_is_asserted(case) -> None:
    model, batch = case
    peak = why(model, batch).peak
    assert_peak(model, batch, int(1.01 * peak))  # the allocator splits blocks as it finds them
    with pytest.raises(AssertionError):
        assert_peak(model, batch, int(0.9 * peak))


def test_nothing_is_left_on_the_device(case) -> None:
    model, batch = case
    why(model, batch)  # what libraries take once, such as cuBLAS's workspace, stays
    gc.collect()
    before = torch.cuda.memory_allocated()
    why(model, batch)
    gc.collect()
    assert torch.cuda.memory_allocated() == before
