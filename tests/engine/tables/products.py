"""Products, linear algebra, Fourier transforms and what works on neighbours."""

import itertools

import numpy as np

VECTOR = ("normal", (5,))
SQUARE = ("square", (3, 3))
STACK = ("square", (2, 3, 3))


def cases(case):
    yield from _products(case)
    yield from _linalg(case)
    yield from _fft(case)
    yield from _neighbours(case)


def _products(case):
    pairs = [
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)),
    ]  # fmt: skip
    for left, right in pairs:
        yield case(
            f"matmul {left} {right}",
            lambda np, a, b: np.matmul(a, b),
            ("normal", left),
            ("normal", right),
            jax=len(left) > 2,
        )
        yield case(f"@ {left} {right}", lambda np, a, b: a @ b, ("normal", left), ("normal", right), jax=False)
        yield case(
            f"dot {left} {right}",
            lambda np, a, b: np.dot(a, b),
            ("normal", left),
            ("normal", right),
            jax=len(right) == 2,
        )
    yield case("@ constant", lambda np, a: (np.ones((2, 3)) @ a) @ np.ones((2, 4)), ("normal", (3, 2)))
    yield case("dot scalar", lambda np, a, b: np.dot(a, b), ("normal", ()), ("normal", (3,)))
    yield case("method dot", lambda np, a, b: a.dot(b), ("normal", (2, 3)), ("normal", (3,)))
    for left, right in (((3,), (3,)), ((2, 3), (4, 3)), ((2, 3), (3,)), ((), (3,)), ((2, 5, 3), (4, 3))):
        yield case(f"inner {left} {right}", lambda np, a, b: np.inner(a, b), ("normal", left), ("normal", right))
    yield case("outer", lambda np, a, b: np.outer(a, b), ("normal", (2, 2)), ("normal", (3,)))
    yield case("vdot", lambda np, a, b: np.vdot(a, b), ("normal", (2, 3)), ("normal", (2, 3)))
    yield case("vecdot", lambda np, a, b: np.vecdot(a, b), ("normal", (2, 3)), ("normal", (3,)))
    a, b = ("normal", (2, 3, 4)), ("normal", (4, 3, 5))
    for axes in (1, 0, ([1, 2], [1, 0]), ([2], [0]), (2, 0), ([-1, 1], [0, 1])):
        f = lambda np, a, b, axes=axes: np.tensordot(a, b, axes)  # noqa: E731
        yield case(f"tensordot {axes}", f, a, b, jax=axes in (0, ([-1, 1], [0, 1])))
    yield case("tensordot 2", lambda np, a, b: np.tensordot(a, b, 2), ("normal", (2, 3, 4)), ("normal", (3, 4, 2)))
    for subscripts, shapes in [
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij->", [(2, 3)]), ("ij->j", [(2, 3)]),
        ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iji->j", [(3, 2, 3)]), ("i,j,k->ikj", [(2,), (3,), (4,)]),
        ("...ij,...jk->...ik", [(2, 2, 3), (3, 4)]), ("b...,b...->...", [(2, 3), (2, 3)]), ("...i->...", [(2, 3)]),
        ("i,i,i->", [(3,), (3,), (3,)]), ("ij,ij->ij", [(2, 3), (2, 3)]), ("ij,k->i", [(2, 3), (4,)]),
        ("i...,j->...j", [(2, 3), (4,)]), ("ii,ij->j", [(3, 3), (3, 2)]),
    ]:  # fmt: skip
        f = lambda np, *xs, s=subscripts: np.einsum(s, *xs)  # noqa: E731
        yield case(f"einsum {subscripts}", f, *[("normal", shape) for shape in shapes])
    yield case(
        "einsum broadcast",
        lambda np, x, y: np.einsum("...i,...i->...", x, y),
        ("normal", (2, 1, 3)),
        ("normal", (4, 3)),
    )
    yield case("kron", lambda np, a, b: np.kron(a, b), ("normal", (2, 3)), ("normal", (2, 2)))
    yield case("kron vector", lambda np, a, b: np.kron(a, b), ("normal", (3,)), ("normal", (2, 2)))
    yield case("cross", lambda np, a, b: np.cross(a, b), ("normal", (4, 3)), ("normal", (3,)))
    yield case("cross axis", lambda np, a, b: np.cross(a, b, axis=0), ("normal", (3, 4)), ("normal", (3, 4)))


def _linalg(case):
    for matrix in (SQUARE, STACK):
        for name in ("inv", "det"):
            f = lambda np, a, name=name: getattr(np.linalg, name)(a)  # noqa: E731
            yield case(f"{name} {matrix[1]}", f, matrix, jax=matrix is STACK)
        yield case(f"slogdet {matrix[1]}", lambda np, a: np.linalg.slogdet(a)[1], matrix, jax=matrix is STACK)
        yield case(f"pinv {matrix[1]}", lambda np, a: np.linalg.pinv(a), matrix, jax=matrix is STACK)
        symmetric = lambda np, a: a @ np.swapaxes(a, -1, -2) + np.eye(3)  # noqa: E731
        f = lambda np, a, s=symmetric: np.linalg.cholesky(s(np, a))  # noqa: E731
        yield case(f"cholesky {matrix[1]}", f, matrix, jax=matrix is STACK)
        f = lambda np, a, s=symmetric: np.linalg.eigvalsh(s(np, a))  # noqa: E731
        yield case(f"eigvalsh {matrix[1]}", f, matrix, jax=matrix is STACK)
        f = lambda np, a, s=symmetric: np.linalg.eigh(s(np, a))[0]  # noqa: E731
        yield case(f"eigh values {matrix[1]}", f, matrix, jax=matrix is STACK)
        f = lambda np, a, s=symmetric: np.linalg.eigh(s(np, a))[1] ** 2  # noqa: E731
        yield case(f"eigh vectors {matrix[1]}", f, matrix, jax=matrix is STACK)
        f = lambda np, a, s=symmetric: np.linalg.eigh(s(np, a))  # noqa: E731
        yield case(
            f"eigh both {matrix[1]}", lambda np, a, f=f: f(np, a)[0][..., None] * f(np, a)[1] ** 2, matrix, jax=False
        )
    yield case("eigh upper", lambda np, a: np.linalg.eigh(a, UPLO="U")[0], SQUARE, jax=False)
    yield case("eigh lower", lambda np, a: np.linalg.eigh(a)[0], SQUARE, jax=False)
    for left, right in (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((2, 3, 3), (3, 2))):
        f = lambda np, a, b: np.linalg.solve(a, b)  # noqa: E731
        yield case(f"solve {left} {right}", f, ("square", left), ("normal", right), jax=len(right) != 2)
    for shape in ((4, 3), (3, 4), (3, 3), (2, 4, 3)):
        f = lambda np, a: np.linalg.svd(a, compute_uv=False)  # noqa: E731
        yield case(f"svd values {shape}", f, ("normal", shape), jax=shape == (4, 3))
        yield case(
            f"svd s {shape}",
            lambda np, a: np.linalg.svd(a, full_matrices=False)[1],
            ("normal", shape),
            jax=shape == (3, 4),
        )
        yield case(
            f"svd u {shape}",
            lambda np, a: np.linalg.svd(a, full_matrices=False)[0] ** 2,
            ("normal", shape),
            jax=shape == (3, 4),
        )
        yield case(
            f"svd v {shape}",
            lambda np, a: np.linalg.svd(a, full_matrices=False)[2] ** 2,
            ("normal", shape),
            jax=shape == (3, 4),
        )
        f = lambda np, a: _rebuilt(np, *np.linalg.svd(a, full_matrices=False))  # noqa: E731
        yield case(f"svd all {shape}", f, ("normal", shape), jax=shape == (2, 4, 3))
        if shape != (3, 3):
            yield case(f"pinv {shape}", lambda np, a: np.linalg.pinv(a), ("normal", shape), jax=shape == (3, 4))
    yield case("svdvals", lambda np, a: np.linalg.svdvals(a), ("normal", (4, 3)))
    for n in (0, 1, 2, 3, 5, -2):
        yield case(f"matrix_power {n}", lambda np, a, n=n: np.linalg.matrix_power(0.4 * a, n), SQUARE, jax=n in (3, -2))
    f = lambda np, a, b: np.linalg.lstsq(a, b, rcond=None)[0]  # noqa: E731
    yield case("lstsq", f, ("normal", (5, 3)), VECTOR)
    yield case("lstsq many", f, ("normal", (5, 3)), ("normal", (5, 2)))
    g = lambda np, a, b: np.linalg.lstsq(a, b, rcond=None)[1]  # noqa: E731
    yield case("lstsq residual", g, ("normal", (5, 3)), VECTOR)
    chain = [("normal", (2, 3)), ("normal", (3, 4)), ("normal", (4,))]
    yield case("multi_dot", lambda np, *xs: np.linalg.multi_dot(xs), *chain)
    for order, axis, keepdims in itertools.product((None, 1, 2, 3, np.inf, -np.inf), (None, 0, 1), (False, True)):
        if axis is None and order in (3, 2):
            continue
        f = lambda np, x, o=order, a=axis, k=keepdims: np.linalg.norm(x, o, a, k)  # noqa: E731
        yield case(f"norm {order} axis={axis} keepdims={keepdims}", f, ("normal", (3, 4)), jax=axis == 1 and keepdims)
    for order in ("fro", "nuc", 2, -2, -1):
        for axis, keepdims in ((None, False), ((0, 2), True)):
            f = lambda np, x, o=order, a=axis, k=keepdims: np.linalg.norm(x, o, a, k)  # noqa: E731
            shape = (3, 4) if axis is None else (3, 2, 4)
            yield case(f"norm {order} axis={axis}", f, ("normal", shape), jax=axis is None)
    for order in (None, 1, 2, 3.5, np.inf):
        yield case(f"norm vector {order}", lambda np, x, o=order: np.linalg.norm(x, o), VECTOR, jax=order == 3.5)


def _rebuilt(np, u, s, vh):
    return (u * np.sin(s)[..., None, :]) @ vh


def _fft(case):
    for name in ("fft", "ifft"):
        for n, axis, norm in itertools.product((None, 3, 8), (0, -1), (None, "ortho", "forward")):
            f = lambda np, x, m=name, n=n, a=axis, o=norm: getattr(np.fft, m)(x, n, a, o)  # noqa: E731
            yield case(f"{name} {n} {axis} {norm}", f, ("complex", (4, 5)), jax=n == 8 and norm == "ortho")
        yield case(f"{name} real", lambda np, x, m=name: getattr(np.fft, m)(x), VECTOR)
    for n, axis, norm in itertools.product((None, 3, 4, 9), (0, -1), (None, "ortho", "forward")):
        f = lambda np, x, n=n, a=axis, o=norm: np.fft.rfft(x, n, a, o)  # noqa: E731
        jax = n == 4 and norm == "ortho"
        yield case(f"rfft {n} {axis} {norm}", f, ("normal", (4, 5)), jax=jax)
        f = lambda np, x, n=n, a=axis, o=norm: np.fft.irfft(x, n, a, o)  # noqa: E731
        yield case(f"irfft {n} {axis} {norm}", f, ("complex", (4, 5)), jax=jax)
    for name in ("fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn"):
        yield case(name, lambda np, x, m=name: getattr(np.fft, m)(x), ("complex", (3, 4)))
        f = lambda np, x, m=name: getattr(np.fft, m)(x, (4, 4), (0, 1))  # noqa: E731
        yield case(f"{name} s", f, ("complex", (3, 4, 2)))
    for name in ("rfft2", "rfftn"):
        yield case(name, lambda np, x, m=name: getattr(np.fft, m)(x), ("normal", (3, 4)))
        f = lambda np, x, m=name: getattr(np.fft, m)(x, (4, 5), (0, 1), "ortho")  # noqa: E731
        yield case(f"{name} s", f, ("normal", (3, 4, 2)))
    f = lambda np, x: np.fft.ifft(np.fft.fft(x) * np.fft.fft(np.arange(5.0) ** 2)).real  # noqa: E731
    yield case("convolution by fft", f, VECTOR)
    f = lambda np, x, k: np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(k), 5) ** 2  # noqa: E731
    yield case("convolution by rfft", f, VECTOR, VECTOR)
    yield case("power spectrum", lambda np, x: np.abs(np.fft.rfft(x)) ** 2, VECTOR)
    yield case("fftshift", lambda np, x: np.fft.fftshift(x) + np.fft.ifftshift(x, axes=0), ("complex", (3, 4)))
    z = ("complex", (3,))
    for name in (
        "exp",
        "log",
        "sin",
        "cos",
        "sinh",
        "tanh",
        "sqrt",
        "square",
        "reciprocal",
        "absolute",
        "real",
        "imag",
    ):
        yield case(f"complex {name}", lambda np, z, name=name: getattr(np, name)(z), z)
    yield case("complex conj", lambda np, z: z.conj() * np.conjugate(z) * z, z)
    yield case("complex abs", lambda np, z: abs(z), z)
    yield case("complex angle", lambda np, z: np.angle(z), z)
    yield case("complex parts", lambda np, z: z.real * z.imag + np.real(z) ** 2, z)
    yield case("complex and real", lambda np, z, x: z * x + x / z - (1 + 2j) * x, z, ("normal", (3,)))
    yield case("complex power", lambda np, z: z**3 + z**0.5, z)
    yield case("complex products", lambda np, z, w: np.vdot(z, w) * np.sum(z) * np.dot(z, w), z, z)
    yield case("complex matmul", lambda np, z, x: z @ x, ("complex", (2, 3)), ("normal", (3, 2)))
    yield case("complex inv", lambda np, z: np.linalg.inv(z + 3 * np.eye(3)), ("complex", (3, 3)))
    yield case("complex solve", lambda np, z, b: np.linalg.solve(z + 3 * np.eye(3), b), ("complex", (3, 3)), z)
    yield case("complex einsum", lambda np, z, x: np.einsum("i,j->ij", z, x), z, ("normal", (3,)))
    yield case("complex norm", lambda np, z: np.linalg.norm(z), z)
    yield case("complex to real", lambda np, z: np.real(z).astype(complex) * 1j, z)


def _neighbours(case):
    for n, axis in ((1, -1), (2, 0), (3, 1)):
        yield case(f"diff {n} {axis}", lambda np, x, n=n, a=axis: np.diff(x, n, axis=a), ("normal", (4, 5)))
    yield case("diff prepend", lambda np, x, y: np.diff(x, prepend=y, append=0.0), VECTOR, ("normal", (2,)))
    yield case("ediff1d", lambda np, x: np.ediff1d(x, to_end=1.0), VECTOR)
    yield case("trapezoid", lambda np, y: np.trapezoid(y, dx=0.3, axis=0), ("normal", (4, 3)))
    yield case(
        "trapezoid x",
        lambda np, y, x: np.trapezoid(y, np.cumsum(np.exp(x)), axis=0),
        ("normal", (4, 3)),
        ("normal", (4,)),
    )
    for edge in (1, 2):
        jax = edge == 1
        yield case(f"gradient {edge}", lambda np, x, e=edge: np.gradient(x, **_edge(np, e)), VECTOR, jax=jax)
        f = lambda np, x, e=edge: np.gradient(x, 0.3, axis=1, **_edge(np, e))  # noqa: E731
        yield case(f"gradient axis {edge}", f, ("normal", (4, 5)), jax=jax)
        f = lambda np, x, e=edge: np.multiply(*np.gradient(x, 0.3, 0.7, **_edge(np, e)))  # noqa: E731
        yield case(f"gradient plane {edge}", f, ("normal", (4, 5)), jax=jax)
        f = lambda np, x, e=edge: np.gradient(x, np.array([0.0, 0.3, 0.5, 1.0, 1.1]), edge_order=e)  # noqa: E731
        yield case(f"gradient uneven {edge}", f, VECTOR, jax=False)
    for mode, (left, right) in itertools.product(
        ("full", "same", "valid"), ((5, 3), (3, 5), (4, 4), (5, 2), (2, 5), (6, 1))
    ):
        f = lambda np, a, v, m=mode: np.convolve(a, v, m)  # noqa: E731
        yield case(f"convolve {mode} {left} {right}", f, ("normal", (left,)), ("normal", (right,)), jax=right == 2)
        f = lambda np, a, v, m=mode: np.correlate(a, v, m)  # noqa: E731
        yield case(f"correlate {mode} {left} {right}", f, ("normal", (left,)), ("normal", (right,)), jax=left == 2)
    for mode in ("constant", "edge", "reflect", "symmetric", "wrap"):
        for width in (1, (2, 1), ((1, 2), (0, 3))):
            f = lambda np, x, m=mode, w=width: np.pad(x, w, mode=m)  # noqa: E731
            yield case(f"pad {mode} {width}", f, ("normal", (3, 4)), jax=width == (2, 1))
    yield case("pad value", lambda np, x: np.pad(x, 1, constant_values=2.0), ("normal", (3, 4)))
    yield case("pad traced", lambda np, x, y: np.pad(x, (1, 2), constant_values=y), VECTOR, ("normal", ()), jax=False)
    grid, points = np.array([0.0, 0.5, 1.5, 2.0]), np.array([-1.0, 0.1, 0.7, 1.9, 3.0])
    yield case("interp x", lambda np, x: np.interp(x + points, grid, np.array([1.0, 3.0, 2.0, 5.0])), ("small", (5,)))
    yield case("interp f", lambda np, f: np.interp(points, grid, f), ("normal", (4,)))
    yield case(
        "interp grid", lambda np, g: np.interp(points[1:4], grid + g, np.array([1.0, 3.0, 2.0, 5.0])), ("small", (4,))
    )
    f = lambda np, x: np.interp(x + points, grid, np.ones(4), left=2.0, right=3.0)  # noqa: E731
    yield case("interp ends", f, ("small", (5,)))


def _edge(module, order):
    return {"edge_order": order} if module is np else {}
