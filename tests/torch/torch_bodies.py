"""Loops with everything that a body may contain: each a parameter list and a function of the loop that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def plain(body: Callable[..., Any], state: Any, steps: Any, *args: Any, **_: Any) -> Any:
    """What a loop stands for."""
    if callable(steps):
        i = 0
        while steps(state, i):
            state = body(i, state, *args)
            i += 1
        return state
    for i in range(steps):
        state = body(i, state, *args)
    return state


def arguments():
    x, a, b = (torch.randn(5, requires_grad=True) for _ in range(3))
    return [x, a, b], lambda run: (run(lambda i, s, a, b: torch.tanh(s * a + b), x, 20, a, b) ** 2).sum()


def dropout():
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 8))
    x = torch.randn(4, 8)
    return list(net.parameters()), lambda run: (run(lambda i, s: s + net(s), x, 20) ** 2).sum()


def batch_norm():
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh())
    x = torch.randn(4, 8)
    return [*net.parameters(), *net.buffers()], lambda run: (run(lambda i, s: s + net(s), x, 20) ** 2).sum()


def a_layer_a_step():
    layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(20)])
    x = torch.randn(4, 8, requires_grad=True)
    parameters = [x, *layers.parameters()]
    return parameters, lambda run: (run(lambda i, s: s + torch.tanh(layers[i](s)), x, 20) ** 2).sum()


def captured_and_computed():
    theta = torch.randn(8, 8, requires_grad=True)
    x = torch.randn(4, 8, requires_grad=True)

    def loss(run):
        w = torch.tanh(theta) / 3
        return (run(lambda i, s: torch.tanh(s @ w + s @ w.T * 0.1) + 0.1 * (s @ w), x, 20) ** 2).sum()

    return [x, theta], loss


def tree_of_arguments():
    theta = torch.randn(8, 8, requires_grad=True)
    x = torch.randn(4, 8)

    def body(i, s, given):
        w = given["w"]
        return torch.tanh(s @ w + s @ w.T * 0.1) + given["scale"] * (s @ w)

    def loss(run):
        return (run(body, x, 20, {"w": torch.tanh(theta) / 3, "scale": 0.1}) ** 2).sum()

    return [theta], loss


def tree_of_states():
    x = torch.randn(8, requires_grad=True)
    z = torch.randn(8, dtype=torch.complex64, requires_grad=True)

    def body(i, s):
        return {
            "x": torch.sin(s["x"]) * s["z"].abs(),
            "z": s["z"] * torch.exp(1j * s["x"]) / 2 + s["same"],
            "count": s["count"] + 1,
            "mask": ~s["mask"],
            "same": s["same"],
            "time": s["time"] + 0.1,
            "number": s["number"] + 1,
        }

    def loss(run):
        first = {"x": x, "z": z, "count": torch.tensor(0), "mask": torch.tensor([True, False]), "same": x * 0.1}
        last = run(body, first | {"time": torch.tensor(0.0), "number": 3}, 20)
        assert last["count"] == 20
        assert last["number"] == 23
        assert not last["time"].requires_grad
        assert torch.equal(last["mask"], first["mask"])
        return (last["x"] ** 2).sum() + last["z"].abs().sum() + last["same"].sum()

    return [x, z], loss


def one_tensor_twice():
    x = torch.randn(8, requires_grad=True)

    def body(i, s):
        a, b = s
        y = torch.sin(a) * b + a * torch.cos(b)
        return (y, y)

    return [x], lambda run: (run(body, (x, x), 20)[0] ** 2).sum()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(8)

    def step(self, i, x):
        x = self.norm(x)
        return x + self.attend(x, x, x)[0]


def method_of_a_module():
    model = Attention()
    x = torch.randn(2, 5, 8)
    return list(model.parameters()), lambda run: (run(model.step, x, 20) ** 2).sum()


def encoder_with_a_fast_path():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    return list(model.parameters()), lambda run: (run(lambda i, x: model(x), x, 20) ** 2).sum()


def recurrent():
    cell = nn.LSTMCell(4, 8)
    given = torch.randn(20, 3, 4, requires_grad=True)

    def loss(run):
        first = torch.zeros(3, 8), torch.zeros(3, 8)
        return (run(lambda i, s, given: cell(given[i], s), first, 20, given)[0] ** 2).sum()

    return [given, *cell.parameters()], loss


def mixed_precision():
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    x, theta = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)

    def body(i, s, w):
        return torch.tanh(s + net(s) + net(s * 0.5) + s @ w + (s * 2) @ w.T).float()

    def loss(run):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(body, x, 20, theta * 2)
        return (y**2).sum()

    return [x, theta, *net.parameters()], loss


def while_it_is_small():
    x, a = torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)
    return [x, a], lambda run: (
        run(lambda i, s, a: s * (1 + 0.3 * a), x, lambda s, i: bool(s.norm() < 50), a) ** 2
    ).sum()


MODELS = [
    arguments,
    dropout,
    batch_norm,
    a_layer_a_step,
    captured_and_computed,
    tree_of_arguments,
    tree_of_states,
    one_tensor_twice,
    method_of_a_module,
    encoder_with_a_fast_path,
    recurrent,
    mixed_precision,
    while_it_is_small,
]
