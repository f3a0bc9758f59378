"""The live engine keeps its budget: in the recorded step, in planned ones, in the smallest that it names."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from live_cases import LIVE, WIDTH, Branching, Made, equal, loss_of, made, outcome, rows, share, taken, twins
from torch import nn

from pebbling.errors import BudgetError, ReplayError
from pebbling.torch import fit
from pebbling.torch.models.live import room
from pebbling.torch.models.live.away import Away
from pebbling.torch.models.live.ledger import Ledger

# The profiler counts every list of sizes that torch keeps on the way, which no plan knows of.
UNSEEN = 2**16


def least(model: nn.Module, batch: Any) -> int:
    """The smallest budget, as the refusal of an impossible one names it."""
    tried = copy.deepcopy(model)
    fitted = fit(tried, memory=1, time_limit=1)
    with pytest.raises(BudgetError) as refused:
        outcome(fitted, tried, batch)
    return int(refused.value.minimum or 0)


@pytest.mark.parametrize("case", LIVE, ids=lambda case: case.__name__)
def test_the_smallest_budget_works_from_the_first_step_on(case: Callable[[], Made]) -> None:
    model, theirs, batch = twins(case)
    memory = least(model, batch)
    whole = taken(copy.deepcopy(theirs), theirs, batch)
    fitted = fit(model, memory=memory, time_limit=1)
    peaks = [taken(fitted, model, batch) for _ in range(3)]
    assert max(peaks) <= memory + UNSEEN
    assert memory <= whole + UNSEEN
    assert equal(outcome(fitted, model, batch)[:1], outcome(fitted, model, batch)[:1]) or "seen" in dict(
        model.named_buffers()
    )


def test_the_plan_says_what_a_step_takes() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(nn.functional.gelu(layer(x)))
            return x.square().mean()

    model, batch = Deep(), (torch.randn(4096, 256),)
    for of in (0.5, 0.75):
        memory = share(model, batch, of)
        fitted = fit(model, memory=memory, time_limit=1)
        first = taken(fitted, model, batch)
        outcome(fitted, model, batch)
        peak = taken(fitted, model, batch)
        assert first <= memory
        assert peak <= memory
        assert abs(peak / fitted.plan.peak - 1) < 0.02


def test_convolutions_and_what_they_take_inside_are_within_the_budget() -> None:
    class Sound(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv1d(32, 32, 9, padding=4) for _ in range(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = nn.functional.gelu(layer(x))
            return x.square().mean()

    model, batch = Sound(), (torch.randn(8, 32, 1024),)
    memory = share(model, batch, 0.7)
    fitted = fit(model, memory=memory, time_limit=1)
    outcome(fitted, model, batch)
    outcome(fitted, model, batch)
    assert fitted.plan.replayed
    assert taken(fitted, model, batch) <= memory


def test_a_step_that_no_plan_knows_stays_within_the_budget() -> None:
    model, _, batch = twins(made(Branching, rows))
    memory = share(model, batch, 0.75)
    fitted = fit(model, memory=memory, time_limit=1)
    for _ in range(2):
        outcome(fitted, model, batch)
    assert taken(fitted, model, (*batch, 5.0)) <= memory + UNSEEN


def test_where_everything_fits_the_program_runs_as_it_is() -> None:
    model, _, batch = twins(made(Branching, rows))
    fitted = fit(model, memory="1GB")
    outcome(fitted, model, batch)
    seen: list[bool] = []
    model.register_forward_hook(
        lambda *_: seen.append(torch._C._autograd._saved_tensors_hooks_is_enabled() and bool(_modes()))
    )
    outcome(fitted, model, batch)
    assert seen == [False]
    assert not fitted.plan.replayed


def _modes() -> int:
    return torch._C._len_torch_dispatch_stack()


def test_without_gradients_nothing_is_planned() -> None:
    model, theirs, batch = twins(made(Branching, rows))
    fitted = fit(model, memory="100kB")
    with torch.no_grad():
        assert torch.equal(fitted(*batch), theirs(*batch))
    assert not fitted.plans


def test_the_room_on_a_gpu_counts_what_kernels_took_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """By logic, with an allocator that says that every product takes as much inside as it is given."""
    freed: list[int] = []

    class Allocator:
        total = 0

        def taken(self) -> int:
            return 0

        def allocated(self) -> int:
            return Allocator.total

    class Moves(Away):
        def free(self, bytes: int) -> int:
            freed.append(bytes)
            return 0

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        Allocator.total += a.nbytes + b.nbytes
        return a @ b

    monkeypatch.setattr(room, "on_gpu", lambda: True)
    monkeypatch.setattr(room, "Device", Allocator)
    a, needs = torch.ones(64, 64), 2 * 64 * 64 * 4
    for memory, times in ((100 * needs, 0), (needs, 2)):
        freed.clear()
        ledger = Ledger()
        step = room.StepRoom(ledger, Moves(), memory)
        for _ in range(2):
            step.run(product, (a, a), {})
        assert ledger.peak == needs
        assert step.inside(product, (a, a), 0) == needs
        assert len([bytes for bytes in freed if bytes > 0]) >= times


class Unsteady(nn.Module):
    """Gives other numbers when it runs again, once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.noise = torch.zeros(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x) + self.noise)
        return x.sum()


def test_a_proof_that_is_asked_for_again_names_the_operation_that_differs() -> None:
    for verify in ("all", 1, None):
        model, _, batch = twins(made(Unsteady, rows))
        fitted = fit(model, memory=share(model, batch, 0.7), time_limit=1, verify=verify)
        outcome(fitted, model, batch)
        outcome(fitted, model, batch)
        loss = fitted(*batch)
        # Behind torch's back: no version tells of it.
        model.noise.numpy()[...] = 1.0
        if verify is None:
            loss.backward()
        else:
            with pytest.raises(ReplayError, match=r"aten\.(tanh|add|addmm) in layers\.\d|in the model gave other bits"):
                loss.backward()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"verify": 0}, "verify=0"),
        ({"verify": "some"}, "verify='some'"),
        ({"verify": "all", "backend": "captured"}, "'eager' only"),
        ({"breaks": "keep"}, "nothing is captured"),
        ({"plans": "folder"}, "backend='captured'"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(nn.Linear(2, 2), memory="1MB", **wrong)


def test_models_and_what_their_steps_made_are_let_go() -> None:
    references = []
    for _ in range(100):
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        fitted = fit(model, memory="400kB")
        x = torch.randn(64, 64)
        fitted(x).sum().backward()
        out = fitted(x)
        references += [weakref.ref(model), weakref.ref(x), weakref.ref(out)]
        del model, fitted, x, out
    gc.collect()
    assert not [each for each in references if each() is not None]


def test_a_step_is_let_go_without_the_garbage_collector() -> None:
    model, _, batch = twins(made(Branching, rows))
    fitted = fit(model, memory=share(model, batch, 0.6), time_limit=1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            outcome(fitted, model, batch)
            given = batch[0].clone()
            there = weakref.ref(given)
            fitted(given).backward()
            del given
            assert there() is None
    finally:
        gc.enable()


def test_threads_train_their_own_models_and_share_one() -> None:
    shared, theirs, batch = twins(made(Branching, rows))
    expected = outcome(theirs, theirs, batch)[0]
    memory = share(shared, batch, 0.7)
    fitted = fit(shared, memory=memory, time_limit=1)
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(4):
                loss = fitted(*batch)
                torch.autograd.grad(loss, list(shared.parameters()))
                if not torch.equal(loss.detach(), expected if expected is not None else loss):
                    wrong.append(loss)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


class Failing(nn.Module):
    """Raises after so many operations, in the forward or the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.at: tuple[str, int] | None = None
        self.error: type[BaseException] = KeyError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for place, layer in enumerate(self.layers):
            x = torch.tanh(layer(x)) * 1.5
            if self.at == ("forward", place):
                raise self.error("here")
            if x.requires_grad:
                x.register_hook(lambda gradient, place=place: self._check(gradient, place))
        return x.square().mean()

    def _check(self, gradient: torch.Tensor, place: int) -> torch.Tensor:
        if self.at == ("backward", place):
            raise self.error("here")
        return gradient


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_errors_anywhere_come_out_and_break_nothing(error: type[BaseException]) -> None:
    model, theirs, batch = twins(made(Failing, rows))
    fitted = fit(model, memory=share(model, batch, 0.7), time_limit=1)
    model.error = error
    for step in range(3):
        for at in [(name, place) for name in ("forward", "backward") for place in (0, 3)]:
            model.at = at
            with pytest.raises(error, match="here"):
                loss_of(fitted(*batch)).backward()
        model.at = None
        assert equal(outcome(fitted, model, batch, step), outcome(theirs, theirs, batch, step))
        assert _modes() == 0
    assert fitted.plan.replayed
