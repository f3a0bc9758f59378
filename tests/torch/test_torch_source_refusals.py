"""What can't be right of a plain loop over tensors is refused, with file and line."""

# The programs are what people write: unused loop variables and late closures belong to them.
# ruff: noqa: B007

from __future__ import annotations

import re

import pytest
import torch
from tensor_numpy import FLOAT
from torch import nn
from torch_source_programs import alike, constructs, differentiated, given

import pebbling as pb

REFUSED = []
TABLE = torch.ones(6)


def refused(words):
    def note(function):
        REFUSED.append(pytest.param(function, words, id=function.__name__))
        return function

    return note


@refused("shares memory with one of")
def two_views(x, a, b):
    u = x * 1.0
    v = u[2:]
    for i in range(5):
        u += a
        v *= 0.5
    return u.sum() + v.sum()


@refused("a view of another one")
def view_kept_in_the_loop(x, a, b):
    u, v = x * 1.0, a[1:] * 1.0
    for i in range(5):
        u[1:] += v
        v = u[1:]
    return u.sum() + v.sum()


@refused("that the loop leaves behind is a view of one that it may write into, u")
def view_that_the_loop_leaves_behind(x, a, b):
    u, v = x * 1.0, a * 1.0
    for i in range(5):
        v = u[1:].detach()
        u[0] = 2.0
        u += a
    u *= 0.5
    return u.sum() + v.sum()


@refused("appended to a list and written into")
def appended_and_written(x, a, b):
    out, u = [], x * 1.0
    for i in range(5):
        u += a
        out.append(u)
    return sum(out).sum()


@refused("came out of a checkpointed loop together with another one")
def view_from_the_loop_written_after_it(x, a, b):
    u, v = x * 1.0, a * 1.0
    for i in range(5):
        u = u * a
        v = u[1:]
    u += 0.25
    return u.sum() + v.sum()


@refused("a function that the loop calls writes into table")
def callee_writes_into_a_constant(x, a, b):
    table = torch.ones(6)
    for i in range(5):
        filled(table, i)
        x = x * a + table
    return x.sum()


def filled(table, value):
    table.fill_(value)


@refused("needed as it was when steps are run again")
def constant_written_without_gradients(x, a, b):
    c = a * 1.0
    for i in range(5):
        with torch.no_grad():
            c.mul_(0.5)
        x = x * c
    return x.sum()


@refused("needed as it was when steps are run again")
def state_written_without_gradients(x, a, b):
    for i in range(5):
        with torch.no_grad():
            x.mul_(0.5)
        x = torch.sin(x * a)
    return x.sum()


@refused("a tensor of shape \\(6,\\) was written into")
def global_tensor(x, a, b):
    for i in range(5):
        through_the_table()
        x = x * a + TABLE
    return x.sum()


def through_the_table():
    TABLE.add_(1)


@refused("assigns to attributes of net, a module of torch")
def attribute_of_a_module(x, a, b):
    net = nn.Identity()
    for i in range(5):
        net.last = x * a
        x = net(net.last)
    return x.sum()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.sin(x)


@refused("Counting.calls is changed")
def module_that_counts(x, a, b):
    net = Counting()
    for i in range(5):
        x = net(x * a)
    return x.sum()


class Remembering(nn.Module):
    def forward(self, x):
        self.last = x if not hasattr(self, "last") else self.last * x
        return self.last


@refused("can't be found")
def module_that_remembers(x, a, b):
    net = Remembering()
    for i in range(5):
        x = net(x * a)
    return x.sum()


@refused("yields modules of torch")
def modules_from_a_generator(x, a, b):
    net = nn.Sequential(nn.Linear(6, 6, dtype=FLOAT), nn.Tanh())
    for part in net.children():
        x = part(x * a)
    return x.sum()


@refused("yields values that are being differentiated")
def generator_of_differentiated_rows(x, a, b):
    for row in (one * 2 for one in b):
        x = x * a + row
    return x.sum()


@refused("calls backward\\(\\) in its steps")
def training(x, a, b):
    w = torch.ones(6, dtype=FLOAT, requires_grad=True)
    for i in range(4):
        (w * a.detach()).sum().backward()
        x = x * a + w
    return x.sum()


@pytest.mark.parametrize(("function", "words"), REFUSED)
@pytest.mark.parametrize("options", [{"slots": 2}, {"memory": "4MiB"}], ids=str)
def test_it_is_refused_with_file_and_line(function, words, options):
    def attempt():
        x, a, b = given()
        pb.checkpoint(**options)(function)(x * 1.0, a, b).backward()

    with pytest.raises(pb.PebblingError, match=words) as found:
        attempt()
    place = re.search(r"source_refusals\.py:(\d+)", str(found.value))
    assert place is not None
    code = function.__code__
    assert code.co_firstlineno <= int(place[1]) <= max(line for _, _, line in code.co_lines() if line is not None)


def module_made_in_the_loop(x, a, b):
    net = nn.Identity()
    for i in range(4):
        x = net(x * a)
        net = nn.Linear(6, 6, dtype=FLOAT)
    return x.sum()


def test_parameters_that_are_made_in_a_loop_are_no_constants_of_it():
    """Where the tape of every step is kept, they are those of the plain run; a replay would make others."""
    torch.manual_seed(3)
    expected = differentiated(module_made_in_the_loop)
    torch.manual_seed(3)
    found = differentiated(pb.checkpoint(memory="4MiB")(module_made_in_the_loop))
    assert torch.equal(found[0], expected[0])
    assert all(map(alike, found[1], expected[1]))
    with pytest.raises(pb.SourceError, match=r"source_refusals\.py:\d+ uses tensors .* can't be found from outside"):
        differentiated(pb.checkpoint(slots=2)(module_made_in_the_loop))


def test_a_tensor_that_the_loop_needs_must_not_be_written_into_before_backward():
    x, a, b = given()
    c = a * 1.0
    value = pb.checkpoint(slots=2)(constructs.range_loop)(x, c, b)
    c += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()
