"""Gradients that are applied as they come: the bits of a step at the end, and never all gradients at once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pebbling.torch.models.release import Release

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
}


def model() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(*(nn.Sequential(nn.Linear(48, 48), nn.Tanh()) for _ in range(8)), nn.Linear(48, 48))
    made[8].weight = made[3][0].weight  # one parameter in two places
    return made


def train(made: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> list[torch.Tensor]:
    """The loop that people write, with a schedule of learning rates."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(steps):
        loss = made(torch.full((4, 48), 0.1 * step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return [parameter.detach() for parameter in made.parameters()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_bits_are_those_of_a_step_at_the_end(name) -> None:
    plain, released = model(), model()
    optimizer = OPTIMIZERS[name](released.parameters())
    expected = train(plain, OPTIMIZERS[name](plain.parameters()))
    Release(optimizer)
    found = train(released, optimizer)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    again = OPTIMIZERS[name](model().parameters())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # the state is all there


def test_gradients_never_all_exist() -> None:
    def peak(release: bool) -> int:
        torch.manual_seed(0)
        made = nn.Sequential(*(nn.Linear(200, 200) for _ in range(10)))
        optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
        if release:
            Release(optimizer)
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
            made(torch.ones(1, 200)).sum().backward()
        level = most = 0
        for event in sorted(profiler.profiler.kineto_results.events(), key=lambda each: each.start_ns()):
            if event.name() == "[memory]":
                level += event.nbytes()
                most = max(most, level)
        return most

    assert peak(True) < 0.25 * peak(False)


def test_what_uses_gradients_afterwards_is_refused() -> None:
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    release = Release(optimizer)
    made(torch.ones(4, 48)).sum().backward()
    with pytest.raises(RuntimeError, match="has applied and released: clip, scale, log or accumulate"):
        nn.utils.clip_grad_norm_(made.parameters(), 1.0)
    with pytest.raises(RuntimeError, match="applied and released"):
        made(torch.ones(4, 48)).sum().backward()
    with pytest.raises(ValueError, match=r"optimizer\.step\(closure\)"):
        optimizer.step(lambda: 0.0)
    release.close()
    assert "step" not in optimizer.__dict__
    made(torch.ones(4, 48)).sum().backward()
    assert nn.utils.clip_grad_norm_(made.parameters(), 1.0) > 0


def test_optimizers_that_look_at_all_parameters_are_refused() -> None:
    class Own(torch.optim.SGD):
        pass

    parameters = [nn.Parameter(torch.ones(2))]
    for optimizer in (torch.optim.LBFGS(parameters), Own(parameters, lr=0.1)):
        with pytest.raises(ValueError, match="treat each parameter for itself"):
            Release(optimizer)
    hooked = torch.optim.SGD(parameters, lr=0.1)
    hooked.register_step_post_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has step hooks"):
        Release(hooked)
