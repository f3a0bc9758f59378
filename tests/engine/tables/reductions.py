"""Reductions, with every axis and keepdims, and what is made of them."""

import itertools

import numpy as np

AXES = (None, 0, 1, -1, (0, 2), (0, 1, 2))


def _reduce(name, **kwargs):
    return lambda np, x: getattr(np, name)(x, **kwargs)


def cases(case):
    for name in ("sum", "mean", "prod", "max", "min", "amax", "amin", "std", "var", "ptp"):
        for axis, keepdims in itertools.product(AXES, (False, True)):
            if name == "ptp" and isinstance(axis, tuple) and keepdims:
                continue
            f = _reduce(name, axis=axis, keepdims=keepdims)
            jax = axis == (0, 2) and not keepdims
            yield case(f"{name} axis={axis} keepdims={keepdims}", f, ("normal", (2, 3, 2)), jax=jax)
    for name in ("std", "var"):
        for ddof in (1, 2):
            yield case(f"{name} ddof={ddof}", _reduce(name, ddof=ddof, axis=0), ("normal", (4, 2)))
    holes = np.array([[1.0, np.nan, 0.3], [0.2, -1.0, np.nan]])
    for name in ("nansum", "nanmean", "nanmax", "nanmin"):
        for axis, keepdims in itertools.product((None, 0, 1), (False, True)):
            f = lambda np, x, n=name, a=axis, k=keepdims: getattr(np, n)(x + holes, axis=a, keepdims=k)  # noqa: E731
            yield case(f"{name} axis={axis} keepdims={keepdims}", f, ("normal", (2, 3)), jax=axis == 1 and keepdims)
    for axis in (None, 0, 1, -2):
        yield case(f"cumsum {axis}", _reduce("cumsum", axis=axis), ("normal", (3, 4)))
        yield case(f"cumprod {axis}", _reduce("cumprod", axis=axis), ("normal", (3, 4)))
        yield case(f"sort {axis}", _reduce("sort", axis=axis), ("normal", (3, 4)))
    zeros = np.array([[0.0, 2.0, 0.0, 1.0], [3.0, 0.0, 1.0, 2.0]])
    yield case("prod with zeros", lambda np, x: np.prod(x, axis=1), zeros)
    yield case("cumprod with zeros", lambda np, x: np.cumprod(x, axis=1), zeros)
    yield case("max of equals", lambda np, x: np.max(x, axis=0), np.array([[1.0, 2.0], [1.0, 0.0]]), fd=False)
    mask = np.array([[True, False, True], [False, True, True]])
    yield case("sum where", lambda np, x: np.sum(x, axis=1, where=mask), ("normal", (2, 3)))
    yield case("sum initial", lambda np, x: np.sum(x, initial=3.0), ("normal", (2, 3)))
    yield case("max initial", lambda np, x: np.max(x, axis=1, initial=0.1), ("normal", (2, 3)))
    for weights in (None, np.array([1.0, 2.0, 3.0])):
        f = lambda np, x, w=weights: np.average(x, axis=1, weights=w)  # noqa: E731
        yield case(f"average {weights is None}", f, ("normal", (2, 3)))
    yield case("average both", lambda np, x, w: np.average(x, weights=w), ("normal", (2, 3)), ("positive", (2, 3)))
    yield case("average returned", lambda np, x: np.average(x, axis=0, returned=True)[0], ("normal", (2, 3)))
    for axis, keepdims in itertools.product((None, 0, 1, (0, 1)), (False, True)):
        f = _reduce("median", axis=axis, keepdims=keepdims)
        yield case(f"median axis={axis} keepdims={keepdims}", f, ("normal", (3, 4)), jax=axis == 1 and not keepdims)
        for q in (30.0, [10.0, 55.0]):
            f = lambda np, x, q=q, a=axis, k=keepdims: np.percentile(x, np.array(q), axis=a, keepdims=k)  # noqa: E731
            yield case(
                f"percentile {q} axis={axis} keepdims={keepdims}", f, ("normal", (3, 4)), jax=axis == 1 and not keepdims
            )
    yield case("quantile", lambda np, x: np.quantile(x, 0.3, axis=0), ("normal", (5, 2)))
    yield case("quantile of q", lambda np, q: np.quantile(np.array([1.0, 3.0, 4.0, 9.0]), q), ("unit", (2,)))
    yield from _methods(case)


def _methods(case):
    for name in ("sum", "mean", "prod", "max", "min", "std", "var", "cumsum", "cumprod"):
        yield case(f"method {name}", lambda np, x, name=name: getattr(x, name)(axis=0), ("normal", (3, 2)), jax=False)
        yield case(f"method {name} all", lambda np, x, name=name: getattr(x, name)(), ("normal", (3, 2)), jax=False)
    matrix = ("normal", (3, 4))
    yield case("add.reduce", lambda np, x: np.add.reduce(x), matrix)
    yield case("multiply.reduce", lambda np, x: np.multiply.reduce(x, axis=1), matrix)
    yield case("maximum.reduce", lambda np, x: np.maximum.reduce(x, axis=1), matrix)
    yield case("minimum.reduce", lambda np, x: np.minimum.reduce(x, axis=0), matrix)
    yield case("logaddexp.reduce", lambda np, x: np.logaddexp.reduce(x, axis=1), matrix)
    yield case("logaddexp.reduce keepdims", lambda np, x: np.logaddexp.reduce(x, axis=0, keepdims=True), matrix)
    yield case("add.accumulate", lambda np, x: np.add.accumulate(x, axis=1), matrix)
    yield case("multiply.accumulate", lambda np, x: np.multiply.accumulate(x, axis=0), matrix)
    yield case("logical reduce", lambda np, x: x * (np.logical_and.reduce(x) + np.logical_or.reduce(x)), matrix)
    yield case("multiply.outer", lambda np, x, y: np.multiply.outer(x, y), ("normal", (2,)), ("normal", (3, 2)))
    yield case("subtract.outer", lambda np, x: np.subtract.outer(x, x), ("normal", (3,)))
