"""Small models of the kinds that people train in eager mode, which no tracer takes whole, and how they are compared."""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Batch = tuple[Any, ...]
Made = tuple[nn.Module, Batch]
ROWS, WIDTH = 192, 32


class Body(nn.Module):
    """Some layers of one width."""

    def __init__(self, depth: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))


class Branching(Body):
    """Goes one way or the other by what it sees, and logs it."""

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        for place, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if x[0, 0] + shift > 0:
                logging.getLogger("live").debug("layer %d: %f", place, x.mean().item())
                x = functional.gelu(x) * 2
            else:
                x = torch.sin(x)
        return x.square().mean()


class Times(torch.autograd.Function):
    """A function with a derivative of its own, that saves an input and a result."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y * x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, y = ctx.saved_tensors
        return gradients[0] * (y * x + y)


class Custom(Body):
    """Custom functions, with forward and backward hooks on inner modules."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.register_forward_hook(lambda module, given, result: result * 1.5)
        for layer in self.layers[1:]:
            layer.register_full_backward_hook(lambda module, into, out: (into[0] * 2,) if into[0] is not None else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = Times.apply(torch.tanh(layer(x)))
        return x.square().mean()


class InPlace(nn.Module):
    """Convolutions, sums and dropout written in place, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(6, 6, 3, padding=1) for _ in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm2d(6) for _ in range(5))
        self.register_buffer("seen", torch.zeros(6))
        self.drop = nn.Dropout(0.2, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for place, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            y = norm(layer(x))
            if place % 2:
                y += x
            y = functional.relu(y, inplace=True)
            z = torch.sigmoid(y) * 2
            z.mul_(3).add_(y)
            x = self.drop(z)
            self.seen += x.detach().mean((0, 2, 3))
            x = x / (1 + self.seen.abs().max())
        return x.square().mean()


class Routed(nn.Module):
    """A mixture of experts: each gets the rows that its gate sends there, as many as they are."""

    def __init__(self, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
            result = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows, places = torch.where(chosen == number)
                result.index_add_(0, rows, expert(x[rows]) * weights[rows, places, None])
            x = x + result
        return x.square().mean()


class Packed(nn.Module):
    """A recurrent network on packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 16, 2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, 64)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.inner(packed)[0], batch_first=True)
        return torch.relu(self.head(padded)).square().mean()


class Attending(nn.Module):
    """Attention with dropout, and a loss over classes: an object comes back, as in libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.1, batch_first=True, norm_first=True) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, 50)

    def forward(self, tokens: torch.Tensor) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(x)
        return Output(functional.cross_entropy(scores.flatten(0, 1), tokens.flatten()), scores)


class Output:
    """A loss beside something that the caller may keep."""

    def __init__(self, loss: torch.Tensor, scores: torch.Tensor) -> None:
        self.loss, self.scores = loss, scores


class Foreign(Body):
    """Writes into tensors behind torch's back, by NumPy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
            mask = torch.empty(x.shape)
            mask.numpy()[...] = 0.5
            ones = torch.ones(x.shape)
            ones.numpy()[::2] = 3.0
            x = x * mask * ones
        return x.square().mean()


def made(kind: Callable[[], nn.Module], *batch: Any) -> Callable[[], Made]:
    """A case by the name of its class."""

    def case() -> Made:
        torch.manual_seed(0)
        return kind(), tuple(each() if callable(each) else each for each in batch)

    case.__name__ = kind.__name__.lower()
    return case


def rows() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH)


LIVE = [
    made(Branching, rows),
    made(Custom, rows),
    made(InPlace, lambda: torch.randn(6, 6, 16, 16)),
    made(Routed, rows),
    made(Packed, lambda: torch.randn(12, 20, 8), lambda: torch.randint(5, 21, (12,))),
    made(Attending, lambda: torch.randint(50, (6, 24))),
    made(Foreign, rows),
]


def loss_of(result: Any) -> torch.Tensor:
    return result.loss if isinstance(result, Output) else result


def outcome(run: Any, model: nn.Module, batch: Batch, seed: int = 1) -> list[torch.Tensor | None]:
    """Loss, gradients, buffers and the state of the generator after one step."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    loss = loss_of(run(*batch))
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    buffers = [buffer.clone() for buffer in model.buffers()]
    return [loss.detach(), *gradients, *buffers, torch.get_rng_state()]


def equal(mine: Iterable[torch.Tensor | None], theirs: Iterable[torch.Tensor | None]) -> bool:
    """Whether two outcomes are the same, bit for bit."""
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(mine, theirs, strict=True)
    )


def twins(case: Callable[[], Made]) -> tuple[nn.Module, nn.Module, Batch]:
    """The model twice, and a batch."""
    model, batch = case()
    return model.train(), copy.deepcopy(model).train(), batch


def profiled(call: Callable[[], object]) -> int:
    """The peak above the start of what a call allocates on the CPU, by torch's own profiler."""
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
        call()
    events = profile.profiler.kineto_results.events()
    level = peak = 0
    for _, bytes in sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]"):
        level += bytes
        peak = max(peak, level)
    return peak


def taken(run: Any, model: nn.Module, batch: Batch) -> int:
    """The peak of one step."""
    model.zero_grad(set_to_none=True)

    def step() -> None:
        loss_of(run(*batch)).backward()

    return profiled(step)


def share(model: nn.Module, batch: Batch, of: float) -> int:
    """A budget: the gradients of the parameters, and a share of what a step takes beside them."""
    mine = copy.deepcopy(model)
    whole = taken(mine, mine, batch)
    gradients = sum(each.numel() * each.element_size() for each in model.parameters())
    return int(gradients + of * (whole - gradients))
