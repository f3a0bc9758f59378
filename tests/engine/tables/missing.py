"""Arrays made of traced numbers, writing into arrays, order and counts, polynomials, eigenvalues."""

import numpy as np

VECTOR, MATRIX, SQUARE = ("normal", (5,)), ("normal", (3, 4)), ("square", (3, 3))
TRICKS = np.lib.stride_tricks
WHERE = np.array([True, False, True, True, False])


def _written(write):
    def f(module, x, *rest):
        y = x * 1.0
        write(y, *rest)
        return y

    return f


def _apart(n):
    """Matrices whose eigenvalues and singular values lie apart."""
    return np.diag(np.arange(1.0, n + 1))


def cases(case):
    yield from _made(case)
    yield from _filled(case)
    yield from _ordered(case)
    yield from _polynomials(case)
    yield from _grids(case)
    yield from _eigen(case)


def _made(case):
    number = ("number", ())
    yield case("array list", lambda np, x: np.array([x[0], 2.0, x[1] * x[2]]), VECTOR)
    yield case("array nested", lambda np, x: np.array([[x[0], 1.0], [x[1], x[0]]]), VECTOR)
    yield case("array of arrays", lambda np, x, y: np.array([x, y * 2, [1.0] * 5]), VECTOR, VECTOR, jax=False)
    yield case("array of numbers", lambda np, a, b: np.array([a, b]) ** 2, number, number, jax=False)
    yield case("array copy", lambda np, x: np.array(x) * np.array(x, dtype=float, ndmin=2), VECTOR)
    yield case("asarray", lambda np, x: np.asarray(x) * np.asarray([x[0], x[1], 1, 2, 3]), VECTOR)
    yield case("asanyarray", lambda np, x: np.asanyarray(x) ** 2, VECTOR, jax=False)
    yield case("ascontiguousarray", lambda np, x: np.ascontiguousarray(x.T) ** 2, MATRIX, jax=False)
    yield case("asfortranarray", lambda np, x: np.asfortranarray(x) ** 2, MATRIX, jax=False)
    yield case("fromiter", lambda np, x: np.fromiter((v * v for v in x), float), VECTOR, jax=False)
    yield case("full", lambda np, a: np.full((2, 3), a), number)
    yield case("full rows", lambda np, x: np.full((2, 5), x), VECTOR)
    yield case("r_", lambda np, x: np.r_[0.0, x, x[1:3], x[0], 1:3], VECTOR, jax=False)
    yield case("r_ matrices", lambda np, x: np.r_[x, x[:1]], MATRIX, jax=False)
    yield case("c_", lambda np, x: np.c_[x, x * x, np.ones(5)], VECTOR, jax=False)
    yield case("c_ matrices", lambda np, x: np.c_[x, x[:, 0]], MATRIX, jax=False)
    for name in ("sum", "mean", "max", "prod", "std", "cumsum", "sort", "median"):
        yield case(f"{name} of a list", lambda np, x, n=name: getattr(np, n)([x[0], x[1] ** 2, 0.5]), VECTOR, jax=False)
    yield case("norm of a list", lambda np, x: np.linalg.norm([x[0], x[1], 2.0]), VECTOR, jax=False)
    yield case("dot of lists", lambda np, x: np.dot([x[0], x[1]], [x[2], 2.0]), VECTOR, jax=False)
    yield case("list times array", lambda np, x: [x[0], x[1], 1.0, 1.0, 1.0] * x, VECTOR, jax=False)


def _filled(case):
    yield case("copyto", _written(lambda y, v: np.copyto(y, v)), VECTOR, ("normal", ()), jax=False)
    yield case("copyto where", _written(lambda y, v: np.copyto(y, v, where=WHERE)), VECTOR, VECTOR, jax=False)
    for shape in ((3, 3), (4, 3), (3, 3, 3)):
        f = _written(lambda y, v: np.fill_diagonal(y, v))
        yield case(f"fill_diagonal {shape}", f, ("normal", shape), ("normal", ()), jax=False)
    yield case(
        "fill_diagonal wrap",
        _written(lambda y, v: np.fill_diagonal(y, v, wrap=True)),
        ("normal", (7, 2)),
        ("normal", (3,)),
        jax=False,
    )
    yield case("put", _written(lambda y, v: np.put(y, [0, -1, 5], v)), MATRIX, ("normal", (2,)), jax=False)
    yield case(
        "put clip", _written(lambda y, v: np.put(y, [0, 22], v, mode="clip")), MATRIX, ("normal", (2,)), jax=False
    )
    yield case("put wrap", _written(lambda y, v: np.put(y, [0, 22], v, mode="wrap")), MATRIX, ("normal", ()), jax=False)
    yield case("putmask", _written(lambda y, v: np.putmask(y, WHERE, v)), VECTOR, ("normal", (2,)), jax=False)
    yield case("place", _written(lambda y, v: np.place(y, WHERE, v)), VECTOR, ("normal", (2,)), jax=False)
    at = np.array([[1], [0], [3]])
    yield case(
        "put_along_axis", _written(lambda y, v: np.put_along_axis(y, at, v, 1)), MATRIX, ("normal", (3, 1)), jax=False
    )
    yield case("insert", lambda np, x, v: np.insert(x, 2, v), VECTOR, ("normal", ()))
    yield case("insert several", lambda np, x, v: np.insert(x, np.array([0, 3, 3]), v), VECTOR, ("normal", (3,)))
    yield case("insert rows", lambda np, x, v: np.insert(x, 1, v, axis=0), MATRIX, ("normal", (4,)))
    yield case("insert into a constant", lambda np, v: np.insert(np.arange(4.0), 1, v), ("normal", (2,)))


def _ordered(case):
    yield case("partition", lambda np, x: np.partition(x, 2), MATRIX, jax=False)
    yield case("unique", lambda np, x: np.unique(x * np.array([1, 1, 0, 0, 1.0])), VECTOR, jax=False, fd=False)
    yield case("unique values", lambda np, x: np.sort(np.unique_values(x)), VECTOR, jax=False)
    yield case("unique rows", lambda np, x: np.unique(x, axis=0, return_counts=True)[0], MATRIX, jax=False)
    yield case("trim_zeros", lambda np, x: np.trim_zeros(x * np.array([0, 1, 0, 1, 0])), VECTOR, jax=False)
    yield case("resize", lambda np, x: np.resize(x, (3, 4)), VECTOR)
    holes = np.array([[0, np.nan, 0, 0], [0, 0, np.nan, 0], [0.0] * 4])
    for axis in (None, 0, 1):
        yield case(f"nanmedian {axis}", lambda np, x, a=axis: np.nanmedian(x + holes, axis=a), MATRIX, jax=axis == 1)
        f = lambda np, x, a=axis: np.nanpercentile(x + holes, np.array([10.0, 70.0]), axis=a)  # noqa: E731
        yield case(f"nanpercentile {axis}", f, MATRIX, jax=axis == 1)
    yield case("nanquantile keepdims", lambda np, x: np.nanquantile(x + holes, 0.3, axis=0, keepdims=True), MATRIX)
    yield case("nancumsum", lambda np, x: np.nancumsum(x + holes, axis=1), MATRIX)
    yield case("nancumprod", lambda np, x: np.nancumprod(x + holes, axis=1), MATRIX)
    bins = np.array([0, 3, 3, 1, 0])
    yield case("bincount", lambda np, x: np.bincount(bins, x, minlength=6), VECTOR, jax=False)
    values = np.linspace(0, 1, 5)
    yield case("histogram", lambda np, x: np.histogram(values, 3, weights=x)[0], VECTOR, jax=False)
    yield case(
        "histogram density",
        lambda np, x: np.histogram(values, [0.0, 0.3, 1.0], weights=x, density=True)[0],
        ("positive", (5,)),
        jax=False,
    )
    yield case("choose", lambda np, x: np.choose(np.array([0, 2, 1, 0]), x), MATRIX, jax=False)
    yield case("maximum.accumulate", lambda np, x: np.maximum.accumulate(x, axis=1), MATRIX, jax=False)
    yield case("minimum.accumulate", lambda np, x: np.minimum.accumulate(x), MATRIX, jax=False)
    yield case("logaddexp.accumulate", lambda np, x: np.logaddexp.accumulate(x), VECTOR, jax=False)
    yield case("add.reduceat", lambda np, x: np.add.reduceat(x, [0, 2, 1, 3]), VECTOR, jax=False)
    yield case("add.reduceat rows", lambda np, x: np.add.reduceat(x, [0, 2], axis=1), MATRIX, jax=False)


def _polynomials(case):
    p, q = ("positive", (4,)), ("normal", (3,))
    yield case("polyadd", lambda np, p, q: np.polyadd(p, q), p, q)
    yield case("polysub", lambda np, p, q: np.polysub(p, q), p, q)
    yield case("polymul", lambda np, p, q: np.polymul(p, q), p, q, jax=False)
    yield case("polyder", lambda np, p: np.polyder(p, 2), p)
    yield case("polyint", lambda np, p: np.polyint(p, 2), p)
    yield case("poly", lambda np, q: np.poly(q), q, jax=False)
    yield case("roots", lambda np, p: np.roots(p * np.array([1.0, 5.0, 3.0, 0.5])), p, jax=False, bits=False)
    at = np.linspace(0, 1, 6)
    yield case("polyfit", lambda np, y: np.polyfit(at, y, 2), ("normal", (6,)))
    yield case(
        "polyfit x",
        lambda np, x, y: np.polyfit(x + 3 * at, y, 2, w=1 + at),
        ("unit", (6,)),
        ("normal", (6,)),
        jax=False,
    )
    P = np.polynomial.polynomial
    yield case("polynomial.polyval", lambda _, x, c: P.polyval(x, c), VECTOR, q, jax=False)
    yield case("Polynomial", lambda _, x, c: np.polynomial.Polynomial(c)(x), VECTOR, q, jax=False)


def _grids(case):
    number = ("number", ())
    yield case("divmod", lambda np, x: np.add(*np.divmod(x, 0.7)), VECTOR, jax=False)
    if hasattr(np, "cumulative_prod"):
        for initial in (False, True):
            f = lambda np, x, i=initial: np.cumulative_prod(x, axis=1, include_initial=i)  # noqa: E731
            yield case(f"cumulative_prod {initial}", f, MATRIX)
    yield case("logspace", lambda np, a, b: np.logspace(a, b, 4), number, number)
    yield case("geomspace", lambda np, a, b: np.geomspace(a, b + 1, 4), number, number, jax=False)
    windows = np.lib.stride_tricks.sliding_window_view
    yield case("sliding_window_view", lambda _, x: windows(x, 3) * np.arange(3.0), VECTOR, jax=False)
    yield case("sliding_window_view axes", lambda _, x: windows(x, (2, 2)), MATRIX, jax=False)
    yield case("sliding_window_view axis", lambda _, x: windows(x, 2, axis=1), MATRIX, jax=False)
    yield case("as_strided", lambda _, x: TRICKS.as_strided(x, (3, 2), (x.itemsize, 2 * x.itemsize)), VECTOR, jax=False)
    yield case("apply_along_axis", lambda np, x: np.apply_along_axis(lambda r: r[:2] * np.sum(r), 1, x), MATRIX)
    yield case(
        "apply_along_axis 0", lambda np, x: np.apply_along_axis(lambda r: np.sum(r * r), 0, x), MATRIX, jax=False
    )
    yield case("apply_over_axes", lambda np, x: np.apply_over_axes(np.sum, x, [0]), MATRIX, jax=False)
    yield case("unwrap", lambda np, x: np.unwrap(4 * x), VECTOR)
    yield case("real_if_close", lambda np, x: np.real_if_close(x + 0j), VECTOR, jax=False)
    yield case("diagflat", lambda np, x: np.diagflat(x, 1), VECTOR)
    yield case("modf", lambda np, x: np.modf(x)[0], VECTOR)
    if hasattr(np, "matvec"):
        yield case("matvec", lambda np, a, b: np.matvec(a, b), MATRIX, ("normal", (4,)))
        yield case("vecmat", lambda np, a, b: np.vecmat(a, b), ("normal", (3,)), MATRIX)
    yield case("einsum lists", lambda np, a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]), MATRIX, ("normal", (4, 2)))
    yield case("einsum lists implied", lambda np, a: np.einsum(a, [1, 0]), MATRIX)


def _eigen(case):
    apart = _apart(3)
    hermitian = lambda np, x: x + np.conjugate(x.T) + 4 * apart  # noqa: E731
    whole = ("complex", (3, 3))
    yield case("eigvals", lambda np, x: np.linalg.eigvals(x * 0.1 + apart), SQUARE, jax=False)
    yield case("eig values", lambda np, x: np.linalg.eig(x * 0.1 + apart)[0], SQUARE, jax=False)
    yield case("eig vectors", lambda np, x: np.linalg.eig(x * 0.1 + apart)[1], SQUARE, jax=False)
    turning = np.array([[0.0, 2.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    yield case("eig turning", lambda np, x: np.linalg.eig(x * 0.1 + turning)[0], SQUARE, jax=False)
    yield case("eig turning vectors", lambda np, x: np.linalg.eig(x * 0.1 + turning)[1], SQUARE, jax=False)
    yield case("eig complex", lambda np, x: np.linalg.eig(x * 0.1 + apart)[1], whole, jax=False)
    yield case("qr", lambda np, x: np.linalg.qr(x)[0] @ np.ones((3, 2)) + np.linalg.qr(x)[1][0, 0], ("square", (3, 3)))
    yield case("qr tall", lambda np, x: np.linalg.qr(x)[0] @ np.linalg.qr(x)[1] ** 2, ("normal", (4, 2)))
    yield case("qr r", lambda np, x: np.linalg.qr(x, mode="r"), ("normal", (4, 2)), jax=False)
    yield case("eigh complex", lambda np, x: np.linalg.eigh(hermitian(np, x))[0], whole)
    yield case("eigvalsh complex upper", lambda np, x: np.linalg.eigvalsh(hermitian(np, x), UPLO="U"), whole, jax=False)

    yield case("eigh complex phases", lambda np, x: np.linalg.eigh(hermitian(np, x))[1], whole, jax=False)
    yield case("eigh complex phases upper", lambda np, x: np.linalg.eigh(hermitian(np, x), "U")[1], whole, jax=False)
    for shape in ((3, 3), (3, 2)):
        for k in (0, 2):
            f = lambda np, x, k=k: np.linalg.svd(x + 3 * apart[: x.shape[0], : x.shape[1]], full_matrices=False)[k]  # noqa: E731  # noqa: E501
            yield case(f"svd complex phases {shape} {k}", f, ("complex", shape), jax=False)

    def projected(np, x):
        v = np.linalg.eigh(hermitian(np, x))[1]
        return v[:, :1] @ np.conjugate(v[:, :1].T)

    yield case("eigh complex vectors", projected, whole)

    def rank_one(np, x):
        u, s, vh = np.linalg.svd(x + 3 * apart, full_matrices=False)
        return u[:, :1] @ vh[:1] * s[0]

    yield case("svd complex", rank_one, whole)
    yield case(
        "svd complex wide", lambda np, x: rank_one(np, np.concatenate([x, x[:, :2] ** 2], 1)[:, :3]), whole, jax=False
    )
    yield case("svd complex values", lambda np, x: np.linalg.svd(x + 3 * apart, compute_uv=False), whole)
    positive = lambda np, x: x @ np.conjugate(x.T) + 3 * apart  # noqa: E731
    yield case("cholesky complex", lambda np, x: np.linalg.cholesky(positive(np, x)), whole)
    yield case(
        "tensorinv",
        lambda np, x: np.linalg.tensorinv(np.reshape(x + 2 * _apart(4), (2, 2, 4))),
        ("normal", (4, 4)),
        jax=False,
    )
    yield case(
        "tensorsolve",
        lambda np, x, b: np.linalg.tensorsolve(np.reshape(x + 2 * _apart(4), (2, 2, 4)), b),
        ("normal", (4, 4)),
        ("normal", (2, 2)),
        jax=False,
    )
    for p in (None, 1, "fro"):
        yield case(f"cond {p}", lambda np, x, p=p: np.linalg.cond(x, p), SQUARE, jax=False)
    yield case("linalg diagonal", lambda np, x: np.linalg.diagonal(x, offset=1), ("normal", (2, 3, 3)))
