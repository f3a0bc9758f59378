"""What can't be replayed exactly is refused: by name of file and line, with a way out."""

# The programs are what people write: unused loop variables and late closures belong to them.
# ruff: noqa: B007, B023

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import pebbling as pb
from pebbling.source import checkpoint

X, A, B = np.linspace(0.1, 1, 6), np.linspace(0.5, 0.9, 6), np.ones((4, 6)) * 0.3
REFUSED = []
RIGHT = []
LOG: list[int] = []
CACHE: dict[int, int] = {}
TABLE = np.ones(6)
GENERATOR = np.random.default_rng(0)
COUNT = 0


def refused(words):
    def note(function):
        REFUSED.append(pytest.param(function, words, id=function.__name__))
        return function

    return note


def right(function):
    RIGHT.append(function)
    return function


@refused("a generator or coroutine")
def generator(x, a, b):
    for i in range(3):
        x = x * a
        yield x


@refused("the loop changes the global LOG")
def appends_to_a_global(x, a, b):
    for i in range(3):
        LOG.append(i)
        x = x * a
    return np.sum(x)


@refused("the loop changes the global TABLE")
def writes_into_a_global(x, a, b):
    for i in range(3):
        TABLE[0] = i
        x = x * a
    return np.sum(x)


@refused("declared global or nonlocal")
def rebinds_a_global(x, a, b):
    global COUNT
    for COUNT in range(3):
        x = x * a
    return np.sum(x)


@refused("the loop uses k, which an inner function of inner_function_rebinds rebinds")
def inner_function_rebinds(x, a, b):
    k = 0

    def up():
        nonlocal k
        k += 1
        return k

    for i in range(3):
        x = x * a + up() + k
    return np.sum(x)


@refused("the loop binds k, and a function")
def closure_over_what_the_loop_binds(x, a, b):
    k = 1.0

    def scaled(u):
        return u * k

    for i in range(4):
        k = k * 0.5
        x = scaled(x)
    return np.sum(x)


@refused("the loop binds s, and a function or generator")
def generator_over_what_the_loop_binds(x, a, b):
    s = 1
    for k in (s * j for j in range(4)):
        x = x * a + k
        s = s + 1
    return np.sum(x)


@refused("locals\\(\\) reads or binds names")
def sees_all_names(x, a, b):
    for i in range(3):
        x = x * a
    return np.sum(locals()["x"])


@refused("open\\(\\) in a loop")
def opens_a_file(x, a, b):
    for i in range(3):
        with open("nothing") as file:
            x = x * len(file.read())
    return np.sum(x)


@refused("has no for or while loop")
def nothing_to_do(x, a, b):
    return sum([np.sum(x * k) for k in range(3)])


def logged(i):
    LOG.append(i)
    return len(LOG)


@right
def callee_appends_to_a_global(x, a, b):
    for i in range(5):
        x = x * a + logged(i)
    return np.sum(x)


def counted():
    global COUNT
    COUNT += 1
    return COUNT


@right
def callee_counts(x, a, b):
    for i in range(8):
        x = x * a
        if counted() == 3:
            x = x * 2
    return np.sum(x)


def cached(k):
    CACHE[k] = CACHE.get(k, 0) + 1
    return CACHE[k]


@right
def callee_has_a_cache(x, a, b):
    for i in range(8):
        x = x * a + (cached(i) if i == 3 else 0)
    return np.sum(x)


def through_the_table(u):
    TABLE[0] += 1
    return u * TABLE


@right
def callee_writes_into_a_global(x, a, b):
    for i in range(5):
        x = through_the_table(x) * a
    return np.sum(x)


def remembering(u, seen=[]):  # noqa: B006
    seen.append(1)
    return u * len(seen)


@right
def mutable_default(x, a, b):
    for i in range(5):
        x = remembering(x) * a
    return np.sum(x)


def with_attribute(u):
    with_attribute.calls = getattr(with_attribute, "calls", 0) + 1
    return u * with_attribute.calls


@right
def function_attribute(x, a, b):
    for i in range(5):
        x = with_attribute(x) * a
    return np.sum(x)


class Counter:
    calls = 0

    def step(self, u):
        Counter.calls += 1
        return u * Counter.calls


@right
def class_attribute(x, a, b):
    counter = Counter()
    for i in range(5):
        x = counter.step(x) * a
    return np.sum(x)


def counter():
    k = 0

    def up():
        nonlocal k
        k += 1
        return k

    return up


NEXT = counter()


@right
def global_closure(x, a, b):
    for i in range(4):
        x = x * a
        if i == 1:
            x = x + NEXT()
    return np.sum(x)


@right
def global_generator(x, a, b):
    for i in range(5):
        x = x * a
        if i == 2:
            x = x + GENERATOR.normal()
    return np.sum(x)


@refused("draws from the global random generator")
def numpy_random(x, a, b):
    for i in range(5):
        x = x * a
        if i == 2:
            x = x + np.random.rand()
    return np.sum(x)


@refused("draws from the global random generator")
def python_random(x, a, b):
    for i in range(5):
        x = x * a
        if i == 2:
            x = x + random.random()
    return np.sum(x)


@refused("shares memory with one of")
def two_views(x, a, b):
    u = x * 1.0
    v = u[2:]
    for i in range(5):
        u += a
        v *= 0.5
    return np.sum(u) + np.sum(v)


@refused("with another one outside of the loop")
def view_outside(x, a, b):
    u = x * 1.0
    v = u[::-1]
    for i in range(5):
        if i > 100:
            u[0] = 0.5
        a = a * u
    return np.sum(u * a) + np.sum(v * u)


@refused("append a copy")
def appended_view_of_what_is_written_later(x, a, b):
    u, out = x * 1.0, []
    for i in range(5):
        out.append(u[::-1])
        u[1:] += a[1:]
    return sum(np.sum(one) for one in out)


@refused("came out of a checkpointed loop together with another one")
def view_from_the_loop_of_what_is_written_after_it(x, a, b):
    u, v = x * 1.0, a * 1.0
    for i in range(5):
        v = u[...]
        if i > 100:
            u[0] = 1.0
    u += 0.25
    return np.sum(u * v)


@refused("a view of another one")
def view_of_a_constant_written_a_step_later(x, a, b):
    table = b * 1.0
    previous = a * 1.0
    for row in table:
        previous += 1
        x = x * a + previous
        previous = row
    return np.sum(x) + np.sum(table)


@refused("came out of a checkpointed loop together")
def row_written_after_the_loop(x, a, b):
    table = b * 1.0
    for row in table:
        x = x * a + row
    row += 10
    return np.sum(x) + np.sum(table)


@refused("appended to a list and written into")
def appended_and_written(x, a, b):
    out = []
    u = x * 1.0
    for i in range(5):
        u += a
        out.append(u)
    return sum([np.sum(one) for one in out])


@refused("came out of a checkpointed loop together")
def appended_and_written_afterwards(x, a, b):
    out = []
    u = x
    for i in range(5):
        u = u * a
        out.append(u)
    u += 1
    return sum([np.sum(one) for one in out])


@refused("changes the list that it iterates over")
def list_grows_while_iterated(x, a, b):
    values = [1.0, 2.0, 3.0]
    for k in values:
        x = x * a + k
        if len(values) < 6:
            values.append(k)
    return np.sum(x)


@refused("kept beyond it")
def function_kept(x, a, b):
    functions = []
    for i in range(4):
        functions.append(lambda: i)
        x = x * a + functions[0]()
    return np.sum(x)


def reading(box):
    for j in range(4):
        yield box[0] * j


@refused("looks at an object that the loop may change")
def generator_reads_the_state(x, a, b):
    box = [1]
    for k in reading(box):
        x = x * a + k
        box[0] += 1
    return np.sum(x)


def buffered():
    buffer = np.zeros(6)
    for j in range(4):
        buffer += j
        yield buffer


@refused("writes into an array that it has yielded")
def generator_reuses_its_buffer(x, a, b):
    for k in buffered():
        x = x * a + k
    return np.sum(x)


def doubled(rows):
    for row in rows:
        yield row * 2


@refused("yields values that are being differentiated")
def generator_of_differentiated_values(x, a, b):
    for k in doubled(b):
        x = x * a + k
    return np.sum(x)


@refused("can't be copied")
def generator_as_state(x, a, b):
    squares = (j * j for j in range(10))
    for i in range(4):
        x = x * a + next(squares)
    return np.sum(x)


@refused("looks at an object that the loop may change")
def iterator_shared_with_the_body(x, a, b):
    numbers = iter(range(10))
    for k in numbers:
        x = x * a + k + next(numbers)
    return np.sum(x)


class Hidden:
    def __init__(self, value):
        self.value = value

    def __deepcopy__(self, memo):
        return self


@right
def hidden_dependency(x, a, b):
    hidden = Hidden(a)
    for i in range(4):
        x = x * hidden.value
    return np.sum(x)


@right
def hidden_dependency_alone(x, a, b):
    hidden = Hidden(a)
    y = np.ones(6)
    for i in range(4):
        y = y * hidden.value
    return np.sum(y) + np.sum(x)


def begin_anew():
    global COUNT, NEXT, GENERATOR
    COUNT, NEXT, GENERATOR = 0, counter(), np.random.default_rng(0)
    LOG.clear()
    CACHE.clear()
    remembering.__defaults__[0].clear()
    vars(with_attribute).clear()
    Counter.calls = 0
    TABLE[:] = 1


def left_behind():
    hidden = [COUNT, NEXT(), GENERATOR.normal(), list(LOG), dict(CACHE), list(remembering.__defaults__[0])]
    return [*hidden, dict(vars(with_attribute)), Counter.calls, TABLE[0]]


@pytest.fixture(autouse=True)
def _as_before():
    begin_anew()
    yield
    TABLE.flags.writeable = True
    TABLE[:] = 1


@pytest.mark.parametrize(("function", "words"), REFUSED)
def test_it_is_refused_with_file_and_line(function, words):
    def attempt():
        pb.grad(checkpoint(slots=2)(function), (0, 1, 2))(X.copy(), A.copy(), B.copy())

    with pytest.raises(pb.SourceError, match=words) as found:
        attempt()
    place = re.search(r"([^ ]*test_refusals\.py):(\d+)", str(found.value))
    assert place is not None
    code = function.__code__
    lines = [line for _, _, line in code.co_lines() if line is not None]
    assert code.co_firstlineno <= int(place[2]) <= max(lines) or "buffered" in words


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
@pytest.mark.parametrize("slots", [1, 2, 3, 20])
def test_what_is_changed_without_being_named_is_carried(function, slots):
    found = []
    for one in (function, checkpoint(slots=slots)(function)):
        begin_anew()
        found.append((pb.value_and_grad(one, (0, 1, 2))(X.copy(), A.copy(), B.copy()), left_behind()))
    ((value, grads), hidden), ((same_value, same_grads), same_hidden) = found
    assert value == same_value
    assert hidden == same_hidden
    for one, two in zip(grads, same_grads):
        np.testing.assert_array_equal(one, two)


def test_functions_without_source_are_refused():
    scope: dict[str, object] = {}
    exec("def f(x):\n    for i in range(3):\n        x = x * 2\n    return x\n", scope)
    with pytest.raises(pb.SourceError, match=r"pebbling\.loop"):
        checkpoint(scope["f"])


def test_other_decorators_go_above():
    def twice(function):
        import functools

        @functools.wraps(function)
        def called(*args):
            return function(*args) * 2

        return called

    @twice
    def f(x):
        for _ in range(3):
            x = x * 2
        return x

    with pytest.raises(pb.SourceError, match="next to the def"):
        checkpoint(f)


def test_a_schedule_is_for_one_loop():
    def f(x):
        for _ in range(3):
            x = x * 2
        for _ in range(3):
            x = x * 2
        return x

    with pytest.raises(ValueError, match="a schedule is for one loop"):
        checkpoint(schedule=pb.Revolve(3, 2))(f)


def test_arrays_are_writable_again_after_a_refusal():
    x = X.copy()
    with pytest.raises(pb.SourceError):
        pb.grad(checkpoint(slots=2)(two_views), (0, 1, 2))(x, A, B)
    with pytest.raises(pb.SourceError):
        pb.grad(checkpoint(slots=2)(appended_view_of_what_is_written_later), (0, 1, 2))(x, A, B)
    assert x.flags.writeable
    assert TABLE.flags.writeable
