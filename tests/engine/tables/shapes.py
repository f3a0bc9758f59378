"""Shapes, joins, splits, indices and choices."""

import numpy as np

CUBE, MATRIX, VECTOR = ("normal", (2, 3, 4)), ("normal", (3, 4)), ("normal", (5,))
FLAGS = np.array([True, False, True, True, False])


def cases(case):
    yield from _shapes(case)
    yield from _joins(case)
    yield from _indices(case)
    yield from _choices(case)


def _shapes(case):
    yield case("reshape", lambda np, x: np.reshape(x, (4, -1)), CUBE)
    yield case("reshape F", lambda np, x: np.reshape(x, (4, 6), order="F"), CUBE)
    yield case("method reshape", lambda np, x: x.reshape(6, 4) * x.reshape((6, 4)), CUBE)
    yield case("ravel", lambda np, x: np.ravel(x), CUBE)
    yield case("ravel F", lambda np, x: np.ravel(x, order="F"), CUBE)
    yield case("flatten", lambda np, x: x.flatten(), CUBE)
    yield case("transpose", lambda np, x: np.transpose(x), CUBE)
    yield case("transpose axes", lambda np, x: np.transpose(x, (1, -1, 0)), CUBE)
    yield case("method transpose", lambda np, x: x.transpose(2, 0, 1), CUBE)
    yield case("T", lambda np, x: x.T @ x, MATRIX)
    yield case("mT", lambda np, x: x.mT, CUBE)
    yield case("matrix_transpose", lambda np, x: np.matrix_transpose(x), CUBE)
    yield case("swapaxes", lambda np, x: np.swapaxes(x, 0, -1), CUBE)
    yield case("moveaxis", lambda np, x: np.moveaxis(x, (0, 1), (-1, 0)), CUBE)
    for axis, start in ((0, 3), (2, 0), (1, 2), (2, 1)):
        yield case(f"rollaxis {axis} {start}", lambda np, x, a=axis, s=start: np.rollaxis(x, a, s), CUBE, jax=axis == 1)
    yield case("expand_dims", lambda np, x: np.expand_dims(x, (0, -1)), MATRIX)
    yield case("squeeze", lambda np, x: np.squeeze(x), ("normal", (1, 3, 1)))
    yield case("squeeze axis", lambda np, x: np.squeeze(x, axis=2), ("normal", (1, 3, 1)))
    yield case("broadcast_to", lambda np, x: np.broadcast_to(x, (2, 3, 4)), ("normal", (3, 1)))
    yield case("broadcast_arrays", lambda np, x, y: np.multiply(*np.broadcast_arrays(x, y)), ("normal", (3, 1)), VECTOR)
    for axis in (None, 0, (0, 2)):
        yield case(f"flip {axis}", lambda np, x, a=axis: np.flip(x, a), CUBE, jax=axis == 0)
    yield case("fliplr flipud", lambda np, x: np.fliplr(x) * np.flipud(x), MATRIX)
    for k in (1, 2, 3, -1):
        yield case(f"rot90 {k}", lambda np, x, k=k: np.rot90(x, k), MATRIX, jax=k == 1)
    yield case("rot90 axes", lambda np, x: np.rot90(x, 1, (1, 2)), CUBE)
    for shift, axis in ((1, None), (2, 0), (-1, 1), ((1, 2), (0, 1))):
        yield case(f"roll {shift} {axis}", lambda np, x, s=shift, a=axis: np.roll(x, s, a), MATRIX, jax=axis == 1)
    for reps in (2, (2, 3), (2, 1, 3)):
        yield case(f"tile {reps}", lambda np, x, r=reps: np.tile(x, r), MATRIX, jax=reps == (2, 3))
    yield case("tile vector", lambda np, x: np.tile(x, (2, 2)), VECTOR)
    for axis in (None, 0, 1):
        yield case(f"repeat {axis}", lambda np, x, a=axis: np.repeat(x, 2, axis=a), MATRIX)
    yield case("repeat counts", lambda np, x: np.repeat(x, np.array([1, 0, 3]), axis=0, **_length(np, 4)), MATRIX)
    for n in (1, 2, 3):
        for shape in ((), (3,), (2, 3)):
            yield case(
                f"atleast_{n}d {shape}",
                lambda np, x, n=n: getattr(np, f"atleast_{n}d")(x),
                ("normal", shape),
                jax=False,
            )
    yield case("atleast_1d of two", lambda np, x, y: np.dot(*np.atleast_1d(x, y)), VECTOR, VECTOR)


def _added(ufunc, into, x):
    ufunc.at(into, np.array([0, 2, 2, 4]), x[:4] * 3)
    ufunc.at(into, 1, x[0])
    return into


def _length(module, n):
    return {} if module is np else {"total_repeat_length": n}


def _joins(case):
    for axis in (0, 1, -1, None):
        f = lambda np, x, y, a=axis: np.concatenate([x, np.ones((3, 4)), y], axis=a)  # noqa: E731
        yield case(f"concatenate {axis}", f, MATRIX, MATRIX)
    for axis in (0, 1, -1):
        yield case(f"stack {axis}", lambda np, x, y, a=axis: np.stack([x, y, x], axis=a), MATRIX, MATRIX)
    for name in ("vstack", "hstack", "dstack", "column_stack"):
        yield case(f"{name} vectors", lambda np, x, y, n=name: getattr(np, n)([x, y]), VECTOR, VECTOR)
        yield case(f"{name} matrices", lambda np, x, y, n=name: getattr(np, n)((x, y)), MATRIX, MATRIX)
    yield case("append", lambda np, x, y: np.append(x, y), MATRIX, VECTOR)
    yield case("append axis", lambda np, x, y: np.append(x, y, axis=0), MATRIX, MATRIX)
    yield case("block", lambda np, x, y: np.block([[x, y], [y, x]]), MATRIX, MATRIX)
    yield case("block vectors", lambda np, x, y: np.block([x, y, 1.0]), VECTOR, VECTOR)
    yield case("split", lambda np, x: np.multiply(*np.split(x, 2, axis=1)), MATRIX)
    yield case("split at", lambda np, x: np.split(x, [1, 4])[1], VECTOR)
    yield case("array_split", lambda np, x: np.array_split(x, 3)[2] * np.array_split(x, 3)[0][:1], VECTOR)
    yield case("hsplit vsplit", lambda np, x: np.hsplit(x, 2)[1].sum() * np.vsplit(x, 3)[1], MATRIX)
    yield case("dsplit", lambda np, x: np.dsplit(x, 2)[1], CUBE)


def _indices(case):
    at = np.array([0, 2, 2, -1])
    for index in (0, -1, slice(1, None), slice(None, None, -2), at, FLAGS, Ellipsis, None, (slice(None), None)):
        yield case(f"vector[{index}]", lambda np, x, i=index: x[i], VECTOR)
    rows, columns = np.array([0, 2, 0]), np.array([1, 3, 1])
    indices = [(0,), (1, 2), (slice(1), slice(1, 3)), (rows, columns), (slice(None), at[:3]), (rows[:, None], columns)]
    for index in [*indices, (0, at), (Ellipsis, 1), (None, 1, slice(None)), (rows, slice(None)), np.eye(3, 4) > 0]:
        yield case(f"matrix[{index}]", lambda np, x, i=index: x[i], MATRIX)
    yield case("cube[i, :, at]", lambda np, x: x[0, :, np.array([1, 1, 3])], CUBE)
    yield case("rows", lambda np, x: sum(row * i for i, row in enumerate(x)), MATRIX)
    yield case("take", lambda np, x: np.take(x, np.array([[0, 5], [5, 11]])), MATRIX)
    for axis in (0, 1, -1):
        yield case(f"take {axis}", lambda np, x, a=axis: np.take(x, np.array([[0, 2], [2, 1]]), axis=a), MATRIX)
    yield case("take clip", lambda np, x: np.take(x, np.array([0, 9]), axis=0, mode="clip"), MATRIX)
    yield case("take wrap", lambda np, x: np.take(x, np.array([0, 4]), axis=0, mode="wrap"), MATRIX)
    yield case("method take", lambda np, x: x.take(np.array([1, 1])), VECTOR)
    order = np.array([[0, 1, 1, 2]])
    yield case("take_along_axis 0", lambda np, x: np.take_along_axis(x, order, 0), MATRIX)
    yield case("take_along_axis 1", lambda np, x: np.take_along_axis(x, np.array([[3], [0], [0]]), 1), MATRIX)
    for k in (0, 1, -2):
        yield case(f"diag {k}", lambda np, x, k=k: np.diag(x, k), MATRIX, jax=k == 1)
        yield case(f"diag vector {k}", lambda np, x, k=k: np.diag(x, k), VECTOR, jax=k == 1)
        yield case(f"triu tril {k}", lambda np, x, k=k: np.triu(x, k) * 2 + np.tril(x, k), MATRIX, jax=k == 1)
        yield case(f"trace {k}", lambda np, x, k=k: np.trace(x, k), MATRIX, jax=k == 1)
        for axes in ((0, 1), (1, 2), (2, 0), (0, 2), (2, 1)):
            f = lambda np, x, k=k, axes=axes: np.diagonal(x, k, *axes)  # noqa: E731
            yield case(f"diagonal {k} {axes}", f, ("normal", (3, 4, 3)), jax=k == 1 and axes == (2, 0))
    yield case("trace axes", lambda np, x: np.trace(x, axis1=0, axis2=2), CUBE)


def _choices(case):
    yield case("where", lambda np, x, y: np.where(x > y, x, y * y), ("normal", (2, 1)), ("normal", (3,)))
    yield case("where constant", lambda np, x: np.where(x > 0, x, 0.0) + np.where(x > 0, 1.0, x), VECTOR)
    yield case("select", lambda np, x: np.select([x > 1, x > 0], [x**2, x**3], 0.5), VECTOR)
    f = lambda np, x: np.piecewise(x, [x < 0, x > 0.5], [lambda z: z**2, lambda z: z**3, 1.0])  # noqa: E731
    yield case("piecewise", f, VECTOR)
    yield case("clip", lambda np, x: np.clip(x, -0.5, 0.5), VECTOR)
    yield case("clip traced", lambda np, x, a, b: np.clip(x, -a, b), MATRIX, ("positive", (4,)), ("positive", ()))
    yield case("method clip", lambda np, x: x.clip(-0.2), VECTOR)
    yield case("copy", lambda np, x: np.copy(x) * x.copy(), VECTOR)
    yield case("astype", lambda np, x: x.astype(np.float64) ** 2, VECTOR)
    yield case("np.astype", lambda np, x: np.astype(x, float) ** 2, VECTOR)
    yield case("add.at", lambda np, x: _added(np.add, np.zeros_like(x), x), VECTOR, jax=False)
    yield case("subtract.at", lambda np, x: _added(np.subtract, x * x, x), VECTOR, jax=False)
    yield case("item", lambda np, x: x.sum().item() * x[1], VECTOR, jax=False)
    for name in ("zeros_like", "ones_like"):
        yield case(name, lambda np, x, n=name: x * getattr(np, n)(x) + x, VECTOR)
    yield case("empty_like", lambda np, x: x + 0 * np.nan_to_num(np.empty_like(x)), VECTOR, bits=False)
    yield case("full_like", lambda np, x: np.full_like(x, 2.0) * x, VECTOR)
    yield case("full_like traced", lambda np, x, y: np.full_like(x, y) * x, VECTOR, ("normal", ()))
    yield case("linspace", lambda np, x, y: np.linspace(x, y, 5), ("normal", ()), ("normal", (2,)))
    yield case("meshgrid", lambda np, x, y: np.multiply(*np.meshgrid(x, y)), VECTOR, ("normal", (3,)))
    yield case("meshgrid ij", lambda np, x, y: np.multiply(*np.meshgrid(x, y, indexing="ij")), VECTOR, ("normal", (3,)))
    order = lambda np, x: x[np.argsort(x)] * x[np.argmax(x)] * (np.searchsorted(np.sort(x), x) + 1)  # noqa: E731
    yield case("order", order, VECTOR)
