"""Functions with plain loops over tensors: decorated they give the loss and the gradients that they give without."""

# The programs are what people write: unused loop variables and late closures belong to them.
# ruff: noqa: B007

from __future__ import annotations

import gc
import importlib.util
import linecache
import os
import re
import sys
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import tensor_loops
import torch
from tensor_numpy import CAREFUL, FLOAT, NUMPY
from torch import nn

import pebbling as pb
from pebbling.chain.binomial import advances
from pebbling.torch import Tracked


def shared(name, namespace):
    """A module of the tests of NumPy programs, with another library in place of NumPy."""
    path = Path(__file__).parents[1] / "source" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tensor_{name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.np = namespace
    return module


constructs = shared("construct_programs", NUMPY)
random_programs = shared("random_programs", CAREFUL)
PROGRAMS = constructs.PROGRAMS
OPTIONS = [
    {"slots": 1},
    {"slots": 2},
    {"slots": 3},
    {"slots": 40},
    {},
    {"memory": "4MiB"},
    {"slots": 2, "verify": "all"},
]
GENERATOR = torch.Generator().manual_seed(7)
X, A, B = (torch.randn(shape, generator=GENERATOR, dtype=FLOAT) for shape in (6, 6, (4, 6)))
SUMMED_APART = {
    "any_start_and_step",
    "tuple_and_starred_targets",
    "break_and_else",
    "return_from_nested_loops",
    "three_deep",
    "exception_out_of_nested_loops",
    "collected_and_used_twice_by_the_next_step",
    "collected_again_and_again",
    "constant_that_an_inner_loop_carries",
    "constants_used_after_the_loop",
}
"""Programs with a tensor that is used in a loop, and outside of it or in another one as well."""
REFUSED_BY_TORCH = {
    "augmented_and_slices",
    "written_array_is_the_argument",
    "no_iterations",
    "rows_written_through_the_target",
}
"""Programs that write into what autograd has saved, into leaves or into rows: they can't be differentiated at all."""


def given():
    return [(X * 1).requires_grad_(), (A * 0.2 + 0.7).requires_grad_(), (B * 0.3).requires_grad_()]


def total(value):
    return value[0] + value[1] if isinstance(value, tuple) else value


def differentiated(function):
    inputs = given()
    value = total(function(*inputs))
    value.backward()
    return value.detach(), [one.grad for one in inputs]


def alike(one, two, exact=True):
    if one is None or two is None:
        return one is two
    return torch.equal(one, two) if exact else torch.allclose(one, two, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_loss_and_gradients_are_those_of_the_plain_function(function):
    name = function.__name__
    if name in REFUSED_BY_TORCH or name == "written_after_the_loop":
        refusal = "in-?place" if name in REFUSED_BY_TORCH else "modified by an inplace operation"
        for one in [pb.checkpoint(slots=2)(function), *([function] if name in REFUSED_BY_TORCH else [])]:
            with pytest.raises(RuntimeError, match=refusal):
                differentiated(one)
        return
    value, grads = differentiated(function)
    for options in OPTIONS:
        through = pb.checkpoint(**options)(function)
        found, others = differentiated(through)
        assert torch.equal(found, value)
        exact = [alike(one, two) for one, two in zip(others, grads)]
        assert all(exact) or name in SUMMED_APART
        assert all(alike(one, two, exact=False) for one, two in zip(others, grads))
    inputs = given()
    found = torch.autograd.grad(total(through(*inputs)), inputs, allow_unused=True)
    assert all(alike(one, two, exact=name not in SUMMED_APART) for one, two in zip(found, grads))
    with torch.no_grad():
        plain = total(through(*given()))
    assert torch.equal(torch.as_tensor(plain), value)


def written_in_parts(x, a, b):
    u = x.clone()
    for i in range(11):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0] = u[1].clone()
        u *= 0.99
        u[::2], u[-1] = (u + a)[::2], u[0].clone()
    return (u * 0.5).sum()


def written_under_two_names(x, a, b):
    y = x * 1.0
    z = y
    for i in range(5):
        y += a + z.clone()
        y[i] = a[i]
    return (z * 0.5).sum() + y.sum()


def without_a_step(x, a, b):
    y = x * 1.0
    z = y
    for i in range(0):
        y = y * 100
        z += 1
    y += 1
    return (x + y).sum() + z.sum()


def rows_written_by_number(x, a, b):
    g = b * 1.0
    for i in range(4):
        g[i] += x
        g[i, 0] = 1.0
    return (g * 0.5).sum()


@pytest.mark.parametrize(
    "function",
    [
        written_in_parts,
        written_under_two_names,
        without_a_step,
        rows_written_by_number,
    ],
)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_writing_in_place_means_what_it_means(function, options):
    value, grads = differentiated(function)
    found, others = differentiated(pb.checkpoint(**options)(function))
    assert torch.equal(found, value)
    assert all(map(alike, others, grads))


def outcome(make, transform):
    """The loss, the gradients (or values, of buffers) and the next random number of a case."""
    torch.manual_seed(0)
    loss, tensors = make(transform)
    torch.manual_seed(1)
    value = loss()
    value.backward()
    found = [value.detach(), torch.rand(2)]
    found += [one.detach().clone() if one.grad is None else one.grad for one in tensors]
    tensor_loops.GAIN.grad = None
    return found


@pytest.mark.parametrize("make", tensor_loops.CASES, ids=lambda make: make.__name__)
def test_everything_that_torch_adds(make):
    expected = outcome(make, lambda function: function)
    for options in OPTIONS:
        found = outcome(make, pb.checkpoint(**options))
        assert len(found) == len(expected) > 2
        assert all(map(torch.equal, found, expected)), options


class Gate(nn.Module):
    """Has a parameter, and a buffer that every call updates."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.2, 0.8, 4, dtype=FLOAT))
        self.register_buffer("seen", torch.zeros(4, dtype=FLOAT))

    def forward(self, x):
        self.seen.add_(x.detach())
        return x * self.gain


GATE, NET = Gate(), nn.Linear(4, 4, dtype=FLOAT)
LIBRARY = SimpleNamespace(
    **vars(CAREFUL),
    gate=GATE,
    net=NET,
    drop=lambda x: nn.functional.dropout(x, 0.3),
    no_grad=torch.no_grad,
    where=torch.where,
)


class TensorMaker(random_programs.Maker):
    """Random programs for tensors, whose strides are never negative, with modules and modes."""

    def view(self, name):
        return self.pick(f"{name}[...]", f"{name}.view(4)", f"{name}.flip(0)")

    def simple(self):
        if self.random.random() < 0.6:
            return super().simple()
        name, other, value = self.name(), self.name(), self.expression(1)
        return self.pick(
            f"{name}.mul_(0.9)",
            f"{name}.add_({other}.clone())",
            f"{name}[0].add_(1.0)",
            f"{name}.clamp_(-2, 2)",
            f"{name} = {other}.detach()",
            f"{name} = {other}.clone().mul_(0.5)",
            f"{name} = np.net({value})",
            f"{name} = np.gate({value})",
            f"{name} = np.drop({value})",
            f"{name} = np.where({other} > 0, {value}, {name})",
            f"{name} = np.net({other}) if {other}.requires_grad else {other} * 0.5",
            f"with np.no_grad(): {name} = {value}",
            f"with np.no_grad(): {name}.mul_(0.5)",
            f"k = int({name}.detach().sum()) % 3",
            f"out.append({name}[1:])",
            "o.p = np.gate(o.p)",
            f"for layer in [np.net, np.gate]: {name} = layer({name})",
        )


def judged(seed):
    """How a random program fares: the same, refused, or what went wrong."""
    source = TensorMaker(Random(seed)).source()
    name = f"<random tensors {seed}>"
    starts = [Random(place).sample(range(-9, 10), 4) for place in (1, 2, 3)]

    def run(transform):
        x, a, b = (torch.tensor(one, dtype=FLOAT) / 10 for one in starts)
        inputs = [x.requires_grad_(), a.requires_grad_(), torch.stack([b, b * 0.5]).requires_grad_()]
        leaves = [*inputs, *NET.parameters(), GATE.gain]
        for one in leaves:
            one.grad = None
        GATE.seen.zero_()
        torch.manual_seed(seed)
        try:
            value = transform(function)(*[one * 1.0 for one in inputs])
            value.backward()
        except Exception as error:
            return error
        grads = [torch.zeros(()) if one.grad is None else one.grad for one in leaves]
        return [value.detach(), GATE.seen.clone(), torch.rand(2), *grads]

    options = [*OPTIONS[:4], {"memory": "64MiB"}][seed % 5]
    try:
        function = random_programs.compiled(source, name, LIBRARY)
        plain, found = run(lambda function: function), run(pb.checkpoint(**options))
    finally:
        linecache.cache.pop(name, None)
    if isinstance(found, pb.PebblingError) or any("inplace" in str(one) for one in (plain, found)):
        return "refused"
    if isinstance(plain, Exception) or isinstance(found, Exception):
        return "same" if type(plain) is type(found) else f"{plain!r} became {found!r}"
    if all(torch.equal(one, two) for one, two in zip(plain, found)):
        return "same"
    same = all(map(torch.equal, plain[:3], found[:3]))
    close = all(torch.allclose(one, two, rtol=1e-10, atol=1e-12) for one, two in zip(plain, found))
    return "rounding" if same and close else f"{plain} became {found}"


def test_random_programs_are_right_or_refused():
    """Rounding: constants of one loop that another one, or the code after it, uses as well."""
    fared = Counter(judged(seed) for seed in range(70))
    assert set(fared) <= {"same", "rounding", "refused"}
    assert fared["same"] >= 40
    assert fared["rounding"] <= 10


REFUSED = []
TABLE = torch.ones(6)
DRAWS = torch.Generator()


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


class Opaque:
    def __init__(self, value):
        self.value = value

    def __deepcopy__(self, memo):
        import copy

        return Opaque(copy.deepcopy(self.value, memo))

    def times(self, x):
        return x * self.value


@pytest.mark.parametrize(("function", "words"), REFUSED)
@pytest.mark.parametrize("options", [{"slots": 2}, {"memory": "4MiB"}], ids=str)
def test_it_is_refused_with_file_and_line(function, words, options):
    def attempt():
        x, a, b = given()
        pb.checkpoint(**options)(function)(x * 1.0, a, b).backward()

    with pytest.raises(pb.PebblingError, match=words) as found:
        attempt()
    place = re.search(r"test_torch_source\.py:(\d+)", str(found.value))
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
    with pytest.raises(pb.SourceError, match=r"test_torch_source\.py:\d+ uses tensors .* can't be found from outside"):
        differentiated(pb.checkpoint(slots=2)(module_made_in_the_loop))


def test_a_tensor_that_the_loop_needs_must_not_be_written_into_before_backward():
    x, a, b = given()
    c = a * 1.0
    value = pb.checkpoint(slots=2)(constructs.range_loop)(x, c, b)
    c += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def decay(x, a, steps):
    for i in range(steps):
        x = torch.sin(x * a)
    return x


def test_the_way_back_can_be_taken_twice_and_second_derivatives_are_refused():
    x, a, _ = given()
    value = pb.checkpoint(slots=2)(decay)(x, a, 9).sum()
    first = torch.autograd.grad(value, [x, a], retain_graph=True)
    second = torch.autograd.grad(value, [x, a])
    assert all(map(torch.equal, first, second))
    (grad,) = torch.autograd.grad(pb.checkpoint(slots=2)(decay)(x, a, 9).sum(), x, create_graph=True)
    with pytest.raises(pb.PebblingError, match="twice in reverse"):
        grad.sum().backward()
    with pytest.raises(pb.PebblingError, match=r"transform of torch\.func"):
        torch.func.grad(lambda x: pb.checkpoint(slots=2)(decay)(x, A, 9).sum())(X)


def test_without_gradients_a_loop_is_a_plain_one():
    calls = []

    def f(x, seen):
        for i in range(6):
            x = torch.sin(x)
            seen(i)
        return x

    with torch.no_grad():
        pb.checkpoint(slots=2)(f)(given()[0], calls.append)
    with torch.inference_mode():
        pb.checkpoint(slots=2)(f)(X, calls.append)
    assert calls == [*range(6)] * 2


def test_steps_are_evaluated_as_often_as_the_plan_says(tmp_path):
    file = os.open(tmp_path / "calls", os.O_CREAT | os.O_WRONLY)

    def f(x):
        for i in range(100):
            os.write(file, b".")
            x = torch.sin(x)
        return x.sum()

    x = torch.rand(40_000, requires_grad=True)
    pb.checkpoint(schedule=pb.Revolve(100, 5))(f)(x).backward()
    os.close(file)
    assert (tmp_path / "calls").stat().st_size == 100 + advances(100, 5)


def draws(x):
    for i in range(5):
        x = x * torch.rand(6, generator=DRAWS, dtype=FLOAT)
    return x.sum()


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_global_generators_and_objects_that_copy_themselves_are_carried(slots):
    def copies(x):
        opaque = Opaque(x * 2.0)
        for i in range(4):
            x = opaque.times(x)
        return x.sum()

    for f in (draws, copies):
        grads = []
        for function in (f, pb.checkpoint(slots=slots)(f)):
            DRAWS.manual_seed(3)
            x = torch.linspace(0.1, 1.0, 6, dtype=FLOAT, requires_grad=True)
            function(x * 1.0).backward()
            grads.append((x.grad, torch.rand(1, generator=DRAWS)))
        assert torch.equal(grads[0][0], grads[1][0])
        assert torch.equal(grads[0][1], grads[1][1])


def spread(u, a, steps):
    for i in range(steps):
        u = u + 0.1 * a * (torch.roll(u, 1) - u)
    return u


def spread_in_place(u, a, steps):
    u = u * 1.0
    for i in range(steps):
        u[1:-1] += 0.1 * a[1:-1] * (u[2:] - 2 * u[1:-1] + u[:-2]).clone()
    return u


def peak(function, steps=60, size=30_000):
    u, a = torch.rand(size, requires_grad=True), torch.rand(size, requires_grad=True)
    gc.collect()
    with Tracked() as memory:
        function(u, a, steps).sum().backward()
    return memory.peak / (u.numel() * u.element_size())


@pytest.mark.parametrize("function", [spread, spread_in_place])
def test_memory_follows_the_slots_not_the_length(function):
    assert peak(function) > 60
    through = pb.checkpoint(slots=5)(function)
    assert peak(through) < 5 + 14
    assert peak(through, 120) <= peak(through, 60) + 1


def test_explain_says_what_a_loop_of_tensors_will_take():
    u, a = torch.rand(30_000), torch.rand(30_000)
    (loop,) = pb.explain(pb.checkpoint(schedule=pb.Revolve(60, 5))(spread), u, a, 60).loops
    assert loop.checkpointed
    assert (loop.steps, loop.state_bytes, loop.slots) == (60, 120_000, 5)
    assert loop.forwards == 60 + advances(60, 5)
    measured = peak(pb.checkpoint(schedule=pb.Revolve(60, 5))(spread)) * 120_000
    assert 0.8 * measured < loop.peak < 1.5 * measured


def spread_in_rounds(u, a, steps):
    for i in range(6):
        for j in range(steps // 6):
            u = u + 0.1 * a * torch.sin(torch.roll(u, 1) - u)
        u = u * 0.99
    return u


@pytest.mark.parametrize("memory", [27, 40, 80])
def test_a_budget_in_bytes_is_kept_by_loops_inside_of_loops(memory):
    size = 30_000 * 4
    assert peak(pb.checkpoint(memory=memory * size)(spread_in_rounds)) <= memory


@pytest.mark.parametrize("function", [spread, spread_in_place])
def test_a_budget_in_bytes_is_kept(function):
    size = 30_000 * 4
    with pytest.raises(pb.BudgetError) as refusal:
        peak(pb.checkpoint(memory="100KB")(function))
    least = refusal.value.minimum
    assert least < 25 * size
    for budget in (least, least + 6 * size, least + 30 * size):
        # What the function makes before its loop is not the loop's.
        own = size if function is spread_in_place else 0
        assert peak(pb.checkpoint(memory=budget)(function)) * size <= budget + own
