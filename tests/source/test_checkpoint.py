"""The decorator: plain runs, second derivatives, tracebacks, methods, budgets, what is printed, what is explained."""

from __future__ import annotations

import gc
import os
import sys
import traceback
import tracemalloc

import numpy as np
import pytest

import pebbling as pb
from pebbling.chain.binomial import advances
from pebbling.engine.numpy import transform
from pebbling.source import checkpoint

X, A = np.linspace(0.1, 1, 50), np.linspace(0.5, 0.9, 50)
CALLS = {"count": 0}


def diffused(u, a, steps):
    for _ in range(steps):
        u = u + 0.1 * a * (np.roll(u, 1) - u)
    return np.sum(u**2)


def in_place(u, a, steps):
    u = u * 1.0
    for _ in range(steps):
        u[1:-1] += 0.1 * a[1:-1] * (u[2:] - 2 * u[1:-1] + u[:-2])
    return np.sum(u**3)


def nested(u, a, steps):
    total = 0.0
    for i in range(steps):
        n = i % 3 + 1
        while n > 0:
            u = np.sin(u * a) + 0.1 * u
            n -= 1
        total += np.sum(u)
    return total


@pytest.mark.parametrize("function", [diffused, in_place, nested])
@pytest.mark.parametrize("slots", [1, 4])
def test_second_derivatives_are_those_of_the_plain_function(function, slots):
    v = np.cos(X)
    plain = pb.hvp(function)(X, A, 12, v)
    np.testing.assert_array_equal(pb.hvp(checkpoint(slots=slots)(function))(X, A, 12, v), plain)
    twice = pb.grad(lambda u: np.sum(pb.grad(function)(u, A, 7) * v))(X)
    through = checkpoint(slots=slots)(function)
    np.testing.assert_allclose(pb.grad(lambda u: np.sum(pb.grad(through)(u, A, 7) * v))(X), twice, rtol=1e-12)


@pytest.mark.parametrize("function", [diffused, in_place, nested])
def test_forward_mode(function):
    plain = transform.jvp(lambda u: function(u, A, 9), (X,), (np.cos(X),))
    through = checkpoint(slots=3)(function)
    np.testing.assert_array_equal(transform.jvp(lambda u: through(u, A, 9), (X,), (np.cos(X),)), plain)


@pytest.mark.parametrize("choice", [True, 3, "4MiB", {"slots": 2, "verify": "all"}])
def test_the_option_of_grad(choice):
    plain = pb.value_and_grad(diffused)(X, A, 20)
    value, grad = pb.value_and_grad(diffused, checkpoint=choice)(X, A, 20)
    np.testing.assert_array_equal(grad, plain[1])
    np.testing.assert_array_equal(pb.grad(diffused, checkpoint=choice)(X, A, 20), plain[1])
    np.testing.assert_array_equal(pb.hvp(diffused, checkpoint=choice)(X, A, 20, X), pb.hvp(diffused)(X, A, 20, X))
    assert value == plain[0]


def test_bare_and_with_options():
    assert checkpoint(diffused)(X, A, 5) == checkpoint(slots=2)(diffused)(X, A, 5) == diffused(X, A, 5)
    with pytest.raises(ValueError, match="at most one of"):
        checkpoint(slots=2, memory="1MiB")


def test_steps_are_evaluated_as_often_as_the_plan_says(tmp_path):
    """A file counts: what is outside of Python is seen by nobody."""
    file = os.open(tmp_path / "calls", os.O_CREAT | os.O_WRONLY)

    def f(u):
        for _ in range(100):
            os.write(file, b".")
            u = np.sin(u)
        return np.sum(u)

    pb.grad(checkpoint(slots=5)(f))(X)
    os.close(file)
    # Once more the last step: its result is wanted before anything is reversed.
    assert (tmp_path / "calls").stat().st_size == 100 + advances(100, 5) + 1


def test_memory_follows_the_slots_not_the_length():
    u, a = np.linspace(0, 1, 20_000), np.linspace(0.1, 0.9, 20_000)

    def peak(function):
        function(u, a, 60)
        gc.collect()
        tracemalloc.start()
        function(u, a, 60)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most / u.nbytes

    assert peak(pb.grad(in_place)) > 60
    assert peak(pb.grad(checkpoint(slots=4)(in_place))) < 4 + 16
    assert peak(pb.grad(checkpoint(slots=4)(diffused))) < 4 + 12


def test_a_budget_in_bytes_bounds_the_peak_with_nested_loops():
    u, a = np.linspace(0, 1, 20_000), np.linspace(0.1, 0.9, 20_000)
    gradient = pb.grad(checkpoint(memory="8MB")(nested))
    gradient(u, a, 40)
    gc.collect()
    tracemalloc.start()
    gradient(u, a, 40)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8e6
    with pytest.raises(pb.BudgetError):
        pb.grad(checkpoint(memory="100kB")(nested))(u, a, 40)


def test_plain_runs_work_on_the_objects_themselves():
    u, seen = np.ones(3), []

    @checkpoint
    def f(u, seen):
        for i in range(4):
            u += i
            seen.append(i)
        return u

    assert f(u, seen) is u
    np.testing.assert_array_equal(u, 7)
    assert seen == [0, 1, 2, 3]


class Model:
    """Methods, private names, attributes that the loop changes."""

    def __init__(self, w):
        self.w, self.__gain, self.history = w, 0.5, []

    @checkpoint(slots=2)
    def run(self, u, *, steps=6, scale=2.0):
        """Runs."""
        for _ in range(steps):
            u = self._step(u) * self.__gain
            self.w = self.w * 0.9
            self.history.append(np.sum(u))
        return np.sum(u) * scale

    def plain(self, u, *, steps=6, scale=2.0):
        for _ in range(steps):
            u = self._step(u) * self.__gain
            self.w = self.w * 0.9
            self.history.append(np.sum(u))
        return np.sum(u) * scale

    def _step(self, u):
        return np.tanh(u * self.w)

    @classmethod
    @checkpoint
    def made(cls, u):
        for _ in range(3):
            u = np.sin(u)
        return np.sum(u)


def test_methods_and_their_attributes():
    def loss(method):
        def f(u, w):
            model = Model(w)
            value = method(model, u, steps=5)
            return value + np.sum(model.w) + model.history[2]

        return pb.value_and_grad(f, (0, 1))(X, A)

    (value, grads), (plain, others) = loss(Model.run), loss(Model.plain)
    assert value == plain
    for one, two in zip(grads, others):
        np.testing.assert_array_equal(one, two)
    assert pb.grad(Model.made)(X).shape == X.shape
    assert Model.run.__doc__ == "Runs."
    assert Model.run.__name__ == "run"
    assert Model.run.__kwdefaults__ == {"steps": 6, "scale": 2.0}


class Decay:
    """A method that reads attributes alone."""

    rate = 0.3

    @checkpoint(slots=3)
    def run(self, u):
        for _ in range(6):
            u = np.sin(u * self.rate)
        return np.sum(u)


def test_what_a_method_knows_of_its_own_loops_is_not_what_the_loop_changes():
    decay = Decay()
    np.testing.assert_array_equal(pb.grad(decay.run)(X), pb.grad(lambda u: Decay.run.__wrapped__(decay, u))(X))


GENERIC = """
import numpy as np

def plain[T](u: T, *, rate: float = 0.3) -> T:
    for _ in range(6):
        v: T = np.sin(u * rate)
        u = v + len(T.__name__)
    return np.sum(u)

class Holder[S]:
    def plain[T](self, u: T) -> S:
        for _ in range(6):
            u = np.sin(u)
        return np.sum(u)
"""

if sys.version_info >= (3, 12):

    def test_functions_with_type_parameters(tmp_path):
        path = tmp_path / "generic.py"
        path.write_text(GENERIC)
        names = {"__name__": "generic"}
        exec(compile(GENERIC, path, "exec"), names)
        through, method = checkpoint(slots=2)(names["plain"]), checkpoint(slots=2)(names["Holder"].plain)
        np.testing.assert_array_equal(pb.grad(through)(X), pb.grad(names["plain"])(X))
        np.testing.assert_array_equal(pb.grad(method, 1)(None, X), pb.grad(names["Holder"].plain, 1)(None, X))
        assert [one.__name__ for one in through.__type_params__] == ["T"]


def failing(u, at):
    for i in range(6):
        u = u * 0.5
        if i == at:
            u = u + [1, 2][i]
    return np.sum(u)


@pytest.mark.parametrize("differentiated", [False, True])
def test_tracebacks_show_the_lines_of_the_function(differentiated):
    through = checkpoint(slots=2)(failing)
    call = (lambda: pb.grad(through)(X, 3)) if differentiated else (lambda: through(X, 3))
    with pytest.raises(IndexError) as found:
        call()
    frames = traceback.extract_tb(found.value.__traceback__)
    last = frames[-1]
    first = failing.__code__.co_firstlineno
    assert (last.filename, last.lineno, last.name) == (failing.__code__.co_filename, first + 4, "failing")
    assert last.line == "u = u + [1, 2][i]"


def test_debuggers_and_coverage_see_the_lines_of_the_function():
    seen = set()

    def trace(frame, event, arg):
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name == "failing" and event == "line":
            seen.add(frame.f_lineno - failing.__code__.co_firstlineno)
        return trace

    through = checkpoint(slots=2)(failing)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        through(X, 1)
    finally:
        sys.settrace(before)
    assert seen == {1, 2, 3, 4, 5}


def test_printing_happens_once(capsys):
    @checkpoint(slots=2)
    def f(u):
        for i in range(5):
            print("step", i)
            for j in range(2):
                print("inner", i, j)
                u = np.sin(u)
        return np.sum(u)

    pb.grad(f)(X)
    out = capsys.readouterr().out.splitlines()
    assert out == [line for i in range(5) for line in (f"step {i}", f"inner {i} 0", f"inner {i} 1")]


def test_generators_of_random_numbers_end_where_they_would():
    def f(u, rng):
        for _ in range(5):
            u = u * rng.normal(size=50)
        return np.sum(u)

    one, two = np.random.default_rng(1), np.random.default_rng(1)
    np.testing.assert_array_equal(pb.grad(checkpoint(slots=2)(f))(X, one), pb.grad(f)(X, two))
    assert one.normal() == two.normal()


def test_explain_without_arguments():
    text = str(pb.explain(nested))
    assert "for i in range(steps)" in text
    assert "while n > 0" in text
    assert "state        total, u" in text


def test_explain_with_arguments():
    found = pb.explain(checkpoint(slots=4)(diffused), X, A, 30)
    (loop,) = found.loops
    assert loop.checkpointed
    assert (loop.steps, loop.slots) == (30, 4)
    assert loop.forwards == 30 + advances(30, 4)
    assert loop.state_bytes >= X.nbytes
    assert loop.peak > 4 * loop.state_bytes
    assert "30 of" in str(found)


def test_explain_says_why_not():
    def f(u, n):
        for i in range(3):
            n = n + i
        for _ in range(n - 3):
            for _ in range(3):
                u = u * 2
        return np.sum(u)

    found = pb.explain(f, X, 0)
    assert [loop.checkpointed for loop in found.loops] == [False, True, False]
    assert "nothing that is differentiated" in str(found)
    assert "not reached" in str(found)


def test_explain_of_what_is_refused():
    def f(u):
        for i in range(3):
            CALLS["count"] = i
            u = u * 2
        return np.sum(u)

    assert "changes the global CALLS" in str(pb.explain(f))


def two_sizes(u):
    for _ in range(40):
        u = u + 0.01 * np.sin(u)
    v = np.concatenate([u, u, u])
    for _ in range(60):
        v = 0.99 * v * np.cos(0.01 * v)
    return np.sum(v * v)


def one_inside_of_another(u):
    for _ in range(12):
        for _ in range(6):
            u = u + 0.01 * np.sin(u)
    return np.sum(u * u)


@pytest.mark.parametrize("function", [two_sizes, one_inside_of_another])
@pytest.mark.parametrize("count", [30, 300, 5_000])
def test_the_smallest_budget_of_several_loops_works_and_holds(function, count):
    u = np.linspace(0.1, 1.0, count)
    want = pb.grad(function)(u)
    with pytest.raises(pb.BudgetError, match="the loops of this function together") as refused:
        pb.grad(checkpoint(memory=1000)(function))(u)
    for budget in (refused.value.minimum, 2 * refused.value.minimum):
        gradient = pb.grad(checkpoint(memory=budget)(function))
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            found = gradient(u)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert peak <= budget
        assert np.array_equal(found, want)
