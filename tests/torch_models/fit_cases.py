"""Small models with everything that a model may contain: each gives the model, and its loss as a function of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pebbling.torch import fit

Case = tuple[nn.Module, Callable[[Any], Any]]

# Tests of what is special to captured graphs; what holds for both engines is tested with ``fit`` as it is.
captured: Any = functools.partial(fit, backend="captured")


class Attention(nn.Module):
    """A transformer block on fused attention."""

    def __init__(self, width: int = 16, heads: int = 2, drop: float = 0.0) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(drop)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.first(x)).split(width, dim=2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.drop(self.join(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(functional.gelu(self.up(self.second(x)))))


class GPT(nn.Module):
    """A language model whose output matrix is its embedding."""

    def __init__(self, layers: int = 2, width: int = 16, words: int = 11, drop: float = 0.0, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Attention(width, drop=drop) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(x)
        return functional.cross_entropy(scores.flatten(0, 1), tokens.roll(-1, 1).flatten())


def attention_and_tied_weights() -> Case:
    tokens = torch.randint(11, (3, 7))
    return GPT(), lambda model: model(tokens)


def dropout() -> Case:
    body = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.3))]
    x = torch.randn(6, 16)
    return nn.Sequential(*body), lambda model: model(x).square().mean()


def batch_norm() -> Case:
    body = [
        layer for i in range(3) for layer in (nn.Conv2d(2 if not i else 4, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU())
    ]
    x = torch.randn(3, 2, 6, 6)
    return nn.Sequential(*body), lambda model: model(x).square().mean()


class Views(nn.Module):
    """Slices written in place, transposes, expanded tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.a(x))
        z = y.clone()
        z[:, ::2] *= 2
        z[:, 1].add_(y[:, 0])
        z = functional.relu(self.b(z.t().contiguous().t()), inplace=True)
        w = z.view(2, -1, 8).transpose(0, 1).reshape(-1, 8)
        return (w + z[:1].expand_as(w)).sigmoid_().sum()


def views_and_in_place() -> Case:
    x = torch.randn(4, 8)
    return Views(), lambda model: model(x)


def autocast() -> Case:
    body = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.GELU())]
    x = torch.randn(6, 16)

    def loss(model: Any) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().square().mean()

    return nn.Sequential(*body), loss


class AutocastInside(nn.Module):
    """Half precision for a part, with one weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = torch.tanh(self.a(x))
            x = torch.tanh(self.b(x))
        return functional.gelu(self.a(x.float())).mean()


def autocast_inside() -> Case:
    x = torch.randn(4, 8)
    return AutocastInside(), lambda model: model(x)


def frozen() -> Case:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 8))
    model[2].requires_grad_(False)
    x = torch.randn(5, 8)
    return model, lambda model: model(x).square().mean()


@dataclass
class Answer:
    """Two losses and a number."""

    first: torch.Tensor
    second: torch.Tensor
    count: int


class Several(nn.Module):
    """Several losses in a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Answer:
        h = functional.gelu(self.body(x))
        return Answer(torch.tanh(self.a(h)).square().mean(), self.b(h).logsumexp(1).mean(), x.shape[0])


def several_losses_in_a_dataclass() -> Case:
    x = torch.randn(5, 8)

    def loss(model: Any) -> torch.Tensor:
        answer = model(x)
        assert isinstance(answer, Answer)
        assert answer.count == 5
        return answer.first + 0.5 * answer.second

    return Several(), loss


class Options(nn.Module):
    """Integers, None and keywords in; a dictionary out."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(
        self, x: torch.Tensor, index: torch.Tensor, mask: torch.Tensor | None = None, *, power: int = 1
    ) -> dict[str, Any]:
        h = functional.silu(self.body(x)) ** power
        if mask is not None:
            h = h * mask
        return {"picked": h[index], "all": h, "nothing": None}


def integers_none_and_dictionaries() -> Case:
    x, index = torch.randn(5, 8), torch.tensor([0, 2, 2])
    mask = torch.rand(5, 1) > 0.4

    def loss(model: Any) -> torch.Tensor:
        plain, masked = model(x, index), model(x, index, mask, power=2)
        assert plain["nothing"] is None
        return plain["picked"].sum() + masked["all"].mean()

    return Options(), loss


class Cube(torch.autograd.Function):
    """A function with a derivative of its own, twice the true one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 6 * x * x


class Custom(nn.Module):
    """A custom autograd function between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(Cube.apply(torch.tanh(self.a(x)))).square().mean()


def custom_function() -> Case:
    x = torch.randn(5, 8)
    return Custom(), lambda model: model(x)


def hooks() -> Case:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    model[2].weight.register_hook(lambda gradient: gradient * 3)
    x = torch.randn(5, 8)
    return model, lambda model: model(x).square().mean()


class Residual(nn.Module):
    """A convolution stack with skips over several layers, and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(4))
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = first = self.inward(x)
        for layer in self.body:
            x = x + functional.silu(layer(self.norm(x)))
        return functional.max_pool2d(torch.cat((x, first), 1), 2).square().mean()


def skips() -> Case:
    x = torch.randn(2, 1, 8, 8)
    return Residual(), lambda model: model(x)


def dropout_in_attention() -> Case:
    tokens = torch.randint(11, (3, 7))
    return GPT(drop=0.2, tied=False), lambda model: model(tokens)


class Average(nn.Module):
    """A buffer that follows the activations, changed in place and read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.average: torch.Tensor
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        with torch.no_grad():
            self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return (torch.tanh(y) * self.average).sum()


def changed_buffer() -> Case:
    x = torch.randn(5, 8)
    return Average(), lambda model: model(x)


class Drifting(nn.Module):
    """A buffer that is read, and changed in place when nothing reads it any more but a replay would."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.shift: torch.Tensor
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.body:
            x = torch.tanh(layer(torch.tanh(x)) + self.shift)
        self.shift.mul_(0.5).add_(x.detach().mean(0))
        return x.square().mean()


def buffer_changed_after_use() -> Case:
    x = torch.randn(40, 8)
    return Drifting(), lambda model: model(x)


class Checkpointed(nn.Module):
    """Blocks that are checkpointed already."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.body:
            x = checkpoint(block, x, use_reentrant=False)
        return x.square().sum()


def checkpointed_inside() -> Case:
    x = torch.randn(5, 8)
    return Checkpointed(), lambda model: model(x)


class Noise(nn.Module):
    """Random numbers of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.body(x + torch.randn_like(x)))
        kept = torch.rand(x.shape[0], 1) > 0.5
        return (functional.dropout(y, 0.3) * kept + torch.randint(0, 5, x.shape)).square().sum()


def random_numbers() -> Case:
    x = torch.randn(5, 8)
    return Noise(), lambda model: model(x)


class Unrolled(nn.Module):
    """A recurrent cell, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = (x.new_zeros(x.shape[0], 8), x.new_zeros(x.shape[0], 8))
        for part in x.unbind(1):
            state = self.cell(part, state)
        return state[0].square().sum()


def recurrent() -> Case:
    x = torch.randn(2, 4, 8)
    return Unrolled(), lambda model: model(x)


CASES = (
    attention_and_tied_weights,
    dropout,
    dropout_in_attention,
    batch_norm,
    views_and_in_place,
    autocast,
    autocast_inside,
    frozen,
    several_losses_in_a_dataclass,
    integers_none_and_dictionaries,
    custom_function,
    hooks,
    skips,
    changed_buffer,
    buffer_changed_after_use,
    checkpointed_inside,
    random_numbers,
    recurrent,
)
