"""Why a model peaks where it does: figures against torch's profiler, changes against models that make them."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pebbling.cli import main
from pebbling.errors import BudgetError
from pebbling.testing import assert_peak
from pebbling.torch import largest, why


class Layer(nn.Module):
    """Pre-norm attention and a perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.wide(self.norms[1](x))


class Words(nn.Module):
    """A small language model whose layers can run again by torch's own checkpointing."""

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.embed = nn.Embedding(400, 32)
        self.layers = nn.ModuleList(Layer(32) for _ in range(4))
        self.head = nn.Linear(32, 400)

    def forward(self, words: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        scores = self.head(x)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), words.flatten()), "scores": scores}


class Picture(nn.Module):
    """Convolutions, whose kernels take memory for themselves, and norms with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Conv1d(8, 32, 9, padding=4), nn.BatchNorm1d(32), nn.GELU(), nn.Conv1d(32, 8, 9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts(x).square().mean()


def words() -> torch.Tensor:
    return torch.randint(400, (4, 64), generator=torch.Generator().manual_seed(1))


def allocated(model: nn.Module, *batch: torch.Tensor) -> int:
    """The peak above the start, by torch's profiler alone."""
    for parameter in model.parameters():
        parameter.grad = None
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        result = model(*batch)
        (result["loss"] if isinstance(result, dict) else result).backward()
    level = peak = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    return peak


@pytest.mark.parametrize(
    ("model", "batch"),
    [(Words(), words()), (Words(again=True), words()), (Picture(), torch.randn(4, 8, 500))],
    ids=["words", "checkpointed words", "picture"],
)
def test_the_peak_is_the_allocators(model, batch) -> None:
    assert why(model, batch).above == pytest.approx(allocated(model, batch), rel=0.002)


def test_running_layers_again_lowers_the_peak_by_what_torch_checkpointing_does() -> None:
    plain, again = Words(), Words(again=True)
    found = why(plain, words())
    advice = next(each for each in found.advice if "layers.* again" in each.change)
    assert advice.peak - found.standing == pytest.approx(allocated(again, words()), rel=0.02)
    assert advice.lowers > 0.3 * found.peak


def test_the_peak_is_blamed_on_the_module_the_operation_and_the_line() -> None:
    found = why(Words(), words())
    assert found.moment.phase == "backward"
    assert "test_torch_why.py:" in found.moment.line
    life, size = next((life, size) for life, size in found.makers if life.module == "layers.*.wide.*")
    assert life.kind == "saved"
    assert life.op in ("addmm", "gelu")
    assert size == 4 * (4 * 64 * 128 * 4)


def test_no_trace_is_left() -> None:
    model = Picture()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(4, 8, 100)
    model(batch).backward()
    optimizer.step()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]))
    drawn = torch.random.get_rng_state()
    why(model, batch, optimizer=optimizer)
    after = (model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()])
    for one, other in zip(torch.utils._pytree.tree_leaves(before), torch.utils._pytree.tree_leaves(after), strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    assert torch.equal(drawn, torch.random.get_rng_state())
    alive = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert alive() is None


def test_an_optimizers_state_counts_from_its_first_step_on() -> None:
    model = nn.Linear(300, 300)
    optimizer = torch.optim.Adam(model.parameters())
    first = why(model, torch.ones(2, 300), optimizer=optimizer)
    assert not optimizer.state
    assert first.kinds["optimizer state"] >= 2 * 300 * 300 * 4


def test_an_error_of_the_model_comes_out_as_it_is_and_leaves_no_hooks() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner(x)
            raise ValueError("labels are missing")

    model = Broken()
    with pytest.raises(ValueError, match="labels are missing"):
        why(model, torch.ones(2, 4))
    assert not model.inner._forward_hooks
    assert not model.inner._forward_pre_hooks


def test_tensors_on_the_meta_device_take_no_memory_and_give_the_tensors_peak() -> None:
    model, batch = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8)), torch.ones(300, 8)
    real = why(model, batch)
    meta = why(model.to("meta"), batch.to("meta"))
    assert not meta.measured
    assert "what kernels take for themselves is missing" in str(meta)
    assert meta.peak == pytest.approx(real.peak, rel=0.01)


def test_the_largest_batch_fits_and_the_next_one_does_not() -> None:
    model = Picture()

    def batch(size: int) -> torch.Tensor:
        return torch.ones(size, 8, 200)

    found = largest(model, batch, memory="4MiB")
    standing = why(model, batch(found.size)).standing
    assert allocated(model, batch(found.size)) + standing <= 4 * 2**20
    assert why(model, batch(found.size + 1)).peak > 4 * 2**20
    with pytest.raises(BudgetError) as error:
        largest(model, batch, memory="10kB")
    assert error.value.minimum == why(model, batch(1)).peak


def test_a_peak_can_be_asserted() -> None:
    found = assert_peak(Words(), (words(),), "100MB")
    assert_peak(Words(), {"words": words()}, found.peak)
    with pytest.raises(AssertionError, match=r"more than 1MB(.|\n)*what would lower the peak"):
        assert_peak(Words(), words(), "1MB")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="no tensor that requires a gradient"):
        why(lambda x: x.round().detach(), torch.ones(3))
    with pytest.raises(ValueError, match="expected a tensor with one number"):
        why(nn.Linear(2, 2), torch.ones(1, 2), loss=lambda result: result)


def test_the_command_line_says_why(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "small_training.py").write_text(
        "import torch\ndef example():\n    return torch.nn.Linear(8, 8), torch.ones(4, 8)\ndef other():\n    return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["why", "small_training:example", "--save", "why.html"]) == 0
    assert "Linear: peak" in capsys.readouterr().out
    assert (tmp_path / "why.html").exists()
    for wrong, message in (
        ("small_training", "expected module:function"),
        ("small_training:other", "expected a tuple of a model and its batch"),
        ("small_training:none", "has no attribute 'none'"),
    ):
        assert main(["why", wrong]) == 2
        assert message in capsys.readouterr().err
