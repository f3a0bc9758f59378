"""Functions with plain loops over tensors and everything that PyTorch adds: modules, buffers, generators, modes.

Each is a function that makes ``(f, parameters)``: ``f()`` gives the loss of ``transform(program)`` on fresh inputs.
"""

# The programs are what people write: unused loop variables and late closures belong to them.
# ruff: noqa: B007

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

CASES = []
GAIN = torch.linspace(0.5, 1.5, 8, requires_grad=True)


def case(make):
    CASES.append(make)
    return make


def leaf(*shape, **options):
    return torch.randn(*shape, **options).requires_grad_()


@case
def module(transform):
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    x = leaf(4, 8)

    def f(x, net):
        for i in range(12):
            x = x + net(x) * 0.1
        return (x**2).sum()

    return lambda: transform(f)(x, net), [x, *net.parameters()]


@case
def captured_module(transform):
    cell = nn.LSTMCell(4, 8)
    rows = leaf(10, 3, 4)

    def f(rows):
        h, c = torch.zeros(3, 8), torch.zeros(3, 8)
        for row in rows:
            h, c = cell(row, (h, c))
        return (h**2).sum()

    return lambda: transform(f)(rows), [rows, *cell.parameters()]


@case
def dropout(transform):
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4))
    x = leaf(4, 8)

    def f(x):
        for i in range(9):
            x = torch.tanh(x + net(x)) * (1 + 0.1 * torch.rand(8))
        return x.sum() + torch.rand(())

    return lambda: transform(f)(x), [x, *net.parameters()]


@case
def batch_norm(transform):
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    x = leaf(5, 8)

    def f(x, net):
        for i in range(9):
            x = x + torch.tanh(net(x))
        return (x**2).sum()

    return lambda: transform(f)(x, net), [x, *net.parameters(), *net.buffers()]


@case
def a_batch_norm_a_layer(transform):
    layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)) for _ in range(7)])
    x = leaf(5, 8)

    def f(x):
        for layer in layers:
            x = x + torch.tanh(layer(x))
        return (x**2).sum()

    return lambda: transform(f)(x), [x, *layers.parameters(), *layers.buffers()]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(7)])
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(8)) for _ in range(7)])

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales):
            x = x + torch.tanh(layer(x)) * scale
        for i, layer in enumerate(self.layers):
            x = x * 0.9 + layer(x) * i * 0.01
        return x


@case
def layers_of_a_module(transform):
    net = Net()
    x = leaf(3, 8)
    return lambda: transform(Net.forward)(net, x).sum(), [x, *net.parameters(), *net.buffers()]


@case
def modules_by_turns(transform):
    nets, x = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Tanh()}), leaf(3, 8)

    def f(x):
        net, norm = nets["a"], None
        for i in range(7):
            x = net(x) if norm is None else norm(net(x))
            net = nets["ab"[(i + 1) % 2]]
            norm = nn.functional.normalize if i > 3 else None
        return net(x).sum()

    return lambda: transform(f)(x), [x, *nets.parameters()]


@dataclass
class Solver:
    net: nn.Module
    state: torch.Tensor
    steps: int = 0

    def step(self, by):
        self.state = self.state + by * self.net(self.state)
        self.steps += 1


@case
def object_with_a_module(transform):
    net, x, by = nn.Linear(8, 8), leaf(2, 8), leaf(8)

    def f(x, by):
        solver = Solver(net, x)
        nets = [net, nn.Identity()]
        for i in range(6):
            solver.step(by)
            solver.state = nets[i % 2](solver.state)
        return solver.state.sum() * solver.steps

    return lambda: transform(f)(x, by), [x, by, *net.parameters()]


@case
def generators(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        generator = torch.Generator().manual_seed(4)
        for i in range(8):
            x = torch.sin(x * a + torch.randn(8, generator=generator))
        return x.sum() + torch.randn((), generator=generator)

    return lambda: transform(f)(x, a), [x, a]


@case
def generator_from_outside(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a, generator):
        for i in range(8):
            x = torch.sin(x * a + torch.randn(8, generator=generator))
        return x.sum()

    def run():
        generator = torch.Generator().manual_seed(5)
        return transform(f)(x, a, generator) + torch.randn((), generator=generator)

    return run, [x, a]


@case
def tensors_without_gradients(transform):
    x, a = torch.randn(8), leaf(8)

    def f(x, a):
        clock, count, seen = torch.zeros(()), torch.zeros((), dtype=torch.int64), torch.zeros(8, dtype=torch.bool)
        for i in range(9):
            clock = clock + 0.1
            count += 1
            seen = seen | (x > clock)
            if i > 3:
                x = torch.where(seen, x * a, x + clock)
        assert not clock.requires_grad
        return x.sum() * count + seen.sum()

    return lambda: transform(f)(x, a), [a]


@case
def rows_written_into_a_buffer(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        out = torch.zeros(6, 8)
        for i in range(6):
            x = torch.tanh(x * a)
            out[i] = x
        return (out**2).sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def in_place_methods(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        x = x.clone()
        y = x
        for i in range(6):
            x.mul_(0.9).add_(a)
            x[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
        return (x * 0.5).sum() + y.sum()

    return lambda: transform(f)(x, a), [x, a]


def nudged(values, by):
    values.mul_(by)
    values[0] = 1.0
    return values.sum()


@case
def in_place_in_a_callee(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        x = x * 1.0
        total = 0.0
        for i in range(6):
            total = total + nudged(x, 0.5 + i * 0.1)
        return total + (x + a).sum()

    return lambda: transform(f)(x, a), [x]


@case
def module_level_parameter(transform):
    x = leaf(8)

    def f(x):
        for i in range(7):
            x = torch.tanh(x * GAIN + GAIN)
        return x.sum()

    return lambda: transform(f)(x), [x, GAIN]


@case
def autocast_inside(transform):
    net, x = nn.Linear(8, 8), leaf(4, 8)

    def f(x):
        for i in range(6):
            with torch.autocast("cpu", torch.bfloat16):
                y = net(x) + x @ x.T @ x
            x = torch.tanh(x + y.float())
        return x.sum()

    return lambda: transform(f)(x), [x, *net.parameters()]


@case
def autocast_around(transform):
    net, x = nn.Linear(8, 8), leaf(4, 8)

    def f(x):
        for i in range(6):
            x = torch.tanh(x + net(x) + net(x * 0.5)).float()
        return x

    def run():
        with torch.autocast("cpu", torch.bfloat16):
            y = transform(f)(x)
        return y.sum()

    return run, [x, *net.parameters()]


@case
def switched_off_inside(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        norms = []
        for i in range(6):
            with torch.no_grad():
                norm = x.norm()
                norms.append(norm)
            x = x * a / (norm + 1) + x.detach()
        assert not any(norm.requires_grad for norm in norms)
        return x.sum() + norms[2] + torch.stack(norms).sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def differentiated_late(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        y = torch.ones(8)
        best = None
        for i in range(8):
            y = y * 1.1
            if i > 3:
                y = y * a
            if best is None or y.detach().sum() > best.detach().sum():
                best = y
            x = x + y
        return x.sum() + (best * 0.5).sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def mixed_with_numpy(transform):
    x, table = leaf(8), np.linspace(0, 1, 6)

    def f(x):
        seen, weights = np.zeros(6), []
        for i in range(6):
            seen[i] = table[i] * 2
            weights.append(table[i] + seen.sum())
            x = torch.sin(x * float(weights[-1]))
        return x.sum() * float(seen.sum())

    return lambda: transform(f)(x), [x]


@case
def complex_numbers(transform):
    x, z = leaf(8), leaf(8, dtype=torch.complex64)

    def f(x, z):
        for i in range(6):
            z = z * torch.exp(1j * x) * 0.9
            x = torch.sin(x) * z.abs()
        return x.sum() + z.abs().sum()

    return lambda: transform(f)(x, z), [x, z]


@case
def while_it_is_small(transform):
    x, a = torch.rand(5).requires_grad_(), torch.rand(5).requires_grad_()

    def f(x, a):
        n = 0
        while x.norm() < 50:
            x = x * (1 + 0.3 * a)
            n += 1
        return (x**2).sum() / n

    return lambda: transform(f)(x, a), [x, a]


@case
def views_in_the_state(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        left, right = x[:4], x[4:]
        for i in range(6):
            left, right = torch.sin(right * a[:4]), left.view(2, 2).T.reshape(4) * a[4:]
            both = torch.cat([left, right]).view(2, 4)
            left, right = both
        return left.sum() * right.sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def loops_without_tensors(transform):
    x = leaf(8)

    def f(x):
        count = 0
        for i in range(5):
            count += i
        made = []
        for i in range(3):
            made.append(torch.full((8,), float(i)))
        for one in (torch.ones(8) * k for k in range(4)):
            x = torch.sin(x + one)
        return x.sum() * count + sum(made).sum()

    return lambda: transform(f)(x), [x]


@case
def collected_and_stacked(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        path, last = [], None
        for i in range(9):
            x = torch.tanh(x * a) * x
            path.append(x)
            if i % 3 == 2:
                path.append(last)
            last = x
        return (torch.stack(path) ** 2).sum() + x.sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def forces(transform):
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    x, v = leaf(3, 8), leaf(3, 8)

    def f(x, v):
        for i in range(8):
            (force,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            v = v - 0.1 * force
            x = x + 0.1 * v
        return (x**2).sum()

    return lambda: transform(f)(x, v), [x, v, *list(net.parameters())[:-1]]


@case
def distributions(transform):
    mean, x = leaf(8), leaf(8)

    def f(mean, x):
        normal = torch.distributions.Normal(mean * 2, torch.ones(8))
        for i in range(6):
            x = torch.sin(x + normal.rsample()) + normal.log_prob(x) * 0.01
        return x.sum()

    return lambda: transform(f)(mean, x), [mean, x]


@case
def view_from_before_the_loop(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        u = x * 1.0
        v = u[2:]
        for i in range(6):
            u *= 0.9
            u[3] = a[i]
        return v.sum() + u.sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def written_part_of_another_tensor(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        whole = x * 1.0
        part = whole[2:6]
        for i in range(6):
            part += a[:4]
            part[0] = 1.0
        return (whole * 0.5).sum()

    return lambda: transform(f)(x, a), [x, a]


@case
def numbers_from_tensors(transform):
    x, a = leaf(8), leaf(8)

    def f(x, a):
        sizes = {}
        for i in torch.arange(6):
            x = torch.sin(x * a) + int(i)
            sizes[int(i)] = x.shape, x.dtype, x.detach().sum().item()
            index = torch.argmax(x)
            x = x.index_fill(0, index, sizes[int(i)][2] * 0.01)
        return x.sum() + len(sizes)

    return lambda: transform(f)(x, a), [x, a]


@case
def rows_of_an_embedding(transform):
    table, cell = nn.Embedding(10, 4), nn.GRUCell(4, 6)
    words = torch.tensor([[1, 5], [2, 2], [9, 0], [3, 1]])

    def f(words):
        h = torch.zeros(2, 6)
        outputs = []
        for t, row in enumerate(table(words)):
            h = cell(row, h)
            outputs += [h]
        for h, word in zip(outputs, words):
            h = h * word[:, None]
        return torch.stack(outputs).sum() + h.sum()

    return lambda: transform(f)(words), [*table.parameters(), *cell.parameters()]


@case
def views_of_tensors_without_gradients(transform):
    a, table = leaf(8), torch.arange(16.0).view(2, 8)

    def f(a, table):
        solver, kept, data, part = Solver(nn.Identity(), table * 1.0), [], table * 2.0, None
        for i in range(4):
            kept.append(solver.state[0])
            part = data[1] if part is None else part
            data = data * 0.5 + a
            solver.steps += 1
        assert kept[0].data_ptr() == solver.state.data_ptr()
        return (kept[0] + kept[3]).sum() + (part * data).sum() + solver.state.sum()

    return lambda: transform(f)(a, table), [a]
