"""Programs of physics, as one writes them."""

import math

import numpy as np
from scipy import integrate, linalg, sparse
from scipy.integrate import odeint, solve_ivp
from scipy.sparse.linalg import factorized, splu, spsolve


def heat_explicit(p):
    n, nt = 20, 30
    u = np.zeros(n)
    u[5:10] = p[0]
    for _ in range(nt):
        un = u.copy()
        u[1:-1] = un[1:-1] + p[1] * 0.3 * (un[2:] - 2 * un[1:-1] + un[:-2])
    return np.sum(u**2) + p[2]


def heat_implicit_banded(p):
    n, dt = 15, 0.1
    ab = np.zeros((3, n))
    r = p[0] * dt
    ab[0, 1:] = -r
    ab[1, :] = 1 + 2 * r
    ab[2, :-1] = -r
    u = np.sin(np.linspace(0, np.pi, n)) * p[1]
    for _ in range(8):
        u = linalg.solve_banded((1, 1), ab, u + dt * p[2])
    return np.sum(u)


def heat_implicit_sparse(p):
    n = 12
    A = sparse.diags([-1.0, 2.2, -1.0], [-1, 0, 1], shape=(n, n)).tocsc()
    solve = factorized(A)
    u = np.ones(n) * p[0]
    for i in range(6):
        u = solve(u + p[1] * np.sin(u) + 0.01 * i * p[2])
    return u @ u


def poisson_jacobi(p):
    u = np.zeros((8, 8))
    u[0, :] = p[0]
    u[:, -1] = p[1]
    f = np.full((8, 8), p[2])
    for _ in range(12):
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 0.1 * f[1:-1, 1:-1])
        u = new
    return np.mean(u**2)


def wave_leapfrog(p):
    n = 30
    x = np.linspace(0, 1, n)
    u_prev = p[0] * np.exp(-50 * (x - 0.5) ** 2)
    u = u_prev.copy()
    energy = 0.0
    for _ in range(25):
        u_next = np.empty_like(u)
        u_next[1:-1] = 2 * u[1:-1] - u_prev[1:-1] + (0.4 * p[1]) ** 2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u_next[0] = u_next[-1] = 0.0
        u_prev, u = u, u_next
        energy += np.sum(u**2)
    return energy * p[2]


def burgers_upwind(p):
    u = p[0] + np.sin(2 * np.pi * np.arange(20) / 20) * p[1]
    for _ in range(15):
        flux = 0.5 * u**2
        u = u - 0.05 * p[2] * (flux - np.roll(flux, 1))
    return np.sum(np.abs(u))


def lorenz_scalar(p):
    x, y, z = 1.0, p[0], p[1]
    dt = 0.01
    for _ in range(60):
        dx = 10.0 * (y - x)
        dy = x * (28.0 * p[2] - z) - y
        dz = x * y - 8.0 / 3.0 * z
        x, y, z = x + dt * dx, y + dt * dy, z + dt * dz
    return x * x + y * z


def lorenz_rk4(p):
    def f(s):
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - p[0] * z])

    s = np.array([1.0, p[1], p[2]])
    h = 0.01
    for _ in range(40):
        k1 = f(s)
        k2 = f(s + h / 2 * k1)
        k3 = f(s + h / 2 * k2)
        k4 = f(s + h * k3)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return np.linalg.norm(s)


def pendulum_ivp(p):
    def rhs(t, y):
        theta, omega = y
        return [omega, -p[0] * np.sin(theta) - p[1] * omega]

    sol = solve_ivp(rhs, (0, 2.0), [p[2], 0.0], rtol=1e-8, atol=1e-10)
    return sol.y[0, -1] ** 2


def predator_prey_odeint(p):
    def rhs(y, t, a, b):
        return [a * y[0] - b * y[0] * y[1], -y[1] + 0.5 * y[0] * y[1]]

    t = np.linspace(0, 3, 12)
    y = odeint(rhs, [1.0, p[0]], t, args=(p[1], p[2]), rtol=1e-10, atol=1e-10)
    return np.sum((y - 1.0) ** 2)


def verlet_bodies(p):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 2))
    v = np.zeros((4, 2))
    m = np.array([1.0, p[0], p[1], 2.0])

    def forces(x):
        F = np.zeros_like(x)
        for i in range(4):
            for j in range(4):
                if i != j:
                    d = x[j] - x[i]
                    F[i] += p[2] * m[i] * m[j] * d / (np.sum(d**2) + 0.1) ** 1.5
        return F

    a = forces(x) / m[:, None]
    for _ in range(5):
        v += 0.5 * 0.05 * a
        x = x + 0.05 * v
        a = forces(x) / m[:, np.newaxis]
        v += 0.5 * 0.05 * a
    return 0.5 * np.sum(m * np.sum(v**2, axis=1))


def schroedinger_split(p):
    n = 32
    x = np.linspace(-5, 5, n, endpoint=False)
    k = 2 * np.pi * np.fft.fftfreq(n, d=x[1] - x[0])
    psi = np.exp(-((x - p[0]) ** 2)).astype(complex)
    V = 0.5 * p[1] * x**2
    half = np.exp(-0.5j * 0.05 * V)
    kin = np.exp(-0.5j * 0.05 * k**2)
    for _ in range(10):
        psi = half * psi
        psi = np.fft.ifft(kin * np.fft.fft(psi))
        psi = half * psi
    return np.sum(np.abs(psi) ** 2 * x) * p[2]


def ising_mean_field(p):
    m = 0.5
    for _ in range(30):
        m = np.tanh(p[0] * m + p[1])
    return m * p[2]


def gray_scott(p):
    U = np.ones((10, 10))
    V = np.zeros((10, 10))
    V[4:6, 4:6] = p[2]

    def lap(Z):
        return np.roll(Z, 1, 0) + np.roll(Z, -1, 0) + np.roll(Z, 1, 1) + np.roll(Z, -1, 1) - 4 * Z

    for _ in range(10):
        uvv = U * V * V
        U += 0.16 * lap(U) - uvv + p[0] * 0.1 * (1 - U)
        V += 0.08 * lap(V) + uvv - (p[0] * 0.1 + p[1] * 0.1) * V
    return np.sum(U * V)


def projectile_while(p):
    pos = np.array([0.0, 0.0])
    vel = np.array([p[0] * 10, p[1] * 20])
    t = 0.0
    while pos[1] >= 0.0:
        vel = vel + 0.01 * np.array([0.0, -9.81]) - 0.01 * p[2] * 0.1 * vel
        pos = pos + 0.01 * vel
        t += 0.01
    return pos[0]


def pendulum_math(p):
    theta, omega = p[0], 0.0
    for _ in range(30):
        omega = omega - 0.05 * p[1] * math.sin(theta)
        theta = theta + 0.05 * omega
    return theta * math.exp(-p[2])


class Oscillator:
    def __init__(self, k, c):
        self.k, self.c = k, c
        self.x = np.zeros(2)
        self.history = []

    def step(self, dt):
        self.x[1] += dt * (-self.k * self.x[0] - self.c * self.x[1])
        self.x[0] += dt * self.x[1]
        self.history.append(self.x[0])


def oscillator_class(p):
    o = Oscillator(p[0], p[1])
    o.x[0] = p[2]
    for _ in range(20):
        o.step(0.1)
    return np.sum(np.array(o.history) ** 2)


def rod_eigenmodes(p):
    n = 6
    K = np.zeros((n, n))
    for i in range(n - 1):
        k = p[0] + p[1] * i
        K[i, i] += k
        K[i + 1, i + 1] += k
        K[i, i + 1] -= k
        K[i + 1, i] -= k
    K[0, 0] += p[2]
    w = np.linalg.eigvalsh(K)
    return np.sum(np.sqrt(w))


def finite_elements(p):
    n = 8
    A = np.zeros((n + 1, n + 1))
    b = np.zeros(n + 1)
    for e in range(n):
        idx = np.array([e, e + 1])
        A[np.ix_(idx, idx)] += (p[0] + p[1] * e) * np.array([[1, -1], [-1, 1]])
        b[idx] += 0.5 * p[2]
    A[0, :] = 0
    A[0, 0] = 1
    b[0] = 0
    return np.linalg.solve(A, b)[-1]


def radiation_trapz(p):
    lam = np.linspace(0.5, 5, 40)
    b = 1 / lam**5 / (np.exp(p[0] / (lam * p[1])) - 1)
    return integrate.trapezoid(b, lam) * p[2]


def diffusion_splu(p):
    n = 10
    lap = sparse.diags([1, -2, 1], [-1, 0, 1], shape=(n, n))
    lu = splu(sparse.eye(n, format="csc") - 0.1 * lap.tocsc())
    u = np.zeros(n)
    u[n // 2] = p[0]
    out = []
    for _ in range(5):
        u = lu.solve(u) * p[1]
        out.append(u[2])
    return sum(out) * p[2]


def network_flow(p):
    A = sparse.csr_matrix(np.array([[2.0, -1, 0], [-1, 3, -1], [0, -1, 2]]))
    x = spsolve(A.tocsc(), p)
    return np.dot(x, A @ x) + A.dot(x)[0]


def ring_of_masses(p):
    n = 8
    q, v = np.zeros(n), np.zeros(n)
    q[0] = p[0]
    traj = np.zeros((10, n))
    for t in range(10):
        acc = -p[1] * (2 * q - np.roll(q, 1) - np.roll(q, -1)) - p[2] * q**3
        v = v + 0.1 * acc
        q = q + 0.1 * v
        traj[t] = q
    return np.var(traj)


PROGRAMS = [
    heat_explicit, heat_implicit_banded, heat_implicit_sparse, poisson_jacobi, wave_leapfrog, burgers_upwind,
    lorenz_scalar, lorenz_rk4, pendulum_ivp, predator_prey_odeint, verlet_bodies, schroedinger_split, ising_mean_field,
    gray_scott, projectile_while, pendulum_math, oscillator_class, rod_eigenmodes, finite_elements, radiation_trapz,
    diffusion_splu, network_flow, ring_of_masses,
]  # fmt: skip
