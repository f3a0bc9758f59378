"""Programs of signal and image processing, graphs and control, as one writes them."""

import functools

import numpy as np
from scipy import interpolate, linalg, ndimage, signal, sparse
from scipy.ndimage import gaussian_filter

RNG = np.random.default_rng(2)
IMAGE = RNG.random((12, 12))
SIGNAL = np.sin(np.linspace(0, 6, 40)) + 0.1 * RNG.normal(size=40)
EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


def blur_loss(p):
    img = IMAGE * p[0] + p[1]
    return np.sum((gaussian_filter(img, 1.0) - IMAGE) ** 2) * p[2]


def deconvolution(p):
    k = np.array([p[0], 1.0, p[1]])
    est = SIGNAL.copy()
    for _ in range(5):
        r = SIGNAL - np.convolve(est, k / k.sum(), mode="same")
        est = est + p[2] * np.convolve(r, k[::-1] / k.sum(), mode="same")
    return np.sum(np.abs(np.diff(est)))


def total_variation_denoise(p):
    u = IMAGE.copy()
    for _ in range(6):
        gx = np.roll(u, -1, axis=1) - u
        gy = np.roll(u, -1, axis=0) - u
        mag = np.sqrt(gx**2 + gy**2 + 1e-2)
        div = gx / mag - np.roll(gx / mag, 1, axis=1) + gy / mag - np.roll(gy / mag, 1, axis=0)
        u = u + p[0] * 0.1 * div + p[1] * 0.1 * (IMAGE - u)
    return np.mean(u**2) * p[2]


def edge_energy(p):
    img = IMAGE**2 * p[0] + p[1] * IMAGE
    sx = ndimage.sobel(img, axis=0)
    sy = ndimage.sobel(img, axis=1)
    return np.sum(np.hypot(sx, sy)) * p[2]


def conv_net(p):
    kernel = np.outer(p, p[::-1])
    x = signal.convolve2d(IMAGE, kernel, mode="valid")
    x = np.maximum(x, 0)
    x = x.reshape(5, 2, 5, 2).max(axis=(1, 3))
    return x.mean()


def lowpass_lfilter(p):
    b, a = np.array([p[0]]), np.array([1.0, -p[1]])
    y = signal.lfilter(b, a, SIGNAL)
    return np.sum((y - p[2]) ** 2)


def exponential_smoothing(p):
    s = np.empty_like(SIGNAL)
    s[0] = SIGNAL[0]
    for t in range(1, len(SIGNAL)):
        s[t] = p[0] * SIGNAL[t] + (1 - p[0]) * s[t - 1]
    return np.sum((s[:-1] - SIGNAL[1:]) ** 2) * p[1] + p[2]


def spectrum(p):
    x = SIGNAL * np.exp(-p[0] * np.arange(40) / 40)
    f = np.fft.rfft(x * np.hanning(40))
    power = np.abs(f) ** 2
    freqs = np.fft.rfftfreq(40)
    return np.sum(power * freqs) / np.sum(power) * p[2] + p[1]


def short_time(p):
    frames = np.lib.stride_tricks.sliding_window_view(SIGNAL * p[0], 8)[::4]
    spec = np.abs(np.fft.rfft(frames * np.hamming(8), axis=-1))
    return np.log(spec + p[1]).sum() * p[2]


def autocorrelation(p):
    x = SIGNAL - p[0]
    r = np.correlate(x, x, mode="full")[len(x) - 1 :]
    return r[1] / r[0] + p[1] * r[2] / r[0] * p[2]


def dtw(p):
    a, b = SIGNAL[:8] * p[0], SIGNAL[4:12] + p[1]
    D = np.full((9, 9), np.inf)
    D[0, 0] = 0
    for i in range(1, 9):
        for j in range(1, 9):
            D[i, j] = (a[i - 1] - b[j - 1]) ** 2 + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return D[8, 8] * p[2]


def pagerank(p):
    n = 4
    W = np.zeros((n, n))
    for k, (i, j) in enumerate(EDGES):
        W[i, j] = p[k % 3]
        W[j, i] = 1.0
    W = W / W.sum(axis=1, keepdims=True)
    r = np.ones(n) / n
    for _ in range(10):
        r = 0.85 * W.T @ r + 0.15 / n
    return r @ np.arange(n)


def graph_laplacian_diffusion(p):
    n = 4
    L = np.zeros((n, n))
    for (i, j), w in zip(EDGES, [p[0], p[1], p[2], 1.0, 0.5]):
        L[i, i] += w
        L[j, j] += w
        L[i, j] -= w
        L[j, i] -= w
    x0 = np.array([1.0, 0, 0, 0])
    return linalg.expm(-0.3 * L) @ x0 @ np.arange(4.0)


def message_passing(p):
    A = sparse.csr_matrix((np.ones(5), tuple(zip(*EDGES))), shape=(4, 4))
    h = np.outer(np.arange(1.0, 5.0), p)
    for _ in range(3):
        h = np.tanh(A @ h + 0.1 * h)
    return h.sum()


def shortest_soft_paths(p):
    D = np.full((4, 4), 5.0)
    np.fill_diagonal(D, 0.0)
    for k, (i, j) in enumerate(EDGES):
        D[i, j] = D[j, i] = p[k % 3] + 0.3 * k
    for k in range(4):
        D = np.minimum(D, D[:, [k]] + D[[k], :])
    return D.sum()


def spring_layout(p):
    pos = np.array([[0.0, 0.1], [1.0, p[0]], [p[1], 1.0], [0.2, p[2]]])
    for _ in range(5):
        disp = np.zeros_like(pos)
        for i in range(4):
            delta = pos[i] - pos
            dist = np.sqrt((delta**2).sum(axis=1) + 0.01)
            disp[i] = (delta / dist[:, None] ** 2).sum(axis=0)
        for i, j in EDGES:
            d = pos[i] - pos[j]
            disp[i] -= d
            disp[j] += d
        pos = pos + 0.05 * disp
    return np.sum(pos**2)


def lqr(p):
    A = np.array([[1.0, 0.1], [0.0, 1.0]])
    B = np.array([[0.0], [0.1]])
    Q = np.diag([p[0], p[1]])
    R = np.array([[p[2]]])
    P = Q
    for _ in range(10):
        K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
    return np.trace(P)


def cart_pole_controls(p):
    s = np.array([0.0, 0.1, 0.0, 0.0])
    cost = 0.0
    for t in range(20):
        u = p @ np.array([s[1], s[2], s[3]])
        ds = np.array([s[2], s[3], u + s[1], -u * np.cos(s[1]) + 9.8 * np.sin(s[1])])
        s = s + 0.02 * ds
        cost = cost + s @ s + 0.01 * u**2 * (t > 5)
    return cost


def pid_loop(p):
    kp, ki, kd = p
    y, integral, last = 0.0, 0.0, 0.0
    err_hist = np.zeros(30)
    for t in range(30):
        err = 1.0 - y
        integral += err * 0.1
        u = kp * err + ki * integral + kd * (err - last) / 0.1 * 0.01
        last = err
        y += 0.1 * (-y + u)
        err_hist[t] = err
    return np.sum(err_hist**2)


def rotation_chain(p):
    def rot(a):
        return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])

    R = functools.reduce(lambda A, B: A @ B, [rot(a) for a in p])
    return (R @ np.array([1.0, 2.0]))[0]


def robot_arm(p):
    pts = [np.zeros(2)]
    total = 0.0
    for a in p:
        total = total + a
        pts.append(pts[-1] + np.array([np.cos(total), np.sin(total)]))
    tip = pts[-1]
    return np.hypot(tip[0] - 1.0, tip[1] - 1.5)


def bezier_length(p):
    t = np.linspace(0, 1, 30)[:, None]
    P0, P1, P2 = np.array([0.0, 0.0]), np.array([p[0], p[1]]), np.array([1.0, p[2]])
    curve = (1 - t) ** 2 * P0 + 2 * t * (1 - t) * P1 + t**2 * P2
    return np.sum(np.linalg.norm(np.diff(curve, axis=0), axis=1))


def warp_by_interp(p):
    t = np.arange(40.0)
    warped = np.interp(t * p[0] + p[1], t, SIGNAL)
    return np.sum(warped**2) * p[2]


def spline_baseline(p):
    knots = np.linspace(0, 39, 3)
    base = interpolate.CubicSpline(knots, p)(np.arange(40))
    return np.sum((SIGNAL - base) ** 2)


PROGRAMS = [
    blur_loss, deconvolution, total_variation_denoise, edge_energy, conv_net, lowpass_lfilter, exponential_smoothing,
    spectrum, short_time, autocorrelation, dtw, pagerank, graph_laplacian_diffusion, message_passing,
    shortest_soft_paths, spring_layout, lqr, cart_pole_controls, pid_loop, rotation_chain, robot_arm, bezier_length,
    warp_by_interp, spline_baseline,
]  # fmt: skip
