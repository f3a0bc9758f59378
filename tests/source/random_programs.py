"""Random programs: they alias, write in place, append, break, raise and nest at random.

Some of what they change they do not name: clocks in objects, contents of a ``defaultdict``, counters behind a
property, an operator or a length, defaults, attributes of functions and classes, globals, generators.
"""

from __future__ import annotations

import linecache
from collections import Counter, defaultdict, deque  # noqa: F401  # in the programs
from functools import cached_property
from random import Random

import numpy

ARRAYS = ["u", "v", "w"]


def bump(array):
    array += 0.25


def pushed(values, one):
    values.append(one * 0.5)
    return values[0]


class Body:
    def __init__(self, p):
        self.p, self.n = p, 0

    def move(self, by):
        self.p[1:] += by[1:]
        self.n += 1
        return self.p

    def renew(self, by):
        self.p = self.p * 0.5 + by


class Clock:
    """Whatever is done with it, it goes on."""

    ticks_of_all = 0

    def __init__(self, first):
        self.t, self.first, self.kept = 0, first, []

    def _tick(self):
        self.t += 1
        return self.t

    def __call__(self, one):
        Clock.ticks_of_all += 1
        return one * (0.5 + 0.1 * (self._tick() % 3))

    def __getitem__(self, k):
        return 0.1 * ((self._tick() + k) % 5)

    def __len__(self):
        return self._tick() % 4 + 1

    def __iter__(self):
        return iter(range(self._tick() % 3))

    def __contains__(self, k):
        return (self._tick() + k) % 2 == 0

    def __lt__(self, other):
        return self._tick() % 3 == 0

    def __enter__(self):
        self.t += 2
        return self

    def __exit__(self, *_):
        self.t -= 1

    @property
    def rate(self):
        return 0.25 / (1 + self._tick() % 3)

    @cached_property
    def power(self):
        return self.first * 0.5

    @property
    def lazy(self):
        if not self.kept:
            self.kept.append(self.first * 0.25)
        return self.kept[0]


def remembering(one, seen=[]):  # noqa: B006
    seen.append(1)
    return one * (0.9 + 0.01 * len(seen))


def counting(one):
    counting.calls = getattr(counting, "calls", 0) + 1
    return one * (1.0 + 0.01 * counting.calls)


class Slotted:
    __slots__ = ("n", "q")

    def __init__(self, q):
        self.q, self.n = q, 0

    def kick(self, by):
        self.q = self.q + 0.1 * by
        self.n += 1
        return self.q


def picky(array, k):
    """Writes, or raises before it writes, or after."""
    if k % 3 == 1:
        raise ValueError(k)
    array[0] += 0.5
    if k % 3 == 2:
        raise ValueError(k)


NOISE = numpy.random.default_rng(0)


def noise():
    return 0.1 * NOISE.normal()


def reset():
    """Everything that programs change outside of themselves as it was."""
    global NOISE
    NOISE = numpy.random.default_rng(0)
    remembering.__defaults__[0].clear()
    vars(counting).clear()
    Clock.ticks_of_all = 0


class Maker:
    """Writes the source of one function."""

    def __init__(self, random: Random) -> None:
        self.random, self.lines, self.loops, self.size = random, [], 0, 0

    def pick(self, *choices):
        return self.random.choice(choices)

    def name(self):
        return self.random.choice(ARRAYS)

    def view(self, name):
        """Another array that looks into the same memory."""
        return f"{name}[::-1]"

    def expression(self, depth=2):
        if depth == 0 or self.random.random() < 0.2:
            return self.pick(
                *ARRAYS, "a", "b[k % 2]", "o.p", "d['m']", "xs[-1]", "xs[0]", "t", "z.real", "c.lazy", "g.q"
            )
        one, two = self.expression(depth - 1), self.expression(depth - 1)
        return self.pick(
            f"np.tanh({one})",
            f"(0.5 * {one} + {two})",
            f"(np.multiply({one}, a) - {two})",
            f"({one} * 0.9)",
            f"np.sin({one} + k)",
            f"c({one})",
            f"(z * {one}).imag",
            f"({one} * c.rate)",
        )

    def simple(self):
        name, other, value = self.name(), self.name(), self.expression()
        return self.pick(
            f"{name} = {value}",
            f"{name} = {value}",
            f"{name} = {value}",
            f"{name} += {value}",
            f"{name}[1:] = {value}[1:]",
            f"{name}[k % 4] *= 0.5",
            f"{name} = {other}",
            f"{name} = np.copy({other})",
            f"{name} = {self.view(other)}",
            f"{name}, {other} = {other}, {name}",
            "k = (k * 3 + 1) % 7",
            "k += 1",
            "s = s + np.sum(u)",
            "s += np.sum(v) * 0.1",
            f"xs.append({name})",
            f"xs.append({value})",
            f"out.append({name})",
            f"out.append(np.sum({name}))",
            f"xs[0] = {value}",
            f"xs[-1][0] += {self.pick('1.0', 's')}",
            "len(xs) > 1 and xs.pop()",
            f"d['m'] = {value}",
            f"d[k % 3] = {name}",
            "d['m'] *= 0.5",
            f"o.p = {name}",
            "o.n += 1",
            f"o.p[0] = {self.pick('2.0', 's')}",
            f"bump({name})",
            f"{name} = o.move({other})",
            f"o.renew({name})",
            f"{name} = pushed(xs, {other})",
            f"t = {name}",
            f"t = {value}",
            "del t",
            f"{name} = [one * 0.5 for one in (u, v)][k % 2]",
            f"{name} = (lambda one: one + a)({other})",
            "k = len(xs) % 5 + (m := 2)",
            f"h['u'].append({name})",
            f"h[k % 3].append(np.sum({name}))",
            f"{name} = h['u'][-1] if h['u'] else {other}",
            f"{name} = c({other})",
            f"{name} = tick({other})",
            f"{name} = {other} * c.rate",
            f"{name} = {other} + c[k]",
            f"{name} = {other} * 0.5 if k in c else {other}",
            f"{name} = {other} * 0.9 if c < k else {value}",
            f"{name} = {other} * len(c)",
            f"{name} = {other} + c.power",
            f"{name} = {other} + c.lazy",
            "s = s + c.t * 0.01",
            "c.t = 0",
            f"{name} = remembering({other})",
            f"{name} = counting({other})",
            f"{name} = {other} + noise()",
            f"{name} = {other} + 0.1 * rng.normal()",
            f"{name} = {other} + 0.1 * normal()",
            f"{name} = g.kick({other})",
            "g.n += 1",
            f"q.append({name})",
            f"{name} = q[0] * 0.5",
            f"n[k % 2] += 1; {name} = {other} * (1 + 0.1 * n[0])",
            f"z = z * ({name} + 0.5j)",
            "z = np.conj(z) * 0.5j",
            f"z = phase * z + {value}",
            f"{name} = np.abs(z)",
            f"keep['o'] = o; keep['o'].p = {value}",
            f"picky({name}, k)",
            f"c.first = {name}",
            f"{name} = box.inner.p",
            "box.inner.n += 1",
        )

    def condition(self):
        return self.pick("k % 2", "k > 2", "np.sum(u) > 0", "s < 1", "len(xs) > 2", "k == 1")

    def header(self):
        self.loops += 1
        i = f"i{self.loops}"
        return self.pick(
            f"for {i} in range({self.random.randint(0, 6)}):",
            f"for {i} in range(k % 4 + 1):",
            f"for {i} in range(5, 0, -2):",
            "for u in [a * 2, a, v]:",
            "for w in b:",
            f"for {i}, v in enumerate(b):",
            f"for {i}, (k, w) in enumerate(zip(range(4), reversed(b))):",
            "for t in xs[:3]:",
            "for t in list(d.values()):",
            f"for {i} in d:",
            f"for {i}, t in d.items():",
            f"for k in (j * j for j in range({self.random.randint(1, 5)})):",
            f"while n{self.loops} < {self.random.randint(1, 6)}:",
            "while True:",
            f"for {i} in c:",
            f"for {i} in range(len(c)):",
            "for t in h['u'][:2]:",
            "for t in q:",
            "with c:",
        )

    def loop(self, indent, depth):
        header = self.header()
        count = f"n{self.loops}"
        self.put(indent, f"{count} = 0")
        self.put(indent, header)
        if header.startswith("while"):
            self.put(indent + 1, f"{count} += 1")
        if header == "with c:":
            self.block(indent + 1, depth - 1, 2, False)
            return
        if header == "while True:":
            self.put(indent + 1, f"if {count} > {self.random.randint(1, 5)}: break")
        self.block(indent + 1, depth - 1, self.random.randint(1, 4), True)
        if self.random.random() < 0.15:
            self.put(indent, "else:")
            self.block(indent + 1, 0, 1, False)

    def put(self, indent, line):
        self.lines.append("    " * indent + line)
        self.size += 1

    def block(self, indent, depth, count, inside):
        for _ in range(count):
            chance = self.random.random()
            if depth and chance < 0.3 and self.size < 40:
                self.loop(indent, depth)
            elif chance < 0.42:
                self.put(indent, f"if {self.condition()}:")
                jumps = ["break", "continue", "return np.sum(u) + s", "raise KeyError(k)"]
                self.put(indent + 1, self.pick(*jumps) if inside and self.random.random() < 0.4 else self.simple())
                if self.random.random() < 0.3:
                    self.put(indent, "else:")
                    self.put(indent + 1, self.simple())
            elif chance < 0.47:
                self.put(indent, "try:")
                self.put(indent + 1, self.pick(f"picky({self.name()}, k)", f"picky({self.name()}, c.t)"))
                self.put(
                    indent, self.pick("except ValueError:", "except Exception:", "except (ValueError, KeyError) as e:")
                )
                self.put(indent + 1, self.simple())
            elif chance < 0.53:
                self.put(indent, "try:")
                self.block(indent + 1, min(depth, 1), 2, inside)
                self.put(indent, self.pick("except KeyError:", "except (KeyError, UnboundLocalError):"))
                self.put(indent + 1, self.simple())
            else:
                self.put(indent, self.simple())

    def source(self):
        self.put(0, "def program(x, a, b):")
        self.put(1, "u, v, w, k, s = x * 1.0, a + 0.5, b[0], 0, 0.25")
        self.put(1, "c, g, h, q, n = Clock(a), Slotted(x), defaultdict(list), deque([x, a], maxlen=2), Counter()")
        self.put(1, "z, phase, rng = x + 0.5j * a, np.exp(1j * b[0]), default_rng(3)")
        self.put(1, "tick, normal, keep = c.__call__, rng.normal, {}")
        self.put(1, "xs, out, d, o = [x * 0.5, a], [], {'m': a * 0.25, 1: x}, Body(x * 2.0)")
        self.put(1, "box = Body(a); box.inner = o")
        for _ in range(self.random.randint(0, 2)):
            self.put(1, self.simple())
        for _ in range(self.random.randint(1, 2)):
            self.loop(1, 2)
            if self.random.random() < 0.5:
                self.put(1, self.simple())
        self.put(1, "total = np.sum(u * 1.5) + np.sum(v) * 0.5 + np.sum(np.multiply(w, a)) + s + k")
        self.put(1, "total = total + np.sum(o.p) + o.n + np.sum(d['m'] * 0.1) + len(xs) + len(d)")
        self.put(1, "total = total + c.t + np.sum(g.q) * g.n + np.sum(np.abs(z) ** 2) + rng.normal() + sum(n.values())")
        self.put(1, "total = total + sum([np.sum(one) for some in h.values() for one in some]) * 0.5 + len(h)")
        self.put(1, "for one in xs + out + list(q):")
        self.put(2, "total = total + np.sum(one) * 0.125")
        self.put(1, "return total")
        return "\n".join(self.lines) + "\n"


def compiled(source, name, namespace):
    """The function, on the arrays of a library."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {name: one for name, one in globals().items() if callable(one) and name not in ("Maker", "compiled")}
    scope.update(np=namespace, default_rng=numpy.random.default_rng)
    exec(compile(source, name, "exec"), scope)
    return scope["program"]
