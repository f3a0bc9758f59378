"""Programs of geophysics, astronomy, climate, hydrology and ecology, as one writes them."""
# ruff: noqa: B007, E741, RUF007

import itertools
import math
from collections import defaultdict, deque, namedtuple
from dataclasses import dataclass

import numpy as np
from numpy import cos, exp, pi, sin, sqrt
from scipy import interpolate, ndimage
from scipy.special import erf, sph_harm_y


def ray_tracing_layers(p):
    v = np.array([1.5 + p[0], 2.0 + p[1], 2.8 + p[2], 3.5])
    h = np.array([0.5, 0.8, 1.1, 2.0])
    times = []
    for ray_parameter in np.linspace(0.05, 0.2, 6):
        x = t = 0.0
        for vi, hi in zip(v, h):
            s = np.sqrt(1 - (ray_parameter * vi) ** 2)
            x += hi * ray_parameter * vi / s
            t += hi / (vi * s)
        times.append((x, t))
    times = np.array(times)
    return np.sum((times[:, 1] - 0.4 * times[:, 0]) ** 2)


def acoustic_fd(p):
    nx, nt = 60, 50
    dx, dt = 1.0, 0.3
    c = np.ones(nx)
    c[20:40] += 0.3 * p[0]
    c[40:] += 0.2 * p[1]
    u_old = np.zeros(nx)
    u = np.zeros(nx)
    seismogram = np.zeros(nt)
    for it in range(nt):
        lap = np.zeros(nx)
        lap[1:-1] = (u[2:] - 2 * u[1:-1] + u[:-2]) / dx**2
        u_new = 2 * u - u_old + (c * dt) ** 2 * lap
        u_new[10] += p[2] * dt**2 * (1 - 2 * (it * dt - 3) ** 2) * np.exp(-((it * dt - 3) ** 2))
        u_old, u = u, u_new
        seismogram[it] = u[30]
    return np.linalg.norm(seismogram)


def elastic_sh_staggered(p):
    n = 40
    v, s = np.zeros(n), np.zeros(n - 1)
    rho = 1 + 0.2 * p[0] * np.linspace(0, 1, n)
    mu = (1 + p[1]) * np.ones(n - 1)
    for k in range(60):
        v[1:-1] += 0.2 / rho[1:-1] * np.diff(s)
        v[5] += p[2] * math.exp(-(((k - 10) / 4) ** 2))
        s += 0.2 * mu * np.diff(v)
    return 0.5 * np.sum(rho * v**2) + 0.5 * np.sum(s**2 / mu)


def gravity_anomaly(p):
    G = 6.674e-3
    x_obs = np.linspace(-3, 3, 15)
    gz = np.zeros_like(x_obs)
    for (xc, zc), rho in zip([(-1.0, 1.0), (0.5, 1.5), (1.5, 0.8)], p):
        r2 = (x_obs - xc) ** 2 + zc**2
        gz += G * rho * zc / r2**1.5
    data = 0.002 * np.exp(-(x_obs**2))
    return np.sum((gz - data) ** 2) * 1e4


def kepler_orbit(p):
    a, e = 1.0 + 0.1 * p[0], 0.3 * p[1] + 0.1
    out = []
    for M in np.linspace(0, 5, 9):
        E = M if e < 0.8 else np.pi
        for _ in range(50):
            delta = (E - e * np.sin(E) - M) / (1 - e * np.cos(E))
            E -= delta
            if abs(delta) < 1e-13:
                break
        nu = 2 * np.arctan2(np.sqrt(1 + e) * np.sin(E / 2), np.sqrt(1 - e) * np.cos(E / 2))
        r = a * (1 - e * np.cos(E))
        out.append([r * np.cos(nu + p[2]), r * np.sin(nu + p[2])])
    return np.asarray(out)[:, 0].sum()


Body = namedtuple("Body", "mass pos vel")


def n_body_namedtuples(p):
    bodies = [
        Body(1.0, np.array([0.0, 0.0]), np.array([0.0, -0.1])),
        Body(p[0], np.array([1.0, 0.0]), np.array([0.0, 1.0])),
        Body(0.1, np.array([-1.5, p[1]]), np.array([p[2], -0.7])),
    ]
    dt = 0.01
    for step in range(25):
        acc = [np.zeros(2) for _ in bodies]
        for (i, a), (j, b) in itertools.combinations(enumerate(bodies), 2):
            d = b.pos - a.pos
            f = d / (d @ d + 1e-3) ** 1.5
            acc[i] += b.mass * f
            acc[j] -= a.mass * f
        bodies = [b._replace(vel=b.vel + dt * g, pos=b.pos + dt * (b.vel + dt * g)) for b, g in zip(bodies, acc)]
    return sum(0.5 * b.mass * np.dot(b.vel, b.vel) for b in bodies)


def transit_light_curve(p):
    t = np.linspace(-1, 1, 60)
    z = np.sqrt((2.0 * t) ** 2 + (0.3 * p[1]) ** 2)
    k = 0.1 * p[0] + 0.05
    flux = np.ones_like(t)
    inside = z < 1 - k
    partial = (z >= 1 - k) & (z < 1 + k)
    flux[inside] = 1 - k**2 * (1 - p[2] * (1 - np.sqrt(1 - z[inside] ** 2)))
    flux[partial] = 1 - k**2 * (1 + k - z[partial]) / (2 * k)
    return -np.log(flux).sum()


def stellar_structure(p):
    n = 1.0 + p[0]
    xi, theta, dtheta = 1e-3, 1.0, -1e-3 / 3
    h = 0.02
    while theta > 0.05 and xi < 3.0:
        k1t, k1d = dtheta, -2 / xi * dtheta - theta**n
        tm, dm, xm = theta + h / 2 * k1t, dtheta + h / 2 * k1d, xi + h / 2
        k2t, k2d = dm, -2 / xm * dm - tm**n
        theta, dtheta, xi = theta + h * k2t, dtheta + h * k2d, xi + h
    return theta * p[1] + dtheta * p[2]


def cosmology_distance(p):
    omega_m, h = 0.3 * p[0] + 0.1, 0.7
    z = np.linspace(0, 1.5, 101)
    integrand = 1 / np.sqrt(omega_m * (1 + z) ** 3 + (1 - omega_m) * (1 + z) ** (3 * (p[1] - 0.3)))
    comoving = np.concatenate([[0], np.cumsum(0.5 * (integrand[1:] + integrand[:-1]) * np.diff(z))])
    mu = 5 * np.log10((1 + z[1:]) * comoving[1:] / h) + p[2]
    return np.mean((mu[::10] - 2.0) ** 2)


def energy_balance_climate(p):
    S0, albedo_ice, albedo_water = 342.0, 0.6, 0.3
    T = np.linspace(0.9, 1.1, 18) * 280
    lat = np.linspace(-80, 80, 18)
    insolation = S0 * (1.2 - 0.5 * np.sin(np.deg2rad(lat)) ** 2) * (0.9 + 0.1 * p[0])
    for year in range(40):
        albedo = albedo_water + (albedo_ice - albedo_water) / (1 + np.exp((T - 263) / (5 + p[1])))
        flux_in = insolation * (1 - albedo)
        flux_out = 210 + 1.9 * (T - 273)
        diffusion = np.zeros(len(T))
        diffusion[1:-1] = T[2:] - 2 * T[1:-1] + T[:-2]
        T = T + 0.02 * (flux_in - flux_out + 5 * p[2] * diffusion)
    return np.average(T, weights=np.cos(np.deg2rad(lat))) / 100


def glacier_flow(p):
    n = 30
    x = np.linspace(0, 1, n)
    dx = x[1] - x[0]
    bed = 0.5 - 0.4 * x
    H = np.zeros(n)
    for _ in range(60):
        s = bed + H
        dsdx = np.diff(s) / dx
        Hmid = 0.5 * (H[1:] + H[:-1])
        q = -p[0] * Hmid**5 * np.abs(dsdx) ** 2 * dsdx
        mass_balance = 0.5 * p[1] - p[2] * x
        H[1:-1] -= 0.02 * np.diff(q) / dx
        H += 0.02 * mass_balance
        H = np.maximum(H, 0.0)
        H[-1] = 0
    return H.sum() * dx


def shallow_water(p):
    nx = ny = 16
    h = np.ones((nx, ny))
    h[6:10, 6:10] += 0.1 * p[0]
    u = np.zeros((nx, ny))
    v = np.zeros_like(u)
    g, f, dt = 1.0 + 0.1 * p[1], 0.1 * p[2], 0.1
    for t in range(15):
        dhdx = (np.roll(h, -1, 0) - np.roll(h, 1, 0)) / 2
        dhdy = (np.roll(h, -1, 1) - np.roll(h, 1, 1)) / 2
        u, v = u - dt * (g * dhdx - f * v), v - dt * (g * dhdy + f * u)
        div = (np.roll(u * h, -1, 0) - np.roll(u * h, 1, 0) + np.roll(v * h, -1, 1) - np.roll(v * h, 1, 1)) / 2
        h -= dt * div
    return np.var(h) * 1e3


def groundwater_gauss_seidel(p):
    n = 10
    head = np.zeros((n, n))
    head[0, :], head[-1, :] = p[0], p[1]
    K = np.ones((n, n)) * (0.5 + p[2])
    K[3:6, 3:6] *= 0.1
    for sweep in range(6):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                ke, kw = 0.5 * (K[i, j] + K[i, j + 1]), 0.5 * (K[i, j] + K[i, j - 1])
                kn, ks = 0.5 * (K[i, j] + K[i - 1, j]), 0.5 * (K[i, j] + K[i + 1, j])
                head[i, j] = (ke * head[i, j + 1] + kw * head[i, j - 1] + kn * head[i - 1, j] + ks * head[i + 1, j]) / (
                    ke + kw + kn + ks
                )
    return head[5, 5] + head.mean()


class Bucket:
    def __init__(self, capacity, k):
        self.capacity = capacity
        self.k = k
        self.storage = 0.0
        self.history = []

    def step(self, rain, pet):
        self.storage += rain
        overflow = max(self.storage - self.capacity, 0)
        self.storage -= overflow
        et = min(pet, self.storage)
        self.storage -= et
        baseflow = self.k * self.storage
        self.storage -= baseflow
        self.history.append(self.storage)
        return overflow + baseflow


def rainfall_runoff(p):
    rng = np.random.default_rng(3)
    rain = rng.gamma(0.6, 1.0, size=50)
    upper, lower = Bucket(1.0 + p[0], 0.2 * p[1]), Bucket(5.0, 0.05 + 0.05 * p[2])
    discharge = []
    for r in rain:
        q1 = upper.step(r, 0.3)
        q2 = lower.step(0.5 * q1, 0.0)
        discharge.append(0.5 * q1 + q2)
    observed = np.convolve(rain, [0.3, 0.2, 0.1])[:50]
    return 1 - np.sum((np.array(discharge) - observed) ** 2) / np.sum((observed - observed.mean()) ** 2)


def lotka_volterra_euler_lists(p):
    prey, predator = [1.0], [0.5]
    for i in range(100):
        dx = p[0] * prey[-1] - p[1] * prey[-1] * predator[-1]
        dy = -p[2] * predator[-1] + 0.4 * prey[-1] * predator[-1]
        prey.append(prey[-1] + 0.05 * dx)
        predator.append(predator[i] + 0.05 * dy)
    return np.max(predator) + np.mean(prey[50:])


def metapopulation(p):
    rng = np.random.default_rng(0)
    sites = rng.random((8, 2))
    distances = np.sqrt(((sites[:, None, :] - sites[None, :, :]) ** 2).sum(axis=-1))
    kernel = np.exp(-distances / (0.2 + p[0]))
    np.fill_diagonal(kernel, 0)
    kernel /= kernel.sum(axis=1, keepdims=True)
    N = np.full(8, 0.2)
    for generation in range(30):
        growth = N * np.exp(p[1] * 2 * (1 - N))
        N = (1 - 0.3 * p[2]) * growth + 0.3 * p[2] * kernel.T @ growth
    return N.sum()


def food_web(p):
    S = 4
    interactions = np.zeros((S, S))
    for i, j, strength in [(0, 1, p[0]), (1, 2, p[1]), (2, 3, p[2])]:
        interactions[i, j] -= strength
        interactions[j, i] += 0.5 * strength
    r = np.array([1.0, -0.1, -0.1, -0.05])
    x = np.array([1.0, 0.6, 0.4, 0.2])
    for _ in range(200):
        x *= 1 + 0.01 * (r + interactions @ x - np.eye(S).diagonal() * 0.5 * x)
    return -np.sum(x / x.sum() * np.log(x / x.sum()))


@dataclass
class Tree:
    height: float
    diameter: float

    @property
    def biomass(self):
        return 0.1 * self.diameter**2 * self.height


def forest_growth(p):
    stand = [Tree(height=1.0 + 0.1 * i, diameter=0.1 + 0.01 * i) for i in range(5)]
    for year in range(15):
        canopy = sum(tree.biomass for tree in stand)
        for rank, tree in enumerate(sorted(stand, key=lambda tree: tree.height)):
            light = np.exp(-p[0] * canopy * (len(stand) - rank) / len(stand))
            tree.diameter += 0.05 * p[1] * light
            tree.height += 0.2 * p[2] * light
    return sum(t.biomass for t in stand)


def spherical_harmonics_fit(p):
    theta = np.linspace(0.2, 2.8, 7)
    phi = np.linspace(0, 2 * np.pi, 9)[:-1]
    T, P = np.meshgrid(theta, phi, indexing="ij")
    field = np.zeros_like(T)
    for l, m, c in [(1, 0, p[0]), (2, 1, p[1]), (3, 2, p[2])]:
        field = field + c * sph_harm_y(l, m, T, P).real
    return np.sum(field**2 * np.sin(T))


def tidal_harmonics(p):
    t = np.arange(0, 48, 0.5)
    eta = sum(a * np.cos(2 * pi * t / period + phase) for a, period, phase in zip(p, (12.42, 12.0, 23.93), (0, 1, 2)))
    high = eta[1:-1][(eta[1:-1] > eta[:-2]) & (eta[1:-1] >= eta[2:])]
    return high.mean()


def advection_flux_limiter(p):
    n, cfl = 50, 0.4
    x = np.linspace(0, 1, n, endpoint=False)
    u = np.exp(-(((x - 0.3) / (0.1 + 0.1 * p[0])) ** 2))
    for _ in range(20):
        um, up = np.roll(u, 1), np.roll(u, -1)
        r = (u - um + 1e-9) / (up - u + 1e-9)
        phi = (r + np.abs(r)) / (1 + np.abs(r))
        flux = u + 0.5 * phi * (1 - cfl) * (up - u)
        u = u - cfl * p[1] * (flux - np.roll(flux, 1))
    return np.trapezoid(u**2, x) * p[2]


def plume_dispersion(p):
    y, z = np.meshgrid(np.linspace(-2, 2, 11), np.linspace(0, 2, 8))
    total = 0
    for x in (1.0, 2.0, 4.0):
        sy, sz = 0.3 * p[0] * x**0.9, 0.2 * p[1] * x**0.8
        c = exp(-(y**2) / (2 * sy**2)) * (exp(-((z - 0.5) ** 2) / (2 * sz**2)) + exp(-((z + 0.5) ** 2) / (2 * sz**2)))
        total += (c / (2 * pi * sy * sz * (1 + p[2]))).max()
    return total


def heat_flow_erf(p):
    z = np.linspace(0.1, 3, 20)
    ages = defaultdict(float)
    for age in (0.5, 1.0, 2.0):
        T = p[0] + (1.3 - p[0]) * erf(z / (2 * sqrt(p[1] * age)))
        ages[age] += np.gradient(T, z)[0] * p[2]
    return sum(ages.values())


def earthquake_etas(p):
    times = np.cumsum(np.abs(np.sin(np.arange(1, 25) * 1.7)) * 0.5)
    magnitudes = 2 + np.abs(np.cos(np.arange(24) * 2.1))
    mu, K, alpha = p
    loglik = 0
    for i, t in enumerate(times):
        past = times[:i]
        lam = mu + np.sum(K * np.exp(alpha * (magnitudes[:i] - 2)) / (t - past + 0.01) ** 1.1)
        loglik += np.log(lam)
    return loglik - mu * times[-1]


def sediment_transport(p):
    bed = np.zeros(40)
    queue = deque([0.0] * 5, maxlen=5)
    for t in range(30):
        slope = -np.gradient(bed) + 0.1
        stress = p[0] * slope
        excess = np.where(stress > 0.03, stress - 0.03, 0)
        transport = p[1] * 8 * excess**1.5
        queue.append(transport.mean())
        bed[1:] -= 0.1 * (transport[1:] - transport[:-1])
        bed[0] += 0.05 * p[2] - 0.01 * queue[0]
    return bed @ np.arange(40) / 40


def terrain_smoothing(p):
    z = np.add.outer(np.sin(np.arange(12)), np.cos(np.arange(10))) * p[0]
    for _ in range(3):
        z = ndimage.gaussian_filter(z, 0.7) * (1 - 0.1 * p[1]) + p[2] * 0.1 * ndimage.sobel(z, axis=0) ** 2
    gy, gx = np.gradient(z)
    return np.arctan(np.hypot(gx, gy)).mean()


def sounding_interpolation(p):
    heights = np.array([0.0, 1.0, 2.0, 4.0, 7.0])
    temperature = np.array([1.0, p[0], 0.5, p[1], 0.1])
    spline = interpolate.CubicSpline(heights, temperature)
    zs = np.arange(0, 7, 0.25)
    pressure = [1.0]
    for za, zb in zip(zs[:-1], zs[1:]):
        pressure.append(pressure[-1] * np.exp(-0.1 * p[2] * (zb - za) / (0.5 + np.abs(spline(0.5 * (za + zb))))))
    return pressure[-1]


def sundial_coordinates(p):
    def Rx(a):
        return np.array([[1, 0, 0], [0, cos(a), -sin(a)], [0, sin(a), cos(a)]])

    def Rz(a):
        return np.array([[cos(a), -sin(a), 0], [sin(a), cos(a), 0], [0, 0, 1]])

    shadow = []
    for hour in range(6, 19):
        sun = Rx(p[0] * 0.4) @ Rz(pi / 12 * hour + p[1]) @ np.array([1.0, 0.0, p[2]])
        altitude = np.arcsin(np.clip(sun[2] / np.linalg.norm(sun), -1, 1))
        azimuth = np.arctan2(sun[1], sun[0])
        shadow.append(np.cos(azimuth) / (1.5 + np.sin(altitude)))
    return np.ptp(shadow)


PROGRAMS = [
    ray_tracing_layers, acoustic_fd, elastic_sh_staggered, gravity_anomaly, kepler_orbit, n_body_namedtuples,
    transit_light_curve, stellar_structure, cosmology_distance, energy_balance_climate, glacier_flow, shallow_water,
    groundwater_gauss_seidel, rainfall_runoff, lotka_volterra_euler_lists, metapopulation, food_web, forest_growth,
    spherical_harmonics_fit, tidal_harmonics, advection_flux_limiter, plume_dispersion, heat_flow_erf,
    earthquake_etas, sediment_transport, terrain_smoothing, sounding_interpolation, sundial_coordinates,
]  # fmt: skip
