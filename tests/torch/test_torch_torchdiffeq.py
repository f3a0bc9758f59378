"""torchdiffeq's solvers as checkpointed loops: the bits of keeping every step, for a fraction of the memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchdiffeq import odeint

from pebbling.adapters.torchdiffeq import checkpointed

CALLS = {
    "rk4": {"method": "rk4", "options": {"step_size": 0.05}},
    "euler at the outputs": {"method": "euler"},
    "cubic": {"method": "midpoint", "options": {"step_size": 0.03, "interp": "cubic"}},
    "dopri5": {"method": "dopri5"},
    "bosh3": {"method": "bosh3", "rtol": 1e-4},
}


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, t, y):
        return self.net(y) * torch.cos(3 * t)


def solve(slots, call):
    """The solution, every gradient, and the bytes that the graph of it keeps."""
    torch.manual_seed(0)
    field, y0 = Field(), torch.randn(5, 4, requires_grad=True)
    t = torch.linspace(0, 2, 6).requires_grad_()
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        if slots is None:
            y = odeint(field, y0, t, **call)
        else:
            with checkpointed(slots=slots):
                y = odeint(field, y0, t, **call)
    (y**2).sum().backward()
    return [y.detach(), y0.grad, t.grad, *[p.grad for p in field.parameters()]], sum(kept.values())


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_have_the_same_bits(name):
    want, everything = solve(None, CALLS[name])
    for slots in (1, 3):
        found, kept = solve(slots, CALLS[name])
        assert all(torch.equal(one, two) for one, two in zip(found, want, strict=True))
        # A snapshot holds the state, the outputs, and the coefficients of an adaptive step.
        if name != "euler at the outputs":
            assert kept + slots * 2000 < everything / 2


def test_outside_of_the_context_nothing_changes():
    solve(2, CALLS["rk4"])
    assert solve(None, CALLS["rk4"])[1] > 4 * solve(2, CALLS["rk4"])[1]


def test_what_can_not_be_taken_again_is_refused():
    field = Field()
    field.callback_step = lambda t, y, dt: None
    t, y0 = torch.linspace(0, 1, 3), torch.ones(2, 4)
    with checkpointed(slots=2):
        with pytest.raises(ValueError, match="callback_step can't be checkpointed"):
            odeint(field, y0, t, method="rk4")
        with pytest.raises(ValueError, match="'jump_t' can't be checkpointed"):
            odeint(Field(), y0, t, options={"jump_t": torch.tensor([0.5])})
        with pytest.warns(UserWarning, match="AdamsBashforth keeps every step"):
            odeint(Field(), y0, t, method="explicit_adams")
