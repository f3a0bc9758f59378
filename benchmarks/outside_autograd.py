"""The tests and examples of HIPS autograd, with its imports changed to NumPy, SciPy and pebbling and nothing else.

The package of the folder is imported as it is, and then the names that users import give ours: ``autograd.numpy`` is
NumPy itself, ``autograd.scipy`` is SciPy, ``grad`` and its kin are those of pebbling, ``check_grads`` compares
pebbling's vjp and jvp, of first and second order, with differences of the plain function.

An example runs for ``SECONDS`` at most, in a process of its own. It is right if it ran through, or until its time was
over, and the first gradients that it took agree with differences, random numbers included.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.integrate
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats

import pebbling.numpy as pn
from outside import Outcome, reason_of
from pebbling import hvp
from pebbling.engine.tree import flatten
from pebbling.errors import PebblingError

SECONDS = 30
CHECKED = 3
"""How many gradients of each function of an example are compared with differences."""
TOLERANCE = {"ode_net": 0.05}
"""Where differences are worse than 1e-5: this one solves equations to 1 %, and differences see the solver's steps."""
OF_ITS_OWN = {
    "convnet": "calls autograd.scipy.signal.convolve with arguments that SciPy's does not have",
    "dot_graph": "draws autograd's own graph",
    "print_trace": "prints autograd's own graph",
    "rkhs": "defines a vector space inside of autograd",
}
"""Examples of what only autograd has."""


class Mismatch(AssertionError):
    """A derivative that is not the one that differences give."""


# How autograd says which argument is meant.


def _one(args: tuple[Any, ...], argnum: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    places = (argnum,) if isinstance(argnum, int) else tuple(argnum)

    def put(x: Any) -> tuple[Any, ...]:
        given = list(args)
        for place, part in zip(places, (x,) if isinstance(argnum, int) else x):
            given[place] = part
        return tuple(given)

    return args[argnum] if isinstance(argnum, int) else tuple(args[i] for i in places), put


def unary_to_nary(operator: Callable[..., Any]) -> Callable[..., Any]:
    """An operator on functions of one argument as one on functions of several, as autograd's own does."""

    def nary(f: Callable[..., Any], argnum: Any = 0, *more: Any, **options: Any) -> Callable[..., Any]:
        def of_args(*args: Any, **kwargs: Any) -> Any:
            x, put = _one(args, argnum)
            return operator(lambda x: f(*put(x), **kwargs), x, *more, **options)

        return of_args

    return nary


# Derivatives with autograd's names.


def _ones(y: Any) -> Any:
    return np.ones(np.shape(y), np.result_type(y))[()]


def make_vjp(f: Callable[..., Any], x: Any) -> tuple[Any, Any]:
    y, pull = pn.vjp(f, x)
    return lambda g: pull(g)[0], y


def make_jvp(f: Callable[..., Any], x: Any) -> Any:
    return lambda v: pn.jvp(f, (x,), (v,))


def elementwise_grad(f: Callable[..., Any], x: Any) -> Any:
    pull, y = make_vjp(f, x)
    return pull(_ones(y))


def deriv(f: Callable[..., Any], x: Any) -> Any:
    return pn.jvp(f, (x,), (_ones(x),))[1]


def jacobian(f: Callable[..., Any], x: Any) -> Any:
    y = f(x)
    rows = []
    for place in np.ndindex(np.shape(y)):
        unit = np.zeros(np.shape(y))
        unit[place] = 1.0
        rows.append(make_vjp(f, x)[0](unit[()]))
    return np.reshape(np.stack(rows), np.shape(y) + np.shape(x))


def holomorphic_grad(f: Callable[..., Any], x: Any) -> Any:
    return pn.grad(lambda x: np.real(f(x)))(x)


def hessian(f: Callable[..., Any], x: Any) -> Any:
    return jacobian(lambda x: jacobian(f, x), x)


def grad(f: Callable[..., Any], argnum: Any = 0) -> Any:
    return pn.grad(f, argnum)


def value_and_grad(f: Callable[..., Any], argnum: Any = 0) -> Any:
    return pn.value_and_grad(f, argnum)


def hessian_vector_product(f: Callable[..., Any], argnum: int = 0) -> Any:
    return hvp(f, argnum)


# The comparison with differences.


def _direction(x: Any, rng: np.random.Generator) -> Any:
    leaves, rebuild = flatten(x)
    drawn = []
    for leaf in leaves:
        part = rng.standard_normal(np.shape(leaf))
        if np.iscomplexobj(leaf):
            part = part + 1j * rng.standard_normal(np.shape(leaf))
        drawn.append(part if np.shape(leaf) else part[()] if isinstance(part, np.ndarray) else part)
    return rebuild(iter(drawn))


def _moved(x: Any, v: Any, h: float) -> Any:
    leaves, rebuild = flatten(x)
    return rebuild(iter([a + h * b for a, b in zip(leaves, flatten(v)[0])]))


def _dot(g: Any, v: Any) -> float:
    return float(sum(np.real(np.sum(np.asarray(a) * b)) for a, b in zip(flatten(g)[0], flatten(v)[0], strict=True)))


def difference(f: Callable[..., Any], x: Any, v: Any, w: Any, h: float) -> float:
    """Of ``<w, f>`` along ``v``, with two steps, extrapolated once."""
    wide, near = ((_dot(w, f(_moved(x, v, s))) - _dot(w, f(_moved(x, v, -s)))) / (2 * s) for s in (h, h / 2))
    return (4 * near - wide) / 3


def _close(a: float, b: float, tolerance: float = 1e-6) -> bool:
    return abs(a - b) < tolerance * max(1.0, abs(a) + abs(b))


def agrees(f: Callable[..., Any], x: Any, v: Any, w: Any, found: float, tolerance: float = 1e-6) -> float | None:
    """The closest of several differences; ``None`` if one of them agrees."""
    tried = [difference(f, x, v, w, h) for h in (1e-3, 1e-5, 1e-4, 1e-6, 1e-2, 1e-7, 1e-8)]
    if any(_close(one, found, tolerance) for one in tried):
        return None
    return min(tried, key=lambda one: abs(one - found))


def check(f: Callable[..., Any], x: Any, modes: Any = None, order: int = 2, seed: int = 0) -> None:
    """Raise ``Mismatch`` unless vjp and jvp of ``f``, and theirs, agree with differences."""
    rng = np.random.default_rng(seed)
    y = f(x)
    v, w = _direction(x, rng), _direction(y, rng)
    for mode in modes or ("fwd", "rev"):
        found = _dot(w, pn.jvp(f, (x,), (v,))[1]) if mode == "fwd" else _dot(make_vjp(f, x)[0](w), v)
        nearest = agrees(f, x, v, w, found)
        if nearest is not None:
            raise Mismatch(f"{mode}: {found} for {nearest}")
        if order > 1:
            if mode == "fwd":
                check(lambda both: pn.jvp(f, (both[0],), (both[1],))[1], (x, v), modes, order - 1, seed + 1)
            else:
                check(lambda both: make_vjp(f, both[0])[0](both[1]), (x, w), modes, order - 1, seed + 1)


# Its tests.

_FOUND: list[Outcome] = []
_WHERE = ""


def _check_grads(f: Callable[..., Any], argnum: Any = None, modes: Any = None, order: int = 2) -> Callable[..., Any]:
    def of_args(*args: Any, **kwargs: Any) -> None:
        x, put = _one(args, 0 if argnum is None else argnum)
        _FOUND.append(Outcome(_WHERE, *_verdict(lambda x: f(*put(x), **kwargs), x, modes, order)))

    return of_args


def _verdict(f: Callable[..., Any], x: Any, modes: Any, order: int) -> tuple[str, str]:
    try:
        f(copy.deepcopy(x))
    except Exception as error:
        return "not for us", f"plain NumPy: {type(error).__name__}: {reason_of(error)}"
    try:
        check(f, x, modes, order)
    except PebblingError as error:
        return "refused", reason_of(error)
    except Mismatch as error:
        return "wrong", str(error)
    except Exception as error:
        return "raw", f"{type(error).__name__}: {reason_of(error)}"
    return "right", ""


def _combo_check(f: Callable[..., Any], *options: Any, **named: Any) -> Callable[..., Any]:
    def combinations(*args: Any, **kwargs: Any) -> None:
        choices = [[(name, value) for value in values] for name, values in kwargs.items()]
        for given in product(*args):
            for chosen in product(*choices):
                _check_grads(f, *options, **named)(*given, **dict(chosen))

    return combinations


def _modules(folder: Path) -> Any:
    """Import autograd from ``folder`` and let the names that users import give ours; what is there of it."""
    sys.path.insert(0, str(folder))
    warnings.simplefilter("ignore")
    for name in ("misc.flatten", "misc.optimizers", "numpy.random", "scipy.integrate", "test_util"):
        importlib.import_module(f"autograd.{name}")
    root = sys.modules["autograd"]
    for name, ours in {
        "numpy": np,
        "numpy.random": np.random,
        "numpy.linalg": np.linalg,
        "numpy.fft": np.fft,
        "scipy": scipy,
        "scipy.special": scipy.special,
        "scipy.stats": scipy.stats,
        "scipy.linalg": scipy.linalg,
        "scipy.signal": scipy.signal,
        "scipy.integrate": scipy.integrate,
        **{f"scipy.stats.{one}": getattr(scipy.stats, one) for one in DISTRIBUTIONS},
    }.items():
        sys.modules[f"autograd.{name}"] = ours
    root.numpy, root.scipy = np, scipy
    operators = {
        "grad": grad,
        "value_and_grad": value_and_grad,
        "hessian_vector_product": hessian_vector_product,
        "hessian_tensor_product": hessian_vector_product,
        **{
            one.__name__: unary_to_nary(one)
            for one in (make_vjp, make_jvp, elementwise_grad, deriv, jacobian, holomorphic_grad, hessian)
        },
    }
    for name, operator in operators.items():
        setattr(root, name, operator)
    builtins = sys.modules["autograd.builtins"]
    for name in ("tuple", "list", "dict", "isinstance", "type"):
        ours = getattr(__builtins__, name) if not isinstance(__builtins__, dict) else __builtins__[name]
        setattr(builtins, name, ours)
        setattr(root, name, ours)
    sys.modules["autograd.test_util"].check_grads = _check_grads
    sys.modules["autograd.test_util"].combo_check = _combo_check
    sys.modules["autograd.misc.flatten"].flatten = _flatten
    sys.modules["autograd.misc.optimizers"].flatten = _flatten
    sys.modules["autograd.misc.optimizers"].np = np
    sys.modules["autograd.misc"].flatten = _flatten
    return root


DISTRIBUTIONS = ("beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t")


def _flatten(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A tree as one vector, and the way back, as users of autograd know it."""
    leaves, rebuild = flatten(tree)
    shapes = [np.shape(leaf) for leaf in leaves]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

    def unflatten(vector: Any) -> Any:
        parts = np.split(vector, ends) if len(shapes) > 1 else [vector]
        return rebuild(iter([np.reshape(part, shape) for part, shape in zip(parts, shapes)]))

    flat = np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.array([])
    return flat, unflatten


def tests(folder: Path) -> Iterator[Outcome]:
    """Every ``check_grads`` of autograd's tests."""
    global _WHERE
    _modules(folder)
    sys.path.insert(0, str(folder / "tests"))
    for path in sorted((folder / "tests").glob("test_*.py")):
        if path.stem in ("test_performance",):  # times of autograd's own
            continue
        _WHERE = path.stem
        try:
            module = importlib.import_module(path.stem)
        except Exception as error:
            yield Outcome(path.stem, "not for us", f"the file: {type(error).__name__}: {reason_of(error)}")
            continue
        for name, test in list(vars(module).items()):
            if not name.startswith("test_") or not isinstance(test, types.FunctionType):
                continue
            _WHERE = f"{path.stem}.{name}"
            np.random.seed(0)
            for given in _parameters(test):
                try:
                    test(**given)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # pytest's own included; it is about autograd's own inside
                    print(f"{_WHERE}: {type(error).__name__}: {reason_of(error)}", file=sys.stderr)
                yield from _FOUND
                _FOUND.clear()


def _parameters(test: Any) -> list[dict[str, Any]]:
    """The arguments that pytest would give the test."""
    given: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names = (
                [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
            )
            rows = [dict(zip(names, row if len(names) > 1 else (row,))) for row in mark.args[1]]
            given = [{**one, **row} for one in given for row in rows]
    return given


# Its examples.

NOT_PROGRAMS = {"__init__", "data", "data_mnist"}


def examples(folder: Path) -> Iterator[Outcome]:
    """Every example of autograd as a program."""
    found = sorted((folder / "examples").rglob("*.py"))
    for path in found:
        if path.stem in NOT_PROGRAMS:
            continue
        if path.stem in OF_ITS_OWN:
            yield Outcome(path.stem, "not for us", OF_ITS_OWN[path.stem])
            continue
        command = [sys.executable, __file__, str(folder), str(path)]
        # Twice the time: the last gradient may be on its way, and differences take time as well.
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=6 * SECONDS, cwd=path.parent, env=os.environ
            )
            last = next((line for line in reversed(ran.stdout.splitlines()) if line.startswith("OUTCOME ")), None)
            verdict, reason = json.loads(last.removeprefix("OUTCOME ")) if last else ("raw", ran.stderr[-160:])
        except subprocess.TimeoutExpired:
            verdict, reason = "not for us", f"no gradient in {6 * SECONDS} s"
        yield Outcome(path.stem, verdict, " ".join(reason.split()))


class OutOfTime(BaseException):
    """An example has run for long enough."""


def _generators() -> list[Any]:
    return [one for one in gc.get_objects() if isinstance(one, np.random.RandomState | np.random.Generator)]


class Repeated:
    """Calls of one function that all see the same random numbers."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f, self.kept = f, np.random.get_state()
        self.states = [
            (one, one.bit_generator.state) if isinstance(one, np.random.Generator) else (one, one.get_state())
            for one in _generators()
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        np.random.set_state(self.kept)
        for one, state in self.states:
            if isinstance(one, np.random.Generator):
                one.bit_generator.state = state
            else:
                one.set_state(state)
        return self.f(*args, **kwargs)


class Checked:
    """``value_and_grad`` of an example; its first results are compared with differences."""

    ends = 0.0
    right = 0
    tolerance = 1e-5

    def __init__(self, f: Callable[..., Any], argnum: Any, only_gradient: bool) -> None:
        self.f, self.argnum, self.only_gradient, self.calls = f, argnum, only_gradient, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() > Checked.ends:
            raise OutOfTime
        from pebbling.engine.numpy.traced import highest

        x, put = _one(args, self.argnum)
        nested = highest(flatten((args, tuple(kwargs.values())))[0]) is not None
        again = Repeated(self.f) if not nested and self.calls < CHECKED else self.f
        value, gradient = pn.value_and_grad(again, self.argnum)(*args, **kwargs)
        if isinstance(again, Repeated):
            self.calls += 1
            after = Repeated(self.f)
            rng = np.random.default_rng(self.calls)
            v, aside = _direction(x, rng), _direction(x, rng)

            def plainly(x: Any) -> Any:
                return again(*put(x), **kwargs)

            nearest = agrees(plainly, x, v, 1.0, _dot(gradient, v), Checked.tolerance)
            if nearest is not None:  # perhaps at a kink: then not a little beside it
                near = _moved(x, aside, 1e-2)
                there = pn.grad(again, self.argnum)(*put(near), **kwargs)
                if agrees(plainly, near, v, 1.0, _dot(there, v), Checked.tolerance) is not None:
                    raise Mismatch(f"{_dot(gradient, v)} for {nearest}")
            Checked.right += 1
            after.f = lambda: None
            after()
        return gradient if self.only_gradient else (value, gradient)


def _example(folder: Path, path: Path) -> tuple[str, str]:
    root = _modules(folder)
    root.grad = lambda f, argnum=0: Checked(f, argnum, True)
    root.value_and_grad = lambda f, argnum=0: Checked(f, argnum, False)
    _without_pictures()
    sys.path.insert(0, str(path.parent))
    sys.path.insert(0, str(folder / "examples"))
    if (folder / "examples" / "data_mnist.py").exists():
        _digits(importlib.import_module("data_mnist"))
    Checked.ends, Checked.tolerance = time.monotonic() + SECONDS, TOLERANCE.get(path.stem, 1e-5)
    program = compile(path.read_text(), str(path), "exec")
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    over = False
    try:
        exec(program, vars(main))
    except OutOfTime:
        over = True
    except PebblingError as error:
        return "refused", reason_of(error)
    except Mismatch as error:
        return "wrong", str(error)
    except Exception as error:
        traceback.print_exc()
        return "raw", f"{type(error).__name__}: {reason_of(error)}"
    wrong = [one for one in _FOUND if one.verdict != "right"]
    if wrong:
        return wrong[0].verdict, wrong[0].reason
    if over and not Checked.right:
        return "not for us", f"no gradient in {SECONDS} s"
    return "right", f"{Checked.right} gradients compared" + (f", stopped after {SECONDS} s" if over else "")


def _without_pictures() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.pause = plt.draw = plt.show = plt.savefig = lambda *args, **kwargs: None
    mpl.figure.Figure.savefig = lambda *args, **kwargs: None
    os.system = lambda command: 0
    import matplotlib.image

    mpl.image.imsave = lambda *args, **kwargs: None


def _digits(module: Any) -> None:
    """Pictures of random ink in place of those of MNIST, which would have to be downloaded."""
    rng = np.random.default_rng(0)

    def mnist() -> tuple[Any, ...]:
        def some(n: int) -> tuple[Any, Any]:
            labels = rng.integers(0, 10, n)
            return rng.integers(0, 256, (n, 28, 28)) * (rng.random((n, 28, 28)) < 0.2), labels

        return (*some(2000), *some(200))

    module.mnist = mnist


if __name__ == "__main__":
    _folder, _path = Path(sys.argv[1]), Path(sys.argv[2])
    _found = _example(_folder, _path)
    print("\nOUTCOME " + json.dumps(_found), flush=True)
    os._exit(0)  # threads of pictures and pools need not end
