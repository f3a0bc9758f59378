"""``np.array`` and its kin stand for ours while a derivative runs, whatever name they go by, and never afterwards."""

import threading

import numpy as np
import pytest
from numpy import array, r_

import pebbling as pb
from pebbling.engine.numpy.standins import Tracing

X = np.array([0.3, 0.7])
ORIGINALS = {name: getattr(np, name) for name in ("array", "asarray", "full", "r_", "sum", "fromiter")}


def put_back():
    return (
        all(getattr(np, name) is original for name, original in ORIGINALS.items()) and array is np.array and r_ is np.r_
    )


def expected(f):
    return [(f(X + h) - f(X - h)) / 2e-6 for h in np.eye(2) * 1e-6]


def by_name(x):
    return np.sum(array([x[0], x[1] ** 2]) * r_[x[0], 3.0])


def test_names_of_the_module():
    assert put_back()
    np.testing.assert_allclose(pb.grad(by_name)(X), expected(by_name), rtol=1e-7)
    assert put_back()


def test_names_of_a_closure_and_of_what_it_calls():
    from numpy import array as make

    def inner(x):
        return make([x[0], x[0] * x[1]])

    def f(x):
        return np.sum(inner(x) ** 2) + make([x[0], 1.0])[0]

    np.testing.assert_allclose(pb.grad(f)(X), expected(f), rtol=1e-7)
    assert make is ORIGINALS["array"]


def test_names_of_a_namespace_without_a_module():
    names = {}
    exec("from numpy import array, sum\ndef f(x):\n    return sum(array([x[0], x[1] ** 2]) ** 2)", names)
    np.testing.assert_allclose(pb.grad(names["f"])(X), expected(names["f"]), rtol=1e-7)
    assert names["array"] is ORIGINALS["array"]


def test_they_are_put_back_after_an_error():
    with pytest.raises(KeyError):
        pb.grad(lambda x: {}[array([x[0]])[0] > 0])(X)
    assert put_back()


def test_they_leave_plain_calls_alone():
    kept = []

    def f(x):
        kept.append([np.array([1, 2]), np.asarray(X), np.full(2, 3), np.r_[1, 2], np.sum([1, 2])])
        return np.sum(x)

    pb.grad(f)(X)
    plain = [np.array([1, 2]), X, np.full(2, 3), np.r_[1, 2], np.sum([1, 2])]
    for ours, theirs in zip(kept[0], plain):
        assert type(ours) is type(theirs)
        assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())
    assert kept[0][1] is X


def test_loops_with_checkpoints_have_them():
    def f(x):
        y = x
        for _ in range(6):
            y = np.array([np.sin(y[0]) + y[1], y[0] * y[1]])
        return np.sum(y)

    assert pb.grad(f, checkpoint=2)(X).tobytes() == pb.grad(f)(X).tobytes()
    np.testing.assert_allclose(pb.grad(f)(X), expected(f), rtol=1e-7)
    assert put_back()


def test_threads_do_not_take_them_from_each_other():
    inside, done = threading.Event(), threading.Event()
    found = []

    def other():
        def f(x):
            inside.set()
            done.wait(10)
            return np.sum(np.array([x[0], x[1]]))

        found.append(pb.grad(f)(X))

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    np.testing.assert_allclose(pb.grad(by_name)(X), expected(by_name), rtol=1e-7)
    done.set()
    thread.join()
    assert found[0].tolist() == [1.0, 1.0]
    assert put_back()


def test_runs_within_runs_put_them_back_once():
    with Tracing(), Tracing():
        assert np.array is not ORIGINALS["array"]
    assert put_back()
