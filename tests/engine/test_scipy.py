"""Functions of SciPy inside of differentiated programs, against differences, both modes, and refusals by name."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, interpolate, linalg, ndimage, optimize, signal, sparse, spatial, special, stats
from scipy.integrate import odeint, solve_ivp
from scipy.sparse import linalg as sparse_linalg
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from tests.engine.test_blank import differences

import pebbling as pb

U = np.array([0.7, 0.3, 0.52])
X = np.array([0.2, 1.3, 2.2])
W = np.arange(1.0, 4.0)
RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
B2 = RNG.normal(size=(3, 2))
B4 = RNG.normal(size=(3, 4))
IMAGE = RNG.normal(size=(6, 7))
KERNEL, EVEN = RNG.normal(size=(3, 3)), RNG.normal(size=(2, 4))
COV = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.0]])
SPARSE = sparse.diags([-1.0, 2.5, -1.2], [-1, 0, 1], shape=(3, 3), format="csr")
SPARSE_ARRAY = sparse.csr_array(SPARSE)
FACTORS = sparse_linalg.splu(SPARSE.tocsc())
FACTORIZED = sparse_linalg.factorized(SPARSE.tocsc())


def matrix(u):
    return A + 0.3 * np.outer(u, np.sin(u))


def symmetric(u):
    return matrix(u) @ matrix(u).T


def image(u):
    return IMAGE * np.sin(u[0] * IMAGE) + u[1] * IMAGE**2 + u[2]


def of_lse(u):
    return logsumexp(u * W) + np.sum(logsumexp(np.outer(u, W), axis=1) ** 2) + logsumexp(u, b=W)


def of_sm(u):
    return np.sum(special.softmax(np.outer(u, W), axis=1) * np.outer(W, W)) + special.log_softmax(u)[0]


def of_psi(u):
    return np.sum(
        special.polygamma(1, u)
        + special.multigammaln(u + 2, 2)
        + special.betainc(2.0, 3.0, u)
        + special.stdtr(3.0, u)
        + special.ellipk(u)
        + special.ellipe(u)
    )


def of_solve(u):
    return (
        np.sum(linalg.solve(matrix(u), u) ** 2)
        + np.sum(linalg.solve(symmetric(u), B2, assume_a="pos") ** 2)
        + linalg.solve(matrix(u), u, transposed=True)[0]
    )


def of_invdet(u):
    return np.sum(linalg.inv(matrix(u)) ** 3) + linalg.det(matrix(u)) + linalg.norm(matrix(u))


def of_chol(u):
    c = linalg.cho_factor(symmetric(u))
    L = linalg.cholesky(symmetric(u), lower=True)
    return (
        u @ linalg.cho_solve(c, u)
        + np.sum(np.log(np.diag(L)))
        + np.sum(linalg.cho_solve(linalg.cho_factor(symmetric(u), lower=True), B2) ** 2)
    )


def of_chol2(u):
    U = linalg.cholesky(symmetric(u))
    return np.sum(U * A)


def of_tri(u):
    return (
        np.sum(linalg.solve_triangular(matrix(u), u) ** 2)
        + np.sum(linalg.solve_triangular(matrix(u), B2 * u[0], lower=True, trans="T") ** 3)
        + linalg.solve_triangular(matrix(u), u, unit_diagonal=True, lower=True)[2]
    )


def of_lu(u):
    f = linalg.lu_factor(matrix(u))
    return np.sum(linalg.lu_solve(f, u) ** 2) + np.sum(linalg.lu_solve(f, B2, trans=1) ** 2) + np.sum(f[0] * A)


def of_lu_perm(u):
    m = matrix(u)[[2, 0, 1]]
    f = linalg.lu_factor(m)
    return np.sum(linalg.lu_solve(f, u) ** 2) + np.sum(f[0] * A)


def of_banded(u):
    ab = np.stack([u * 0.3, 4 + u**2, u * 0.2, 0.1 * u])
    return np.sum(linalg.solve_banded((2, 1), ab, u) ** 2) + np.sum(linalg.solve_banded((2, 1), ab, B2) ** 2)


def of_hbanded(u):
    ab = np.stack([u * 0.3, 4 + u**2])
    return np.sum(linalg.solveh_banded(ab, u) ** 2) + np.sum(linalg.solveh_banded(ab[::-1], B2, lower=True) ** 2)


def of_expm(u):
    return np.sum(linalg.expm(matrix(u) * 0.1) @ u) + linalg.expm(-0.1 * matrix(u))[0, 1]


def of_toep(u):
    return (
        np.linalg.det(linalg.toeplitz(u) + np.eye(3))
        + np.sum(linalg.toeplitz(u, W * u) @ W)
        + np.sum(linalg.block_diag(matrix(u), np.outer(u, u)) @ np.ones(6))
        + linalg.circulant(u)[0, 1]
    )


def of_loop(u):
    x = u
    for _ in range(4):
        x = linalg.solve(np.eye(3) + 0.1 * matrix(u), x) + special.expit(x)
    return logsumexp(x)


def of_sp(u):
    return (
        np.sum((SPARSE @ u) ** 2)
        + np.sum(SPARSE.dot(u) * u)
        + np.sum((u @ SPARSE) ** 3)
        + np.sum((SPARSE_ARRAY @ np.outer(u, u)) ** 2)
        + np.sum(SPARSE.T @ u) * u[0]
        + np.sum((np.outer(u, u) @ SPARSE_ARRAY) ** 2)
        + np.sum((SPARSE * u) ** 2)
    )


def of_sps(u):
    return (
        np.sum(sparse_linalg.spsolve(SPARSE.tocsc(), u) ** 3)
        + np.sum(FACTORS.solve(u) ** 2)
        + np.sum(FACTORS.solve(np.outer(u, B4[0]), "T") ** 2)
        + np.sum(FACTORIZED(u * 2) ** 3)
        + np.sum(sparse_linalg.splu(SPARSE.tocsc()).solve(u))
    )


def of_sploop(u):
    x = u
    lu = FACTORS
    for _ in range(5):
        x = lu.solve(x + 0.1 * np.sin(SPARSE @ x))
    return np.sum(x**2)


def of_nd(u):
    x = image(u)
    s = 0.0
    for m in ("reflect", "mirror", "nearest", "wrap", "constant"):
        s += (
            np.sum(ndimage.convolve(x, KERNEL, mode=m, cval=0.5) ** 2)
            + np.sum(ndimage.correlate(x, EVEN, mode=m) ** 2)
            + np.sum(ndimage.convolve(x, EVEN, mode=m) ** 2)
        )
    return s


def of_nd2(u):
    x = image(u)
    return (
        np.sum(ndimage.gaussian_filter(x, 0.8) ** 2)
        + np.sum(ndimage.gaussian_filter(x, (0.5, 1.1), order=(0, 1)) ** 2)
        + np.sum(ndimage.laplace(x) ** 3)
        + np.sum(ndimage.sobel(x, 0) ** 2)
        + np.sum(ndimage.prewitt(x) ** 2)
        + np.sum(ndimage.uniform_filter(x, 3) ** 2)
        + np.sum(ndimage.uniform_filter(x, 4) ** 2)
        + np.sum(ndimage.gaussian_filter1d(x, 1.0, axis=0) ** 2)
        + np.sum(ndimage.convolve1d(x, [1.0, 2.0, 3.0, 4.0]) ** 2)
        + np.sum(ndimage.correlate1d(x, [1.0, 2.0, 4.0], origin=1) ** 2)
    )


def of_sg(u):
    x = image(u)
    s = 0.0
    for m in ("full", "same", "valid"):
        s += (
            np.sum(signal.convolve(x, KERNEL * u[0], m) ** 2)
            + np.sum(signal.fftconvolve(x, KERNEL, m) ** 2)
            + np.sum(signal.convolve2d(x, KERNEL, m) ** 2)
            + np.sum(signal.correlate(x, KERNEL, m) ** 2)
            + np.sum(signal.correlate2d(x, KERNEL, m) ** 2)
            + np.sum(signal.convolve(u, B4[0][:2], m) ** 2)
            + np.sum(signal.convolve2d(x, EVEN, m, boundary="wrap") ** 2)
            + np.sum(signal.convolve2d(x, EVEN, m, boundary="symm") ** 2)
            + np.sum(signal.correlate(u, B4[0], m) ** 2)
        )
    return s


def of_lf(u):
    x = np.concatenate([u, B4[0], u**2])
    return (
        np.sum(signal.lfilter([1.0, 0.5], [1.0, -0.3, 0.1], x) ** 2)
        + np.sum(signal.lfilter(u, np.array([2.0, -0.3]) * u[0], B4.ravel()) ** 2)
        + np.sum(signal.lfilter(u[:2], [1.0], B4) ** 2)
    )


def of_nrm(u):
    return (
        np.sum(norm.logpdf(X, u[0], u[1]))
        + np.sum(norm.pdf(X * u[2]) + norm.cdf(X, loc=u) + norm.logcdf(u * X) + norm.sf(u) + norm.logsf(u))
        + norm(u[0], u[1]).logpdf(1.2)
        + norm.ppf(u[0])
    )


def of_others(u):
    s = 0.0
    for d in (
        stats.expon,
        stats.laplace,
        stats.logistic,
        stats.cauchy,
        stats.halfnorm,
        stats.rayleigh,
        stats.gumbel_r,
        stats.gumbel_l,
        stats.halfcauchy,
    ):
        s = s + np.sum(d.logpdf(X, 0.1 * u[0], u[1])) + np.sum(d.cdf(X * u[2]) + d.pdf(u) + d.logsf(u) + d.logcdf(u))
    return s


def of_shapes(u):
    return np.sum(
        stats.gamma.logpdf(X, u[0] + 1, scale=u[1])
        + stats.beta.logpdf(u * 0.9, u[1] + 1, u[2] + 2)
        + stats.t.logpdf(X, u[0] * 4, u[1], u[2])
        + stats.chi2.logpdf(X * u[0], 3.0)
        + stats.lognorm.logpdf(X, u[0])
        + stats.weibull_min.logpdf(X, u[0] + 1)
        + stats.invgamma.logpdf(X, u[0] + 1)
        + stats.pareto.logpdf(X + 1, u[0])
        + stats.gamma.cdf(u, 2.0)
        + stats.beta.cdf(u * 0.9, 2.0, 3.0)
        + stats.t.cdf(u, 4.0)
        + stats.chi2.cdf(u, 2.0)
        + stats.lognorm.cdf(u, 0.5)
    )


def of_disc(u):
    k = np.array([0, 2, 3])
    return np.sum(
        stats.poisson.logpmf(k, u)
        + stats.poisson.cdf(k, u * 3)
        + stats.binom.logpmf(k, 5, u)
        + stats.bernoulli.logpmf([0, 1, 1], u)
        + stats.geom.logpmf(k + 1, u)
        + stats.nbinom.logpmf(k, 3.0, u)
        + stats.binom.cdf(k, 5, u)
        + stats.poisson.pmf(k, u)
    )


def of_outside(u):
    return (
        np.sum(stats.gamma.pdf(X - 1.0, u[0] + 1))
        + np.sum(stats.uniform.pdf(X, 0, 1.1 + u[1]))
        + np.sum(stats.expon.cdf(X - 1, scale=u[2]))
    )


def of_mv(u):
    C = COV + np.outer(u, u)
    return (
        multivariate_normal.logpdf(X, u, C)
        + np.sum(multivariate_normal.logpdf(np.outer(X, X), u, C))
        + multivariate_normal(u, C).logpdf(X)
        + multivariate_normal.pdf(u, X, COV)
        + multivariate_normal(X, COV).logpdf(u)
        + multivariate_normal.logpdf(u, X, 0.5)
    )


def of_sums(u):
    y = np.outer(u, X) + np.sin(u)
    t = np.array([0.0, 0.4, 1.0])
    return (
        np.sum(integrate.trapezoid(y, t))
        + np.sum(integrate.simpson(y, x=t) ** 2)
        + np.sum(integrate.cumulative_trapezoid(y, t, axis=0, initial=0) ** 2)
        + np.sum(integrate.cumulative_trapezoid(y, dx=0.1) ** 2)
        + integrate.simpson(u, dx=0.2)
    )


def of_ivp(u):
    def rhs(t, y):
        return np.array([y[1], -u[1] * np.sin(y[0]) - 0.1 * y[1]])

    s = solve_ivp(rhs, (0, 1.0), [u[0], u[2]], rtol=1e-6, atol=1e-8)
    return np.sum(s.y[:, -1] ** 2)


def of_ivp2(u):
    s = solve_ivp(
        lambda t, y, a, b: [a * y[0] - b * y[0] * y[1], -y[1] + y[0] * y[1]],
        (0, 1.0),
        np.array([1.0, 0.5]),
        args=(u[0], u[1]),
        t_eval=np.linspace(0, 1, 5),
        method="DOP853",
    )
    return np.sum(s.y**2) * u[2]


def of_ode(u):
    y = odeint(
        lambda y, t, a: [y[1], -a * y[0]], [u[0], u[2]], np.linspace(0, 1, 4), args=(u[1],), rtol=1e-10, atol=1e-10
    )
    return np.sum(y[-1] ** 2) + y[1, 0]


def of_interp(u):
    xs = np.linspace(0, 3, 7)
    cs = interpolate.CubicSpline(xs, np.sin(xs))
    f = interpolate.interp1d(xs, np.cos(xs))
    g = interpolate.interp1d(xs, np.cos(xs), kind="cubic")
    return (
        np.sum(cs(u) ** 2 + f(u) + g(u) * u + cs(u, 1))
        + np.sum(interpolate.CubicSpline(xs[:3], u)(X[:1]) ** 2)
        + np.sum(interpolate.interp1d(np.array([0.0, 1.5, 3.0]), u)(X) ** 2)
        + cs.derivative()(u[0])
    )


PROGRAMS = [
    of_lse,
    of_sm,
    of_psi,
    of_solve,
    of_invdet,
    of_chol,
    of_chol2,
    of_tri,
    of_lu,
    of_lu_perm,
    of_banded,
    of_hbanded,
    of_expm,
    of_toep,
    of_loop,
    of_sp,
    of_sps,
    of_sploop,
    of_nd,
    of_nd2,
    of_sg,
    of_lf,
    of_nrm,
    of_others,
    of_shapes,
    of_disc,
    of_outside,
    of_mv,
    of_sums,
    of_ivp,
    of_ivp2,
    of_ode,
    of_interp,
]


@pytest.mark.parametrize("f", PROGRAMS)
def test_gradients_and_hessians(f):
    gradient, h = pb.grad(f), 1e-5
    np.testing.assert_allclose(gradient(U), differences(f, U), rtol=2e-6, atol=1e-7)
    assert pb.value_and_grad(f)(U)[0] == pytest.approx(f(U), rel=1e-14, abs=0)
    expected = (gradient(U + h * W) - gradient(U - h * W)) / (2 * h)
    np.testing.assert_allclose(pb.hvp(f)(U, W), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("f", [of_loop, of_sploop])
def test_in_checkpointed_loops(f):
    np.testing.assert_array_equal(pb.grad(f, checkpoint=2)(U), pb.grad(f)(U))


REFUSED = [
    (lambda u: linalg.eigh(np.outer(u, u))[0][0], "scipy.linalg.eigh has no derivative rule"),
    (lambda u: integrate.quad(lambda x: x * u[0], 0, 1)[0], "scipy.integrate.quad"),
    (lambda u: optimize.brentq(lambda x: x * x - u[0], 0, 1), "scipy.optimize"),
    (lambda u: np.sum(spatial.distance.cdist(u[:, None], u[:, None])), "scipy.spatial.distance.cdist"),
    (lambda u: np.sum(ndimage.zoom(np.outer(u, u), 2)), "scipy.ndimage.zoom"),
    (lambda u: np.sum(signal.hilbert(u).real), "scipy.signal.hilbert"),
    (lambda u: stats.norm.rvs(u[0]), "scipy.stats.norm.rvs"),
    (lambda u: np.sum(sparse_linalg.cg(SPARSE, u)[0]), "scipy.sparse.linalg.*cg has no derivative rule"),
    (lambda u: np.sum((SPARSE * u[0]) @ u), "sparse matrix with differentiated elements"),
    (lambda u: solve_ivp(lambda t, y: -u[0] * y, (0, 1), [1.0], "LSODA").y[0, -1], "LSODA.*RK45"),
]


@pytest.mark.parametrize(("f", "message"), REFUSED)
def test_others_are_refused_by_name_and_line(f, message):
    with pytest.raises(pb.errors.SourceError, match=message) as caught:
        pb.grad(f)(U)
    assert f"test_scipy.py:{f.__code__.co_firstlineno}" in str(caught.value)


def test_plain_calls_are_those_of_scipy():
    def f(u):
        kde = stats.gaussian_kde(np.array([1.0, 2.0, 3.0]))
        return u[0] * kde(np.linspace(0.0, 1.0, 3))[0] + u[1] * linalg.eigh(np.eye(3) * 2.0)[0][0]

    expected = [stats.gaussian_kde([1.0, 2.0, 3.0])(0.0)[0], 2.0, 0.0]
    np.testing.assert_allclose(pb.grad(f)(U), expected, rtol=1e-12)
    assert "logsumexp" in special.logsumexp.__name__
    assert special.logsumexp is logsumexp


def test_scipy_is_not_imported_for_those_who_do_not_use_it():
    code = "import sys, numpy as np, pebbling as pb; pb.grad(np.sum)(np.ones(3)); print('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_curve_through_traced_values_has_scipys_own_bits():
    def f(p):
        curve = interpolate.CubicSpline(np.array([0.0, 1.0, 2.5, 4.0]), np.array([1.0, p[0], 0.5, p[1]]))
        return sum(np.exp(-0.1 / (0.5 + np.abs(curve(q)))) for q in np.arange(0, 4, 0.3))

    at = np.array([0.71, 0.33])
    value, gradient = pb.value_and_grad(f)(at)
    assert value == f(at)
    h = 1e-6 * np.eye(2)
    np.testing.assert_allclose(gradient, [(f(at + e) - f(at - e)) / 2e-6 for e in h], rtol=1e-7)


def test_odeint_across_kinks_of_its_equations():
    weights = np.random.default_rng(0).normal(size=(2, 20)) * 0.1

    def f(w, **options):
        path = integrate.odeint(lambda y, t: np.maximum(0, y @ w + 0.1) @ w.T, [2.0, 0.0], [0.0, 0.7, 1.5], **options)
        return np.sum(path**2)

    v = np.random.default_rng(1).normal(size=(2, 20))
    exact = [f(weights + h * v, rtol=1e-12, atol=1e-12) for h in (1e-5, -1e-5)]
    assert np.sum(pb.grad(f)(weights) * v) == pytest.approx((exact[0] - exact[1]) / 2e-5, rel=1e-6)
    assert np.isfinite(pb.grad(lambda w: f(w, rtol=1e-2))(weights)).all()
