"""What the user wishes of every plan: modules whose results stay or that run once, and gradients that go at once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from live_cases import equal, outcome, profiled, share
from torch import nn

from pebbling.torch import fit

UNSEEN = 2**16
"""What torch allocates for lists of sizes, which the profiler counts and no plan knows of."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(x)
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.same = self.layers[0].attn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def replayed(of: float = 0.6, **wishes: Any) -> set[str]:
    """Modules whose operations the plan runs again, once its bits were found right."""
    model, batch = net(), (torch.randn(192, 32),)
    theirs = copy.deepcopy(model)
    fitted = fit(model, memory=share(model, batch, of), time_limit=1, **wishes)
    for seed in range(3):
        assert equal(outcome(fitted, model, batch, seed), outcome(theirs, theirs, batch, seed))
    nodes = {node.name: node for node in fitted.plan.graph.nodes}
    return {nodes[name].module for name in fitted.plan.replayed}


def test_modules_run_once_where_the_user_says_so() -> None:
    assert any(".mlp" in each for each in replayed())
    for wish in ("keep", "never_replay"):
        found = replayed(0.8, **{wish: ["*.mlp.1", "layers.2"]})
        assert found
        assert not any(each.endswith("mlp.1") or each.startswith("layers.2") for each in found)
    # By the second of its names.
    assert any(each.startswith("layers.0.attn") for each in replayed(0.9, keep=["*.mlp"]))
    assert not any(each.startswith("layers.0.attn") for each in replayed(keep=["layers.1.attn"], never_replay=["same"]))


@pytest.mark.parametrize("argument", ["keep", "never_replay"])
def test_wishes_that_match_nothing_are_refused(argument: str) -> None:
    with pytest.raises(
        ValueError, match=rf"{argument} has '\*\.attention', which matches no module of Net: .*'layers'"
    ):
        fit(net(), memory="1MB", **{argument: ["*.attn", "*.attention"]})
    with pytest.raises(ValueError, match=rf"give a list .*{argument}=\['layers'\]"):
        fit(net(), memory="1MB", **{argument: "layers"})
    with pytest.raises(ValueError, match="a function has none"):
        fit(torch.tanh, memory="1MB", **{argument: ["layers"]})
    with pytest.raises(ValueError, match="only the default, 'eager'"):
        fit(net(), memory="1MB", backend="captured", **{argument: ["layers"]})


def training(run: Any, model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> int:
    """The peak of one step with its update."""

    def step() -> None:
        run(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return profiled(step)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_gradients_that_go_as_they_come_are_bounded_with_all_else(kind: Any) -> None:
    model, batch = net(), torch.randn(512, 32)
    theirs = copy.deepcopy(model)
    mine, other = kind(model.parameters(), lr=1e-2), kind(theirs.parameters(), lr=1e-2)
    training(theirs, theirs, other, batch)
    plain = training(theirs, theirs, other, batch)
    memory = int(0.5 * plain)
    fitted = fit(model, memory=memory, optimizer=mine, time_limit=1)
    peaks = [training(fitted, model, mine, batch) for _ in range(4)]
    for _ in range(2):
        training(theirs, theirs, other, batch)
    assert equal(model.parameters(), theirs.parameters())
    # The state of an optimizer comes in the first step, and stays.
    state = sum(each.nbytes for state in mine.state.values() for each in state.values())
    assert peaks[0] <= memory + state + UNSEEN
    assert max(peaks[1:]) <= memory + UNSEEN
    assert all(each.grad is None for each in model.parameters())


def test_what_an_update_would_change_is_not_run_again_after_it() -> None:
    class Early(nn.Module):
        """The second branch's gradient comes first, but what the first one needs was made of its weight."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(4):
                x = torch.tanh(self.first(x))
            scale = torch.sigmoid(torch.tanh(self.second(x.detach())).detach())
            y = torch.cos(x) * scale
            return y.square().mean() + self.second(y.detach()).square().mean()

    torch.manual_seed(0)
    model, batch = Early(), torch.randn(256, 32)
    theirs = copy.deepcopy(model)
    mine, other = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, theirs))
    memory = int(0.6 * training(copy.deepcopy(theirs), theirs, other, batch))
    theirs.load_state_dict(model.state_dict())
    fitted = fit(model, memory=memory, optimizer=mine, time_limit=1)
    for _ in range(4):
        training(fitted, model, mine, batch)
        training(theirs, theirs, other, batch)
        assert equal(model.parameters(), theirs.parameters())
    assert fitted.plan.replayed


def test_parameters_that_are_read_after_their_update_are_refused() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(x @ self.weight.data)
            return (y @ self.weight).square().mean()

    model = Hidden()
    fitted = fit(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match="has been updated by then: leave out optimizer="):
        fitted(torch.randn(4, 64, requires_grad=True)).backward()


def test_optimizers_of_something_else_and_of_other_backends_are_refused() -> None:
    model = net()
    with pytest.raises(ValueError, match="trains no parameter of Net"):
        fit(model, optimizer=torch.optim.SGD(net().parameters(), lr=0.1))
    with pytest.raises(ValueError, match="only the default, 'eager'"):
        fit(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), backend="inductor")
    with pytest.raises(TypeError, match=r"takes an optimizer of torch\.optim, not int"):
        fit(torch.tanh, optimizer=3)  # type: ignore[arg-type]


def test_an_optimizer_that_is_given_twice_steps_once_and_a_copy_has_none() -> None:
    model, batch = net(), torch.randn(8, 32)
    theirs = copy.deepcopy(model)
    mine, other = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, theirs))
    fit(model, optimizer=mine)
    fitted = fit(model, optimizer=mine)
    average = copy.deepcopy(fitted)
    before = [each.detach().clone() for each in average.parameters()]
    average(batch).backward()
    assert equal(average.parameters(), before)
    for run, each in ((fitted, mine), (theirs, other)):
        run(batch).backward()
        each.step()
    assert equal(model.parameters(), theirs.parameters())
