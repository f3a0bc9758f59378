"""Programs of statistics and machine learning, as one writes them."""
# ruff: noqa: RUF034

import itertools
from collections import defaultdict

import numpy as np
from scipy import linalg, special, stats
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, norm

RNG = np.random.default_rng(1)
X = RNG.normal(size=(20, 3))
Y = (RNG.random(20) > 0.5).astype(float)
COUNTS = RNG.poisson(2.0, 20)
T = RNG.normal(size=20)


def logistic_regression(w):
    z = X @ w
    return -np.sum(Y * np.log(expit(z)) + (1 - Y) * np.log(1 - expit(z))) + 0.1 * np.sum(w**2)


def softmax_regression(w):
    W = np.stack([w, w**2, -w], axis=1)
    logits = X @ W
    return -np.mean(logits[np.arange(20), COUNTS % 3] - logsumexp(logits, axis=1))


def poisson_glm(w):
    mu = np.exp(X @ w)
    return -np.sum(stats.poisson.logpmf(COUNTS, mu))


def gaussian_mixture(p):
    means = np.array([-1.0, p[0], 2.0])
    logw = np.log(np.array([0.3, 0.3, 0.4]))
    comp = norm.logpdf(T[:, None], means, np.exp(p[1])) + logw
    return -np.sum(logsumexp(comp, axis=1)) * p[2]


def em_mixture(p):
    mu = np.array([p[0], -p[1]])
    for _ in range(5):
        logr = -0.5 * (T[:, None] - mu[None, :]) ** 2
        r = np.exp(logr - logsumexp(logr, axis=1, keepdims=True))
        mu = (r * T[:, None]).sum(axis=0) / r.sum(axis=0)
    return np.sum(mu**2) * p[2]


def gaussian_process(p):
    d = T[:, None] - T[None, :]
    K = p[0] ** 2 * np.exp(-0.5 * d**2 / p[1] ** 2) + (0.1 + p[2] ** 2) * np.eye(20)
    L = linalg.cholesky(K, lower=True)
    alpha = linalg.cho_solve((L, True), Y)
    return 0.5 * Y @ alpha + np.sum(np.log(np.diag(L)))


def mvn_likelihood(p):
    cov = np.diag(p**2) + 0.1 * np.ones((3, 3)) + np.eye(3)
    return np.sum(multivariate_normal.logpdf(X, mean=p, cov=cov))


def student_regression(p):
    resid = Y - X @ p
    return -np.sum(stats.t.logpdf(resid, df=4, scale=1.5))


def kalman_filter(p):
    F = np.array([[1.0, 0.1], [-0.1 * p[0], 1.0]])
    H = np.array([[1.0, 0.0]])
    Q = p[1] ** 2 * np.eye(2)
    R = np.array([[p[2] ** 2]])
    x, P = np.zeros(2), np.eye(2)
    ll = 0.0
    for z in T:
        x = F @ x
        P = F @ P @ F.T + Q
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        innov = z - H @ x
        x = x + K @ innov
        P = (np.eye(2) - K @ H) @ P
        ll += -0.5 * (np.log(np.linalg.det(S)) + innov @ np.linalg.solve(S, innov))
    return ll


def hidden_markov(p):
    A = special.softmax(np.array([[p[0], 0.1], [0.2, p[1]]]), axis=1)
    logB = np.array([[-((z - p[2]) ** 2), -((z + 1) ** 2)] for z in T])
    alpha = np.log(np.array([0.5, 0.5])) + logB[0]
    for t in range(1, len(T)):
        alpha = logsumexp(alpha[:, None] + np.log(A), axis=0) + logB[t]
    return logsumexp(alpha)


def garch(p):
    h = np.zeros(len(T))
    h[0] = np.var(T)
    for t in range(1, len(T)):
        h[t] = p[0] ** 2 + 0.5 * p[1] ** 2 * T[t - 1] ** 2 + 0.3 * p[2] ** 2 * h[t - 1]
    return 0.5 * np.sum(np.log(h) + T**2 / h)


def arma(p):
    eps = np.zeros_like(T)
    for t in range(len(T)):
        pred = p[0]
        if t > 0:
            pred = pred + p[1] * T[t - 1] + p[2] * eps[t - 1]
        eps[t] = T[t] - pred
    return np.sum(eps**2)


def neural_net(p):
    W1 = np.outer(p, [1.0, -1.0, 0.5, 2.0])
    b1 = np.zeros(4)
    W2 = np.concatenate([p, p[:1]])
    h = np.tanh(X @ W1 + b1)
    out = h @ W2
    return np.mean((out - Y) ** 2)


def gradient_descent_inside(p):
    w = np.zeros(3)
    for _ in range(10):
        g = X.T @ (X @ w - Y) / len(Y) + p * w
        w -= 0.1 * g
    return np.sum((X @ w - Y) ** 2)


def momentum_training(p):
    w = np.zeros(3)
    v = np.zeros(3)
    losses = []
    for i in range(8):
        r = X @ w - Y
        losses.append(np.mean(r**2))
        g = 2 * X.T @ r / 20
        v = p[0] * v - p[1] * g
        w = w + v
        if i % 4 == 0:
            print(f"step {i}: loss {losses[-1]:.3f}", end="" if i else "")
    return sum(losses) + p[2] * losses[-1]


def lstm(p):
    h, c = np.zeros(2), np.zeros(2)
    W = np.outer(np.tile(p, 3)[:8], np.ones(3)) * 0.3
    for x in T[:8]:
        z = W @ np.append(h, x)
        i, f, o, g = np.split(z, 4)
        c = expit(f) * c + expit(i) * np.tanh(g)
        h = expit(o) * np.tanh(c)
    return np.sum(h)


def ridge_closed_form(p):
    A = X.T @ X + np.diag(p**2)
    w = np.linalg.solve(A, X.T @ Y)
    return np.sum((Y - X.dot(w)) ** 2)


def pca_reconstruction(p):
    Z = X * p
    C = np.cov(Z, rowvar=False)
    w, _ = np.linalg.eigh(C)
    return w[-1] / np.sum(w)


def standardised(p):
    Z = X * p + 1.0
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0, ddof=1)
    return np.sum(np.maximum(Z, 0) ** 2 * p)


def histogram_weights(p):
    bins = np.linspace(-3, 3, 7)
    w = np.exp(-p[0] * T**2)
    h, _ = np.histogram(T, bins=bins, weights=w)
    c = np.bincount(COUNTS, weights=w)
    return np.sum(h**2) * p[1] + c @ np.arange(len(c)) * p[2]


def polynomial_fit(p):
    t = np.linspace(0, 1, 10)
    y = p[0] + p[1] * t + p[2] * np.sin(t)
    c = np.polyfit(t, y, 2)
    return np.polyval(c, 1.5)


def beta_binomial(p):
    a, b = np.exp(p[0]), np.exp(p[1])
    k, n = COUNTS, 10
    return np.sum(special.betaln(k + a, n - k + b) - special.betaln(a, b)) + stats.gamma.logpdf(a, 2.0, scale=p[2])


def censored(p):
    z = (T - p[0]) / np.exp(p[1])
    seen = T < 0.5
    ll = np.where(seen, norm.logpdf(z) - p[1], norm.logsf(z))
    return ll.sum() * p[2]


def group_means(p):
    groups = defaultdict(list)
    for i, x in enumerate(T):
        groups[i % 3].append(x * p[i % 3])
    return sum(np.mean(g) ** 2 for g in groups.values())


def pairwise_ranking(p):
    scores = X @ p
    total = 0.0
    for i, j in itertools.combinations(range(6), 2):
        total += np.log1p(np.exp(-(scores[i] - scores[j])))
    return total


def dropout_rng(p):
    rng = np.random.default_rng(3)
    h = X
    for _ in range(3):
        mask = rng.random(h.shape) < 0.8
        h = np.tanh(h * p) * mask / 0.8
    return h.sum()


def reparameterised(p):
    np.random.seed(0)
    eps = np.random.randn(50)
    z = p[0] + np.exp(p[1]) * eps
    return np.mean(z**2 - p[2] * z)


def bootstrap_choice(p):
    rng = np.random.default_rng(5)
    idx = rng.choice(20, size=20)
    return np.sum((X[idx] @ p - Y[idx]) ** 2)


def kde(p):
    grid = np.linspace(-2, 2, 15)
    dens = np.array([np.mean(norm.pdf((g - T) / p[0])) for g in grid]) / p[0]
    return np.sum(dens**2) * p[1] * p[2]


def kl_divergence(p):
    q = np.abs(p) / np.sum(np.abs(p))
    r = np.array([0.2, 0.3, 0.5])
    return np.sum(special.rel_entr(q, r)) + stats.entropy([0.5, 0.5]) * p[0]


PROGRAMS = [
    logistic_regression, softmax_regression, poisson_glm, gaussian_mixture, em_mixture, gaussian_process,
    mvn_likelihood, student_regression, kalman_filter, hidden_markov, garch, arma, neural_net, gradient_descent_inside,
    momentum_training, lstm, ridge_closed_form, pca_reconstruction, standardised, histogram_weights, polynomial_fit,
    beta_binomial, censored, group_means, pairwise_ranking, dropout_rng, reparameterised, bootstrap_choice, kde,
    kl_divergence,
]  # fmt: skip
