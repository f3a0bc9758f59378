"""Random programs of tensor operations, with parameters, views, writes in place, random numbers and statistics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ROWS, WIDTH = 8, 12


class RandomModel(nn.Module):
    """A program of ``length`` operations on values of a few shapes; the same seed gives the same program."""

    def __init__(self, seed: int, length: int = 14) -> None:
        super().__init__()
        self.drawn = random.Random(seed)
        torch.manual_seed(seed)
        self.linear = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=self.drawn.random() < 0.7) for _ in range(3))
        self.norm, self.batch = nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH)
        self.table = nn.Embedding(5, WIDTH)
        self.head = nn.Linear(WIDTH, 7)
        self.scale = nn.Parameter(torch.rand(WIDTH))
        self.program = [self._choose() for _ in range(length)]
        self.ending = self.drawn.choice(["square", "cross_entropy", "several"])

    def _choose(self) -> tuple[Callable[..., torch.Tensor], int, int, float]:
        return (
            self.drawn.choice(OPERATIONS),
            self.drawn.randrange(10**6),
            self.drawn.randrange(10**6),
            self.drawn.random(),
        )

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        values = self.run(x, classes)
        last = values[-1] + values[-2]
        if self.ending == "square":
            return last.square().mean()
        if self.ending == "several":
            return {"loss": last.sin().mean(), "more": (values[-2].mean(), values[len(values) // 2].square().mean())}
        scores = self.head(last)
        return functional.cross_entropy(scores.float(), classes)

    def run(self, x: torch.Tensor, classes: torch.Tensor) -> list[torch.Tensor]:
        """All values of the program."""
        values = [x * self.scale, self.table(classes % 5)]
        for operation, first, second, number in self.program:
            # The latest values most of the time: programs are deep rather than wide.
            one, other = values[-1 - first % min(3, len(values))], values[-1 - second % min(4, len(values))]
            values.append(operation(self, one, other, number))
        return values


class WithoutLoss(RandomModel):
    """The same with large results, whose gradients come from outside in whatever layout."""

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> Any:
        values = self.run(x, classes)
        last = values[-1] + values[-2]
        if self.ending == "square":
            return last, values[-2]
        if self.ending == "several":
            return {"turned": last.t(), "part": values[len(values) // 2][:, ::2], "scores": self.head(last)}
        return self.head(last), last.view(-1), last.sum()


def _viewed(m: Any, a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    return a.view(ROWS // 2, 2, WIDTH).transpose(0, 1).reshape(ROWS, WIDTH) * c


def _written(m: Any, a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    return (a + c).mul_(0.5).add_(b)


def _written_in_part(m: Any, a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    own = a.clone()
    own[1:3] = b[:2] * c
    own[:, 0].mul_(2.0)
    return own


def _split(m: Any, a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    left, right = a.chunk(2, 1)
    return torch.cat([right.tanh(), left * c], 1)


def _attention(m: Any, a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    q, k = (each.view(2, ROWS // 2, 3, WIDTH // 3).transpose(1, 2) for each in (a, b))
    found = functional.scaled_dot_product_attention(q, k, k, is_causal=c < 0.5)
    return found.transpose(1, 2).reshape(ROWS, WIDTH)


def _sorted(m: Any, a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    values, order = a.sort(1)
    return values + b.gather(1, order)


OPERATIONS: list[Callable[..., torch.Tensor]] = [
    lambda m, a, b, c: m.linear[int(3 * c)](a),
    lambda m, a, b, c: m.linear[int(3 * c)](a) + b,
    lambda m, a, b, c: functional.relu(m.linear[int(3 * c)](a)),
    lambda m, a, b, c: m.norm(a + b),
    lambda m, a, b, c: m.batch(a),
    lambda m, a, b, c: functional.relu(m.batch(a)),
    lambda m, a, b, c: functional.dropout(a, c, m.training) + b,
    lambda m, a, b, c: functional.gelu(a) * b,
    lambda m, a, b, c: functional.silu(a),
    lambda m, a, b, c: functional.softmax(a, -1),
    lambda m, a, b, c: torch.where(a > c, a, b),
    lambda m, a, b, c: a.masked_fill(b > 0, c),
    lambda m, a, b, c: a @ (a.T @ b),
    lambda m, a, b, c: a / (1 + b.square()),
    lambda m, a, b, c: a - b.mean(0, keepdim=True),
    lambda m, a, b, c: a.cumsum(0) * c,
    lambda m, a, b, c: functional.leaky_relu(a, 0.1).exp().clamp(max=5.0),
    _viewed,
    _written,
    _written_in_part,
    _split,
    _attention,
    _sorted,
]
