"""Functions of one and two numbers, each with the broadcasting that its operands allow."""

import operator

import jax.scipy.special
import numpy as np
from scipy import special

WHOLE, UNIT, POSITIVE = "normal", "unit", "positive"

ONE = [
    (
        WHOLE,
        "exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh square cbrt absolute fabs sinc negative positive",
    ),
    (WHOLE, "reciprocal deg2rad radians rad2deg degrees conjugate real nan_to_num"),
    (POSITIVE, "log log2 log10 log1p sqrt"),
    (UNIT, "arcsin arccos arctanh"),
]
TWO = [
    (WHOLE, "add subtract multiply divide maximum minimum fmax fmin arctan2 hypot logaddexp logaddexp2"),
    (POSITIVE, "power float_power remainder fmod"),
]
SHAPES = [((3,), (3,)), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((1, 3), ()), ((2, 1, 3), (4, 1))]


def _call(name):
    return lambda np, *args: getattr(np, name)(*args)


IN_JAX = "i0 i1 expi entr erf erfc gamma gammaln digamma expit ndtr log_ndtr erfinv logit ndtri beta betaln xlogy"


def _special(name, *fixed):
    def call(module, *args):
        return getattr(special if module is np else jax.scipy.special, name)(*fixed, *args)

    return call


def cases(case):
    for kind, names in ONE:
        for name in names.split():
            for shape in ((), (3,), (2, 3)):
                yield case(f"{name} {shape}", _call(name), (kind, shape), jax=shape == (3,))
    yield case("arccosh", lambda np, x: np.arccosh(1 + x), (POSITIVE, (3,)))
    for kind, names in TWO:
        for name in names.split():
            for left, right in SHAPES if name in ("add", "multiply", "power", "maximum") else SHAPES[1:4]:
                jax = (left, right) == ((2, 1), (1, 3))
                yield case(f"{name} {left} {right}", _call(name), (kind, left), (kind, right), jax=jax)
            yield case(
                f"{name} constant left", lambda np, x, name=name: getattr(np, name)(0.7, x), (kind, (3,)), jax=False
            )
            yield case(
                f"{name} constant right", lambda np, x, name=name: getattr(np, name)(x, 0.7), (kind, (3,)), jax=False
            )
    for name in ("add", "sub", "mul", "truediv", "pow", "mod"):
        for left, right in SHAPES:
            f = lambda np, x, y, name=name: getattr(operator, name)(x, y)  # noqa: E731
            yield case(f"operator {name} {left} {right}", f, (POSITIVE, left), (POSITIVE, right), jax=left == (2, 3))
        for constant in (2.5, 3, np.array([1.5, 2.5, 3.5])):
            f = lambda np, x, c=constant, name=name: getattr(operator, name)(x, c)  # noqa: E731
            g = lambda np, x, c=constant, name=name: getattr(operator, name)(c, x)  # noqa: E731
            for shape in ((3,), (2, 3), ()):
                yield case(f"operator {name} {constant} {shape}", f, (POSITIVE, shape), jax=False)
                yield case(f"operator {name} reflected {constant} {shape}", g, (POSITIVE, shape), jax=False)
    for name in ("add", "subtract", "multiply", "divide"):
        f = lambda np, x, y, name=name: getattr(np, name)(x, y) * (x - y / 3) ** 2  # noqa: E731
        yield case(f"{name} Python numbers", f, ("number", ()), ("number", ()))
    for name in ("neg", "pos", "abs"):
        yield case(f"operator {name}", lambda np, x, name=name: getattr(operator, name)(x), (WHOLE, (3,)))
    for exponent in (0, 1, 2, 3, -1, 0.5, np.array([0.0, 1.0, 2.0])):
        yield case(f"x ** {exponent}", lambda np, x, p=exponent: x**p, (POSITIVE, (3,)))
    yield case("0 ** p", lambda np, p: np.power(np.array([0.0, 1.0, 2.0]), p), (POSITIVE, (3,)), jax=False)
    yield case("sinc at 0", lambda np, x: np.sinc(x), np.array([0.0, 0.3]), fd=False)
    yield case("x ** 2 at 0", lambda np, x: x**2, np.zeros(2))
    yield case("maximum of equals", lambda np, x, y: np.maximum(x, y), np.ones(2), np.ones(2), fd=False)
    yield case("minimum of equals", lambda np, x, y: np.minimum(x, y), np.ones(2), np.ones(2), fd=False)
    yield case("copysign", lambda np, x: np.copysign(x, np.array([-1.0, 1.0, -1.0])), (WHOLE, (3,)))
    yield case("heaviside", lambda np, h: np.heaviside(np.array([0.0, 1.0]), h), (WHOLE, (2,)), jax=False)
    yield case("ldexp", lambda np, x: np.ldexp(x, np.array([1, -2, 3])), (WHOLE, (3,)))
    yield case("sign", lambda np, x: np.sign(x) * x, (WHOLE, (3,)))
    yield case(
        "floor ceil rint trunc", lambda np, x: (np.floor(x) + np.ceil(x) + np.rint(x) + np.trunc(x)) * x, (WHOLE, (3,))
    )
    yield case("floor_divide", lambda np, x: (x // 0.3) * x, (WHOLE, (3,)))
    yield case("imag", lambda np, x: np.imag(x) + x, (WHOLE, (3,)))
    yield case("fmax nan", lambda np, x: np.fmax(x, np.array([np.nan, 9.0, -9.0])), (WHOLE, (3,)))
    yield case("fmin nan", lambda np, x: np.fmin(x, np.array([np.nan, 9.0, -9.0])), (WHOLE, (3,)))
    yield case("logaddexp -inf", lambda np, x: np.logaddexp(x, -np.inf), (WHOLE, (3,)))
    yield from _scipy(case)


def _scipy(case):
    bessel = "j0 j1 y0 y1 i0 i1 k0 k1 exp1 expi dawsn"
    other = (
        "exprel entr sindg cosdg exp10 cbrt erf erfc erfcx gamma gammaln rgamma digamma expit log_expit ndtr log_ndtr"
    )
    for name in [*bessel.split(), *other.split()]:
        yield case(f"special {name}", _special(name), (POSITIVE, (3,)), jax=name in IN_JAX.split())
    for name in ("erfinv", "erfcinv", "logit", "ndtri"):
        yield case(f"special {name}", _special(name), (UNIT, (3,)), jax=name in IN_JAX.split())
    for name in ("beta", "betaln", "xlogy", "xlog1py", "rel_entr", "kl_div"):
        f = _special(name)
        yield case(f"special {name}", f, (POSITIVE, (3,)), (POSITIVE, (2, 1)), jax=name in IN_JAX.split())
    for name in ("gammainc", "gammaincc", "jv", "yv", "iv", "kv", "ive", "stdtr", "chdtr", "pdtr"):
        yield case(f"special {name}", _special(name, 1.5), (POSITIVE, (3,)), jax=False)
    for name in ("ellipk", "ellipe"):
        yield case(f"special {name}", _special(name), (UNIT, (3,)), jax=False)
    for name in ("betainc", "betaincc"):
        yield case(f"special {name}", _special(name, 1.5, 2.5), (UNIT, (3,)), jax=False)
    yield case("special poch", _special("poch"), (POSITIVE, (3,)), (POSITIVE, (2, 1)), jax=False)
    yield case("special yn", lambda np, x: special.yn(2, x), (POSITIVE, (3,)), jax=False)
    yield case("special gammasgn", lambda np, x: special.gammasgn(x) * x, (POSITIVE, (3,)), jax=False)
    yield case("special boxcox", lambda np, x: special.boxcox(x, 0.4), (POSITIVE, (3,)), jax=False)
