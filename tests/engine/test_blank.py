"""Arrays that a function makes plain and fills with differentiated values."""

import pickle
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import pebbling as pb
from pebbling.engine.numpy.blank import Blank

U = np.array([0.7, 0.3, 0.5])


def differences(f, u, h=2e-3):
    """The gradient by central differences, extrapolated three times."""
    gradient = np.zeros(u.size)
    for i, e in enumerate(np.eye(u.size)):
        d = [(f(u + e * h / 2**k) - f(u - e * h / 2**k)) * 2**k / (2 * h) for k in range(4)]
        for m in (4, 16, 64):
            d = [(m * b - a) / (m - 1) for a, b in pairwise(d)]
        gradient[i] = d[0]
    return gradient


def fill(y, u):
    for i in range(len(y)):
        y[i] = u[i % 3] * i


def scan(u):
    y = np.zeros(6)
    y[0] = u[0]
    for i in range(5):
        y[i + 1] = np.sin(y[i]) * u[1] + 0.1 * u[2]
    return np.sum(y**2)


def two_d(u):
    T = np.zeros((5, 3))
    T[0] = u
    for i in range(4):
        T[i + 1] = T[i] + 0.1 * np.cos(T[i])
    return np.sum(T * np.arange(15.0).reshape(5, 3))


def columns(u):
    T = np.empty((3, 5))
    T[:, 0] = u
    for i in range(4):
        T[:, i + 1] = T[:, i] * 1.1 + 0.1 * np.roll(T[:, i], 1)
    return np.dot(T[:, 4], T[:, 3]) + T.mean()


def aug(u):
    s = np.zeros(3)
    for i in range(4):
        s += u * i
        s[1:] += u[:2] ** 2
        s[0] *= 2.0
    return np.sum(s**2)


def mask(u):
    w = np.ones(3)
    m = u > 0.4
    w[m] = u[m] ** 2
    w[~m] -= u[~m]
    return np.prod(w + 1)


def attr(u):
    b = SimpleNamespace()
    b.x = np.zeros(3)
    b.n = 0
    for i in range(3):
        b.x[i] = u[i] * 2 + b.x[i - 1]
        b.n += 1
    return np.sum(b.x**2) * b.n


def callee(u):
    y = np.full(5, 2.0)
    fill(y, u)
    return np.sum(np.sin(y))


def outs(u):
    b = np.empty(3)
    np.multiply(u, 2.0, out=b)
    np.add(b, u, out=b)
    np.exp(b, b)
    return b.sum()


def outwhere(u):
    r = np.divide(1.0, u, out=np.zeros(3), where=u > 0.4)
    return np.sum(r**2)


def views(u):
    A = np.zeros((3, 3))
    d = A[0]
    t = A.T
    d[1] = u[0]
    t[2, 0] = u[1]
    A[1, 1] = u[2]
    f = A.reshape(-1)
    f[8] = u[0] * u[1]
    return np.sum(np.exp(A)) + d[1] * 3 + f[2]


def cow(u):
    w = np.ones(100)
    a = np.sum(w * u[0])
    w[3] = 5.0
    b = np.sum(w * u[1])
    w[4] = u[2]
    return a * b + np.sum(w * w)


def arith(u):
    z = np.zeros(4) + 1.0
    z = 2 * z
    z[1:3] = u[:2]
    return np.sum(z**3)


def lists(u):
    h = np.zeros((2, 2))
    h[:] = [[u[0], 1.0], [0.5, u[1]]]
    return np.linalg.slogdet(h @ h.T + np.eye(2))[1]


def addat(u):
    A = np.zeros(4)
    np.add.at(A, [0, 1, 1], u)
    return np.sum(A**2)


def nested_loop(u):
    A = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            A[i, j] = u[(i + j) % 3] * (A[i - 1, j] if i else 1.0)
    return np.sum(A)


def complexbuf(u):
    z = np.zeros(4, dtype=complex)
    z[0] = u[0] + 1j * u[1]
    z[1:] = np.exp(1j * u)
    return np.sum(np.abs(np.fft.fft(z)) ** 2)


def loopbuf(u):
    x = u.copy()
    for _ in range(4):
        k = np.zeros(3)
        for j in range(3):
            k[j] = x[j] * x[j - 1]
        x = x + 0.1 * k
    return x.sum()


def swap(u):
    a = np.zeros(3)
    b = np.zeros(3)
    a[:] = u
    for _ in range(5):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        b[0] = a[0]
        b[-1] = a[-1] * 0.9
        a, b = b, a
    return np.sum(a**2)


def f32(u):
    y = np.zeros(3, dtype=np.float32)
    y[:] = u
    return np.sum(y).astype(float)


def methods(u):
    y = np.zeros(4)
    assert y.flags.c_contiguous
    assert y.strides == (8,)
    y.fill(2.0)
    y.sort()
    y[0] = u[0]
    return float(len(y)) * y.sum() + y.max()


PROGRAMS = [
    scan,
    two_d,
    columns,
    aug,
    mask,
    attr,
    callee,
    outs,
    outwhere,
    views,
    cow,
    arith,
    lists,
    addat,
    nested_loop,
    complexbuf,
    loopbuf,
    swap,
    f32,
    methods,
]
LOOPS = [scan, two_d, columns, aug, attr, nested_loop, loopbuf, swap]


@pytest.mark.parametrize("f", PROGRAMS)
def test_the_gradient_is_that_of_differences(f):
    rough = {"rtol": 1e-2} if f is f32 else {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(pb.grad(f)(U), differences(f, U), **rough)
    assert pb.value_and_grad(f)(U)[0] == f(U)


@pytest.mark.parametrize("f", LOOPS)
def test_checkpointed_loops_give_the_same_bits(f):
    np.testing.assert_array_equal(pb.grad(f, checkpoint=2)(U), pb.grad(f)(U))
    np.testing.assert_allclose(pb.hvp(f, checkpoint=2)(U, U), pb.hvp(f)(U, U), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", PROGRAMS)
def test_hessians(f):
    if f is f32:
        return
    h = 1e-5
    expected = (pb.grad(f)(U + h * U) - pb.grad(f)(U - h * U)) / (2 * h)
    np.testing.assert_allclose(pb.hvp(f)(U, U), expected, rtol=1e-5, atol=1e-5)


def test_what_is_never_filled_stays_plain_and_leaves_nothing_on_the_tape():
    def f(x):
        grid = np.linspace(0.0, 1.0, 50)
        weights = np.exp(-grid) @ np.eye(50)
        assert isinstance(weights, Blank)
        assert len(x.tape) == 1
        assert pickle.loads(pickle.dumps(weights)).tolist() == weights.tolist()
        return x * np.sum(weights)

    assert pb.grad(f)(2.0) == np.sum(np.exp(-np.linspace(0.0, 1.0, 50)))


def test_an_array_that_the_tape_needs_is_written_into_as_a_copy():
    w = np.ones(1000)

    def f(x):
        w = np.ones(1000)
        y = np.sum(w * x)
        w[:] = 7.0
        w[0] = x
        return y + np.sum(w)

    assert pb.grad(f)(2.0) == 1001.0
    assert w.flags.writeable


def test_plain_memory_that_others_still_have_is_not_filled_with_differentiated_values():
    def f(x):
        y = np.zeros(3)
        kept = memoryview(np.ndarray.__getitem__(y.__array__(), slice(None)))
        y[0] = x
        return y[0] + kept[0]

    with pytest.raises(pb.errors.SourceError, match="still has the plain memory"):
        pb.grad(f)(1.0)


def test_outside_of_a_derivative_arrays_are_those_of_numpy():
    def f(x):
        rng = np.random.default_rng(0)
        assert type(rng.normal(size=3)) is np.ndarray
        return x * np.sum(np.zeros(3))

    pb.grad(f)(1.0)
    assert type(np.zeros(3)) is np.ndarray
    assert np.zeros.__module__ == "numpy"


def test_an_assignment_costs_the_elements_that_it_writes():
    def steps(n, size):
        def f(x):
            y = np.zeros((size, 4))
            y[0] = x
            for i in range(n):
                y[i + 1] = np.sin(y[i]) * y[i] + x
            return np.sum(y[n])

        return f

    def seconds(size):
        f, best = pb.grad(steps(300, size)), np.inf
        for _ in range(3):
            began = time.perf_counter()
            f(np.ones(4))
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(100_000) < 4 * seconds(1000)
