"""Programs of control, optics, quantum circuits, kinetics, queues and images, as one writes them."""

# ruff: noqa: B007, RUF005
import cmath
import functools
import math
import operator
from collections import Counter, OrderedDict, deque

import numpy as np
import numpy.linalg as la
from scipy import linalg, signal, sparse
from scipy.integrate import quad, solve_ivp
from scipy.optimize import fsolve
from scipy.sparse.linalg import spsolve


def robertson_implicit(p):
    k1, k2, k3 = 0.04 * p[0], 3.0 * p[1], 10.0 * p[2]
    y = np.array([1.0, 0.0, 0.0])
    dt = 0.1
    for _ in range(20):
        y_new = y.copy()
        for newton in range(4):
            a, b, c = y_new
            rhs = np.array([-k1 * a + k2 * b * c, k1 * a - k2 * b * c - k3 * b**2, k3 * b**2])
            J = np.array([[-k1, k2 * c, k2 * b], [k1, -k2 * c - 2 * k3 * b, -k2 * b], [0, 2 * k3 * b, 0]])
            residual = y_new - y - dt * rhs
            y_new = y_new - la.solve(np.eye(3) - dt * J, residual)
        y = y_new
    return y[2]


def reaction_network(p):
    species = ["A", "B", "C", "D"]
    reactions = [(p[0], ["A"], ["B"]), (p[1], ["A", "B"], ["C"]), (p[2], ["C"], ["D", "A"])]
    conc = dict.fromkeys(species, 0.0)
    conc["A"] = 1.0
    for step in range(50):
        change = dict.fromkeys(species, 0.0)
        for k, reactants, products in reactions:
            rate = k
            for r in reactants:
                rate *= conc[r]
            for r in reactants:
                change[r] -= rate
            for q in products:
                change[q] += rate
        for s in species:
            conc[s] += 0.05 * change[s]
    return conc["D"] + 2 * conc["C"]


def stiff_kinetics_ivp(p):
    def rhs(t, y, k1, k2, k3):
        return [-k1 * y[0] + k2 * y[1], k1 * y[0] - k2 * y[1] - k3 * y[1], k3 * y[1]]

    sol = solve_ivp(rhs, (0, 2), [1.0, 0.0, 0.0], args=tuple(p), rtol=1e-9, atol=1e-10)
    return sol.y[2, -1]


def equilibrium_bisection(p):
    def f(x):
        return x**2 / (p[0] - x) ** 2 - p[1] * np.exp(-p[2])

    lo, hi = 0.0, 0.99 * p[0]
    for _ in range(60):
        mid = 0.5 * (lo + hi)
        if f(mid) > 0:
            hi = mid
        else:
            lo = mid
    x = 0.5 * (lo + hi)
    for _ in range(3):
        h = 1e-3
        x = x - f(x) * 2 * h / (f(x + h) - f(x - h))
    return x


def enzyme_fit_levenberg(p):
    S = np.array([0.1, 0.3, 0.6, 1.0, 2.0])
    v = p[0] * S / (p[1] + S)
    theta = np.array([1.0, 1.0])
    lam = 1e-2 * (1 + p[2])
    for it in range(6):
        model = theta[0] * S / (theta[1] + S)
        r = v - model
        J = np.column_stack([S / (theta[1] + S), -theta[0] * S / (theta[1] + S) ** 2])
        A = J.T @ J
        theta = theta + np.linalg.solve(A + lam * np.diag(np.diag(A)), J.T @ r)
    return theta.sum()


def double_pendulum_energy(p):
    def deriv(state):
        t1, w1, t2, w2 = state
        c, s = np.cos(t1 - t2), np.sin(t1 - t2)
        den = 2 - c**2
        a1 = (-s * (w2**2 + w1**2 * c) - 2 * np.sin(t1) + np.sin(t2) * c) / den
        a2 = (s * (2 * w1**2 + w2**2 * c) + 2 * np.sin(t1) * c - 2 * np.sin(t2)) / den
        return np.array([w1, a1, w2, a2])

    y = np.r_[p[0], 0, p[1], p[2]]
    h = 0.02
    trajectory = [y]
    for _ in range(40):
        k1 = deriv(y)
        k2 = deriv(y + h / 2 * k1)
        k3 = deriv(y + h / 2 * k2)
        k4 = deriv(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        trajectory.append(y)
    return np.vstack(trajectory)[:, 0].std()


def dormand_prince_adaptive(p):
    def f(t, y):
        return np.array([y[1], p[0] * (1 - y[0] ** 2) * y[1] - y[0]])

    t, h, y = 0.0, 0.05, np.array([1.0, p[1]])
    ts, ys, fs = [t], [y], [f(t, y)]
    while t < 1.5:
        h = min(h, 1.5 - t)
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + 3 * h / 4, y + 3 * h / 4 * k2)
        new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = f(t + h, new)
        error = np.max(np.abs(h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)))
        if error < 1e-4:
            t, y = t + h, new
            ts.append(t)
            ys.append(y)
            fs.append(k4)
        h *= 1.5 if error < 2e-5 else 0.7 if error > 1e-4 else 1.0
    q = 0.4 + 0.2  # dense output by cubic Hermite
    i = next(j for j in range(len(ts) - 1) if ts[j] <= q <= ts[j + 1])
    dt = ts[i + 1] - ts[i]
    s = (q - ts[i]) / dt
    dense = (
        (1 + 2 * s) * (1 - s) ** 2 * ys[i]
        + s * (1 - s) ** 2 * dt * fs[i]
        + s**2 * (3 - 2 * s) * ys[i + 1]
        + s**2 * (s - 1) * dt * fs[i + 1]
    )
    return dense[0] * p[2] + ys[-1][1]


def mpc_shooting(p):
    A = np.array([[1, 0.1], [0, 1]])
    B = np.array([[0.005], [0.1]])
    u = np.zeros((10, 1))
    x0 = np.array([[p[0]], [p[1]]])
    for it in range(5):
        xs = [x0]
        for k in range(10):
            xs.append(A @ xs[-1] + B @ u[k : k + 1])
        lam = 2 * xs[-1]
        g = np.zeros_like(u)
        for k in reversed(range(10)):
            g[k] = (2 * p[2] * u[k] + B.T @ lam)[0]
            lam = A.T @ lam + 0.2 * xs[k]
        u = u - 0.5 * g
    return float_cost(xs, u, p[2])


def float_cost(xs, u, r):
    return sum(0.1 * (x**2).sum() for x in xs) + r * np.sum(u**2) + np.sum(xs[-1] ** 2)


def riccati_discrete(p):
    A = np.array([[1.0, 0.1 * p[0]], [0.0, 0.9]])
    B = np.array([[0.0], [p[1]]])
    Q, R = np.eye(2), np.array([[p[2]]])
    P = Q
    while True:
        K = np.linalg.inv(R + B.T @ P @ B) @ (B.T @ P @ A)
        P_next = Q + A.T @ P @ (A - B @ K)
        if np.max(np.abs(P_next - P)) < 1e-12:
            break
        P = P_next
    return np.trace(P)


def state_space_step(p):
    num, den = [p[0]], [1.0, 2 * p[1], 1.0]
    A = np.array([[0, 1], [-den[2], -den[1]]])
    Ad = linalg.expm(A * 0.1)
    x = np.zeros(2)
    y = []
    for k in range(40):
        x = Ad @ x + np.array([0.005, 0.1]) * num[0]
        y.append(x[0])
    overshoot = max(y) - y[-1]
    return overshoot + p[2] * y[10]


class Controller:
    """PID with anti-windup and a filter on the derivative."""

    def __init__(self, kp, ki, kd):
        self.gains = kp, ki, kd
        self.integral, self.previous, self.filtered = 0.0, None, 0.0

    def __call__(self, error, dt):
        kp, ki, kd = self.gains
        self.integral = np.clip(self.integral + error * dt, -1, 1)
        raw = 0.0 if self.previous is None else (error - self.previous) / dt
        self.filtered += 0.3 * (raw - self.filtered)
        self.previous = error
        return kp * error + ki * self.integral + kd * self.filtered


def pid_with_delay(p):
    control = Controller(*p)
    y, delay = 0.0, deque([0.0, 0.0, 0.0])
    cost = 0
    for k in range(50):
        delay.append(control(1.0 - y, 0.1))
        u = delay.popleft()
        y += 0.1 * (-y + u)
        cost += k * 0.1 * abs(1 - y)
    return cost


def extended_kalman(p):
    x, P = np.array([0.5, 0.1]), np.eye(2)
    Q, R = np.diag([0.01, p[0] * 0.1]), p[1]
    nll = 0.0
    for k, z in enumerate(np.sin(0.3 * np.arange(20))):
        F = np.array([[1, 0.1], [-0.1 * np.cos(x[0]), 1 - 0.01 * p[2]]])
        x = np.array([x[0] + 0.1 * x[1], x[1] - 0.1 * np.sin(x[0]) - 0.01 * p[2] * x[1]])
        P = F @ P @ F.T + Q
        H = np.array([np.cos(x[0]), 0])
        S = H @ P @ H + R
        K = P @ H / S
        r = z - np.sin(x[0])
        x = x + K * r
        P -= np.outer(K, H) @ P
        nll += 0.5 * (r**2 / S + np.log(2 * np.pi * S))
    return nll


def particle_filter(p):
    rng = np.random.default_rng(11)
    n = 40
    particles = rng.normal(size=n)
    loglik = 0.0
    for t in range(12):
        y = np.sin(0.5 * t)
        particles = p[0] * particles + np.sqrt(0.1 + p[1] ** 2) * rng.normal(size=n)
        logw = -0.5 * ((y - particles) / p[2]) ** 2 - np.log(p[2])
        m = logw.max()
        w = np.exp(logw - m)
        loglik += m + np.log(w.mean())
        w /= w.sum()
        positions = (np.arange(n) + rng.random()) / n
        indexes = np.minimum(np.searchsorted(np.cumsum(w), positions), n - 1)
        particles = particles[indexes]
    return loglik


def fresnel_lens(p):
    n = 64
    x = np.linspace(-1, 1, n)
    field = np.exp(-(x**2) / (0.3 + p[0]) ** 2).astype(complex)
    field *= np.exp(-1j * 5 * p[1] * x**2)
    k = np.fft.fftfreq(n, x[1] - x[0])
    for _ in range(10):
        field = np.fft.ifft(np.fft.fft(field) * np.exp(-1j * np.pi * 0.05 * p[2] * k**2))
    intensity = np.abs(field) ** 2
    return intensity.max()


def thin_film_transfer_matrix(p):
    R = []
    for wavelength in np.linspace(0.4, 0.7, 7):
        M = np.eye(2, dtype=complex)
        for n, d in [(1.38 + 0.1 * p[0], 0.1), (2.1 + 0.2 * p[1], 0.06), (1.46, 0.1 * p[2])]:
            delta = 2 * np.pi * n * d / wavelength
            M = M @ np.array([[np.cos(delta), 1j * np.sin(delta) / n], [1j * n * np.sin(delta), np.cos(delta)]])
        B, C = M @ np.array([1, 1.52])
        r = (B - C) / (B + C)
        R.append(abs(r) ** 2)
    return np.mean(R)


def abcd_cavity(p):
    def lens(f):
        return np.array([[1, 0], [-1 / f, 1]])

    def space(d):
        return np.array([[1, d], [0, 1]])

    system = [space(p[0]), lens(1.0 + p[1]), space(0.5), lens(2.0)]
    M = functools.reduce(np.matmul, system * 3)
    q = 1j * p[2]
    q = (M[0, 0] * q + M[0, 1]) / (M[1, 0] * q + M[1, 1])
    return np.imag(-1 / q)


def quantum_variational(p):
    I2 = np.eye(2)
    X = np.array([[0, 1], [1, 0]], dtype=complex)
    Z = np.diag([1.0 + 0j, -1.0])
    cnot = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=complex)

    def ry(t):
        return np.array([[np.cos(t / 2), -np.sin(t / 2)], [np.sin(t / 2), np.cos(t / 2)]])

    state = np.zeros(4, dtype=complex)
    state[0] = 1
    for layer in range(3):
        state = np.kron(ry(p[layer]), ry(p[(layer + 1) % 3])) @ state
        state = cnot @ state
    H = np.kron(Z, Z) + 0.5 * (np.kron(X, I2) + np.kron(I2, X))
    return (state.conj() @ H @ state).real


def quantum_gates_tensor(p):
    n = 3
    psi = np.zeros((2,) * n, complex)
    psi[(0,) * n] = 1.0
    for q, angle in enumerate(p):
        gate = np.array([[np.cos(angle), -1j * np.sin(angle)], [-1j * np.sin(angle), np.cos(angle)]])
        psi = np.moveaxis(np.tensordot(gate, psi, axes=(1, q)), 0, q)
    for q in range(n - 1):
        index = [slice(None)] * n
        index[q], index[q + 1] = 1, 1
        psi[tuple(index)] *= np.exp(1j * p[q])
    gate = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    psi = np.einsum("ab,bcd->acd", gate, psi)
    probabilities = np.abs(psi) ** 2
    return probabilities[0].sum()


def lindblad_decay(p):
    H = np.array([[0.5 * p[0], 0.2], [0.2, -0.5 * p[0]]], dtype=complex)
    L = np.sqrt(p[1]) * np.array([[0, 1], [0, 0]], dtype=complex)
    rho = np.array([[0.2, 0.1j], [-0.1j, 0.8]])
    LdL = L.conj().T @ L
    for _ in range(30):
        rho = rho + 0.05 * (-1j * (H @ rho - rho @ H) + L @ rho @ L.conj().T - 0.5 * (LdL @ rho + rho @ LdL))
    return np.real(np.trace(rho @ rho)) * p[2]


def grape_pulse(p):
    sx = np.array([[0, 1], [1, 0]], complex)
    sz = np.array([[1, 0], [0, -1]], complex)
    amplitudes = p[0] * np.sin(np.linspace(0, np.pi, 8)) + p[1]
    U = np.eye(2, dtype=complex)
    for a in amplitudes:
        U = linalg.expm(-1j * 0.2 * (p[2] * sz + a * sx)) @ U
    return abs(U[1, 0]) ** 2


def tight_binding_bands(p):
    energies = []
    for k in np.linspace(-np.pi, np.pi, 11):
        H = np.array([[0, p[0] + p[1] * np.exp(-1j * k)], [p[0] + p[1] * np.exp(1j * k), 0]])
        H += p[2] * np.diag([1, -1])
        energies.append(np.linalg.eigvalsh(H))
    return np.array(energies)[:, 0].sum()


def mm1_queue_recursion(p):
    rng = np.random.default_rng(5)
    interarrival = rng.exponential(size=80) / p[0]
    service = rng.exponential(size=80) * p[1]
    wait = [0.0]
    for a, s in zip(interarrival[1:], service[:-1]):
        wait.append(max(0.0, wait[-1] + s - a))
    return np.mean(wait) + p[2] * np.mean(service)


def markov_queue_stationary(p):
    n = 8
    Q = np.zeros((n, n))
    for i in range(n - 1):
        Q[i, i + 1] = p[0]
        Q[i + 1, i] = p[1] * min(i + 1, 2)
    Q -= np.diag(Q.sum(axis=1))
    A = np.vstack([Q.T, np.ones(n)])
    b = np.zeros(n + 1)
    b[-1] = 1
    pi, *_ = np.linalg.lstsq(A, b, rcond=None)
    return pi @ np.arange(n) * p[2]


def erlang_b(p):
    load = 2 + p[0]
    b = 1.0
    for servers in range(1, 6):
        b = load * b / (servers + load * b)
    return b * p[1] + math.log(load) * p[2]


def jackson_network(p):
    routing = np.array([[0, p[0] * 0.5, 0.2], [0.1, 0, p[1] * 0.5], [0, 0.3, 0]])
    gamma = np.array([p[2], 0.1, 0.1])
    lam = np.linalg.solve((np.eye(3) - routing).T, gamma)
    rho = lam / np.array([2.0, 2.5, 1.5])
    assert np.all(rho < 1), f"unstable: {rho}"
    return np.sum(rho / (1 - rho))


def truss_structure(p):
    nodes = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8], [1.5, 0.8]])
    bars = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    areas = [p[0], p[1], p[2], 1.0, 0.5]
    K = np.zeros((8, 8))
    for (i, j), area in zip(bars, areas):
        d = nodes[j] - nodes[i]
        length = np.linalg.norm(d)
        c = d / length
        k = area / length * np.outer(c, c)
        dofs = np.ix_([2 * i, 2 * i + 1, 2 * j, 2 * j + 1], [2 * i, 2 * i + 1, 2 * j, 2 * j + 1])
        K[dofs] += np.block([[k, -k], [-k, k]])
    free = [2, 4, 5, 6, 7]
    f = np.zeros(8)
    f[7] = -1.0
    u = np.zeros(8)
    u[free] = np.linalg.solve(K[np.ix_(free, free)], f[free])
    return f @ u


def resistor_network_nodal(p):
    edges = {("a", "b"): p[0], ("b", "c"): p[1], ("a", "c"): p[2], ("c", "d"): 1.0, ("b", "d"): 0.5}
    index = {name: i for i, name in enumerate("abcd")}
    G = np.zeros((4, 4))
    for (m, n), r in edges.items():
        g = 1 / r
        i, j = index[m], index[n]
        G[i, i] += g
        G[j, j] += g
        G[i, j] -= g
        G[j, i] -= g
    v = np.linalg.solve(G[:3, :3], np.array([1.0, 0, 0]))
    return v[index["a"]]


def power_flow_newton(p):
    Y = np.array([[2.0, -1, -1], [-1, 2.5, -1.5], [-1, -1.5, 2.5]])
    theta = np.zeros(3)
    for _ in range(5):
        diff = theta[:, None] - theta[None, :]
        P = np.sum(-Y * np.sin(diff), axis=1)
        J = np.where(np.eye(3, dtype=bool), 0, Y * np.cos(diff))
        J -= np.diag(J.sum(1))
        theta[1:] -= np.linalg.solve(J[1:, 1:], (P - np.array([0, p[0] * 0.3, -p[1] * 0.3]))[1:])
    return theta[1] * p[2] + theta[2] ** 2


def image_perona_malik(p):
    rng = np.random.RandomState(1)
    img = rng.rand(12, 12) * p[0]
    img[4:8, 4:8] += 1
    for _ in range(8):
        padded = np.pad(img, 1, mode="edge")
        north, south = padded[:-2, 1:-1] - img, padded[2:, 1:-1] - img
        west, east = padded[1:-1, :-2] - img, padded[1:-1, 2:] - img
        img += 0.2 * sum(np.exp(-((d / (0.3 + p[1])) ** 2)) * d for d in (north, south, west, east))
    return np.sum(img ** p[2])


def histogram_equalise_soft(p):
    img = np.abs(np.sin(np.arange(48.0).reshape(6, 8) * 1.3)) * p[0]
    bins = np.linspace(0, 1, 9)
    weights = np.stack([np.exp(-(((img - b) / 0.1) ** 2)) for b in bins])
    weights /= weights.sum(0)
    hist = weights.sum((1, 2))
    cdf = np.cumsum(hist) / hist.sum()
    out = np.tensordot(cdf, weights, axes=1)
    return out.var() + p[1] * out[0, 0] + p[2] * np.median(out)


def optical_flow_lucas(p):
    x, y = np.meshgrid(np.arange(10.0), np.arange(10.0))
    first = np.sin(0.5 * x) * np.cos(0.4 * y)
    second = np.sin(0.5 * (x - p[0])) * np.cos(0.4 * (y - p[1]))
    Iy, Ix = np.gradient(first)
    It = second - first
    flow = np.zeros((8, 8, 2))
    for i in range(2, 8, 3):
        for j in range(2, 8, 3):
            w = np.s_[i - 2 : i + 3, j - 2 : j + 3]
            A = np.stack([Ix[w].ravel(), Iy[w].ravel()], axis=-1)
            flow[i, j] = -np.linalg.inv(A.T @ A + p[2] * 0.1 * np.eye(2)) @ A.T @ It[w].ravel()
    return np.linalg.norm(flow)


def canny_like(p):
    img = np.tanh((np.arange(14)[:, None] - 7 + p[0] * np.arange(12)[None, :] * 0.3) * p[1])
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    img = signal.convolve2d(img, kernel, mode="same", boundary="symm")
    gx = signal.convolve2d(img, [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], mode="valid")
    gy = signal.convolve2d(img, [[-1, -2, -1], [0, 0, 0], [1, 2, 1]], mode="valid")
    magnitude = np.hypot(gx, gy)
    strong = magnitude > 0.5 * magnitude.max()
    return magnitude[strong].mean() * p[2]


def bilinear_warp(p):
    img = np.cos(np.arange(100).reshape(10, 10) * 0.17)
    angle = 0.3 * p[0]
    rows, cols = np.indices((6, 6))
    r = 4.5 + (rows - 2.5) * math.cos(0.1) - (cols - 2.5) * np.sin(angle) + 0.3 * p[1]
    c = 4.5 + (rows - 2.5) * np.sin(angle) + (cols - 2.5) * np.cos(angle) + 0.2 * p[2]
    r0, c0 = np.floor(r).astype(int), np.floor(c).astype(int)
    dr, dc = r - r0, c - c0
    out = (
        img[r0, c0] * (1 - dr) * (1 - dc)
        + img[r0 + 1, c0] * dr * (1 - dc)
        + img[r0, c0 + 1] * (1 - dr) * dc
        + img[r0 + 1, c0 + 1] * dr * dc
    )
    return np.sum(out**2)


def iir_biquad_loop(p):
    x = np.sin(0.4 * np.arange(60))
    b0, b1, b2 = p[0], 0.2, p[1]
    a1, a2 = -1.2, 0.5 * p[2] + 0.2
    y = np.empty_like(x)
    z1 = z2 = 0.0
    for n, xn in enumerate(x):
        y[n] = b0 * xn + z1
        z1 = b1 * xn - a1 * y[n] + z2
        z2 = b2 * xn - a2 * y[n]
    return np.sqrt(np.mean(y**2))


def lms_adaptive(p):
    rng = np.random.default_rng(2)
    x = rng.normal(size=100)
    d = np.convolve(x, [0.5, p[0], -0.2])[:100]
    w = np.zeros(4)
    mse = 0
    for n in range(4, 100):
        window = x[n - 3 : n + 1][::-1]
        e = d[n] - w @ window
        w += 0.05 * p[1] * e * window
        mse += e**2
    return mse / 96 + p[2] * np.abs(w).sum()


def karplus_strong(p):
    buffer = list(np.sin(np.arange(12) * 2.0) * p[0])
    out = []
    for i in range(80):
        out.append(buffer[0])
        buffer = buffer[1:] + [(p[1] * 0.7) * (buffer[0] + buffer[1])]
    spectrum = np.abs(np.fft.rfft(out * np.hanning(80)))
    return np.log(spectrum + p[2]).mean()


def phase_vocoder(p):
    t = np.arange(128)
    x = p[0] * np.sin(0.3 * t) + p[1] * np.sin(0.71 * t)
    win = np.hanning(32)
    frames = [np.fft.rfft(win * x[i : i + 32]) for i in range(0, 96, 16)]
    phases = np.unwrap(np.angle(frames), axis=0)
    out = np.zeros(128)
    for k, (frame, phase) in enumerate(zip(frames, phases)):
        out[k * 16 : k * 16 + 32] += np.fft.irfft(np.abs(frame) * np.exp(1j * p[2] * phase)) * win
    return out @ out


def cordic_rotation(p):
    x, y, z = 1.0, 0.0, p[0]
    for i in range(10):
        d = 1 if z >= 0 else -1
        x, y, z = x - d * y * 2.0**-i, y + d * x * 2.0**-i, z - d * math.atan(2.0**-i)
    return x * p[1] + y * p[2] + z


def complex_impedance(p):
    gain = 0.0
    for w in [0.5, 1.0, 2.0]:
        zr, zl, zc = p[0], 1j * w * p[1], 1 / (1j * w * p[2])
        h = zc / (zr + zl + zc)
        gain += abs(h) + 0.1 * np.angle(h)
    return gain


def smith_chart_cmath(p):
    total = 0
    for f in range(1, 5):
        z = complex(0.5, 0.1 * f) + p[0]
        gamma = (z - 1) / (z + 1) * cmath.exp(-2j * f) * p[1]
        total += gamma.real * p[2] + gamma.imag**2
    return total


def word_counter_model(p):
    text = ["the", "cat", "sat", "on", "the", "mat", "and", "the", "dog", "sat", "on", "the", "cat"]
    counts = Counter(text)
    logits = OrderedDict((word, p[i % 3] * math.log(1 + n)) for i, (word, n) in enumerate(counts.items()))
    total = sum(math.exp(v) for v in logits.values())
    return -sum(counts[w] * (v - math.log(total)) for w, v in logits.items())


def inverse_kinematics_fsolve(p):
    def residual(angles):
        return [
            p[0] * np.cos(angles[0]) + p[1] * np.cos(angles[0] + angles[1]) - 0.8,
            p[0] * np.sin(angles[0]) + p[1] * np.sin(angles[0] + angles[1]) - 0.3,
        ]

    return np.sum(fsolve(residual, [0.1, 0.5])) * p[2]


def product_of_rates(p):
    rates = [p[0], p[1] + 1, p[2] + 2]
    return functools.reduce(operator.mul, rates) / math.prod([1.0, 2.0]) + quad(lambda x: x**2, 0, 1)[0]


def sparse_heat_cg(p):
    n = 12
    main = 2 * np.ones(n)
    A = sparse.diags([-np.ones(n - 1), main, -np.ones(n - 1)], [-1, 0, 1], format="csr")
    u = np.sin(np.linspace(0, np.pi, n)) * p[0]
    system = sparse.identity(n) + 0.1 * A
    for _ in range(5):
        u = spsolve(system.tocsc(), u + 0.01 * p[1])
    r = A @ u - p[2]
    return r @ r


PROGRAMS = [
    robertson_implicit, reaction_network, stiff_kinetics_ivp, equilibrium_bisection, enzyme_fit_levenberg,
    double_pendulum_energy, dormand_prince_adaptive, mpc_shooting, riccati_discrete, state_space_step, pid_with_delay,
    extended_kalman, particle_filter, fresnel_lens, thin_film_transfer_matrix, abcd_cavity, quantum_variational,
    quantum_gates_tensor, lindblad_decay, grape_pulse, tight_binding_bands, mm1_queue_recursion,
    markov_queue_stationary, erlang_b, jackson_network, truss_structure, resistor_network_nodal, power_flow_newton,
    image_perona_malik, histogram_equalise_soft, optical_flow_lucas, canny_like, bilinear_warp, iir_biquad_loop,
    lms_adaptive, karplus_strong, phase_vocoder, cordic_rotation, complex_impedance, smith_chart_cmath,
    word_counter_model, inverse_kinematics_fsolve, product_of_rates, sparse_heat_cg,
]  # fmt: skip
