"""A fitted module is the module: parameters, state, modes, hooks, copies; in any usual training loop."""

from __future__ import annotations

import copy
import gzip
import pickle
from typing import Any

import pytest
import torch
from fit_cases import GPT, captured
from torch import nn

from pebbling.errors import CaptureError
from pebbling.torch import fit
from pebbling.torch.models.planner import kept


def small(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, width))


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def same(mine: Any, theirs: Any) -> bool:
    return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs))


def test_it_shares_parameters_state_and_modes_with_the_original() -> None:
    model = small()
    fitted = fit(model, memory="1MiB")
    assert isinstance(fitted, nn.Sequential)
    assert [name for name, _ in fitted.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert fitted.state_dict().keys() == model.state_dict().keys()
    assert fitted[0].weight is model[0].weight
    fitted.eval()
    assert not model.training
    assert not model[1].training
    fitted.to(torch.float64)
    assert model[0].weight.dtype == torch.float64
    other = small().double()
    fitted.load_state_dict(other.state_dict())
    assert same(list(model.parameters()), list(other.parameters()))
    fitted.extra = nn.Parameter(torch.ones(2))
    assert "extra" in model.state_dict()


def test_copies_and_pickles_are_fitted_and_independent() -> None:
    fitted = captured(small(), memory="1MiB")
    fitted.eval()
    x = torch.randn(4, 8)
    expected = fitted(x)
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert other[0].weight is not fitted[0].weight
        assert torch.equal(other(x), expected)
        assert other.plan.memory == 2**20


def test_new_shapes_and_modes_are_planned_anew_and_old_ones_found_again() -> None:
    torch.manual_seed(0)
    model = small()
    theirs = copy.deepcopy(model)
    fitted = fit(model, memory="1MiB", time_limit=1)
    batches = [torch.randn(size, 8) for size in (4, 6, 4, 3, 6)]
    for batch in batches:
        for run, each in ((fitted, model), (theirs, theirs)):
            torch.manual_seed(1)
            each.zero_grad()
            run(batch).square().mean().backward()
        assert same(gradients(model), gradients(theirs))
    assert len(fitted.plans) == 3
    peaks = {
        batch.shape[0]: fitted_peak for batch, fitted_peak in zip((batches[0], batches[1], batches[3]), fitted.plans)
    }
    assert peaks[3].peak < peaks[4].peak < peaks[6].peak
    assert same(list(model.buffers()), list(theirs.buffers()))


def test_evaluation_without_gradients_has_a_plan_without_a_backward_pass() -> None:
    model = small()
    fitted = captured(model, memory="1MiB")
    x = torch.randn(4, 8)
    fitted(x).sum().backward()
    fitted.eval()
    with torch.no_grad():
        assert torch.equal(fitted(x), model(x))
    assert [plan.trains for plan in fitted.plans] == [True, False]
    assert fitted.plan is fitted.plans[0]


def test_gradients_accumulate() -> None:
    torch.manual_seed(0)
    model = small()
    theirs = copy.deepcopy(model)
    fitted = fit(model, memory="1MiB")
    x = torch.randn(4, 8)
    for run in (fitted, theirs):
        torch.manual_seed(1)
        for part in (x, 2 * x, 3 * x):
            run(part).square().mean().backward()
    assert same(gradients(model), gradients(theirs))


def test_two_losses_backward_one_after_the_other() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    theirs = copy.deepcopy(model)
    x = torch.randn(5, 8)
    for run in (fit(model, memory="1MiB"), theirs):
        first, second = run(x).square().mean(0)
        first.backward(retain_graph=True)
        second.backward()
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(gradients(model), gradients(theirs)))


# torch looks at the gradient of what the hook around the module hands in, and warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_hooks_of_the_fitted_module_run_around_it_and_are_its_own() -> None:
    model = small()
    seen: list[str] = []
    model.register_forward_hook(lambda *_: seen.append("inside"))
    fitted = fit(model, memory="1MiB")
    fitted.register_forward_pre_hook(lambda *_: seen.append("before"))
    fitted.register_forward_hook(lambda *_: seen.append("after"))
    fitted.register_full_backward_hook(lambda *_: seen.append("backward"))
    x = torch.randn(4, 8, requires_grad=True)
    fitted(x).sum().backward()
    assert seen == ["before", "inside", "after", "backward"]
    assert len(model._forward_hooks) == 1


def test_functions_stay_functions() -> None:
    weight = torch.randn(8, 8, requires_grad=True)

    def loss(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """The loss."""
        return scale * torch.tanh(x @ weight).square().sum()

    fitted = fit(loss, memory="1MiB")
    x = torch.randn(4, 8)
    fitted(x, scale=2.0).backward()
    mine, weight.grad = weight.grad, None
    loss(x, scale=2.0).backward()
    assert torch.equal(mine, weight.grad)
    assert (fitted.__name__, fitted.__doc__) == ("loss", "The loss.")


def test_custom_operators_are_kept_whole() -> None:
    @torch.library.custom_op("pebbling_tests::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy(force=True) / 2)

    halve.register_fake(lambda x: torch.empty_like(x))
    halve.register_autograd(lambda ctx, gradient: halve(gradient))
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    x = torch.randn(4, 8)
    fitted = fit(lambda: halve(model(x)).square().sum(), memory="1MiB")
    fitted().backward()
    mine = [gradient.clone() for gradient in gradients(model)]
    model.zero_grad()
    halve(model(x)).square().sum().backward()
    assert same(mine, gradients(model))
    assert any("halve" in node.op for node in fitted.plan.graph.nodes)


def test_there_is_no_plan_before_the_first_call() -> None:
    model = fit(small(), memory="1MiB")
    assert model.plan is None
    with pytest.raises(CaptureError, match="no plan yet"):
        model.report("plan.html")


def test_plans_are_kept_in_a_folder_and_found_there(tmp_path: Any) -> None:
    tokens = torch.randint(11, (2, 5))
    torch.manual_seed(0)
    first = captured(GPT(layers=1), memory="200kB", plans=tmp_path, time_limit=1)
    first(tokens).backward()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 1
    before = files[0].stat().st_mtime_ns
    second = captured(GPT(layers=1), memory="200kB", plans=tmp_path, time_limit=1)
    second(tokens).backward()
    assert second.plan.graph_plan == first.plan.graph_plan
    assert files[0].stat().st_mtime_ns == before
    captured(GPT(layers=1), memory="300kB", plans=tmp_path, time_limit=1)(tokens)
    assert len(sorted(tmp_path.iterdir())) == 2


def test_files_of_plans_that_are_damaged_or_for_another_budget_are_not_used(tmp_path: Any) -> None:
    tokens, model = torch.randint(11, (6, 12)), GPT(layers=1)

    def made(memory: int | None) -> Any:
        fitted = captured(copy.deepcopy(model), memory=memory, plans=tmp_path, time_limit=1)
        fitted(tokens).backward()
        return fitted.plan

    loose = made(None)
    budget = int(0.8 * loose.peak)
    tight = made(budget)
    (of_loose,) = tmp_path.glob("*-all.json.gz")
    (of_tight,) = tmp_path.glob(f"*-{budget}.json.gz")
    content = of_tight.read_bytes()
    of_tight.write_bytes(of_loose.read_bytes())
    assert made(budget).peak <= budget
    for damaged in (b"", gzip.compress(b"[" * 100_000), content[: len(content) // 2]):
        of_tight.write_bytes(damaged)
        with pytest.warns(RuntimeWarning, match="can't be used and is made again"):
            assert kept(of_tight) is None
    with pytest.warns(RuntimeWarning, match="can't be used and is made again"):
        assert made(budget).peak == tight.peak
    again = kept(of_tight)
    assert again is not None
    assert again.peak == tight.peak
