"""Programs as people write them: objects with clocks, diagnostics, caches, optimisers, generators, early stops.

Each is a function of one array of four numbers. Nothing in them was written with loops that are replayed in mind.
"""

# ruff: noqa: B006, B007, C408, C417, RUF012, SIM105

from __future__ import annotations

import functools
import itertools
import operator
import random
import threading
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


class Box:
    pass


# Objects that inner loops change.


@program
def an_inner_loop_changes_an_attribute(u):
    s = Box()
    s.x, s.t, m = u.copy(), 0.0, 0.0
    for i in range(6):
        s.x *= 1.1
        for k in range(2):
            s.t += 0.1
        m = m + np.sum(np.sin(s.x))
    return m


@program
def an_inner_loop_changes_an_attribute_through_an_alias(u):
    s = Box()
    s.x, s.t, m = u.copy(), 0.0, 0.0
    x = s.x
    for i in range(6):
        x *= 1.1
        for k in range(2):
            s.t += 0.1
            x += s.t * 0.01
        m = m + np.sum(np.sin(s.x))
    return m


@program
def the_best_so_far_is_kept_by_an_inner_loop(u):
    best = Box()
    best.value, best.at = np.inf, None
    x = u * 1.0
    for i in range(4):
        for k in range(3):
            x = x - 0.1 * np.cos(x) * (k + 1)
            value = np.sum(x**2)
            if value < best.value:
                best.value, best.at = value, x
    return best.value + np.sum(best.at)


@program
def an_inner_while_counts_in_an_object(u):
    s = SimpleNamespace(x=u * 1.0, tries=0)
    total = 0.0
    for i in range(5):
        n = 0
        while n < 2 + i % 2:
            s.tries += 1
            n += 1
            s.x = s.x + 0.1 * np.sin(s.x * s.tries)
        total = total + np.sum(s.x) * s.tries
    return total


# Reads that change.


@program
def diagnostics_in_a_defaultdict(u):
    hist = defaultdict(list)
    y = u
    for s in range(4):
        y = np.sin(y)
        hist["u"].append(y)
    return sum(np.sum(one) for one in hist["u"])


@program
def diagnostics_of_several_kinds(u):
    hist = defaultdict(list)
    y = u
    for s in range(7):
        y = np.sin(y) * 1.1
        if s % 2:
            hist["mean"].append(np.mean(y))
        hist["step"].append(s)
    return sum(hist["mean"]) * len(hist["step"])


class Stepper:
    def __init__(self, dt):
        self.dt, self.t, self.n = dt, 0.0, 0

    def __call__(self, u):
        u = u + self.dt * np.cos(self.t) * u
        self.t += self.dt
        self.n += 1
        return u


@program
def a_stepper_with_a_clock(u):
    step = Stepper(0.1)
    for i in range(7):
        u = step(u)
    return np.sum(u) * step.n + step.t


class Model:
    def __init__(self, k):
        self.k, self.calls = k, 0

    @functools.cached_property
    def matrix(self):
        return np.outer(self.k, self.k)

    @property
    def rate(self):
        self.calls += 1
        return 0.1 / self.calls

    @property
    def lazy(self):
        if not hasattr(self, "_lazy"):
            self._lazy = np.sin(self.k)
        return self._lazy

    def __getitem__(self, i):
        self.calls += i
        return self.calls * 0.01

    def __len__(self):
        self.calls += 1
        return self.calls

    def __contains__(self, one):
        self.calls += 1
        return self.calls % 2 == 0

    def __iter__(self):
        self.calls += 1
        return iter([self.calls * 0.1])

    def __lt__(self, other):
        self.calls += 1
        return self.calls % 3 == 0

    def __add__(self, other):
        self.calls += 1
        return other + self.calls


@program
def a_cached_property(u):
    m = Model(u)
    for i in range(5):
        u = 0.3 * np.sin(m.matrix @ u)
    return np.sum(u) + np.sum(m.matrix)


@program
def a_property_that_caches(u):
    m = Model(u)
    for i in range(5):
        u = u + 0.3 * np.sin(u) * m.lazy
    return np.sum(u)


@program
def a_property_that_counts(u):
    m = Model(u)
    for i in range(5):
        u = u + m.rate * np.sin(u)
    return np.sum(u) * m.calls


@program
def a_getitem_that_counts(u):
    m = Model(u)
    for i in range(5):
        u = u + m[i] * np.sin(u)
    return np.sum(u) * m.calls


@program
def a_len_that_counts(u):
    m = Model(u)
    for i in range(5):
        u = u + len(m) * 0.1 * np.sin(u)
    return np.sum(u)


@program
def a_contains_that_counts(u):
    m = Model(u)
    for i in range(5):
        u = u * 0.9 if i in m else np.sin(u)
    return np.sum(u)


@program
def an_iter_that_counts(u):
    m = Model(u)
    for i in range(5):
        u = u + sum([one * np.sin(u) for one in m])
    return np.sum(u)


@program
def an_inner_loop_over_an_object_that_counts(u):
    m = Model(u)
    for i in range(5):
        for one in m:
            u = u + one * np.sin(u)
    return np.sum(u)


@program
def a_comparison_that_counts(u):
    m = Model(u)
    for i in range(7):
        u = u * 0.9 if m < i else np.sin(u)
    return np.sum(u)


@program
def an_operator_that_counts(u):
    m = Model(u)
    for i in range(7):
        u = np.sin(m + u)
    return np.sum(u)


@program
def a_bound_method_under_a_name(u):
    m = Stepper(0.2)
    advance = m.__call__
    for i in range(6):
        u = advance(u)
    return np.sum(u) + m.t


@program
def a_bound_method_in_a_dict(u):
    m = Stepper(0.2)
    how = {"advance": m.__call__}
    for i in range(6):
        u = how["advance"](u)
    return np.sum(u) + m.t * m.n


@program
def a_function_with_attributes(u):
    def step(v):
        step.calls += 1
        return v + 0.1 * step.calls * np.sin(v)

    step.calls = 0
    for i in range(5):
        u = step(u)
    return np.sum(u) * step.calls


def counting(v):
    counting.calls += 1
    return v + 0.1 * counting.calls * np.sin(v)


@program
def a_global_function_with_attributes(u):
    counting.calls = 0
    for i in range(5):
        u = counting(u)
    return np.sum(u) * counting.calls


@program
def a_default_argument_that_remembers(u):
    def step(v, seen=[]):
        seen.append(1.0)
        return v + 0.1 * len(seen) * np.sin(v)

    for i in range(5):
        u = step(u)
    return np.sum(u)


@program
def a_keyword_default_that_remembers(u):
    def step(v, *, memo={}):
        memo["last"] = memo.get("last", 0.0) + np.sum(v)
        return 0.9 * np.sin(v) + 0.01 * memo["last"]

    for i in range(5):
        u = step(u)
    return np.sum(u)


@program
def an_attribute_of_a_local_class(u):
    class Solver:
        count = 0

        def step(self, v):
            Solver.count += 1
            return v + 0.1 * Solver.count * np.sin(v)

    s = Solver()
    for i in range(5):
        u = s.step(u)
    return np.sum(u) * Solver.count


@program
def a_list_of_a_local_class(u):
    class Solver:
        log = []

        @classmethod
        def step(cls, v):
            cls.log.append(np.sum(v))
            return v + 0.1 * np.sin(v) * cls.log[0]

    for i in range(5):
        u = Solver.step(u)
    return np.sum(u) + sum(Solver.log)


# Exceptions that the program handles.


@program
def a_while_that_renews_its_array(u):
    x, i = u * 1.0, 0
    while i < 5:
        i += 1
        y = np.sum(x)
        x = np.ones(4)
        x[0] = u[0]
    return y


def bump(x, i):
    if i == 7:
        raise ValueError("no")
    x[0] += 0.5


@program
def a_write_in_a_try(u):
    x = u * 1.0
    for i in range(5):
        try:
            bump(x, i)
        except ValueError:
            pass
        x = np.sin(x) * 1.2
    return np.sum(x)


@program
def a_try_that_catches_all(u):
    x, failures = u * 1.0, 0
    for i in range(9):
        try:
            bump(x, i)
            x = x * 1.01
        except Exception:
            failures += 1
    return np.sum(x**2) * (1 + failures)


# Things that were raw errors.


@program
def a_recursive_function(u):
    def power(v, n):
        if n == 0:
            return np.ones(4)
        return v * power(v, n - 1)

    for i in range(4):
        u = 0.5 * power(u, 3) + 0.3
    return np.sum(u)


def depth(u, n):
    for i in range(2):
        u = np.sin(u) + i
        if n:
            u = depth(u, n - 1)
    return u


@program
def a_global_recursion_with_a_loop(u):
    for i in range(3):
        u = depth(u, 2)
    return np.sum(u)


@program
def a_recursive_program(u, n=2):
    for i in range(2):
        u = np.sin(u) + 0.1 * i
        if n:
            u = u + a_recursive_program(u, n - 1)
    return np.sum(u)


@program
def a_generator_that_ends(u):
    drive = iter([0.1, 0.2, 0.3])
    for i in range(5):
        try:
            u = u + next(drive) * np.sin(u)
        except StopIteration:
            u = u * 0.9
    return np.sum(u)


@program
def a_generator_function_beside_the_loop(u):
    def schedule():
        rate = 1.0
        while True:
            yield rate
            rate *= 0.5

    rates = schedule()
    for i in range(5):
        u = u + next(rates) * np.sin(u)
    return np.sum(u)


@program
def a_plain_array_that_is_written_into_after_a_product(u):
    w, total = np.ones(4), 0.0
    for i in range(5):
        total = total + np.sum(np.sin(u * w))
        w[i % 4] += 0.5
    return total


@program
def a_plain_array_that_is_written_into_in_an_object(u):
    s = SimpleNamespace(w=np.ones(4))
    for i in range(5):
        u = np.sin(u * s.w)
        s.w[i % 4] += 0.5
    return np.sum(u)


@program
def a_window_that_is_written_into(u):
    w = np.sin(u)
    for i in range(3):
        for k in range(2):
            t = w[:2]
            t[0] = u[k]
        w = w * 1.1
    return np.sum(w)


@program
def a_list_in_itself(u):
    ring = [u]
    ring.append(ring)
    for i in range(4):
        ring[0] = np.sin(ring[0])
        u = ring[1][1][0] + u
    return np.sum(u)


@program
def parents_and_children(u):
    root, leaf = Box(), Box()
    root.child, leaf.parent, leaf.x = leaf, root, u
    for i in range(4):
        leaf.parent.child.x = np.sin(leaf.x) + i
    return np.sum(root.child.x)


@program
def a_huge_number(u):
    n = 10**400
    for i in range(4):
        u = np.sin(u) + (n % 7)
        n = n * 3 + 1
    return np.sum(u) + n % 5


# Containers.


@program
def history_lists(u):
    xs, es = [u], []
    for i in range(6):
        xs.append(xs[-1] + 0.1 * np.sin(xs[-1]))
        es.append(np.sum(xs[-1] ** 2))
    return sum(es) + np.sum(xs[3])


@program
def a_dict_of_arrays(u):
    fields = {"h": u, "v": 0 * u}
    for i in range(6):
        fields = {"h": fields["h"] + 0.1 * fields["v"], "v": fields["v"] - 0.1 * np.sin(fields["h"])}
    return np.sum(fields["h"] * fields["v"])


@program
def a_dict_of_arrays_in_place(u):
    fields = dict(h=u * 1.0, v=0 * u)
    for i in range(6):
        fields["h"] += 0.1 * fields["v"]
        fields["v"] -= 0.1 * np.sin(fields["h"])
    return np.sum(fields["h"] * fields["v"])


class State(NamedTuple):
    x: object
    t: float


@program
def a_named_tuple(u):
    s = State(u, 0.0)
    for i in range(6):
        s = s._replace(x=s.x + 0.1 * np.cos(s.t) * s.x, t=s.t + 0.1)
    return np.sum(s.x) + s.t


@program
def a_window_of_the_past(u):
    past = deque([u, u * 0.5], maxlen=2)
    for i in range(6):
        past.append(np.sin(past[0]) + 0.5 * past[1])
    return np.sum(past[0] * past[1])


@program
def counters_and_sets(u):
    seen, counts, order = set(), Counter(), OrderedDict()
    for i in range(8):
        key = i * i % 5
        counts[key] += 1
        if key in seen:
            u = np.sin(u) * counts[key]
        else:
            seen.add(key)
            order[key] = u
        u = u + 0.01 * len(seen)
    return np.sum(u) + sum(np.sum(one) for one in order.values()) * max(counts.values())


class Particle:
    __slots__ = ("hits", "q", "v")

    def __init__(self, q):
        self.q, self.v, self.hits = q, 0 * q, 0


@program
def slots(u):
    p = Particle(u)
    for i in range(6):
        p.v = p.v - 0.1 * np.sin(p.q)
        p.q = p.q + 0.1 * p.v
        if i % 2:
            p.hits += 1
    return np.sum(p.q * p.v) * p.hits


class Forwarding:
    def __init__(self, inner):
        self.inner, self.asked = inner, 0

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        self.asked += 1
        return getattr(self.inner, name)


@program
def a_class_with_getattr(u):
    f = Forwarding(SimpleNamespace(gain=0.9))
    for i in range(5):
        u = np.sin(u) * f.gain + f.asked * 0.01
    return np.sum(u)


class AttrDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


@program
def a_dict_with_attributes(u):
    s = AttrDict(x=u, t=0.0)
    for i in range(5):
        s.x = s.x + 0.1 * np.cos(s.t) * s.x
        s["t"] += 0.1
    return np.sum(s.x) + s.t


class History(list):
    def record(self, value):
        self.append(value)
        self.last = value


@program
def a_list_of_ones_own(u):
    h = History()
    for i in range(5):
        u = np.sin(u)
        h.record(np.sum(u))
    return sum(h) + h.last


@program
def a_user_dict(u):
    d = UserDict(x=u)
    for i in range(5):
        d["x"] = np.sin(d["x"])
        d[i] = i
    return np.sum(d["x"]) * len(d)


@program
def a_chain_map(u):
    d = ChainMap({}, {"x": u})
    for i in range(5):
        d["x"] = np.sin(d["x"])
    return np.sum(d["x"])


@program
def a_nonlocal_counter(u):
    n = 0

    def count():
        nonlocal n
        n += 1
        return n

    for i in range(5):
        u = np.sin(u) + 0.1 * count()
    return np.sum(u) * n


def make_clock(dt):
    t = 0.0

    def tick():
        nonlocal t
        t += dt
        return t

    return tick


@program
def a_clock_made_by_a_function(u):
    tick = make_clock(0.1)
    for i in range(5):
        u = u + 0.1 * np.cos(tick()) * u
    return np.sum(u) + tick()


@program
def a_memo_made_by_a_function(u):
    def memoised(f):
        cache = {}

        def g(k):
            if k not in cache:
                cache[k] = f(k)
            return cache[k]

        return g

    power = memoised(lambda k: u**k)
    for i in range(6):
        u = 0.5 * np.sin(u) + 0.1 * power(i % 3)
    return np.sum(u)


@program
def an_lru_cache(u):
    @functools.lru_cache(None)
    def weight(k):
        return 1.0 / (1 + k)

    for i in range(6):
        u = np.sin(u) + weight(i % 3)
    return np.sum(u)


@program
def a_counter_of_itertools(u):
    ids = itertools.count()
    for i in range(5):
        u = np.sin(u) + 0.1 * next(ids)
    return np.sum(u)


@program
def a_cycle_of_itertools(u):
    signs = itertools.cycle([1.0, -0.5])
    for i in range(5):
        u = np.sin(u) * next(signs)
    return np.sum(u)


# Optimisers.


class Adam:
    def __init__(self, params, lr=0.05):
        self.params, self.lr, self.t = params, lr, 0
        self.m = [0 * p for p in params]
        self.v = [0 * p for p in params]

    def step(self, grads):
        self.t += 1
        for i, (p, g) in enumerate(zip(self.params, grads)):
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.99 * self.v[i] + 0.01 * g**2
            update = (self.m[i] / (1 - 0.9**self.t)) / (np.sqrt(self.v[i] / (1 - 0.99**self.t)) + 1e-3)
            self.params[i] = p - self.lr * update


@program
def adam_with_lists(u):
    params = [u * 1.0, u[:2] * 0.5]
    opt = Adam(params)
    for i in range(8):
        grads = [2 * params[0] + np.sin(u), params[1] - u[2:]]
        opt.step(grads)
    return np.sum(opt.params[0] ** 2) + np.sum(opt.params[1])


class Momentum:
    def __init__(self, lr=0.1, beta=0.9):
        self.lr, self.beta, self.velocity, self.history = lr, beta, None, []

    def __call__(self, w, g):
        self.velocity = g if self.velocity is None else self.beta * self.velocity + g
        self.history.append(float(self.lr))
        self.lr *= 0.95
        return w - self.lr * self.velocity


@program
def momentum_in_a_callable(u):
    opt, w = Momentum(), u * 1.0
    for i in range(7):
        w = opt(w, np.cos(w) * u)
    return np.sum(w) + sum(opt.history)


@program
def a_schedule_of_rates(u):
    class Schedule:
        def __init__(self):
            self.k = 0

        def __float__(self):
            self.k += 1
            return 0.1 / self.k

    rate, w = Schedule(), u
    for i in range(6):
        w = w - float(rate) * np.sin(w)
    return np.sum(w)


# Time steppers.


@dataclass
class Heat:
    T: object
    t: float = 0.0
    log: list = field(default_factory=list)
    stats: dict = field(default_factory=dict)

    def step(self, dt):
        self.T[1:-1] += dt * (self.T[2:] - 2 * self.T[1:-1] + self.T[:-2])
        self.t += dt
        self.log.append(np.max(self.T))
        self.stats["energy"] = np.sum(self.T**2)


@program
def a_dataclass_that_logs(u):
    heat = Heat(u * 1.0)
    while heat.t < 0.95:
        heat.step(0.1)
    return np.sum(heat.T) + sum(heat.log) + heat.stats["energy"]


class Adaptive:
    def __init__(self):
        self.h, self.rejected, self.accepted = 0.3, 0, 0

    def step(self, f, y):
        while True:
            big = y + self.h * f(y)
            half = y + 0.5 * self.h * f(y)
            small = half + 0.5 * self.h * f(half)
            if np.max(np.abs(big - small)) > 0.01:
                self.h *= 0.5
                self.rejected += 1
                continue
            self.accepted += 1
            self.h *= 1.2
            return small


@program
def an_adaptive_step(u):
    solver = Adaptive()
    for i in range(8):
        u = solver.step(lambda y: np.sin(3 * y), u)
    return np.sum(u) * solver.accepted + solver.rejected


@program
def a_number_of_rejections_that_returns_to_nought(u):
    class Retry:
        failed = 0

        def dt(self, i):
            if i == 3:
                self.failed = 2
            elif self.failed:
                self.failed -= 1
            return 0.1 / 2**self.failed

    retry = Retry()
    for i in range(9):
        u = u + retry.dt(i) * np.sin(u)
    return np.sum(u)


@program
def a_flag_that_toggles(u):
    class Flip:
        up = False

        def __bool__(self):
            self.up = not self.up
            return self.up

    flip = Flip()
    for i in range(8):
        u = np.sin(u) if flip else u * 1.1
    return np.sum(u)


@program
def leapfrog_with_an_object(u):
    class Body:
        def __init__(self, q):
            self.q, self.p, self.energy = q, np.zeros(4), []

        def kick(self, h):
            self.p = self.p - h * np.sin(self.q)
            return self

        def drift(self, h):
            self.q = self.q + h * self.p
            self.energy.append(np.sum(self.p**2) / 2 - np.sum(np.cos(self.q)))
            return self

    body = Body(u)
    for i in range(8):
        body.kick(0.05).drift(0.1).kick(0.05)
    return sum(body.energy) + np.sum(body.q)


@program
def adams_bashforth_with_memory(u):
    memory = []

    def ab2(y, h):
        memory.append(np.sin(y))
        if len(memory) < 2:
            return y + h * memory[-1]
        if len(memory) > 2:
            memory.pop(0)
        return y + h * (1.5 * memory[-1] - 0.5 * memory[-2])

    for i in range(8):
        u = ab2(u, 0.1)
    return np.sum(u)


@program
def a_grid_that_counts_its_sweeps(u):
    class Grid:
        def __init__(self, x):
            self.x, self.sweeps = x, 0

        def __setitem__(self, where, value):
            self.sweeps += 1
            self.x = self.x + 0.0
            self.x[where] = value

        def __getitem__(self, where):
            return self.x[where]

    grid = Grid(u * 1.0)
    for i in range(6):
        grid[i % 4] = grid[(i + 1) % 4] * 0.5 + grid.sweeps
    return np.sum(grid.x)


# Filters, samplers, generators of random numbers.


class Kalman:
    def __init__(self, x, P):
        self.x, self.P, self.loglik, self.innovations = x, P, 0.0, []

    def predict(self, F, Q):
        self.x = F @ self.x
        self.P = F @ self.P @ F.T + Q

    def update(self, z, R):
        y = z - self.x
        S = self.P + R
        K = self.P @ np.linalg.inv(S)
        self.x = self.x + K @ y
        self.P = (np.eye(4) - K) @ self.P
        self.loglik = self.loglik - 0.5 * (y @ np.linalg.solve(S, y) + np.log(np.linalg.det(S)))
        self.innovations.append(y)


@program
def a_kalman_filter(u):
    kf = Kalman(u, np.eye(4))
    F, Q, R = np.eye(4) + 0.1 * np.diag(np.ones(3), 1), 0.1 * np.eye(4), 0.5 * np.eye(4)
    for i in range(5):
        kf.predict(F, Q)
        kf.update(np.sin(np.arange(4.0) + i), R)
    return kf.loglik + sum(np.sum(one**2) for one in kf.innovations)


class Chain:
    def __init__(self, x, seed):
        self.x, self.rng, self.accepted, self.samples = x, np.random.default_rng(seed), 0, []

    def step(self, scale):
        proposal = self.x + scale * self.rng.normal(size=4)
        if np.log(self.rng.uniform()) < np.sum(self.x**2) - np.sum(proposal**2):
            self.x = proposal
            self.accepted += 1
        self.samples.append(self.x)


@program
def a_markov_chain(u):
    chain = Chain(u, 3)
    for i in range(12):
        chain.step(0.3)
    return sum(np.sum(np.sin(one)) for one in chain.samples) * chain.accepted


@program
def an_own_generator_of_random_numbers(u):
    class Lcg:
        def __init__(self, seed):
            self.state = seed

        def __call__(self):
            self.state = (1103515245 * self.state + 12345) % 2**31
            return self.state / 2**31

        __next__ = __call__

    rng = Lcg(7)
    for i in range(6):
        u = u + 0.1 * rng() * np.sin(u) + next(rng)
    return np.sum(u)


@program
def the_method_of_a_generator_under_a_name(u):
    normal = np.random.default_rng(1).normal
    for i in range(6):
        u = np.sin(u) + 0.1 * normal(size=4)
    return np.sum(u)


@program
def pythons_own_random_numbers(u):
    rng = random.Random(4)
    for i in range(6):
        u = np.sin(u) * rng.choice([0.5, 1.0, 1.5]) + rng.gauss(0, 0.1)
    return np.sum(u)


GENERATOR = np.random.default_rng(0)


def noise():
    return GENERATOR.normal(size=4)


@program
def a_global_generator(u):
    GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state
    for i in range(6):
        u = np.sin(u) + 0.1 * noise()
    return np.sum(u)


# Logs, callbacks, early stopping, memory.


class Callback:
    def __init__(self):
        self.losses, self.best = [], None

    def on_step(self, i, loss):
        self.losses.append(loss)
        if self.best is None or loss < self.best:
            self.best = loss


@program
def callbacks(u):
    hooks = [Callback(), Callback()]
    w = u
    for i in range(6):
        w = w - 0.1 * np.sin(w)
        for hook in hooks:
            hook.on_step(i, np.sum(w**2))
    return sum(hooks[0].losses) + hooks[1].best


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.bad, self.best = patience, 0, np.inf

    def __call__(self, loss):
        if loss < self.best - 0.05:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


@program
def early_stopping(u):
    stop, w = EarlyStopping(3), u * 2.0
    for i in range(50):
        w = w - 0.2 * np.sin(w)
        if stop(np.sum(w**2)):
            break
    return np.sum(w) + stop.best + i


@program
def a_meter_of_means(u):
    class Meter:
        def __init__(self):
            self.n, self.mean, self.m2 = 0, 0.0, 0.0

        def __iadd__(self, x):
            self.n += 1
            d = x - self.mean
            self.mean = self.mean + d / self.n
            self.m2 = self.m2 + d * (x - self.mean)
            return self

    meter = Meter()
    for i in range(6):
        u = np.sin(u) + 0.1
        meter += np.sum(u)
    return meter.mean + meter.m2


@program
def a_logger_with_a_context(u):
    class Timer:
        def __init__(self):
            self.depth, self.entries = 0, []

        def __enter__(self):
            self.depth += 1
            return self

        def __exit__(self, *exc):
            self.depth -= 1
            self.entries.append(self.depth)

    timer = Timer()
    for i in range(5):
        with timer:
            u = np.sin(u) * (1 + timer.depth)
    return np.sum(u) * len(timer.entries)


class Phase(Enum):
    WARM = 1
    RUN = 2


@program
def a_machine_with_phases(u):
    class Machine:
        phase, left = Phase.WARM, 3

        def step(self, x):
            self.left -= 1
            if self.left == 0:
                self.phase, self.left = (Phase.RUN, 2) if self.phase is Phase.WARM else (Phase.WARM, 3)
            return np.sin(x) if self.phase is Phase.RUN else x * 1.1

    machine = Machine()
    for i in range(11):
        u = machine.step(u)
    return np.sum(u)


@program
def observers(u):
    class Subject:
        def __init__(self):
            self.watchers, self.x = [], u

        def set(self, x):
            self.x = x
            for watcher in self.watchers:
                watcher(x)

    class Total:
        def __init__(self):
            self.value = 0.0

        def __call__(self, x):
            self.value = self.value + np.sum(x)

    subject, total, seen = Subject(), Total(), []
    subject.watchers += [total, seen.append]
    for i in range(6):
        subject.set(np.sin(subject.x) + 0.1)
    return total.value + np.sum(seen[2])


@program
def a_decorated_step(u):
    def counted(f):
        @functools.wraps(f)
        def inner(*args):
            inner.calls += 1
            return f(*args) * inner.calls

        inner.calls = 0
        return inner

    @counted
    def step(v):
        return 0.5 * np.sin(v)

    for i in range(5):
        u = step(u)
    return np.sum(u) + step.calls


@program
def a_partial_with_state(u):
    cache = {}

    def step(memory, v):
        memory["n"] = memory.get("n", 0) + 1
        return np.sin(v) * memory["n"]

    advance = functools.partial(step, cache)
    for i in range(5):
        u = advance(u)
    return np.sum(u) * cache["n"]


@program
def a_method_of_an_operator(u):
    s = Stepper(0.1)
    call = operator.methodcaller("__call__", u)
    for i in range(4):
        u = u + call(s)
    return np.sum(u) + s.n


@program
def a_map_over_objects(u):
    steppers = [Stepper(0.1), Stepper(0.2), Stepper(0.3)]
    for i in range(4):
        u = sum(map(lambda s: s(u), steppers)) / 3
    return np.sum(u) + sum(s.t for s in steppers)


@program
def a_tree_of_objects(u):
    class Node:
        def __init__(self, children=()):
            self.children, self.visits = list(children), 0

        def evaluate(self, x):
            self.visits += 1
            if not self.children:
                return np.sin(x) / self.visits
            return sum(child.evaluate(x) for child in self.children)

    tree = Node([Node(), Node([Node(), Node()])])
    for i in range(5):
        u = tree.evaluate(u)
    return np.sum(u)


@program
def an_object_that_replaces_itself(u):
    s = SimpleNamespace(x=u, n=0)
    for i in range(6):
        s = SimpleNamespace(x=np.sin(s.x) + s.n, n=s.n + 1)
    return np.sum(s.x)


CACHE = {}


def coefficient(k):
    if k not in CACHE:
        CACHE[k] = 1.0 / (k + 1)
    return CACHE[k]


@program
def a_global_cache_that_is_cold(u):
    CACHE.clear()
    for i in range(6):
        u = np.sin(u) + coefficient(i % 3)
    return np.sum(u)


COUNT = 0


def globally():
    global COUNT
    COUNT += 1
    return COUNT


@program
def a_global_counter(u):
    global COUNT
    COUNT = 0
    for i in range(6):
        u = np.sin(u) * globally()
    return np.sum(u)


STEPPER = Stepper(0.1)


@program
def a_global_stepper(u):
    STEPPER.t, STEPPER.n = 0.0, 0
    for i in range(6):
        u = STEPPER(u)
    return np.sum(u) * STEPPER.n


class Registry:
    calls = 0
    log = []

    def step(self, v):
        Registry.calls += 1
        self.log.append(Registry.calls)
        return np.sin(v) * len(self.log)


@program
def attributes_of_a_global_class(u):
    Registry.calls = 0
    Registry.log.clear()
    r = Registry()
    for i in range(6):
        u = r.step(u)
    return np.sum(u)


Pair = namedtuple("Pair", "a b")


@program
def a_pair_that_holds_a_list(u):
    p = Pair(u, [])
    for i in range(5):
        p.b.append(np.sum(p.a) * i)
        p = p._replace(a=np.sin(p.a))
    return sum(p.b)


@program
def buffers_that_are_filled(u):
    out = np.zeros((6, 4))
    un = np.empty_like(u)
    for i in range(6):
        un[1:] = np.sin(u[:-1]) + 0.1 * i
        un[0] = u[-1]
        u = un * 1.0
        out[i] = u
    return np.sum(out**2)


@program
def two_buffers_in_turn(u):
    a, b = u.copy(), np.empty_like(u)
    for i in range(6):
        b[:] = np.sin(a) + 0.1 * a[::-1]
        a, b = b, a
    return np.sum(a) + np.sum(b)


@program
def a_complex_wave(u):
    psi = u + 1j * u[::-1]
    phase = np.exp(1j * np.arange(4.0))
    for i in range(5):
        psi = np.fft.ifft(phase * np.fft.fft(psi)) * (1 - 0.1j)
    return np.sum(np.abs(psi) ** 2)


@program
def newton_until_it_is_close(u):
    info = {"iterations": 0, "residuals": []}
    x = np.ones(4)
    r = x**2 - np.abs(u) - 1
    while np.max(np.abs(r)) > 1e-8:
        x = x - r / (2 * x)
        r = x**2 - np.abs(u) - 1
        info["iterations"] += 1
        info["residuals"].append(np.sum(r))
    return np.sum(x) + info["iterations"]


@program
def a_queue_of_events(u):
    import heapq

    events = [(0.0, 0), (0.1, 1)]
    clock = 0.0
    for i in range(8):
        clock, kind = heapq.heappop(events)
        u = np.sin(u) + clock if kind else u * 1.05
        heapq.heappush(events, (clock + 0.2 + 0.05 * kind, (kind + 1) % 2))
    return np.sum(u) + clock


@program
def delays(u):
    class Delay:
        def __init__(self, n, first):
            self.buffer, self.at = [first] * n, 0

        def __call__(self, x):
            old, self.buffer[self.at] = self.buffer[self.at], x
            self.at = (self.at + 1) % len(self.buffer)
            return old

    delay = Delay(3, u * 0.1)
    for i in range(9):
        u = np.sin(u) + 0.5 * delay(u)
    return np.sum(u)


@program
def a_controller(u):
    class PID:
        integral, last = 0.0, None

        def __call__(self, error):
            self.integral = self.integral + error
            d = 0.0 if self.last is None else error - self.last
            self.last = error
            return 0.5 * error + 0.1 * self.integral + 0.05 * d

    pid = PID()
    for i in range(8):
        u = u + 0.1 * pid(1.0 - u)
    return np.sum(u * pid.integral)


@program
def a_recurrent_cell(u):
    class Cell:
        def __init__(self, w):
            self.w, self.h, self.trace = w, np.zeros(4), []

        def __call__(self, x):
            self.h = np.tanh(self.w * self.h + x)
            self.trace.append(self.h)
            return self.h

    cell = Cell(u)
    total = 0.0
    for x in np.sin(np.arange(24.0)).reshape(6, 4):
        total = total + np.sum(cell(x))
    return total + np.sum(cell.trace[2])


@program
def layers_with_moving_statistics(u):
    class Norm:
        def __init__(self):
            self.running, self.momentum = 0.0, 0.9

        def forward(self, x):
            mean = np.mean(x)
            self.running = self.momentum * self.running + (1 - self.momentum) * mean
            return x - self.running

    layers = [Norm(), Norm()]
    for i in range(5):
        for layer in layers:
            u = np.tanh(layer.forward(u))
    return np.sum(u) + layers[1].running


@program
def a_simulation_with_parts(u):
    class Clock:
        now = 0.0

        def tick(self, dt):
            self.now += dt

    class World:
        def __init__(self, x):
            self.clock, self.x, self.parts = Clock(), x, {}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.clock.tick(0.1)

        def add(self, name, f):
            self.parts[name] = f

    world = World(u)
    world.add("decay", lambda w: -0.1 * w.x)
    world.add("drive", lambda w: np.cos(w.clock.now))
    for i in range(8):
        with world as w:
            w.x = w.x + 0.1 * sum(f(w) for f in w.parts.values())
    return np.sum(world.x) + world.clock.now


def bump_either(x, i):
    x[0] += 0.5


@program
def a_write_in_a_try_into_first_one_array_then_another(u):
    o, x, k = SimpleNamespace(p=u * 2.0), u * 1.0, 0
    for i in range(6):
        if k % 2:
            x = o.p
        try:
            bump_either(x, i)
        except Exception:
            pass
        k = (k * 3 + 1) % 7
    return np.sum(x * 1.5)


def kicked_late(x, i):
    if i > 3:
        x[0] += 0.5
    return x


@program
def a_callee_that_writes_late(u):
    log, x = [], u * 1.0
    for i in range(9):
        x = np.sin(x) + len(log[:2])
        log.append(i)
        y = kicked_late(x, i)
        x = x + kicked_late(x, i) + 0.1 * y
        kicked_late(x, i)
    return np.sum(x)


@program
def a_callee_that_writes_late_into_the_state(u):
    s = SimpleNamespace(n=0)
    x = u * 1.0
    for i in range(9):
        kicked_late(x, i)
        s.n += 1
        x = np.sin(x) * s.n
    return np.sum(x)


# Objects that hash by what they are, caches, and what can't be looked into.


@program
def a_set_of_those_alive(u):
    bodies = [SimpleNamespace(x=u * k, n=0) for k in (0.5, 1.0, 1.5)]
    for body in bodies:
        body.key = Particle(u)
    alive = {body.key for body in bodies}
    for i in range(6):
        for body in bodies:
            if body.key in alive:
                body.x = np.sin(body.x) + 0.1
                body.n += 1
                if body.n > 3:
                    alive.discard(body.key)
    return sum(np.sum(body.x) for body in bodies) + len(alive)


@program
def a_set_of_what_the_loop_makes(u):
    bodies, marked = [], set()
    for i in range(6):
        bodies.append(Particle(u))
        if i % 2:
            marked.add(bodies[-1])
        u = np.sin(u) + 0.1 * sum(one in marked for one in bodies)
    return np.sum(u)


@program
def a_dict_by_what_the_loop_makes(u):
    bodies, weight = [], {}
    for i in range(6):
        bodies.append(Particle(u))
        weight[bodies[-1]] = 0.1 * i
        u = np.sin(u) + 0.1 * sum(weight[one] for one in bodies)
    return np.sum(u)


@program
def weak_references_to_what_the_loop_makes(u):
    keep, cache = [], weakref.WeakValueDictionary()
    for i in range(6):
        if i % 3 not in cache:
            keep.append(Stepper(0.1 * len(keep)))
            cache[i % 3] = keep[-1]
        u = cache[i % 3](np.sin(u))
    return np.sum(u)


@program
def a_user_list(u):
    log = UserList()
    for i in range(5):
        u = np.sin(u)
        log.append(u)
    return sum(np.sum(one) for one in log)


@program
def a_user_dict_in_an_object(u):
    s = SimpleNamespace(d=UserDict(x=0.0))
    for i in range(5):
        u = np.sin(u)
        s.d["x"] = s.d["x"] + u
    return np.sum(s.d["x"])


class Spectral:
    def __init__(self, k):
        self.k = k

    @functools.lru_cache  # noqa: B019
    def basis(self, n):
        return np.sin(n * self.k)


@program
def remembered_results_of_a_method(u):
    s, x = Spectral(u), np.ones(4)
    for i in range(6):
        x = 0.5 * np.sin(x) + s.basis(i % 3)
    return np.sum(x)


@program
def remembered_results_of_a_clock(u):
    clock = [0.0]

    @functools.lru_cache(maxsize=2)
    def rate(k):
        return clock[0] * k + 0.1

    for i in range(8):
        u = np.sin(u) + rate(i % 3)
        clock[0] += 1.0
    return np.sum(u)


@program
def remembered_random_numbers(u):
    rng = np.random.default_rng(0)

    @functools.cache
    def disorder(site):
        return rng.normal()

    for i in range(8):
        u = np.sin(u) + disorder(i % 3) + 0.1 * rng.normal()
    return np.sum(u)


@program
def two_generators_of_the_same_bits(u):
    bits = np.random.PCG64(3)
    a, b = np.random.Generator(bits), np.random.Generator(bits)
    for i in range(5):
        u = np.sin(u) + 0.1 * a.normal() + 0.2 * b.uniform()
    return np.sum(u)


@program
def objects_in_an_array(u):
    agents = np.array([Stepper(0.1), Stepper(0.2)], dtype=object)
    for i in range(6):
        u = agents[i % 2](u)
    return np.sum(u)


@program
def an_attribute_of_a_member_of_an_enum(u):
    phase = Phase.RUN
    phase.up = False
    for i in range(8):
        phase.up = not phase.up
        u = np.sin(u) + 0.3 * phase.up
    return np.sum(u)


@program
def a_variable_of_the_thread(u):
    local = threading.local()
    local.n = 0
    for i in range(5):
        local.n += 1
        u = np.sin(u) + 0.1 * local.n
    return np.sum(u)


@program
def a_generator_in_an_object(u):
    def rates():
        while True:
            yield 0.1
            yield 0.2

    s = SimpleNamespace(rates=rates())
    for i in range(8):
        u = np.sin(u) + next(s.rates)
    return np.sum(u)


@program
def an_iterator_in_an_object(u):
    class Source:
        def __init__(self):
            self.items = iter([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])

        def get(self):
            return next(self.items)

    source = Source()
    for i in range(6):
        u = np.sin(u) + source.get()
    return np.sum(u) + source.get()


@program
def an_object_that_changes_its_class(u):
    class Explicit:
        def step(self, x):
            return np.sin(x)

    class Implicit:
        def step(self, x):
            return x * 0.9

    solver = Explicit()
    for i in range(7):
        u = solver.step(u) + 0.1
        solver.__class__ = Implicit if i % 3 else Explicit
    return np.sum(u) * (type(solver) is Explicit)
