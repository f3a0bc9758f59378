"""Complex products have the bits of plain NumPy, in whichever order NumPy computes them."""

import numpy as np
import pytest

import pebbling.numpy as pb
from pebbling.engine.numpy import grad, jvp, vjp
from pebbling.engine.numpy.traced import plain

S = 0.3 + 0.7j
PRODUCTS = {
    "w * z": lambda z, u, w: w * z,
    "s * z": lambda z, u, w: S * z,
    "w * (z * u)": lambda z, u, w: w * (z * u),
    "(z * u) * w": lambda z, u, w: (z * u) * w,
    "w * bound": lambda z, u, w: (lambda t: w * t)(z * u),
    "s * (z * u)": lambda z, u, w: S * (z * u),
    "NumPy's s * (z * u)": lambda z, u, w: np.complex128(S) * (z * u),
    "an array of one number * (z * u)": lambda z, u, w: np.array(S) * (z * u),
    "np.multiply(w, z * u)": lambda z, u, w: np.multiply(w, z * u),
    "(w * u) * (z * u)": lambda z, u, w: (w * u) * (z * u),
    "real temporary * (z * u)": lambda z, u, w: (w.real * 2) * (z * u),
    "part * part": lambda z, u, w: w[1:] * (z * u)[1:],
    "broadcast * (z * u)": lambda z, u, w: w[:1] * (z * u),
    "w * fft(z)": lambda z, u, w: w * np.fft.fft(z),
    "w * conj(z) * u": lambda z, u, w: w * np.conj(z) * u,
    "w * (u * (w * (z * u)))": lambda z, u, w: w * (u * (w * (z * u))),
    "u * exp(s * z)": lambda z, u, w: u * np.exp(S * z),
}


@pytest.mark.parametrize("size", [100, 16384])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_traced_product_has_the_bits_of_the_plain_one(name, size):
    product = PRODUCTS[name]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=size) + 1j * rng.normal(size=size) for _ in range(3)]
    expected = product(*values)
    for which in range(1, 8):
        wrt = [i for i in range(3) if which >> i & 1]
        seen = []

        def of_some(*some, wrt=wrt):
            given = list(values)
            for i, value in zip(wrt, some):
                given[i] = value
            return product(*given)

        def real(*some, of_some=of_some, seen=seen):
            seen.append(of_some(*some))
            return np.sum(np.abs(seen[-1]))

        some = [values[i] for i in wrt]
        np.testing.assert_array_equal(vjp(of_some, *some)[0], expected)
        np.testing.assert_array_equal(jvp(of_some, some, some)[0], expected)
        jvp(grad(real), some, some)
        np.testing.assert_array_equal(plain(seen[0]), expected)


def etdrk4(n, steps):
    """Kuramoto-Sivashinsky, in Fourier space (Kassam and Trefethen 2005)."""
    k = np.fft.fftfreq(n, 1 / n) / 16
    linear, h = k**2 - k**4, 0.05
    full, half = np.exp(h * linear) + 0j, np.exp(h * linear / 2) + 0j
    means = h * linear[:, None] + np.exp(1j * np.pi * (np.arange(8) + 0.5) / 8)
    q = h * np.mean((np.exp(means / 2) - 1) / means, axis=1)
    g = -0.5j * k

    def f(v):
        for _ in range(steps):
            nonlinear = g * np.fft.fft(np.real(np.fft.ifft(v)) ** 2)
            a = half * v + q * nonlinear
            b = half * v + q * (g * np.fft.fft(np.real(np.fft.ifft(a)) ** 2))
            v = full * v + q * (nonlinear + g * np.fft.fft(np.real(np.fft.ifft(b)) ** 2))
        return v

    return f


@pytest.mark.parametrize("size", [64, 16384])
def test_a_spectral_loop_keeps_its_bits_under_a_budget(size):
    x = np.linspace(0, 2 * np.pi, size, endpoint=False)
    start = np.fft.fft(np.cos(x) * (1 + np.sin(x)))
    run = etdrk4(size, 7)
    seen = []

    def energy(v):
        seen.append(run(v))
        return np.sum(np.abs(seen[-1]) ** 2)

    stored = grad(energy)(start)
    np.testing.assert_array_equal(plain(seen[0]), run(start))
    step = etdrk4(size, 1)
    looped = pb.grad(lambda v: np.sum(np.abs(pb.loop(lambda i, v: step(v), v, steps=7, slots=2)) ** 2))
    np.testing.assert_array_equal(looped(start), stored)
