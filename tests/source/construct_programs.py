"""Every construct of Python as a program with loops: what people write, on arrays ``x``, ``a`` and ``b``.

The arrays are those of whatever library ``np`` stands for: who loads this file under another name may put another
one in its place.
"""

# The programs are what people write: unused loop variables and late closures belong to them.
# ruff: noqa: B007, B012, B018, B023

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

PROGRAMS = []
SCALE = 0.75


def program(function):
    PROGRAMS.append(function)
    return function


@program
def range_loop(x, a, b):
    for i in range(9):
        x = np.tanh(x * a + b[0]) + i * 0.01
    return np.sum(x)


@program
def any_start_and_step(x, a, b):
    for i in range(17, 2, -4):
        x = x * a + i
    for i in range(100, 300, 37):
        x = x + a * i
    return np.sum(x), np.sum(x * i)[()]


@program
def tuple_and_starred_targets(x, a, b):
    p, q = x, a
    for i, (k, *rest) in enumerate([(1, 2.0, 3.0), (2, 5.0), (3,)]):
        p, q = q * k + i, p * 0.5
        for r in rest:
            p = p + r * b[1]
    return np.sum(p * q) + k + len(rest)


@program
def augmented_and_slices(x, a, b):
    u = np.copy(x)
    for i in range(11):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) * a[1:-1]
        u[0] = u[1]
        u *= 0.99
        u[::2], u[-1] = u[::2] * a[::2], u[0]
    return np.sum(u**2)


@program
def written_array_is_the_argument(x, a, b):
    y = x * 1.0
    z = y
    for i in range(5):
        y += a * z
        y[i] = a[i]
    return np.sum(z * b[0]) + np.sum(y)


@program
def two_dimensional(x, a, b):
    g = b * 1.0
    for k in range(6):
        g[1:-1, 1:-1] += 0.1 * (g[2:, 1:-1] + g[:-2, 1:-1] - 2 * g[1:-1, 1:-1])
        g[:, 0] = a[:4]
        g[k % 4] *= x
    return np.sum(g)


@dataclass
class Heat:
    T: object
    kappa: object
    steps: int = 0
    log: list = field(default_factory=list)


def advance(heat):
    heat.T[1:-1] += 0.1 * heat.kappa[1:-1] * (heat.T[2:] - 2 * heat.T[1:-1] + heat.T[:-2])
    heat.steps += 1


@program
def dataclass_fields(x, a, b):
    h = Heat(x * 1.0, a)
    for i in range(7):
        h.T = h.T * h.kappa
        h.T[0] = 2.0
        h.steps += 1
    return np.sum(h.T) * h.steps


@program
def mutation_in_a_callee(x, a, b):
    heat = Heat(x * 1.0, a)
    same_one = heat
    array = heat.T
    for _ in range(8):
        advance(heat)
    return np.sum(heat.T) * same_one.steps + np.sum(array * b[2])


def scale_in_place(array, by):
    array *= by


@program
def callee_writes_into_an_array(x, a, b):
    u = x * 2.0
    for _ in range(6):
        scale_in_place(u, a)
    return np.sum(u)


@program
def callee_writes_into_one_of_two(x, a, b):
    u = x * 2.0
    v = a * 1.0
    for _ in range(6):
        scale_in_place(u, v)
        w = u + v
    return np.sum(u) + np.sum(w)


@program
def dict_state(x, a, b):
    d = {"u": x, "n": 0, "more": {"v": a}}
    for i in range(6):
        d["u"] = d["u"] * d["more"]["v"] + i
        d["more"]["v"] = d["more"]["v"] * 0.9
        d["n"] += 1
    return np.sum(d["u"]) + d["n"]


@program
def dict_that_gets_keys(x, a, b):
    d = {}
    for i in range(6):
        d[i % 3] = d.get(i % 3, 0.0) + x * i
        d.setdefault("a", a * i)
    return np.sum(d[0] * d[1]) + np.sum(d["a"] * d[2])


@program
def list_state(x, a, b):
    s = [x, a]
    for i in range(6):
        s[0], s[1] = s[1] * 1.1, s[0] + i
    return np.sum(s[0] * s[1])


@program
def arrays_in_a_list_written(x, a, b):
    s = [x * 1.0, a * 1.0]
    t = s[0]
    for i in range(6):
        s[i % 2] *= 0.9
        s[0][1] = s[1][0]
    return np.sum(s[0] * s[1]) + np.sum(t)


@program
def append_only(x, a, b):
    seen = []
    for i in range(7):
        x = np.sin(x * a)
        seen.append(x)
        if i % 2:
            seen.append((i, np.sum(x)))
    total = np.sum(seen[0]) + len(seen)
    for one in seen:
        total = total + (one[1] if isinstance(one, tuple) else np.sum(one * b[0]))
    return total


@program
def append_and_read(x, a, b):
    u = [x, a]
    for i in range(9):
        u.append(np.tanh(u[-1] + 0.5 * u[-2]))
    return np.sum(u[-1]) + np.sum(u[4] * b[1]) + len(u)


@program
def append_in_nested_loops(x, a, b):
    out = []
    for i in range(4):
        for j in range(i):
            x = x * a + j
            out.append(np.sum(x))
        out.append(np.max(a))
    return sum(out)


@program
def break_and_else(x, a, b):
    for i in range(10):
        x = x * a
        if np.sum(x**2) < 0.3:
            break
    else:
        x = x * 100
    for j in range(3):
        x = x + j * a
    else:
        x = x * b[0]
    return np.sum(x) + i + j


@program
def continue_and_conditions(x, a, b):
    for i in range(12):
        if i % 3 == 0:
            continue
        if i % 2:
            x = np.sin(x) + a
        else:
            y = x * 0.5
            x = y + b[1]
    return np.sum(x) + np.sum(y)


@program
def return_from_nested_loops(x, a, b):
    for i in range(10):
        for j in range(10):
            x = x * a + j * 0.01
            if i * j == 12:
                return np.sum(x) + i
        x = x + b[0]
    return np.sum(x)


@program
def return_in_first_iteration(x, a, b):
    for i in range(10):
        y = x * a
        return np.sum(y)
    return np.sum(x)


@program
def while_loop(x, a, b):
    n = 0
    while np.max(np.abs(x)) > 0.1 and n < 50:
        x = x * a
        n += 1
    return np.sum(x) * n


@program
def while_true(x, a, b):
    n = 0
    while True:
        n += 1
        if n == 3:
            continue
        x = np.cos(x * a)
        if n > 7:
            break
    return np.sum(x)


@program
def while_else_and_walrus(x, a, b):
    k = 0
    while (k := k + 1) < 6:
        x = x * a + k
        if (m := np.sum(x)) > 1e6:
            break
    else:
        x = x - m
    return np.sum(x) + k


@program
def nested_with_length_from_outer_state(x, a, b):
    n = 1
    total = 0.0
    for i in range(5):
        for j in range(n):
            x = np.sin(x + a * j)
        n = (n * 2 + i) % 5
        total += np.sum(x)
    return total + n


@program
def three_deep(x, a, b):
    for i in range(3):
        for j in range(2):
            y = x
            k = 0
            while k < 3:
                x = np.tanh(x * a + b[k])
                k += 1
            x = x + 0.1 * y
    return np.sum(x)


@program
def rows_of_a_differentiated_array(x, a, b):
    for row in b:
        x = np.tanh(x * a + row)
    for i, row in enumerate(b):
        x = x + row * i
    for r, s in zip(b, reversed(b)):
        x = x * 0.5 + r * s
    return np.sum(x) + np.sum(row)


@program
def zip_enumerate_and_lists(x, a, b):
    layers = [(b[0], 1.0), (b[1], 2.0), (b[2], 3.0)]
    for i, ((w, c), k) in enumerate(zip(layers, range(5)), 3):
        x = np.tanh(x * w + c) * i + k
    for w, c in reversed(layers):
        x = x + w * c
    return np.sum(x)


@program
def generators(x, a, b):
    for k in (n * n for n in range(5) if n != 2):
        x = x * a + k
    for name, k in zip("abc", itertools.count(2)):
        x = x + k * len(name)
    for row in map(np.ones, [6, 6]):
        x = x + row
    return np.sum(x)


@program
def generator_of_arrays(x, a, b):
    for table in ({"k": np.full(6, float(i))} for i in range(4)):
        x = x * a + table["k"]
    return np.sum(x)


@program
def dict_views(x, a, b):
    p = {"u": x, "v": a, "w": 2.0}
    for key in p:
        p[key] = p[key] * 0.5
    for key, value in p.items():
        p[key] = value * 3.0 + p["u"]
    for value in p.values():
        x = x + value
    return np.sum(x)


@program
def closures(x, a, b):
    def rhs(u, k):
        return -a * u + b[k % 4] * scale

    scale = np.sum(a)
    twice = lambda u: 2 * u  # noqa: E731
    for i in range(6):
        x = x + 0.1 * rhs(twice(x), i)
        inner = lambda u: u * i + x  # noqa: E731
        x = inner(x) * 0.01 + x
    return np.sum(x)


@program
def recursive_closure(x, a, b):
    def power(u, n):
        return a if n == 0 else u * power(u, n - 1)

    for i in range(4):
        x = power(x, i) * 0.5
    return np.sum(x)


@program
def closure_over_a_list(x, a, b):
    seen = [x]

    def push(u):
        seen.append(u * a)
        return seen[-1] + seen[0]

    for i in range(5):
        x = push(x) * 0.5
    return np.sum(x) + len(seen) + np.sum(seen[2])


@program
def closure_writes_into_a_captured_array(x, a, b):
    total = x * 1.0

    def add(u):
        total[1:] += u[1:]

    for i in range(5):
        add(a * i)
        x = x * 0.9 + total
    return np.sum(x) + np.sum(total)


@program
def partial_and_bound_methods(x, a, b):
    step = partial(np.multiply, a)
    heat = Heat(x * 1.0, a)
    put = heat.__setattr__
    more = partial(scale_by, k=a)
    for i in range(4):
        x = more(step(x)) + i
        put("T", heat.T * a)
    return np.sum(x) + np.sum(heat.T)


def scale_by(u, k=None):
    return u * k


@program
def names_bound_in_the_loop(x, a, b):
    for i in range(6):
        if i > 2:
            late = x * i
        if i > 3:
            x = x + late
        x = np.sin(x * a)
        temp = x * 2
    return np.sum(late) + np.sum(temp) + i


@program
def from_none_to_a_tuple(x, a, b):
    best = None
    for i in range(7):
        x = np.sin(x * a) * 1.3
        if best is None or np.sum(x) > best[1]:
            best = (x, np.sum(x), {"i": i})
    return best[1] + np.sum(best[0] * b[0]) + best[2]["i"]


@program
def try_and_finally(x, a, b):
    count = 0
    for i in range(7):
        try:
            if i % 3 == 1:
                raise KeyError(i)
            x = x * a
        except KeyError as error:
            x = x + error.args[0]
        else:
            x = x + b[0]
        finally:
            count += 1
            if count == 6:
                break
    return np.sum(x) * count


@program
def exception_out_of_a_loop(x, a, b):
    i = -1
    try:
        for i in range(10):
            x = x * a
            y = x + 1
            if i == 5:
                raise ValueError("enough")
            x = x + y
    except ValueError:
        x = x * 2 + y
    return np.sum(x) + i


@program
def exception_out_of_nested_loops(x, a, b):
    for k in range(3):
        try:
            for i in range(4):
                x = x * a
                while True:
                    x = x + 0.1
                    [1, 2][i]
                    break
        except IndexError:
            x = x * 1.5 + i
    return np.sum(x)


@contextlib.contextmanager
def halved(box):
    box[0] = box[0] * 0.5
    yield box
    box[0] = box[0] + 1


@program
def with_blocks(x, a, b):
    box = [x]
    for i in range(5):
        with halved(box) as same_box, contextlib.suppress(ZeroDivisionError):
            same_box[0] = same_box[0] * a
            if i == 3:
                1 // 0
            same_box[0] = same_box[0] + b[0]
    return np.sum(box[0])


@program
def comprehensions(x, a, b):
    for i in range(4):
        parts = [x * k + i for k in range(3)]
        x = sum(p * a for p in parts)
        last = {k: (y := p) for k, p in enumerate(parts)}
        x = x + last[1] * 0.1 + y
    return np.sum(x)


@program
def comprehensions_over_names_of_globals(x, a, b):
    rows = [SCALE * 2 for SCALE in (0.1, 0.2)]
    for i in range(4):
        parts = {len: x * len for len in rows}
        x = sum(parts.values()) * SCALE + len(rows) * a
        while np.sum(x) > 50 * SCALE:
            x = x * SCALE
    return np.sum(x)


@program
def match_statement(x, a, b):
    for item in [("add", 1), ("scale", 2.0), {"kind": "row", "n": 2}, 5, [1, 2, 3]]:
        match item:
            case ("add", n):
                x = x + n * a
            case ("scale", factor) if factor > 1:
                x = x * factor
            case {"kind": "row", **rest}:
                x = x + b[rest["n"]]
            case [first, *others]:
                x = x + first + len(others)
            case other:
                x = x - other
    return np.sum(x)


@program
def no_iterations(x, a, b):
    y = x
    i = 5
    for i in range(0):
        x = x * 100
        y = x
    for k in []:
        x = x * k
    while np.sum(x) > 1e9:
        x = x * 2
    y += a
    return np.sum(x * b[0]) + np.sum(y) + i


@program
def one_iteration(x, a, b):
    for i in range(1):
        x = x * a
    for row in b[:1]:
        x = x + row
    return np.sum(x)


@program
def integers_and_generators_of_numbers(x, a, b):
    rng = np.random.default_rng(4)
    k, flag, text = 1, True, ""
    for i in range(6):
        x = x * a + rng.normal(size=6) * k
        k = (k * 7) % 5
        flag = not flag
        text += "ab"[k % 2]
        count = np.array([i, k])
    return np.sum(x) + k + flag + len(text) + np.sum(count) + rng.normal()


@program
def integer_array_written(x, a, b):
    visits = np.zeros(6, int)
    other = visits
    for i in range(8):
        visits[(i * i) % 6] += 1
        x = x * a + visits
    return np.sum(x) + np.sum(other * np.arange(6))


class Point(NamedTuple):
    u: object
    v: object


@program
def named_tuples_and_namespaces(x, a, b):
    p = Point(x, a)
    s = SimpleNamespace(u=x, k=0)
    for i in range(5):
        p = p._replace(u=p.u * p.v, v=p.v + 0.01 * i)
        s.u = s.u + p.u
        s.k += 1
    return np.sum(p.u * p.v) + np.sum(s.u) * s.k


@program
def deque_and_defaultdict(x, a, b):
    last = deque([x, a], maxlen=3)
    sums = defaultdict(float)
    for i in range(7):
        last.append(np.tanh(last[0] + last[-1]))
        sums[i % 2] += np.sum(last[-1])
    return np.sum(last[0]) + sums[0] * sums[1]


@program
def swapped_buffers(x, a, b):
    u, v = x * 1.0, x * 0.0
    for i in range(9):
        v[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        v[0], v[-1] = u[0], a[i % 6]
        u, v = v, u
    return np.sum(u * b[0]) + np.sum(v)


@program
def same_array_under_two_names(x, a, b):
    u = x * 1.0
    for i in range(6):
        v = u
        v += a
        w = [u, v]
        w[0][2] = i
        if i == 3:
            u = np.copy(u)
    return np.sum(u) + np.sum(v * b[0]) + np.sum(w[1])


@program
def alias_outside_sees_the_writes(x, a, b):
    u = x * 1.0
    outside = u
    for i in range(5):
        u += a
        if i == 2:
            u = u * 1.0
    return np.sum(outside * b[0]) + np.sum(u * b[1])


@program
def collected_and_used_twice_by_the_next_step(x, a, b):
    u, out, s = x * 1.1, [x], 0.0
    for i in range(7):
        out.append(u)
        s = s + np.sum(u * 0.3)
        u = u * 0.3 + np.sin(u) * a + u * 0.123 * u
        out.append(u)
        out.append(s)
    for one in out:
        s = s + np.sum(one * 0.3 * b[0]) * 0.7
    return s


@program
def collected_again_and_again(x, a, b):
    u, out, s = x * 1.1, [], 0.0
    for i in range(9):
        if i % 3 == 1:
            u = np.sin(u) * a
        out.append(u)
        s = s + np.sum(u * u * 0.7) + np.sum(u * a * 0.31)
    for one in out:
        s = s + np.sum(one * 0.3 * b[0]) * 0.7
    return s + np.sum(u * 0.77)


@program
def constant_that_an_inner_loop_carries(x, a, b):
    u, v, w = x * 1.1, a * 0.7, b[0] * 1.0
    for i in range(3):
        for k in (j * j for j in range(3)):
            if k % 2:
                v = u
                w = np.tanh(u) * u + 0.3 * w
    return np.sum(u * 1.5) + np.sum(v) * 0.5 + np.sum(w * a)


@program
def written_after_the_loop(x, a, b):
    u = x * 1.0
    other = u
    for i in range(5):
        if i > 10:
            u = u * 2
        x = x * a + u
    u += a
    return np.sum(other * x)


@program
def written_after_an_inner_loop(x, a, b):
    u, count = x * 1.0, 0
    for i in range(3):
        for j in range(2):
            if count:
                continue
            u = x * a
            count += 1
        u[1:] = b[0][1:]
    return np.sum(u * 1.5)


@program
def deleted_names(x, a, b):
    y = a
    for i in range(5):
        z = x * y
        del y
        x = np.sin(z)
        y = a * i
        del z
    return np.sum(x * y)


@program
def rebound_loop_variable(x, a, b):
    for i in range(6):
        x = x * a + i
        i = i * 10
        x = x + i
    return np.sum(x) + i


@program
def string_and_bytes(x, a, b):
    for letter in "abcab":
        x = x * a if letter == "a" else x + ord(letter) * 0.01
    for byte in b"xyz":
        x = x + byte * 0.001
    return np.sum(x)


@program
def early_state_not_differentiated(x, a, b):
    s, late, clock = np.ones(6), 2.0, 0.3
    for i in range(7):
        if i == 2:
            late = late + np.sum(s)
        s = s * a + clock
        late = late * 0.5
        clock = clock + clock * 0.1
    return np.sum(s * x) + late


@program
def constants_used_after_the_loop(x, a, b):
    y = np.sum(a * b[0])
    for i in range(5):
        x = x * a + b[i % 4] * a
    return np.sum(x * a) + y + np.sum(b * a)


@program
def globals_and_defaults(x, a, b):
    for i in range(4):
        x = x * SCALE + offset(a)
    return np.sum(x)


def offset(u, by=(0.25, 0.5)):
    return u * by[0] + by[1]


@program
def objects_with_methods(x, a, b):
    model = Model([b[0], b[1]], a)
    for i in range(4):
        x = model.forward(x)
        for layer in model.layers:
            x = x + 0.1 * layer
    return np.sum(x) + model.calls + np.sum(model.last)


class Model:
    def __init__(self, layers, gain):
        self.layers, self.gain, self.calls, self.last = layers, gain, 0, None

    def forward(self, x):
        for layer in self.layers:
            x = np.tanh(x * layer + self.gain)
        self.calls += 1
        self.last = x
        return x


@program
def particles(x, a, b):
    bodies = [Heat(x * 1.0, a), Heat(a * 2.0, x)]
    for k in range(4):
        for body in bodies:
            body.T += 0.1 * body.kappa
            body.log.append(np.sum(body.T))
        for body in bodies:
            body.kappa = body.kappa * 0.9 + body.log[-1]
    return sum(np.sum(body.T) + body.log[1] for body in bodies)


@program
def rows_written_through_the_target(x, a, b):
    g = b * 1.0
    for row in g:
        row += x
        row[0] = 1.0
    parts = [x * 1.0, a * 1.0]
    for part in parts:
        part *= 2.0
    return np.sum(g * g) + np.sum(parts[0] * parts[1])
