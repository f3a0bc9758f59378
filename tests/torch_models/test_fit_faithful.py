"""What a tracer would do differently from eager mode, and a fitted model does not: kernels, hooks, paths, numbers."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fit_cases import captured
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from pebbling.errors import BudgetError, CaptureError
from pebbling.torch import fit
from pebbling.torch.models import Measured

Script = Callable[[Any, nn.Module], list[Any]]


def seen(run: Any, model: nn.Module, script: Script) -> list[Any]:
    """What a script returns, and every gradient, buffer and random number after it."""
    torch.manual_seed(5)
    values = [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in script(run, model)]
    gradients = [parameter.grad for parameter in model.parameters()]
    return [*values, *gradients, *(buffer.clone() for buffer in model.buffers()), torch.rand(2)]


def same(mine: list[Any], theirs: list[Any]) -> bool:
    def equal(a: Any, b: Any) -> bool:
        return torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a is b or a == b

    return len(mine) == len(theirs) and all(equal(a, b) for a, b in zip(mine, theirs))


def faithful(model: nn.Module, script: Script, **options: Any) -> bool:
    """Whether a fitted copy shows what the model shows, without a limit and within the smallest budget."""
    expected = seen(theirs := copy.deepcopy(model), theirs, script)
    budgets: list[int | None] = [None]
    try:
        seen(captured(mine := copy.deepcopy(model), memory=1, time_limit=1, **options), mine, script)
    except BudgetError as error:
        budgets.append(error.minimum)
    found = []
    for memory in budgets:
        mine = copy.deepcopy(model)
        found.append(same(seen(captured(mine, memory=memory, time_limit=1, **options), mine, script), expected))
    return all(found)


def stepped(*example: Any) -> Script:
    """One step of training."""

    def script(run: Any, model: nn.Module) -> list[Any]:
        result = run(*example)
        result.square().mean().backward()
        return [result]

    return script


class Scaled(nn.Module):
    """A function behind a parameter."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(shape))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(torch.tanh(x * self.scale)).exp()


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation_is_that_of_eager_mode(mode: str) -> None:
    torch.manual_seed(0)
    model = Scaled(lambda x: functional.interpolate(x, scale_factor=2, mode=mode), 3, 1, 1)
    assert faithful(model, stepped(torch.randn(2, 3, 7, 7)))


def test_statistics_that_are_averaged_before_they_are_kept() -> None:
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6, affine=True, track_running_stats=True), nn.SiLU()]
    more = [nn.ConvTranspose2d(6, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.Softplus(), nn.Upsample(scale_factor=2)]
    assert faithful(nn.Sequential(*body, *more), stepped(torch.randn(4, 3, 12, 12)))


class Recurrent(nn.Module):
    """A recurrent layer, whose results are all there is."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: Any) -> None:
    torch.manual_seed(0)
    model = Recurrent(kind(8, 12, num_layers=2, dropout=0.2, batch_first=True))
    x = torch.randn(8, 4, 8)

    def script(run: Any, model: nn.Module) -> list[Any]:
        results = stepped(x)(run, model)
        # Gradients that shared a storage would be clipped twice.
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with torch.no_grad():
            return [*results, run(x)]

    assert faithful(model, script)


def test_the_budget_of_a_recurrent_layer_bounds_what_it_keeps_inside() -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(8, 12, batch_first=True), torch.randn(8, 6, 8)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return layer(x)[0].square().mean()

    with pytest.raises(BudgetError) as refusal:
        captured(loss, memory=1)(x)
    for _ in range(2):
        torch._dynamo.reset()
        fitted = captured(loss, memory=refusal.value.minimum)
        fitted(x).backward()
        layer.zero_grad(set_to_none=True)
        with Measured() as measured:
            fitted(x).backward()
        assert measured.peak <= int(refusal.value.minimum or 0)


@pytest.mark.parametrize("width", [10, 12])
def test_a_gated_cell_step_by_step(width: int) -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(8, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = x.new_zeros(8, width)
            states = [state := self.cell(part, state) for part in x.unbind(1)]
            return torch.stack(states)

    torch.manual_seed(0)
    assert faithful(Cell(), stepped(torch.randn(8, 4, 8)))


class Heads(nn.Module):
    """Attention of torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]


def test_attention_is_evaluated_by_the_kernel_of_eager_mode() -> None:
    torch.manual_seed(0)
    x, hidden = torch.randn(3, 10, 16), torch.arange(10).expand(3, 10) > 6

    def script(run: Any, model: nn.Module) -> list[Any]:
        model.eval()
        with torch.no_grad():
            return [run(x, hidden)]

    assert faithful(Heads(), script)


def test_nested_tensors_of_an_encoder_are_refused() -> None:
    x, hidden = torch.randn(3, 10, 16), torch.arange(10).expand(3, 10) > 6
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    nested, plain = (nn.TransformerEncoder(layer, 1, enable_nested_tensor=each).eval() for each in (True, False))
    with torch.no_grad():
        with pytest.raises(CaptureError, match="enable_nested_tensor=False"):
            captured(nested)(x, src_key_padding_mask=hidden)
        assert torch.equal(captured(plain)(x, src_key_padding_mask=hidden), plain(x, src_key_padding_mask=hidden))


class Fused(nn.Module):
    """Fused attention, whose kernel is chosen by switches."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(x).view(3, 10, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(query, key, value)


def test_switches_of_kernels_hold_at_every_call() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 10, 16)

    def script(run: Any, model: nn.Module) -> list[Any]:
        with sdpa_kernel(SDPBackend.MATH):
            first = stepped(x)(run, model)
        second = stepped(x)(run, model)
        with sdpa_kernel(SDPBackend.MATH):
            return [*first, *second, *stepped(x)(run, model)]

    assert faithful(Fused(), script)


class Numbers(nn.Module):
    """Python numbers that are taken out of tensors, and used in both passes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, most, any_large = int((x > 0).sum()), x.max().item(), bool((x > 1).any())
        drawn = torch.rand(1).item()
        y = functional.dropout(torch.tanh(self.body(x)) * count, 0.2) * most
        return torch.sin(y / count) * drawn + y * any_large


def test_numbers_that_are_taken_out_of_tensors() -> None:
    torch.manual_seed(0)
    assert faithful(Numbers(), stepped(torch.randn(6, 8)))


def test_gradients_that_are_views_of_what_comes_in() -> None:
    torch.manual_seed(0)

    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(3))

        def forward(self) -> torch.Tensor:
            return self.a.sum() + self.b.expand(5, 3).sum()

    def script(run: Any, model: nn.Module) -> list[Any]:
        total = run()
        total.backward()
        return [total]

    assert faithful(Sums(), script)


class Sized(nn.Module):
    """Sizes that depend on the data, and a function of NumPy."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.body, self.what = nn.Linear(8, 8), what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.body(x))
        if self.what == "mask":
            return self.body(y) + y[y > 0.1].sum()
        if self.what == "slice":
            return self.body(y)[: int((x[:, 0] > 0).sum())]
        return self.body(y) * float(np.sum(y.detach().numpy()))


# torch looks at the gradient of what comes out of the part before, and warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize(
    ("what", "line"), [("mask", r"y\[y > 0.1\]"), ("slice", r"\(x\[:, 0\] > 0\)"), ("numpy", r"np.sum")]
)
def test_what_depends_on_data_names_its_line_and_can_be_kept(what: str, line: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    with pytest.raises(CaptureError, match=rf"test_fit_faithful\.py:\d+, in forward \(.*{line}.*breaks="):
        captured(Sized(what))(x)
    assert faithful(Sized(what), stepped(x), breaks="keep")


@pytest.mark.parametrize("run", [fit, captured])
def test_errors_of_the_program_come_out_as_they_are(run: Any) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 9:
            raise ValueError("nine columns, please")
        return x

    def unfitting(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 3)

    with pytest.raises(ValueError, match=r"^nine columns, please$"):
        run(wrong)(torch.ones(2, 8))
    message = r"mat1 and mat2 shapes cannot be multiplied \(2x8 and 3x3\)|\[2, 8\] X \[3, 3\]"
    with pytest.raises(RuntimeError if run is fit else CaptureError, match=message):
        run(unfitting)(torch.ones(2, 8))


def test_sparse_gradients_are_refused() -> None:
    layer, words = nn.Embedding(9, 8, sparse=True), torch.tensor([1, 2])
    with pytest.raises(CaptureError, match="use sparse=False"):
        captured(layer)(words)
    with torch.no_grad():
        assert torch.equal(captured(layer)(words), layer(words))


def test_what_is_fitted_can_be_fitted_again_but_not_within_another() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
    again = captured(captured(model, memory="1MiB"), memory="2MiB")
    again(x)
    assert again.plan.memory == 2**21
    assert torch.equal(captured(captured(torch.sin))(x), torch.sin(x))
    with pytest.raises(CaptureError, match="'0' in Sequential is fitted already"):
        captured(nn.Sequential(captured(model), nn.Tanh()))


@pytest.mark.parametrize("damage", ["peak", "steps"])
def test_a_plan_that_someone_changed_in_the_folder_is_made_again(damage: str, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), torch.randn(4, 8)
    captured(model, memory="1MiB", plans=tmp_path)(x)
    (path,) = tmp_path.iterdir()
    document = json.loads(gzip.decompress(path.read_bytes()))
    document[damage] = 1 if damage == "peak" else document["steps"][1:]
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    torch._dynamo.reset()
    with pytest.warns(RuntimeWarning, match="can't be used and is made again"):
        again = captured(model, memory="1MiB", plans=tmp_path)(x)
    assert torch.equal(again, model(x))
    torch._dynamo.reset()
    captured(model, memory="1MiB", plans=tmp_path)(x)  # no warning: the file is whole again


class HeadsApart(nn.Module):
    """A trunk with three heads, one of which does not train it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        h = torch.tanh(self.trunk(x))
        return [self.heads[0](h), self.heads[1](h)[:, 1], self.heads[2](h.detach())]


def test_what_the_loss_leaves_out_gets_no_gradient() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 8)

    def script(run: Any, model: nn.Module) -> list[Any]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
        losses = []
        for which in (0, 2, 1, 2, 0):
            optimizer.zero_grad()
            losses.append(run(x)[which].square().mean())
            losses[-1].backward()
            optimizer.step()
        twice = run(x)
        twice[0].sum().backward(retain_graph=True)
        twice[2].sum().backward()
        return losses

    assert faithful(HeadsApart(), script)
    model = HeadsApart()
    captured(model)(x)[2].sum().backward()
    assert model.trunk.weight.grad is None
    assert model.heads[2].weight.grad is not None


class Turned(nn.Module):
    """A layer over transposed values, and a view of what comes after it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.head(self.layer((x * 2).transpose(1, 2)).transpose(1, 2))
        return y.view(-1, 5).square().mean()


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(16),
        nn.BatchNorm1d(16).eval(),
        nn.BatchNorm1d(16, track_running_stats=False),
        nn.Sequential(nn.LayerNorm(6), nn.BatchNorm1d(16)),
        nn.Sequential(nn.Dropout(0.3), nn.BatchNorm1d(16)),
        nn.Sequential(nn.BatchNorm1d(16), nn.Dropout(0.3), nn.LayerNorm(6)),
        nn.Conv1d(16, 16, 1),
    ],
)
def test_layers_lay_their_results_out_as_their_kernels_do(layer: nn.Module) -> None:
    torch.manual_seed(0)
    model, x = Turned(copy.deepcopy(layer)), torch.randn(4, 6, 16, requires_grad=True)
    theirs = copy.deepcopy(model)
    seen: list[Any] = []
    for run, each in ((captured(model), model), (theirs, theirs)):
        torch.manual_seed(1)
        loss = run(x)
        gradients = torch.autograd.grad(loss, [x, *each.parameters()])
        seen.append([loss.detach(), *gradients, *each.buffers()])
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
