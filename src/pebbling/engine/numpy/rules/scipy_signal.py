"""``scipy.signal``: convolution in any number of dimensions, and filters of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import signal  # type: ignore[import-untyped]

from ..foreign import formula, own_rule, refused_where_traced
from ..refuse import refuse
from ..standins import current
from ..table import primitive
from ..traced import plain

_convolve = current(signal, "convolve")


def _whole(a: Any, b: Any) -> Any:
    return _convolve(a, b, "full")


@primitive(_whole, arrays=slice(2))
def whole(y: Any, a: Any, b: Any) -> Any:
    """The full convolution."""

    def back(other: Any, size: Any) -> Any:
        places = tuple([slice(n - 1, n - 1 + m) for n, m in zip(np.shape(other), size)])
        return lambda g: whole(g, np.flip(other))[places]

    return (
        [back(b, np.shape(a)), back(a, np.shape(b))],
        [lambda t: whole(t, b), lambda t: whole(a, t)],
    )


def _cut(full: Any, first: tuple[int, ...], second: tuple[int, ...], mode: str) -> Any:
    if mode == "full":
        return full
    if mode == "same":
        size = list(first)
    else:
        size = [abs(n - m) + 1 for n, m in zip(first, second)]
    starts = [(whole - n) // 2 for whole, n in zip(np.shape(full), size)]
    return full[tuple([slice(start, start + n) for start, n in zip(starts, size)])]


@formula(signal, "convolve")
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    return _cut(whole(in1, in2), np.shape(in1), np.shape(in2), mode)


@formula(signal, "fftconvolve")
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    if axes is not None:
        raise refuse("scipy.signal.fftconvolve with axes= has no derivative rule", "Use np.fft for those axes")
    return _cut(whole(in1, in2), np.shape(in1), np.shape(in2), mode)


@formula(signal, "oaconvolve")
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    return _cut(whole(in1, in2), np.shape(in1), np.shape(in2), mode)


@formula(signal, "correlate")
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    return _cut(whole(in1, np.conjugate(np.flip(in2))), np.shape(in1), np.shape(in2), mode)


def _padded(in1: Any, in2: Any, boundary: str, fillvalue: Any) -> tuple[Any, list[int]]:
    if boundary == "fill" and not np.any(plain(fillvalue)):
        return in1, [0, 0]
    mode: Any = {"wrap": "wrap", "symm": "symmetric", "fill": "constant"}[boundary]
    edge = [k - 1 for k in np.shape(in2)]
    more: Any = {"constant_values": fillvalue} if mode == "constant" else {}
    return np.pad(in1, [(k, k) for k in edge], mode=mode, **more), edge


def _two_d(in1: Any, in2: Any, mode: str, boundary: str, fillvalue: Any) -> Any:
    padded, edge = _padded(in1, in2, boundary, fillvalue)
    full = whole(padded, in2)
    places = [slice(k, n - k) for k, n in zip(edge, np.shape(full))]
    return _cut(full[tuple(places)], np.shape(in1), np.shape(in2), mode)


@formula(signal, "convolve2d")
def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    return _two_d(in1, in2, mode, boundary, fillvalue)


@formula(signal, "correlate2d")
def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    if mode == "same" and any(k % 2 == 0 for k in np.shape(in2)):
        raise refuse("scipy.signal.correlate2d with mode='same' and an even kernel has no derivative rule", "Pad it")
    return _two_d(in1, np.conjugate(np.flip(in2)), mode, boundary, fillvalue)


@own_rule(signal, "lfilter", slice(3))
def lfilter(y: Any, b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    if zi is not None:
        raise refuse("scipy.signal.lfilter with zi= has no derivative rule", "Filter the whole signal at once")

    def run(b: Any, x: Any) -> Any:
        return signal.lfilter(b, a, x, axis)

    def late(x: Any, k: int) -> Any:
        n = np.shape(x)[axis]
        return np.take(np.pad(x, [(min(k, n), 0) if i == axis % np.ndim(x) else (0, 0) for i in range(np.ndim(x))]),
                       np.arange(n), axis)  # fmt: skip

    def by_delay(g: Any, signal_: Any, count: int) -> Any:
        return np.stack([np.sum(g * late(signal_, k)) for k in range(count)])

    def delayed(t: Any, signal_: Any) -> Any:
        return sum(t[k] * late(signal_, k) for k in range(np.size(plain(t))))

    one = np.ones(1)
    return (
        [
            lambda g: by_delay(g, run(one, x), np.size(plain(b))),
            lambda g: -by_delay(g, run(one, y), np.size(plain(a))),
            lambda g: np.flip(run(b, np.flip(g, axis)), axis),
        ],
        [
            lambda t: delayed(t, run(one, x)),
            lambda t: -delayed(t, run(one, y)),
            lambda t: run(b, t),
        ],
    )


refused_where_traced(
    signal,
    "filtfilt sosfilt sosfiltfilt savgol_filter hilbert detrend resample resample_poly decimate wiener medfilt "
    "medfilt2d deconvolve spectrogram stft istft welch periodogram csd coherence find_peaks cwt upfirdn "
    "lfiltic lsim dlsim",
    "convolve, fftconvolve, correlate, convolve2d and lfilter have one, and so has np.fft",
)
