"""A fitted model to the frameworks that take it: its name, its signature, a forward in place of its own, its end."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import weakref
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

from pebbling.torch import fit


class Model(nn.Module):
    """Says of itself what frameworks ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None, *, scale: float = 1.0) -> torch.Tensor:
        """The loss."""
        if x.shape[0] == 3:
            raise ValueError("no batches of three")
        return scale * self.body(x).square().mean()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def step(run: Any, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    loss = run(x)
    loss.backward()
    return [loss.detach(), *(gradient.clone() for gradient in gradients(model))]


def same(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs))


def test_name_and_signature_are_those_of_the_model() -> None:
    fitted = fit(Model(), memory="1MiB")
    kind = type(fitted)
    assert (kind.__name__, kind.__qualname__, kind.__module__) == ("Model", "Model", __name__)
    assert isinstance(fitted, Model)
    assert inspect.signature(fitted.forward) == inspect.signature(Model().forward)
    assert list(inspect.signature(kind.forward).parameters) == ["self", "x", "labels", "scale"]
    assert fitted.forward.__doc__ == "The loss."


def test_the_plan_is_none_before_the_first_call() -> None:
    fitted = fit(Model(), memory="1MiB")
    assert fitted.plan is None
    assert not hasattr(fitted, "something")
    fitted(torch.ones(4, 8)).backward()
    assert fitted.plan is not None
    assert fit(lambda x: x).plan is None


def test_a_forward_in_place_of_its_own_runs_around_it_and_survives_copies() -> None:
    """As accelerate does it, once to wrap and once to unwrap."""
    torch.manual_seed(0)
    model = Model()
    theirs, x = copy.deepcopy(model), torch.randn(4, 8)
    fitted = fit(model, memory="1MiB")
    before = fitted.forward

    @functools.wraps(before.__func__)
    def doubled(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return 2 * before.__func__(self, *args, **kwargs)

    fitted.forward = MethodType(doubled, fitted)
    expected = step(lambda x: 2 * theirs(x), theirs, x)
    assert same(step(fitted, model, x), expected)
    assert "forward" not in model.__dict__  # the original's is its own
    assert same(step(model, model, x), step(theirs, theirs, x))
    other = copy.deepcopy(fitted)
    assert same(step(other, other, x), expected)
    assert other.forward.__self__ is other
    unwrapped = fitted.forward.__wrapped__
    assert not hasattr(unwrapped, "__wrapped__")  # who unwraps to the end is left with the fitted one
    fitted.forward = MethodType(unwrapped, fitted)
    assert same(step(fitted, model, x), step(theirs, theirs, x))
    del fitted.forward
    assert fitted.forward == before


def test_a_hook_that_knows_the_fitted_module_is_copied_with_it() -> None:
    fitted = fit(Model(), memory="1MiB")
    fitted.register_forward_hook(functools.partial(keep, fitted))
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        (hook,) = other._forward_hooks.values()
        assert hook.args == (other,)


def keep(module: nn.Module, *_: Any) -> None:
    """A hook."""


def test_errors_of_the_program_come_as_they_are() -> None:
    fitted = fit(Model(), memory="1MiB")
    with pytest.raises(ValueError, match="no batches of three"):
        fitted(torch.ones(3, 8))
    fitted(torch.ones(4, 8)).backward()
    with pytest.raises(ValueError, match="no batches of three"):
        fitted(torch.ones(3, 8))


def test_torch_compile_around_it_leaves_it_as_it_is() -> None:
    torch.manual_seed(0)
    model = Model()
    theirs, x = copy.deepcopy(model), torch.randn(4, 8)
    fitted = fit(model, memory="1MiB")
    compiled = torch.compile(fitted, backend="eager")
    for _ in range(2):
        assert same(step(compiled, model, x), step(theirs, theirs, x))
    assert len(fitted.plans) == 1


def test_a_hundred_models_leave_nothing_behind() -> None:
    alive: list[weakref.ref[Any]] = []
    for _ in range(100):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        fitted = fit(model, time_limit=1)
        if len(alive) < 30:  # capture takes a while
            fitted(torch.ones(2, 4)).sum().backward()
        alive += [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(fitted)]
    del model, fitted
    gc.collect()
    assert [each() for each in alive if each() is not None] == []


def test_attention_with_dropout_under_autocast_has_the_bits_of_eager_mode() -> None:
    """Its derivative is traced, and eager mode's backward pass runs without autocast."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.join = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = self.mix(x).view(4, 9, 3, 2, 8).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
            return self.join(y.transpose(1, 2).reshape(4, 9, 16))

    torch.manual_seed(0)
    model = nn.Sequential(Attention(), Attention())
    theirs, x = copy.deepcopy(model), torch.randn(4, 9, 16)
    fitted = fit(model, memory="60kB", time_limit=1)

    def loss(run: Any) -> Any:
        def half(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return run(x).float().square().mean()

        return half

    assert same(step(loss(fitted), model, x), step(loss(theirs), theirs, x))
