"""Programs of finance, biology and optimisation, and everyday habits, as one writes them."""
# ruff: noqa: E741, PT018, SIM115

import math
from dataclasses import dataclass, field
from numbers import Number

import numpy as np
from scipy import optimize, special, stats
from scipy.stats import norm


def black_scholes(p):
    S, K, T = 1.0 + p[0], 1.2, 1.0
    d1 = (np.log(S / K) + (0.05 + 0.5 * p[1] ** 2) * T) / (p[1] * np.sqrt(T))
    d2 = d1 - p[1] * np.sqrt(T)
    return S * norm.cdf(d1) - K * np.exp(-0.05 * T) * norm.cdf(d2) * p[2]


def binomial_tree(p):
    n = 12
    up = np.exp(p[1] * np.sqrt(1 / n))
    q = (np.exp(0.03 / n) - 1 / up) / (up - 1 / up)
    S = (1 + p[0]) * up ** np.arange(-n, n + 1, 2)
    V = np.maximum(S - 1.0, 0)
    for i in range(n, 0, -1):
        V[:i] = np.exp(-0.03 / n) * (q * V[1 : i + 1] + (1 - q) * V[:i])
    return V[0] * p[2]


def monte_carlo_option(p):
    rng = np.random.default_rng(7)
    S = np.full(50, 1.0) * p[0]
    for _ in range(10):
        S *= np.exp(-0.5 * p[1] ** 2 * 0.1 + p[1] * np.sqrt(0.1) * rng.standard_normal(50))
    return np.mean(np.maximum(S - 0.5, 0)) * math.exp(-0.05) * p[2]


def vasicek_path(p):
    rng = np.random.RandomState(0)
    r = np.zeros(50)
    r[0] = 0.03
    for i in range(1, 50):
        r[i] = r[i - 1] + p[0] * (p[1] - r[i - 1]) * 0.02 + p[2] * 0.1 * rng.normal()
    return np.exp(-np.sum(r) * 0.02)


def portfolio(p):
    w = np.exp(p) / np.sum(np.exp(p))
    C = np.array([[0.1, 0.02, 0.01], [0.02, 0.2, 0.03], [0.01, 0.03, 0.15]])
    return w @ np.array([0.05, 0.08, 0.06]) / np.sqrt(w @ C @ w)


def bond_yield_newton(p):
    cash = np.array([p[0], p[0], 1 + p[0]])
    y = 0.05
    for _ in range(6):
        t = np.arange(1, 4)
        f = np.sum(cash / (1 + y) ** t) - p[1] - 1
        df = np.sum(-t * cash / (1 + y) ** (t + 1))
        y = y - f / df
    return y * p[2]


def drawdown(p):
    returns = np.sin(np.arange(20.0)) * p[0] * 0.1 + 0.01 * p[1]
    wealth = np.cumprod(1 + returns)
    peak = np.maximum.accumulate(wealth)
    return np.max(1 - wealth / peak) * p[2]


def sir_model(p):
    S, I, R = 0.99, 0.01, 0.0
    hist = np.zeros((30, 3))
    for t in range(30):
        new = p[0] * S * I
        rec = p[1] * 0.3 * I
        S, I, R = S - new, I + new - rec, R + rec
        hist[t] = [S, I, R]
    return hist[:, 1].max() + p[2] * hist[-1, 2]


def leslie_matrix(p):
    L = np.zeros((3, 3))
    L[0] = p
    L[1, 0] = 0.5
    L[2, 1] = 0.7
    n = np.ones(3)
    for _ in range(8):
        n = L @ n
    return np.log(n.sum())


def hodgkin_gate(p):
    v, m = -0.65, 0.05
    vs = []
    for _ in range(40):
        alpha = p[0] * (v + 0.4) / (1 - np.exp(-(v + 0.4) / 0.1))
        beta = p[1] * np.exp(-(v + 0.65) / 0.18)
        m += 0.05 * (alpha * (1 - m) - beta * m)
        v += 0.05 * (-p[2] * m**3 * (v - 0.5) - 0.3 * (v + 0.54))
        vs.append(v)
    return np.mean(vs)


def phylogeny_likelihood(p):
    def P(t):
        e = np.exp(-4 * t / 3)
        return np.full((4, 4), 0.25 * (1 - e)) + np.eye(4) * e

    seqs = ["ACGTA", "ACGTT", "ACCTA"]
    ll = 0.0
    for site in zip(*seqs):
        L = np.ones(4)
        for base, t in zip(site, p):
            tip = np.zeros(4)
            tip["ACGT".index(base)] = 1.0
            L = L * (P(t) @ tip)
        ll += np.log(0.25 * L.sum())
    return ll


def needleman_soft(p):
    a, b = "GATTACA", "GCATGCU"
    F = np.zeros((len(a) + 1, len(b) + 1))
    F[:, 0] = -p[1] * np.arange(len(a) + 1)
    F[0, :] = -p[1] * np.arange(len(b) + 1)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            s = p[0] if x == y else -p[2]
            F[i, j] = max(F[i - 1, j - 1] + s, F[i - 1, j] - p[1], F[i, j - 1] - p[1])
    return F[-1, -1]


def michaelis_menten(p):
    s = 1.0 + p[0]
    out = [s]
    while s > 0.5:
        s = s - 0.05 * p[1] * s / (p[2] + s)
        out.append(s)
    return sum(out)


def rosenbrock(p):
    return sum(100.0 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


def bfgs_by_hand(p):
    x = p.copy()
    H = np.eye(3)

    def g(x):
        return np.array([4 * x[0] ** 3 + x[1], 2 * x[1] + x[0], 6 * x[2]])

    for _ in range(4):
        d = -H @ g(x)
        xn = x + 0.1 * d
        s, y = xn - x, g(xn) - g(x)
        rho = 1.0 / (y @ s)
        I = np.eye(3)
        H = (I - rho * np.outer(s, y)) @ H @ (I - rho * np.outer(y, s)) + rho * np.outer(s, s)
        x = xn
    return x @ x


def penalty_method(p):
    x = np.zeros(2)
    mu = 1.0
    while mu < 50:
        for _ in range(5):
            grad = np.array([2 * (x[0] - p[0]), 2 * (x[1] - p[1])])
            viol = max(0.0, x[0] + x[1] - p[2])
            grad = grad + 2 * mu * viol
            x = x - 0.5 / (1 + 2 * mu) * grad
        mu *= 4
    return np.sum(x**2)


def line_search(p):
    x, f = p * 1.0, lambda x: np.sum(x**4 + x**2)
    for _ in range(5):
        g = 4 * x**3 + 2 * x
        t = 1.0
        while f(x - t * g) > f(x) - 0.3 * t * g @ g:
            t *= 0.5
        x = x - t * g
    return f(x)


def root_by_brentq(p):
    root = optimize.brentq(lambda x: x**3 - 2, 0, 2)
    return root * p[0] + p[1] * p[2]


@dataclass
class Particle:
    mass: float
    pos: np.ndarray = field(default_factory=lambda: np.zeros(2))
    vel: np.ndarray = field(default_factory=lambda: np.zeros(2))


def particles_dataclass(p):
    parts = [Particle(m) for m in p]
    for i, q in enumerate(parts):
        q.pos[0] = i
        q.vel[1] = 0.1 * i
    for _ in range(5):
        for q in parts:
            q.vel = q.vel - 0.1 * q.pos * q.mass
            q.pos += 0.1 * q.vel
    return sum(np.sum(q.pos**2) for q in parts)


def vectorized_scalar(p):
    @np.vectorize
    def f(x, a):
        if x > 0.5:
            return a * x**2
        return a * x + 1.0

    return np.sum(f(np.linspace(0, 1, 6), p[0])) * p[1] + p[2]


def along_axis(p):
    A = np.outer(p, [1.0, 2.0, 4.0])
    return np.sum(np.apply_along_axis(lambda r: r / np.linalg.norm(r), 1, A) * np.arange(9).reshape(3, 3))


def checks_types(p):
    x = p * 2
    assert isinstance(x, np.ndarray), "array wanted"
    assert x.ndim == 1 and np.ndim(x[0]) == 0
    scale = x[0]
    if isinstance(scale, (Number, np.floating)):
        x = x * scale
    print(f"scale {scale:.2f} {x}", end="", file=open("/dev/null", "w"))
    return x.sum()


def flat_iteration(p):
    A = np.outer(p, p)
    total = 0.0
    for v in A.flat:
        total += np.sqrt(np.abs(v))
    for v in np.nditer(np.arange(3.0)):
        total += v * p[0]
    return total


def memo_recursion(p):
    cache = {}

    def leg(n, x):
        if n in cache:
            return cache[n]
        if n == 0:
            return 1.0
        if n == 1:
            return x
        cache[n] = ((2 * n - 1) * x * leg(n - 1, x) - (n - 1) * leg(n - 2, x)) / n
        return cache[n]

    return leg(6, p[0]) * p[1] + p[2]


def generator_sum(p):
    def terms():
        x = p[0]
        for n in range(10):
            yield x ** (n + 1) / math.factorial(n + 1)

    return sum(terms()) + p[1] * p[2]


def in_place_clip(p):
    x = np.empty(5)
    x[:] = np.linspace(-1, 1, 5) * p[0]
    np.clip(x, -0.5, 0.5, out=x)
    x[x < 0] *= p[1]
    np.exp(x, out=x)
    return x.sum() * p[2]


def masked_division(p):
    a = np.outer(p, [0.0, 1.0, 2.0])
    r = np.divide(1.0, a, out=np.zeros_like(a), where=a != 0)
    return r.sum()


def block_matrix(p):
    A = np.block([[np.diag(p), np.ones((3, 1))], [np.ones((1, 3)), np.zeros((1, 1))]])
    return np.linalg.slogdet(A)[1]


def einsum_tensor(p):
    A = np.arange(12.0).reshape(3, 4)
    return np.einsum("i,ij,kj,k->", p, A, A, p) + np.einsum(p, [0], p, [0], [])


def c_and_r(p):
    x = np.r_[0.0, p, 1.0]
    M = np.c_[x, x**2]
    return np.sum(M.T @ M)


def insert_and_unique(p):
    x = np.insert(p, 1, 0.5)
    x = np.append(x, p[0] * 2)
    x.sort()
    return np.sum(x * np.arange(len(x)))


def special_functions(p):
    return special.gammaln(p[0] + 1) + special.erf(p[1]) * special.j0(p[2]) + stats.norm.ppf(p[0])


PROGRAMS = [
    black_scholes, binomial_tree, monte_carlo_option, vasicek_path, portfolio, bond_yield_newton, drawdown, sir_model,
    leslie_matrix, hodgkin_gate, phylogeny_likelihood, needleman_soft, michaelis_menten, rosenbrock, bfgs_by_hand,
    penalty_method, line_search, root_by_brentq, particles_dataclass, vectorized_scalar, along_axis, checks_types,
    flat_iteration, memo_recursion, generator_sum, in_place_clip, masked_division, block_matrix, einsum_tensor, c_and_r,
    insert_and_unique, special_functions,
]  # fmt: skip
