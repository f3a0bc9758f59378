"""Programs of numerical methods, epidemiology, econometrics and Bayesian inference, as one writes them."""
# ruff: noqa: B007, C417, E731, E741

import copy
import itertools
import math
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
from numpy.linalg import norm, qr, solve
from numpy.polynomial import chebyshev, legendre
from scipy import special, stats
from scipy.linalg import cho_factor, cho_solve, solve_banded, toeplitz
from scipy.stats import multivariate_normal


def seir_age_structured(p):
    contact = np.array([[2.0, 0.5, 0.2], [0.5, 1.5, 0.4], [0.2, 0.4, 1.0]])
    N = np.array([0.3, 0.5, 0.2])
    S, E, I, R = N - 1e-3, np.zeros(3), np.full(3, 1e-3), np.zeros(3)
    daily = np.zeros((60, 3))
    for day in range(60):
        force = p[0] * 0.5 * contact @ (I / N)
        infections = force * S
        onset = p[1] * 0.5 * E
        recover = p[2] * 0.3 * I
        S -= infections
        E += infections - onset
        I += onset - recover
        R += recover
        daily[day] = infections
    return daily.sum(axis=1).max() + R.sum()


def sir_on_graph(p):
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (3, 4), (4, 5)]
    neighbours = {i: set() for i in range(6)}
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    prob = dict.fromkeys(range(6), 0.0)
    prob[0] = p[0]
    for t in range(6):
        new = {}
        for node, nb in neighbours.items():
            escape = 1.0
            for other in nb:
                escape *= 1 - p[1] * 0.5 * prob[other]
            new[node] = prob[node] * (1 - 0.1 * p[2]) + (1 - prob[node]) * (1 - escape)
        prob = new
    return sum(prob.values())


def renewal_equation(p):
    w = np.exp(-np.arange(1, 8) * p[1])
    w = w / w.sum()
    incidence = [1.0]
    for t in range(1, 30):
        recent = np.array(incidence[max(0, t - 7) : t][::-1])
        R = p[0] * 2 if t < 15 else p[2]
        incidence.append(R * np.dot(w[: len(recent)], recent))
    return np.log(np.sum(incidence))


def var_model_irf(p):
    A = np.array([[0.5 * p[0], 0.1], [0.2, 0.3 * p[1]]])
    shock = np.array([1.0, 0.0])
    responses = [shock]
    for h in range(12):
        responses.append(A.dot(responses[-1]))
    irf = np.array(responses)
    sigma = np.array([[1.0, 0.3 * p[2]], [0.3 * p[2], 0.5]])
    chol = np.linalg.cholesky(sigma)
    return np.sum((irf @ chol) ** 2)


def gmm_two_step(p):
    rng = np.random.default_rng(4)
    z = rng.normal(size=(60, 2))
    x = z @ np.array([0.5, 0.3]) + rng.normal(size=60)
    y = p[0] * x + p[1] * 0.5 + 0.1 * rng.normal(size=60)
    X, Z = np.c_[np.ones(60), x], np.c_[np.ones(60), z]
    W = np.linalg.inv(Z.T @ Z)
    for _ in range(2):
        beta = np.linalg.solve(X.T @ Z @ W @ Z.T @ X, X.T @ Z @ W @ Z.T @ y)
        e = y - X @ beta
        W = np.linalg.inv((Z * e[:, None] ** 2).T @ Z + p[2] * 1e-2 * np.eye(3))
    return beta.sum() + e.std()


def garch_student(p):
    r = 0.02 * np.sin(np.arange(60) ** 1.3)
    omega, alpha, beta = 1e-4 * (1 + p[0]), 0.1 * p[1], 0.8 * p[2]
    sigma2 = np.empty(60)
    sigma2[0] = np.var(r)
    for t in range(1, 60):
        sigma2[t] = omega + alpha * r[t - 1] ** 2 + beta * sigma2[t - 1]
    return -stats.t.logpdf(r / np.sqrt(sigma2), df=5).sum() + 0.5 * np.log(sigma2).sum()


def probit_panel(p):
    X = np.cos(np.outer(np.arange(20), [0.3, 0.7, 1.1]))
    y = (np.arange(20) % 3 == 0).astype(int)
    eta = X @ p
    ll = 0
    for yi, ei in zip(y, eta):
        ll += stats.norm.logcdf(ei) if yi else stats.norm.logcdf(-ei)
    return -ll


def multinomial_logit_share(p):
    prices = np.array([[1.0, 1.2, 0.8], [0.9, 1.1, 1.0]])
    shares = []
    for market in prices:
        u = p[0] - p[1] * market
        eu = np.exp(u - u.max())
        shares.append(eu / (np.exp(-u.max()) + eu.sum()))
    return np.prod(shares) ** 0.1 + p[2] * np.sum(np.log(shares))


def bellman_value_iteration(p):
    k = np.linspace(0.5, 2, 12)
    c = k[:, None] ** (0.3 * p[0]) + 0.8 * k[:, None] - 0.75 * k[None, :]
    utility = np.where(c > 0, np.log(np.where(c > 0, c, 1)), -1e3)
    V = np.zeros(12)
    beta = 0.6 + 0.3 * p[1]
    for _ in range(25):
        V_new = np.max(utility + beta * V, axis=1)
        if np.abs(V_new - V).max() < 1e-10:
            break
        V = V_new
    return V.mean() * p[2]


def consumption_euler_smooth(p):
    a = np.linspace(0, 1, 10) * p[0]
    wealth = 1.0
    path = []
    for t, inc in enumerate(a):
        share = special.expit(p[1] + 0.1 * t)
        path.append(share * (wealth + inc))
        wealth = (wealth + inc - path[-1]) * (1 + 0.05 * p[2])
    return sum(0.95**t * np.log(ct) for t, ct in enumerate(path))


def metropolis_posterior_mean(p):
    rng = np.random.default_rng(9)

    def logp(theta):
        return -0.5 * (theta - p[0]) ** 2 / p[1] ** 2

    theta, samples = 0.0, []
    current = logp(theta)
    for _ in range(60):
        proposal = theta + p[2] * rng.normal()
        new = logp(proposal)
        if np.log(rng.random()) < new - current:
            theta, current = proposal, new
        samples.append(theta)
    return np.mean(samples)


def hmc_leapfrog(p):
    prec = np.array([[1.5, 0.3], [0.3, 0.8]])
    q, mom = p[:2].copy(), np.array([0.3, -0.2])
    eps = 0.1 * p[2]
    mom -= 0.5 * eps * prec @ q
    for step in range(12):
        q += eps * mom
        if step != 11:
            mom -= eps * prec @ q
    mom -= 0.5 * eps * prec @ q
    return 0.5 * q @ prec @ q + 0.5 * mom @ mom


def bayes_linear_sequential(p):
    m, S = np.zeros(2), np.eye(2) * (1 + p[0])
    for i in range(10):
        x = np.array([1.0, np.sin(i)])
        y = p[1] + 0.5 * np.sin(i) * p[2]
        Sx = S @ x
        gain = Sx / (0.1 + x @ Sx)
        m = m + gain * (y - x @ m)
        S = S - np.outer(gain, Sx)
    return multivariate_normal.logpdf(np.array([0.3, 0.4]), mean=m, cov=S)


def gibbs_mean_field(p):
    x = np.array([0.1, 0.4, 1.2, 1.5, -0.3])
    m, a, b = 0.0, 2.0, 2.0
    for _ in range(15):
        precision = a / b
        v = 1 / (1 / (1 + p[0]) + len(x) * precision)
        m = v * precision * x.sum()
        a = p[1] + len(x) / 2
        b = p[2] + 0.5 * np.sum((x - m) ** 2 + v)
    return m + special.digamma(a) - np.log(b) + special.gammaln(a)


def gp_marginal_cholesky_by_hand(p):
    x = np.linspace(0, 1, 6)
    y = np.sin(3 * x)
    K = p[0] ** 2 * np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / p[1] ** 2) + p[2] ** 2 * np.eye(6)
    n = len(x)
    L = np.zeros((n, n))
    for j in range(n):
        L[j, j] = np.sqrt(K[j, j] - L[j, :j] @ L[j, :j])
        for i in range(j + 1, n):
            L[i, j] = (K[i, j] - L[i, :j] @ L[j, :j]) / L[j, j]
    alpha = np.zeros(n)
    for i in range(n):
        alpha[i] = (y[i] - L[i, :i] @ alpha[:i]) / L[i, i]
    return 0.5 * alpha @ alpha + np.log(np.diag(L)).sum()


def gp_predict(p):
    x = np.linspace(0, 2, 8)
    K = toeplitz(np.exp(-(x**2))) + np.eye(8) * p[0]
    c = cho_factor(K, lower=True)
    return np.cos(x) @ cho_solve(c, p[1] * np.sin(x)) + p[2]


def multigrid_v_cycle(p):
    def smooth(u, f, h, times):
        for _ in range(times):
            u[1:-1] += 0.6 * 0.5 * (u[2:] + u[:-2] + h**2 * f[1:-1] - 2 * u[1:-1])
        return u

    def v_cycle(u, f, h):
        u = smooth(u, f, h, 2)
        if len(u) <= 3:
            return u
        r = np.zeros_like(u)
        r[1:-1] = f[1:-1] + (u[2:] - 2 * u[1:-1] + u[:-2]) / h**2
        rc = np.zeros(len(u) // 2 + 1)
        rc[1:-1] = 0.25 * (r[1:-3:2] + 2 * r[2:-2:2] + r[3:-1:2])
        ec = v_cycle(np.zeros_like(rc), rc, 2 * h)
        e = np.zeros_like(u)
        e[::2] = ec
        e[1::2] = 0.5 * (ec[:-1] + ec[1:])
        return smooth(u + e, f, h, 2)

    n = 17
    x = np.linspace(0, 1, n)
    f = p[0] * np.sin(np.pi * x) + p[1] * x
    u = np.zeros(n)
    for _ in range(3):
        u = v_cycle(u, f, 1 / (n - 1))
    return u.max() * p[2] + u.sum()


def conjugate_gradient(p):
    n = 8
    A = np.diag(2 + np.arange(n) * p[0]) - 0.5 * np.eye(n, k=1) - 0.5 * np.eye(n, k=-1)
    b = p[1] * np.ones(n)
    x = np.zeros(n)
    r = b - A @ x
    d = r.copy()
    rs = r @ r
    while np.sqrt(rs) > 1e-10:
        Ad = A @ d
        alpha = rs / (d @ Ad)
        x += alpha * d
        r -= alpha * Ad
        rs_new = r @ r
        d = r + rs_new / rs * d
        rs = rs_new
    return x @ x * p[2]


def gmres_arnoldi(p):
    n = 6
    A = np.eye(n) * (2 + p[0]) + 0.3 * np.diag(np.ones(n - 1), 1) - p[1] * 0.2 * np.diag(np.ones(n - 2), -2)
    b = np.arange(1.0, n + 1) * p[2]
    m = 4
    Q, H = np.zeros((n, m + 1)), np.zeros((m + 1, m))
    beta = norm(b)
    Q[:, 0] = b / beta
    for k in range(m):
        v = A @ Q[:, k]
        for j in range(k + 1):
            H[j, k] = Q[:, j] @ v
            v -= H[j, k] * Q[:, j]
        H[k + 1, k] = norm(v)
        Q[:, k + 1] = v / H[k + 1, k]
    e1 = np.zeros(m + 1)
    e1[0] = beta
    y = np.linalg.lstsq(H, e1, rcond=None)[0]
    return np.sum((Q[:, :m] @ y) ** 2)


def power_iteration_deflation(p):
    A = np.array([[4.0, p[0], 0.2], [p[0], 3.0, p[1]], [0.2, p[1], 2.0 + p[2]]])
    eigenvalues = []
    for k in range(2):
        v = np.ones(3) / np.sqrt(3)
        for _ in range(80):
            v = A @ v
            v /= np.linalg.norm(v)
        lam = v @ A @ v
        eigenvalues.append(lam)
        A = A - lam * np.outer(v, v)
    return eigenvalues[0] - 0.5 * eigenvalues[1]


def qr_algorithm(p):
    A = np.array([[2.0, p[0], 0.1], [p[0], 3.0, p[1]], [0.1, p[1], 4.0 * p[2] + 3]])
    for _ in range(12):
        Q, R = qr(A)
        A = R @ Q
    return np.sort(np.diag(A))[-1]


def thomas_algorithm(p):
    n = 10
    a, b, c = -np.ones(n) * p[0], np.full(n, 3.0), -np.ones(n) * p[1]
    d = np.linspace(0, 1, n) * p[2]
    cp, dp = np.zeros(n), np.zeros(n)
    cp[0], dp[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.zeros(n)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x.sum()


def crank_nicolson_banded(p):
    n = 20
    u = np.sin(np.pi * np.linspace(0, 1, n)) * p[0]
    r = p[1]
    ab = np.zeros((3, n))
    ab[0, 1:] = -r / 2
    ab[1] = 1 + r
    ab[2, :-1] = -r / 2
    for _ in range(10):
        rhs = u.copy()
        rhs[1:-1] += r / 2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        rhs[0] = rhs[-1] = 0.1 * p[2]
        u = solve_banded((1, 1), ab, rhs)
    return u @ u


def gauss_elimination_pivot(p):
    A = np.array([[p[0], 2.0, 1.0], [1.0, p[1], 3.0], [2.0, 1.0, p[2]]])
    b = np.array([1.0, 2.0, 3.0])
    n = 3
    for k in range(n):
        pivot = k + np.argmax(np.abs(A[k:, k]))
        if pivot != k:
            A[[k, pivot]] = A[[pivot, k]]
            b[[k, pivot]] = b[[pivot, k]]
        for i in range(k + 1, n):
            factor = A[i, k] / A[k, k]
            A[i, k:] -= factor * A[k, k:]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in reversed(range(n)):
        x[i] = (b[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return np.sum(x**2)


def spectral_kdv(p):
    n = 32
    x = 2 * np.pi * np.arange(n) / n
    u = p[0] * np.cos(x) + p[1]
    k = np.fft.fftfreq(n, 1 / n)
    dt = 0.005
    g = np.exp(1j * k**3 * dt * p[2])
    u_hat = np.fft.fft(u)
    for _ in range(30):
        u_hat = g * u_hat
        nonlinear = -0.5j * k * np.fft.fft(np.real(np.fft.ifft(u_hat)) ** 2)
        u_hat = u_hat + dt * nonlinear
    return np.max(np.fft.ifft(u_hat).real)


def navier_stokes_vorticity(p):
    n = 12
    k = np.fft.fftfreq(n, 1 / n)
    kx, ky = np.meshgrid(k, k, indexing="ij")
    k2 = kx**2 + ky**2
    inv = np.where(k2 == 0, 0, 1 / np.where(k2 == 0, 1, k2))
    x = np.linspace(0, 2 * np.pi, n, endpoint=False)
    w = p[0] * np.sin(x)[:, None] * np.cos(2 * x)[None, :] + p[1] * np.cos(x)[None, :]
    w_hat = np.fft.fft2(w)
    for _ in range(10):
        psi_hat = w_hat * inv
        u = np.fft.ifft2(1j * ky * psi_hat).real
        v = -np.fft.ifft2(1j * kx * psi_hat).real
        wx, wy = np.fft.ifft2(1j * kx * w_hat).real, np.fft.ifft2(1j * ky * w_hat).real
        w_hat = (w_hat - 0.02 * np.fft.fft2(u * wx + v * wy)) / (1 + 0.02 * 0.1 * p[2] * k2)
    return np.mean(np.abs(w_hat) ** 2)


def chebyshev_collocation(p):
    n = 8
    x = np.cos(np.pi * np.arange(n + 1) / n)
    c = np.ones(n + 1)
    c[0] = c[-1] = 2
    c *= (-1) ** np.arange(n + 1)
    X = np.tile(x, (n + 1, 1)).T
    D = np.outer(c, 1 / c) / (X - X.T + np.eye(n + 1))
    D -= np.diag(D.sum(axis=1))
    L = (D @ D)[1:-1, 1:-1] - p[0] * np.eye(n - 1)
    u = np.zeros(n + 1)
    u[1:-1] = solve(L, p[1] * np.exp(p[2] * x[1:-1]))
    return np.sum(u**2)


def chebyshev_series(p):
    x = np.linspace(-1, 1, 15)
    return np.sum(chebyshev.chebval(x, p) ** 2) + legendre.legval(0.3, p)


def gauss_quadrature(p):
    nodes, weights = np.polynomial.legendre.leggauss(10)
    total = 0.0
    for a, b in itertools.pairwise(np.linspace(0, 1, 4)):
        xs = 0.5 * (b - a) * nodes + 0.5 * (a + b)
        total += 0.5 * (b - a) * np.sum(weights * np.exp(-p[0] * xs) * np.sin(p[1] * xs + p[2]))
    return total


def romberg(p):
    f = lambda x: np.exp(-p[0] * x) / (1 + p[1] * x**2)
    R = np.zeros((5, 5))
    h = 1.0 + p[2]
    R[0, 0] = h / 2 * (f(0.0) + f(h))
    for i in range(1, 5):
        h /= 2
        R[i, 0] = 0.5 * R[i - 1, 0] + h * sum(f(k * h) for k in range(1, 2**i, 2))
        for j in range(1, i + 1):
            R[i, j] = R[i, j - 1] + (R[i, j - 1] - R[i - 1, j - 1]) / (4**j - 1)
    return R[-1, -1]


def adaptive_simpson(p):
    def f(x):
        return np.sin(p[0] * x) * math.exp(-x) + p[1]

    def simpson(a, b, fa, fm, fb):
        return (b - a) / 6 * (fa + 4 * fm + fb)

    def recurse(a, b, fa, fm, fb, whole, depth):
        m = (a + b) / 2
        fl, fr = f((a + m) / 2), f((m + b) / 2)
        left, right = simpson(a, m, fa, fl, fm), simpson(m, b, fm, fr, fb)
        if depth == 0 or abs(left + right - whole) < 1e-7:
            return left + right + (left + right - whole) / 15
        return recurse(a, m, fa, fl, fm, left, depth - 1) + recurse(m, b, fm, fr, fb, right, depth - 1)

    a, b = 0.0, 1.0 + p[2]
    fa, fm, fb = f(a), f((a + b) / 2), f(b)
    return recurse(a, b, fa, fm, fb, simpson(a, b, fa, fm, fb), 12)


def level_set_circle(p):
    n = 20
    x, y = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n))
    phi = np.sqrt(x**2 + (y * (1 + 0.2 * p[0])) ** 2 + 1e-4) - 0.5 * p[1]
    h = 2 / (n - 1)
    for _ in range(8):
        dxm = np.zeros_like(phi)
        dxp = np.zeros_like(phi)
        dym = np.zeros_like(phi)
        dyp = np.zeros_like(phi)
        dxm[:, 1:] = (phi[:, 1:] - phi[:, :-1]) / h
        dxp[:, :-1] = dxm[:, 1:]
        dym[1:] = (phi[1:] - phi[:-1]) / h
        dyp[:-1] = dym[1:]
        grad = np.sqrt(
            np.maximum(dxm, 0) ** 2 + np.minimum(dxp, 0) ** 2 + np.maximum(dym, 0) ** 2 + np.minimum(dyp, 0) ** 2 + 1e-8
        )
        phi = phi - 0.02 * p[2] * grad
    return np.sum(1 / (1 + np.exp(phi / 0.05))) * h**2


def fast_marching_heapless(p):
    slowness = 1 + p[0] * np.linspace(0, 1, 6)[:, None] * np.ones(6) + p[1] * np.eye(6)
    T = np.full((6, 6), np.inf)
    T[0, 0] = 0.0
    for sweep in range(2):
        for i, j in itertools.product(range(6), range(6)):
            if i == j == 0:
                continue
            a = min(T[i - 1, j] if i > 0 else np.inf, T[i + 1, j] if i < 5 else np.inf)
            b = min(T[i, j - 1] if j > 0 else np.inf, T[i, j + 1] if j < 5 else np.inf)
            s = slowness[i, j]
            if np.isinf(a) and np.isinf(b):
                continue
            if abs(a - b) >= s:
                candidate = min(a, b) + s
            else:
                candidate = 0.5 * (a + b + np.sqrt(2 * s**2 - (a - b) ** 2))
            T[i, j] = min(T[i, j], candidate)
    return T[-1, -1] * p[2]


def phase_field_cahn_hilliard(p):
    rng = np.random.default_rng(12)
    c = 0.1 * rng.standard_normal((10, 10)) * p[0]

    def laplacian(z):
        return sum(np.roll(z, s, axis) for s in (-1, 1) for axis in (0, 1)) - 4 * z

    for _ in range(15):
        mu = c**3 - c - p[1] * laplacian(c)
        c += 0.02 * p[2] * laplacian(mu)
    return np.mean((c**2 - 1) ** 2)


def cubic_spline_natural(p):
    x = np.array([0.0, 1.0, 2.5, 4.0, 5.0])
    y = np.array([0.0, p[0], p[1], p[2], 1.0])
    n = len(x)
    h = np.diff(x)
    A, rhs = np.zeros((n, n)), np.zeros(n)
    A[0, 0] = A[-1, -1] = 1
    for i in range(1, n - 1):
        A[i, i - 1 : i + 2] = h[i - 1], 2 * (h[i - 1] + h[i]), h[i]
        rhs[i] = 3 * ((y[i + 1] - y[i]) / h[i] - (y[i] - y[i - 1]) / h[i - 1])
    c = np.linalg.solve(A, rhs)
    b = (y[1:] - y[:-1]) / h - h * (2 * c[:-1] + c[1:]) / 3
    d = (c[1:] - c[:-1]) / (3 * h)
    q = np.linspace(0.1, 4.9, 12)
    k = np.searchsorted(x, q) - 1
    t = q - x[k]
    return np.sum(y[k] + b[k] * t + c[k] * t**2 + d[k] * t**3)


def bspline_de_boor(p):
    knots = [0, 0, 0, 0, 1, 2, 3, 3, 3, 3]
    control = np.array([0.0, p[0], p[1], p[2], 1.0, 0.5])

    def evaluate(t, degree=3):
        k = max(i for i in range(degree, len(knots) - degree - 1) if knots[i] <= t)
        d = [control[j + k - degree] for j in range(degree + 1)]
        for r in range(1, degree + 1):
            for j in range(degree, r - 1, -1):
                alpha = (t - knots[j + k - degree]) / (knots[j + 1 + k - r] - knots[j + k - degree])
                d[j] = (1 - alpha) * d[j - 1] + alpha * d[j]
        return d[degree]

    return sum(evaluate(t) ** 2 for t in np.linspace(0, 2.9, 12))


def natural_neighbour_barycentric(p):
    nodes = np.cos((2 * np.arange(6) + 1) * np.pi / 12)
    values = np.exp(p[0] * nodes)
    weights = np.array([1 / np.prod([nodes[j] - nodes[k] for k in range(6) if k != j]) for j in range(6)])

    @np.vectorize
    def interpolant(x):
        terms = weights / (x - nodes)
        return np.sum(terms * values) / np.sum(terms)

    return np.sum(interpolant(np.array([0.1, 0.2, p[1]]))) * p[2]


def nelder_mead_inside(p):
    def f(z):
        return (z[0] - p[0]) ** 2 + 3 * (z[1] - p[1]) ** 2 + p[2] * z[0] * z[1]

    simplex = [np.array([0.0, 0.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    for _ in range(10):
        simplex.sort(key=f)
        best, good, worst = simplex
        centre = (best + good) / 2
        reflected = centre + (centre - worst)
        if f(reflected) < f(good):
            simplex[-1] = reflected
        else:
            simplex[-1] = 0.5 * (centre + worst)
    return f(min(simplex, key=f)) + simplex[0].sum()


def gauss_newton_circle(p):
    angles = np.linspace(0, 5, 9)
    pts = np.column_stack([p[0] + (1 + p[2]) * np.cos(angles), p[1] + np.sin(angles)])
    cx, cy, r = pts[:, 0].mean(), pts[:, 1].mean(), 1.0
    for _ in range(5):
        d = np.hypot(pts[:, 0] - cx, pts[:, 1] - cy)
        J = np.stack([-(pts[:, 0] - cx) / d, -(pts[:, 1] - cy) / d, -np.ones_like(d)], axis=1)
        step, *_ = np.linalg.lstsq(J, -(d - r), rcond=None)
        cx, cy, r = cx + step[0], cy + step[1], r + step[2]
    return r + 0.1 * cx * cy


def admm_lasso(p):
    rng = np.random.default_rng(6)
    A = rng.normal(size=(12, 5))
    b = A @ np.array([1.0, 0, 0, -1, 0]) * p[0]
    rho, lam = 1.0 + p[1], 0.5 * p[2]
    x, z, u = (np.zeros(5) for _ in range(3))
    L = np.linalg.cholesky(A.T @ A + rho * np.eye(5))
    for _ in range(15):
        x = np.linalg.solve(L.T, np.linalg.solve(L, A.T @ b + rho * (z - u)))
        z = np.sign(x + u) * np.maximum(np.abs(x + u) - lam / rho, 0)
        u = u + x - z
    return np.abs(z).sum() + np.sum((A @ z - b) ** 2)


def sinkhorn_transport(p):
    a, b = np.array([0.2, 0.3, 0.5]), np.exp(p) / np.exp(p).sum()
    C = (np.arange(3)[:, None] - np.arange(3)) ** 2.0
    K = np.exp(-C / 0.5)
    u, v = np.ones(3), np.ones(3)
    for i in range(100):
        u_prev = u
        u = a / (K @ v)
        v = b / (K.T @ u)
        if np.allclose(u, u_prev, rtol=1e-12):
            break
    return np.sum(u[:, None] * K * v * C)


def adam_unrolled_class(p):
    class Adam:
        def __init__(self, lr, b1=0.9, b2=0.999):
            self.lr, self.b1, self.b2, self.t = lr, b1, b2, 0
            self.m, self.v = {}, {}

        def update(self, params, grads):
            self.t += 1
            for name in params:
                g = grads[name]
                self.m[name] = self.b1 * self.m.get(name, 0) + (1 - self.b1) * g
                self.v[name] = self.b2 * self.v.get(name, 0) + (1 - self.b2) * g**2
                mhat = self.m[name] / (1 - self.b1**self.t)
                vhat = self.v[name] / (1 - self.b2**self.t)
                params[name] = params[name] - self.lr * mhat / (np.sqrt(vhat) + 1e-8)

    params = {"w": np.array([1.0, -0.5]), "b": 0.1}
    optimiser = Adam(0.05 * p[0])
    for epoch in range(15):
        w, b = params["w"], params["b"]
        grads = {"w": 2 * (w - p[1]) + b, "b": 2 * (b - p[2])}
        optimiser.update(params, grads)
    return np.sum(params["w"] ** 2) + params["b"]


def simulated_tempering_path(p):
    rng = np.random.default_rng(1)
    x = p[:2] * 1.0
    best = SimpleNamespace(value=np.inf, x=None)
    for k in range(30):
        T = p[2] * 0.9**k
        x = x - 0.1 * (x**3 - x) + 0.05 * T * rng.normal(size=2)
        value = np.sum((x**2 - 1) ** 2)
        if value < best.value:
            best.value, best.x = value, copy.copy(x)
    return best.value + np.sum(best.x)


def fibonacci_memoised(p):
    @cache
    def path(i, j):
        if i == 0 or j == 0:
            return 1.0
        return p[0] * path(i - 1, j) + p[1] * path(i, j - 1)

    return path(5, 4) * p[2]


def continued_fraction(p):
    f, c, d = 1e-30, 1e-30, 0.0
    for j in range(1, 40):
        a, b = (p[0] if j == 1 else (j - 1) * p[1]), p[2] + 2 * j
        d = b + a * d
        c = b + a / c
        d = 1 / d
        f *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return np.log(np.abs(f))


def partial_and_map(p):
    def scale(a, x):
        return np.tanh(a * x)

    layers = [partial(scale, a) for a in p]
    x = np.linspace(-1, 1, 7)
    for layer in layers:
        x = layer(x) + 0.1
    return sum(map(lambda v: v**2, filter(lambda v: v > 0, x)))


def string_of_recurrence(p):
    state = {"x": 1.0, "rules": {"grow": lambda s: s * (1 + p[0] * 0.1), "die": lambda s: s * (1 - p[1] * 0.1)}}
    log = []
    for letter in "ggdgdgg":
        name = "grow" if letter == "g" else "die"
        state["x"] = state["rules"][name](state["x"])
        log.append(f"{name}: {state['x']:.3f}")
    assert len(log) == 7
    return state["x"] * p[2]


def polynomial_roots_newton(p):
    poly = np.poly1d(np.array([1.0, -p[0], -p[1], p[2] * 0.1]))
    x = 2.0
    for _ in range(20):
        x = x - poly(x) / poly.deriv()(x)
    return x


def companion_roots(p):
    return np.sum(np.abs(np.roots([1.0, p[0], p[1], p[2]])))


def running_statistics(p):
    data = np.sin(np.arange(30) * 0.8) * p[0] + p[1]
    mean, M2, n = 0.0, 0.0, 0
    for x in data:
        n += 1
        delta = x - mean
        mean += delta / n
        M2 += delta * (x - mean)
    z = (data - mean) / np.sqrt(M2 / (n - 1))
    return np.percentile(data, 75) + np.sum(z > 1) * 0.0 + p[2] * stats.skew(data)


def random_walk_dataset(p):
    rng = np.random.default_rng(8)
    rows = [{"x": x, "y": p[0] * x + p[1] + p[2] * e} for x, e in zip(rng.random(15), rng.normal(size=15))]
    xs, ys = (np.array([row[key] for row in rows]) for key in ("x", "y"))
    slope, intercept = np.polyfit(xs, ys, 1)
    residuals = ys - np.polyval([slope, intercept], xs)
    return slope + intercept + np.corrcoef(xs, ys)[0, 1] + residuals.std(ddof=2)


PROGRAMS = [
    seir_age_structured, sir_on_graph, renewal_equation, var_model_irf, gmm_two_step, garch_student, probit_panel,
    multinomial_logit_share, bellman_value_iteration, consumption_euler_smooth, metropolis_posterior_mean,
    hmc_leapfrog, bayes_linear_sequential, gibbs_mean_field, gp_marginal_cholesky_by_hand, gp_predict,
    multigrid_v_cycle, conjugate_gradient, gmres_arnoldi, power_iteration_deflation, qr_algorithm, thomas_algorithm,
    crank_nicolson_banded, gauss_elimination_pivot, spectral_kdv, navier_stokes_vorticity, chebyshev_collocation,
    chebyshev_series, gauss_quadrature, romberg, adaptive_simpson, level_set_circle, fast_marching_heapless,
    phase_field_cahn_hilliard, cubic_spline_natural, bspline_de_boor, natural_neighbour_barycentric,
    nelder_mead_inside, gauss_newton_circle, admm_lasso, sinkhorn_transport, adam_unrolled_class,
    simulated_tempering_path, fibonacci_memoised, continued_fraction, partial_and_map, string_of_recurrence,
    polynomial_roots_newton, companion_roots, running_statistics, random_walk_dataset,
]  # fmt: skip
