"""Programs as scientists write them, differentiated as they stand: ``python benchmarks/natural_numpy.py``.

The programs in ``benchmarks/natural`` were written without a look at what is supported. Each is run without
``checkpoint=``, with ``True`` and with 3 slots, and compared with differences of the plain program: steps of 2e-3,
extrapolated three times, and of 1e-6 where a kink or another number of steps is near. One row a program: right,
refused (with our reason), raw (an error that is not ours), wrong, or off by a bit (the checkpointed gradient differs
from the other one, or the value from that of the plain program).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy

import pebbling as pb
from outside import reason_of

AT = np.array([0.71, 0.33, 0.52])
FIELDS = ("physics", "statistics", "signals", "others", "earth", "engineering", "methods")
NO_LOOP = ("has no for or while loop of its own",)


def differences(f: Callable, u: np.ndarray, h: float = 2e-3) -> np.ndarray:
    gradient = np.zeros(u.size)
    for i, e in enumerate(np.eye(u.size)):
        d = [(f(u + e * h / 2**k) - f(u - e * h / 2**k)) * 2**k / (2 * h) for k in range(4)]
        for m in (4, 16, 64):
            d = [(m * b - a) / (m - 1) for a, b in pairwise(d)]
        gradient[i] = np.asarray(d[0]).item()
    return gradient


def verdict(f: Callable) -> tuple[str, str]:
    expected, value = differences(f, AT.copy()), f(AT.copy())
    first = None
    for checkpoint in (None, True, 3):
        try:
            found, gradient = pb.value_and_grad(f, checkpoint=checkpoint)(AT.copy())
        except pb.errors.PebblingError as error:
            if any(text in str(error) for text in NO_LOOP):
                continue
            return "refused", f"checkpoint={checkpoint}: {reason_of(error)}"
        except Exception as error:
            return "raw", f"checkpoint={checkpoint}: {type(error).__name__}: {reason_of(error)}"
        close = np.allclose(gradient, expected, rtol=1e-5, atol=1e-7)
        if not close and not np.allclose(gradient, differences(f, AT, 1e-6), rtol=1e-4, atol=1e-6):
            return "wrong", f"checkpoint={checkpoint}: {gradient} for {expected}"
        if np.asarray(found).item() != np.asarray(value).item():
            return "off by a bit", f"checkpoint={checkpoint}: the value is {found!r}, plain {value!r}"
        if first is not None and not np.array_equal(first, gradient):
            return "off by a bit", f"checkpoint={checkpoint}: the gradient"
        first = gradient
    return "right", ""


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    only = sys.argv[1:]
    rows = []
    for name in FIELDS:
        for f in importlib.import_module(f"natural.{name}").PROGRAMS:
            if only and f.__name__ not in only:
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                rows.append((name, f.__name__, *verdict(f)))
    print(f"# Programs as scientists write them, {time.strftime('%Y-%m-%d')}\n")
    print(f"`python benchmarks/natural_numpy.py`, NumPy {np.__version__}, SciPy {scipy.__version__}, 2 cores, shared\n")
    counts = Counter(row[2] for row in rows)
    print(", ".join(f"{counts[kind]} {kind}" for kind in ("right", "refused", "raw", "wrong", "off by a bit")), end="")
    print(f", of {len(rows)}.\n\n| field | program | | |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(part.replace("|", "\\|").replace("\n", " ") for part in row) + " |")


if __name__ == "__main__":
    main()
