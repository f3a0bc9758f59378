"""Random programs of ops, loops and rebound names, run on a tape and on a plain list that keeps everything."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

import pebbling as pb

NAMES = "abcd"


@pb.op(zeros=False)
def mix(x, y, *, c):
    return np.sin(x) + c * x * y


@mix.vjp
def _(x, y, g, *, c):
    return g * (np.cos(x[0]) + c * x[1]), g * (c * x[0])


@mix.jvp
def _(x, y, dx, *, c):
    first = 0.0 if dx[0] is None else dx[0] * (np.cos(x[0]) + c * x[1])
    return first + (0.0 if dx[1] is None else dx[1] * (c * x[0]))


@pb.op
def two(x):
    return np.cos(x), x * x


@two.vjp
def _(x, y, g):
    return -np.sin(x[0]) * g[0] + 2 * x[0] * g[1]


@two.jvp
def _(x, y, dx):
    return -np.sin(x[0]) * dx[0], 2 * x[0] * dx[0]


@pb.op(cost="cheap")
def shift(x, by):
    return x + 0.5 * by


@shift.vjp
def _(x, y, g):
    return g, 0.5 * g


@shift.jvp
def _(x, y, dx):
    return dx[0] + 0.5 * dx[1]


class Kept:
    """A value of the plain list."""

    def __init__(self, value):
        self.value = value


class Plain:
    """Keeps everything and goes back over it: what any tape must equal to the last bit."""

    def __init__(self):
        self.calls = []

    def leaf(self, value):
        return Kept(value)

    def loop(self, items=None):
        return itertools.count() if items is None else items

    def call(self, op, hint, *inputs, **statics):
        x = [value.value if isinstance(value, Kept) else value for value in inputs]
        found = op.function(*x, **statics)
        outputs = [Kept(value) for value in (found if isinstance(found, tuple) else (found,))]
        self.calls.append((op, inputs, outputs, statics))
        return tuple(outputs) if isinstance(found, tuple) else outputs[0]

    def pullback(self, result, seed):
        cotangents = {result: seed}
        for op, inputs, outputs, statics in reversed(self.calls):
            g = [cotangents.pop(out, None) for out in outputs]
            if all(part is None for part in g):
                continue
            y = [out.value for out in outputs]
            if op.zeros:
                g = [np.zeros_like(value) if part is None else part for part, value in zip(g, y)]
            x = tuple(value.value if isinstance(value, Kept) else value for value in inputs)
            single = len(outputs) == 1
            found = op.rules["vjp"](x, y[0] if single else tuple(y), g[0] if single else tuple(g), **statics)
            for value, part in zip(inputs, found if isinstance(found, tuple) else (found,)):
                if isinstance(value, Kept) and part is not None:
                    cotangents[value] = cotangents[value] + part if value in cotangents else part
        return cotangents


class Taped:
    """A tape with the same methods."""

    def __init__(self, **options):
        self.tape = pb.Tape(**options)
        self.leaf, self.loop = self.tape.leaf, self.tape.loop
        self.pullback = self.tape.pullback

    def call(self, op, hint, *inputs, **statics):
        return (op if hint is None else getattr(op, hint)())(*inputs, **statics)


def execute(target, program, values):
    """Run a program; its leaves and the handle in its first name."""
    leaves = [target.leaf(value) for value in values]
    scope = dict(zip(NAMES, leaves))
    scope["history"] = []
    _run(target, program, scope, 0)
    return leaves, scope["a"]


def _run(target, program, scope, index):
    for instruction in program:
        kind, *rest = instruction
        if kind == "mix":
            into, one, other, hint = rest
            scope[into] = target.call(mix, hint, scope[one], scope[other], c=0.25 if hint else 0.1 * (index % 3))
        elif kind == "two":
            into, other, one, hint = rest
            scope[into], scope[other] = target.call(two, hint, scope[one])
        elif kind == "constant":
            into, one, hint = rest
            scope[into] = target.call(shift, hint, scope[one], np.array([0.5, float(index)]))
        elif kind == "collect":
            scope["history"].append(scope[rest[0]])
        elif kind == "recall":
            into, back = rest
            if scope["history"]:
                scope[into] = target.call(shift, None, scope[into], scope["history"][-1 - back % len(scope["history"])])
        else:
            length, known, stop, body = rest
            for i in target.loop(range(length) if known else None):
                if not known and i >= length:
                    break
                _run(target, body[: len(body) // 2], scope, i)
                if i == stop:
                    break
                _run(target, body[len(body) // 2 :], scope, i)


def programs(depth=2):
    """Lists of instructions."""
    name, hint = st.sampled_from(NAMES), st.sampled_from([None, None, "retain", "replay"])
    plain = st.one_of(
        st.tuples(st.just("mix"), name, name, name, hint),
        st.tuples(st.just("two"), name, name, name, hint),
        st.tuples(st.just("constant"), name, name, hint),
        st.tuples(st.just("collect"), name),
        st.tuples(st.just("recall"), name, st.integers(0, 30)),
    )
    if not depth:
        return st.lists(plain, max_size=5)
    loop = st.tuples(
        st.just("loop"), st.integers(0, 12 if depth == 2 else 4), st.booleans(), st.integers(0, 20), programs(depth - 1)
    )
    return st.lists(st.one_of(plain, loop), max_size=6)
