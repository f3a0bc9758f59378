"""Every rule, in both modes and to second order, against finite differences, JAX and NumPy's own value.

The rows are in ``tables/``: a name, a function of a NumPy-like module and arrays, and the arrays. ``jax=False``:
JAX lacks the function; ``fd=False``: finite differences make no sense at that point; ``bits=False``: the value is
not determined.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from pebbling.engine import numpy as engine
from pebbling.engine.numpy import dual, table, var
from pebbling.engine.numpy.kinds import Flat
from pebbling.engine.numpy.refuse import name_of


@dataclass
class Case:
    name: str
    f: object
    args: tuple
    jax: bool = True
    fd: bool = True
    bits: bool = True


def make(rng, spec):
    if isinstance(spec, np.ndarray):
        return spec
    kind, shape = spec
    if kind == "number":
        return float(rng.uniform(0.4, 2.0))
    if kind == "normal":
        return rng.choice([-1.0, 1.0], size=shape) * rng.uniform(0.3, 1.5, size=shape)
    if kind == "small":
        return rng.uniform(-0.05, 0.05, size=shape)
    if kind == "unit":
        return rng.uniform(0.1, 0.9, size=shape)
    if kind == "positive":
        return rng.uniform(0.4, 2.0, size=shape)
    if kind == "square":
        return rng.normal(size=shape) + 2 * np.eye(shape[-1])
    assert kind == "complex"
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def rows():
    def case(name, f, *args, **marks):
        return Case(name, f, args, **marks)

    for path in sorted((Path(__file__).parent / "tables").glob("*.py")):
        yield from runpy.run_path(str(path))["cases"](case)


TABLE = list(rows())


def arguments(case):
    rng = np.random.default_rng(len(case.name))
    args = [make(rng, spec) for spec in case.args]
    args = [arg if isinstance(arg, float) else np.asarray(arg)[()] for arg in args]
    return args, [np.asarray(make(rng, ("complex" if np.iscomplexobj(a) else "normal", np.shape(a))))[()] for a in args]


def weights(y):
    rng = np.random.default_rng(7)
    return np.asarray(make(rng, ("complex" if np.iscomplexobj(y) else "normal", np.shape(y))))[()]


def slope(f, args, directions, step=2e-4):
    """The derivative along a direction, to fourth order."""

    def at(t):
        return f(*[x + t * v for x, v in zip(args, directions)])

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def close(ours, theirs, tolerance=1e-7):
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def scalar(module, f):
    """A function to a real number that bends, so that second derivatives count."""

    def value(*args):
        y = f(module, *args)
        y = module.real(y) + 0.7 * module.imag(y) if module.iscomplexobj(y) else y
        return module.sum(module.sin(y + 0.3) * (1 + module.cos(module.arange(y.size).reshape(y.shape))))

    return value


GROUP = 8  # rows compiled together: one by one, the compiler takes most of the time
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
KNOWN = {}


def by_jax(case):
    """Pullback and Hessian product of a row, from JAX."""
    if case.name not in KNOWN:
        rows = [row for row in TABLE if row.jax]
        at = next(i for i, row in enumerate(rows) if row is case) // GROUP * GROUP
        group = rows[at : at + GROUP]
        points = [arguments(row) for row in group]
        seeds = [np.asarray(weights(row.f(np, *args))) for row, (args, _) in zip(group, points)]
        with jax.enable_x64(True):
            function = jax.jit(lambda points, seeds: list(map(derive, group, points, seeds)))
            found = function.lower(points, seeds).compile(compiler_options=QUICK)(points, seeds)
        KNOWN.update({row.name: jax.tree.map(np.asarray, result) for row, result in zip(group, found)})
    return KNOWN[case.name]


def derive(case, point, seed):
    args, directions = point
    y, pullback = jax.vjp(lambda *xs: case.f(jnp, *xs), *args)
    gradient = jax.grad(scalar(jnp, case.f), range(len(args)))
    return pullback(seed.astype(y.dtype)), jax.jvp(gradient, tuple(args), tuple(directions))[1]


@pytest.mark.parametrize("case", TABLE, ids=[case.name for case in TABLE])
def test_first_order(case):
    args, directions = arguments(case)

    def f(*xs):
        return case.f(np, *xs)

    y = f(*args)
    taped, pullback = engine.vjp(f, *args)
    pushed, tangent = engine.jvp(f, args, directions)
    if case.bits:
        for value in (taped, pushed):
            assert np.shape(value) == np.shape(y)
            assert np.asarray(value).dtype == np.asarray(y).dtype
            assert np.asarray(value).tobytes() == np.asarray(y).tobytes()
    cotangents = pullback(weights(y))
    for x, c in zip(args, cotangents):
        assert c.dtype == np.asarray(x).dtype
    assert tangent.dtype == np.asarray(y).dtype
    pulled = sum(np.sum(c * v) for c, v in zip(cotangents, directions))
    close(np.real(np.sum(weights(y) * tangent)), np.real(pulled))
    if case.fd:
        close(tangent, slope(f, args, directions), 1e-6)
    if case.jax:
        for c, d in zip(cotangents, by_jax(case)[0]):
            close(c, d)


@pytest.mark.parametrize("case", TABLE, ids=[case.name for case in TABLE])
def test_second_order(case):
    args, directions = arguments(case)
    ours = scalar(np, case.f)
    gradient = engine.grad(ours, range(len(args)))
    value, tangents = engine.jvp(lambda *xs: gradient(*xs), args, directions)
    for g, h in zip(gradient(*args), value):
        assert np.asarray(g).tobytes() == np.asarray(h).tobytes()
    if case.fd:
        for i, t in enumerate(tangents):
            close(t, slope(lambda *xs, i=i: gradient(*xs)[i], args, directions), 1e-5)
    if case.jax:
        for t, u in zip(tangents, by_jax(case)[1]):
            close(t, u, 1e-6)


def single(x):
    return x if type(x) is float else np.asarray(x).astype("F" if np.iscomplexobj(x) else "f")[()]


@pytest.mark.parametrize("case", TABLE, ids=[case.name for case in TABLE])
def test_single_precision(case):
    """The value is NumPy's, and cotangents and tangents have the dtype of what they belong to."""
    args, directions = [list(map(single, part)) for part in arguments(case)]

    def f(*xs):
        return case.f(np, *xs)

    y = f(*args)
    dtype = np.asarray(y).dtype
    taped, pullback = engine.vjp(f, *args)
    pushed, tangent = engine.jvp(f, args, directions)
    if case.bits:
        assert np.asarray(taped).tobytes() == np.asarray(pushed).tobytes() == np.asarray(y).tobytes()
    seed = np.asarray(weights(y)).astype(dtype)[()]
    cotangents = pullback(seed)
    assert [c.dtype for c in cotangents] == [np.asarray(x).dtype for x in args]
    assert tangent.dtype == dtype
    pulled = sum(np.sum(c * v) for c, v in zip(cotangents, directions))
    assert np.real(np.sum(seed * tangent)) == pytest.approx(np.real(pulled), rel=2e-2, abs=2e-2)


class Spy(dict):
    def __init__(self, table):
        super().__init__(table)
        self.seen = set()

    def get(self, key, default=None):
        if key in self:
            self.seen.add(key)
        return super().get(key, default)


def test_every_rule_is_in_the_table(monkeypatch):
    known, unary = Spy(table.TABLE), Spy(table.UNARY)
    monkeypatch.setattr(table, "TABLE", known)
    for module in (var, dual):
        monkeypatch.setattr(module, "UNARY", unary)
    for case in TABLE:
        args, _ = arguments(case)
        engine.vjp(lambda *xs, case=case: case.f(np, *xs), *args)
    derived = {func for func, kind in known.items() if not isinstance(kind, Flat)}
    assert special.erf in derived
    missing = " ".join(sorted(map(name_of, derived - known.seen - unary.seen)))
    assert missing == ""
