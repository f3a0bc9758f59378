"""backend="inductor": the measured peak is within the budget, gradients are those of torch.compile, nothing is left."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._inductor.config
from fit_cases import buffer_changed_after_use
from torch import nn
from torch.nn import functional

from pebbling.errors import BudgetError, CaptureError
from pebbling.torch import fit
from pebbling.torch.models import Measured, capture, search
from pebbling.torch.models.inductor import drawn_one_way
from pebbling.torch.models.report import page
from pebbling.torch.models.tries import TRIES
from pebbling.units import format_bytes


@pytest.fixture(scope="module", autouse=True)
def _quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels need not be fast here, only compiled fast, and in a folder of their own."""
    changes = {"compile_threads": 1, "aot_inductor.debug_compile": True, "cpp.simdlen": 1}
    with pytest.MonkeyPatch.context() as patch, torch._inductor.config.patch(changes):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def _no_frames_of_others() -> Iterator[None]:
    """torch stops compiling a function that was compiled for many models, as those of these tests are."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Blocks(nn.Module):
    """Equal blocks with skips, and a loss."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


class Attention(nn.Module):
    """Attention with dropout on its weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix, self.drop = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(self.norm(x)).chunk(3, -1)
        return self.drop((query @ key.transpose(-1, -2)).softmax(-1)) @ value


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    blocks = [nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16), nn.Dropout(0.2)) for _ in range(3)]
    return Blocks(blocks), torch.randn(200, 16)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    blocks = [
        nn.Sequential(Attention(16), nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), nn.Dropout(0.1))
        for _ in range(2)
    ]
    return Blocks(blocks), torch.randn(4, 32, 16)


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    blocks = [nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(3)]
    return Blocks(blocks), torch.randn(3, 4, 12, 12)


def encoder() -> tuple[nn.Module, torch.Tensor]:
    """torch's own cut keeps the masks of its rectifiers, unless it may compute them again."""
    blocks: list[nn.Module] = [nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True) for _ in range(2)]
    return Blocks(blocks), torch.randn(2, 16, 32)


def step(model: nn.Module, run: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Loss, gradients and buffers after one step, from one state of the generator."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    loss = run(x)
    loss.backward()
    drawn = torch.rand(3)
    return [loss.detach(), drawn, *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())]


def peak(model: nn.Module, run: Any, x: torch.Tensor) -> int:
    """Of one more step, as anybody would measure it."""
    model.zero_grad(set_to_none=True)
    with Measured() as memory:
        run(x).backward()
    return memory.peak


def close(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_budgets_from_the_smallest_on_hold_and_gradients_are_those_of_torch_compile() -> None:
    torch.manual_seed(0)
    model, x = perceptron()
    original = copy.deepcopy(model)
    plain = torch.compile(original, dynamic=False)
    expected = step(original, plain, x)
    most = peak(original, plain, x)
    with pytest.raises(BudgetError, match=r"does not fit into memory=1 .*inductor.*smallest peak") as refusal:
        fit(copy.deepcopy(model), 1, backend="inductor", time_limit=1)(x)
    least = int(refusal.value.minimum or 0)
    assert str(least) in str(refusal.value)
    assert least < 0.8 * most
    taken = []
    for budget in (least, (least + most) // 2, 2 * most):
        own = copy.deepcopy(model)
        fitted = fit(own, budget, backend="inductor", time_limit=1)
        close(step(own, fitted, x), expected)
        taken.append(peak(own, fitted, x))
        assert taken[-1] <= budget
        assert fitted.plan.measured == fitted.plan.peak == taken[-1]
        assert fitted.plan.memory == budget
        assert (fitted.plan.overhead > 0) == (budget < most)
    assert taken == sorted(taken)
    assert taken[0] < taken[-1] == most


def test_dropout_draws_the_numbers_of_torch_compile_and_the_report_tells_the_measured_peak() -> None:
    torch.manual_seed(0)
    model, x = transformer()
    original = copy.deepcopy(model)
    plain = torch.compile(original, dynamic=False)
    expected = step(original, plain, x)
    budget = int(0.75 * peak(original, plain, x))
    fitted = fit(model, budget, backend="inductor", time_limit=1)
    close(step(model, fitted, x), expected)
    assert fitted.plan.replayed
    taken = peak(model, fitted, x)
    assert taken <= budget
    told = f"{format_bytes(taken)}</b><span>measured peak, of {format_bytes(budget)}"
    assert told in page(fitted.plan, seconds=0.5)
    assert f"measured {format_bytes(taken)} of {format_bytes(budget)}; planned" in str(fitted.plan)


def test_training_is_that_of_eager_mode_with_statistics_updated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = convolutions()
    other = copy.deepcopy(model)
    fitted = fit(model, 52_000, backend="inductor", time_limit=1)
    compilations = counted(monkeypatch)
    for run, own in ((fitted, model), (other, other)):
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            run(x).backward()
            optimizer.step()
    assert fitted.plan.replayed
    assert len(compilations) <= TRIES
    close(list(model.state_dict().values()), list(other.state_dict().values()))
    assert peak(model, fitted, x) <= 52_000


def test_a_buffer_that_is_changed_after_use_is_not_read_again() -> None:
    torch.manual_seed(0)
    model, loss = buffer_changed_after_use()
    other = copy.deepcopy(model)
    for run, own in ((fit(model, 8_000, backend="inductor", time_limit=1), model), (other, other)):
        loss(run).backward()
        found = [*(parameter.grad for parameter in own.parameters()), *own.buffers()]
        if own is model:
            mine = found
    close(mine, found)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every compilation."""
    found: list[int] = []
    compile_with = search.compile_with

    def counting(*args: Any, **kwargs: Any) -> Any:
        found.append(1)
        return compile_with(*args, **kwargs)

    monkeypatch.setattr(search, "compile_with", counting)
    return found


def test_plans_are_kept_for_shapes_and_found_again_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = perceptron()
    compilations = counted(monkeypatch)
    fitted = fit(model, 200_000, backend="inductor", plans=tmp_path, time_limit=1)
    expected = step(model, fitted, x)
    first = len(compilations)
    step(model, fitted, x)
    assert len(compilations) == first
    step(model, fitted, x[:100])
    assert len(compilations) > first
    assert len(fitted.plans) == 2
    assert fitted.plans[0].measured > fitted.plans[1].measured
    for name in ("peak_of", "times_of", "solve"):
        monkeypatch.setattr(search, name, None)
    torch._dynamo.reset()
    again = fit(model, 200_000, backend="inductor", plans=tmp_path, time_limit=1)
    close(step(model, again, x), expected)
    assert again.plan.measured == fitted.plans[0].measured
    assert again.plan.steps == fitted.plans[0].steps
    monkeypatch.undo()
    for path in tmp_path.glob("*-measured.json"):
        path.write_text("{")
    torch._dynamo.reset()
    again = fit(model, 200_000, backend="inductor", plans=tmp_path, time_limit=1)
    with pytest.warns(RuntimeWarning, match="does not say what its plan took"):
        close(step(model, again, x), expected)


def test_the_fastest_of_those_that_fit_is_kept_whichever_cut_it_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = encoder()
    plain = torch.compile(model, dynamic=False)
    expected = step(model, plain, x)
    budget = int(0.97 * peak(model, plain, x))
    kept = []
    for fastest in (0, 1):
        torch._dynamo.reset()
        monkeypatch.setattr(search, "times_of", lambda runs, *_, first=fastest: [i != first for i in range(len(runs))])
        fitted = fit(model, budget, backend="inductor", time_limit=1, plans=tmp_path / str(fastest))
        close(step(model, fitted, x), expected)
        assert peak(model, fitted, x) <= budget
        kept.append(fitted.plan)
    # The graphs are of what the one cut stores and the other.
    assert kept[0].graph != kept[1].graph
    torch._dynamo.reset()
    compilations = counted(monkeypatch)
    again = fit(model, budget, backend="inductor", plans=tmp_path / "1")
    close(step(model, again, x), expected)
    assert len(compilations) == 1
    assert again.plan == kept[1]


def test_settings_hold_while_a_model_is_traced_and_calls_do_not_pay_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(40, 4)
    fitted = fit(model, backend="inductor")
    entered: list[Any] = []
    settings = capture.settings

    def counting(backend: str) -> Any:
        entered.append((backend, torch._dynamo.config.recompile_limit))
        return settings(backend)

    monkeypatch.setattr(capture, "settings", counting)
    limit = torch._dynamo.config.recompile_limit
    fitted(x)
    assert entered == [("inductor", limit)]
    fitted(x)
    assert len(entered) == 1
    # More shapes than torch would compile for.
    with torch.no_grad():
        for rows in range(1, limit + 3):
            torch.testing.assert_close(fitted(x[:rows]), model(x[:rows]))
    assert len(entered) == len(fitted.plans) == limit + 3
    assert torch._dynamo.config.recompile_limit == limit


def test_without_a_limit_it_is_torch_compile_which_keeps_parameters_and_not_views_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model, x = encoder()
    monkeypatch.setattr(search, "peak_of", None)
    fitted = fit(model, backend="inductor")
    expected = step(model, torch.compile(model, dynamic=False), x)
    close(step(model, fitted, x), expected)
    assert peak(model, fitted, x) == peak(model, torch.compile(model, dynamic=False), x)
    assert fitted.plan.measured is None
    assert "not measured" in str(fitted.plan)


def test_inference_is_measured_too() -> None:
    torch.manual_seed(0)
    model, x = perceptron()
    model.eval()
    with torch.no_grad():
        fitted = fit(model, "1MB", backend="inductor")
        torch.testing.assert_close(fitted(x), model(x))
        assert not fitted.plan.trains
        taken = fitted.plan.measured
        assert "inductor" in str(fitted.plan)
        with pytest.raises(BudgetError, match=f"{taken} bytes"):
            fit(model, taken - 1, backend="inductor")(x)


def test_ranks_of_a_group_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="group= with backend='inductor'"):
        fit(nn.Linear(2, 2), backend="inductor", group=object())


def test_a_tracer_that_is_off_is_refused_and_not_a_model_without_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    with pytest.raises(CaptureError, match="unset TORCHDYNAMO_DISABLE"):
        fit(nn.Linear(2, 2), "1MB", backend="inductor")(torch.ones(1, 2))


# torch looks at the gradient of what comes out of the part before, and warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_what_cant_be_captured_is_run_as_it_is_between_two_plans() -> None:
    def branching(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x @ w)
        if y.sum() > 1e9:
            y = 2 * y
        return functional.gelu(y @ w).mean()

    torch.manual_seed(0)
    x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
    (expected,) = torch.autograd.grad(branching(x, w), w)
    fitted = fit(branching, "1MB", backend="inductor", breaks="keep")
    (found,) = torch.autograd.grad(fitted(x, w), w)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(fitted.plans) == 2


def test_kernels_of_any_shape_draw_random_numbers_by_the_same_function() -> None:
    """On a GPU newer torch chooses by the shape of the kernel: dropout drawn again in another would be another."""
    from torch._inductor.codegen.triton import TritonKernel, TritonOverrides
    from torch._inductor.virtualized import V

    def drawn(dimensions: int) -> list[str]:
        kernel = TritonKernel.__new__(TritonKernel)
        kernel.triton_tensor_ndim = lambda: dimensions
        kernel.dense_size_list = lambda: ["XBLOCK"] * dimensions
        graph = SimpleNamespace(get_current_device_or_throw=lambda: torch.device("cuda"))
        with V.set_kernel_handler(kernel), V.set_graph_handler(graph):
            draw = (TritonOverrides.rand, TritonOverrides.randn)
            return [each("seed", "offset").partition("(")[0] for each in draw]

    with drawn_one_way():
        assert drawn(1) == drawn(2) == ["tl.rand", "tl.randn"]
    if hasattr(TritonOverrides, "_can_use_4x_random"):
        assert drawn(1) != drawn(2)


def test_models_are_compiled_with_that_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[bool] = []

    @contextmanager
    def noted() -> Iterator[None]:
        entered.append(True)
        yield

    monkeypatch.setattr("pebbling.torch.models.inductor.drawn_one_way", noted)
    model, x = perceptron()
    fit(model, backend="inductor", time_limit=1)(x).backward()
    assert entered
