"""Less common functions."""

import itertools

import numpy as np

MATRIX, VECTOR = ("normal", (3, 4)), ("normal", (5,))
HOLES = np.array([[0.0, np.nan, 0.0, 0.0], [0.0, 0.0, np.nan, 0.0], [0.0, 0.0, 0.0, 0.0]])


def cases(case):
    for name, axis, keepdims in itertools.product(("nanprod", "nanvar", "nanstd"), (None, 0, 1), (False, True)):
        f = lambda np, x, n=name, a=axis, k=keepdims: getattr(np, n)(x + HOLES, axis=a, keepdims=k)  # noqa: E731
        yield case(f"{name} {axis} {keepdims}", f, MATRIX, jax=axis == 1 and keepdims)
    yield case("nanvar ddof", lambda np, x: np.nanvar(x + HOLES, axis=1, ddof=1), MATRIX)
    yield case("cov", lambda np, x: np.cov(x), MATRIX)
    yield case("cov two", lambda np, x, y: np.cov(x, y, bias=True), VECTOR, VECTOR)
    yield case("cov columns", lambda np, x: np.cov(x, rowvar=False), MATRIX)
    yield case("cov one", lambda np, x: np.cov(x), VECTOR)
    yield case("corrcoef", lambda np, x: np.corrcoef(x), MATRIX)
    yield case("polyval", lambda np, p, x: np.polyval(p, x), ("normal", (4,)), VECTOR)
    for n, increasing in ((None, False), (3, True)):
        f = lambda np, x, n=n, i=increasing: np.vander(x, n, increasing=i)  # noqa: E731
        yield case(f"vander {n}", f, VECTOR)
    yield case("delete", lambda np, x: np.delete(x, 2), VECTOR)
    yield case("delete rows", lambda np, x: np.delete(x, np.array([0, 2]), axis=1), MATRIX, jax=False)
    yield case("compress", lambda np, x: np.compress(np.array([True, False, True]), x, axis=0), MATRIX, jax=False)
    yield case("compress all", lambda np, x: np.compress(np.array([True, False, True]), x), MATRIX, jax=False)
    yield case("extract", lambda np, x: np.extract(x > 0, x), MATRIX, jax=False)
    for axis, keepdims, order in itertools.product((None, 1, (0, 1)), (False, True), (2, 1, np.inf)):
        f = lambda np, x, a=axis, k=keepdims, o=order: np.linalg.vector_norm(x, axis=a, keepdims=k, ord=o)  # noqa: E731
        yield case(f"vector_norm {axis} {keepdims} {order}", f, MATRIX, jax=axis == 1 and keepdims and order == 2)
    for order in ("fro", "nuc", 1):
        f = lambda np, x, o=order: np.linalg.matrix_norm(x, ord=o)  # noqa: E731
        yield case(f"matrix_norm {order}", f, ("normal", (2, 3, 4)), jax=order == "nuc")
    square, cube = ("normal", (3, 3)), ("normal", (2, 3, 3))
    yield case("linalg matmul", lambda np, a, b: np.linalg.matmul(a, b), square, square)
    yield case("linalg outer", lambda np, a, b: np.linalg.outer(a, b), VECTOR, VECTOR)
    yield case("linalg tensordot", lambda np, a, b: np.linalg.tensordot(a, b, axes=1), square, square)
    yield case("linalg matrix_transpose", lambda np, a: np.linalg.matrix_transpose(a), cube)
    yield case("linalg cross", lambda np, a, b: np.linalg.cross(a, b), square, square)
    yield case("linalg vecdot", lambda np, a, b: np.linalg.vecdot(a, b), square, square)
    yield case("linalg trace", lambda np, a: np.linalg.trace(a), cube)
    if hasattr(np, "cumulative_sum"):
        for initial in (False, True):
            f = lambda np, x, i=initial: np.cumulative_sum(x, axis=1, include_initial=i)  # noqa: E731
            yield case(f"cumulative_sum {initial}", f, MATRIX)
        yield case("unstack", lambda np, x: np.multiply(*np.unstack(x, axis=1)[:2]), MATRIX)
