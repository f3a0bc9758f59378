"""Random functions with loops: checkpointed and compiled they give what plain Python gives, or are refused."""

import linecache
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from jax_common import assert_same

import pebbling as pb

X = jnp.array([0.4, -0.3, 0.6], jnp.float32)
W = jnp.array(np.random.default_rng(5).normal(size=(3, 3)) * 0.5, jnp.float32)
HEADS = [
    "for i in range({n}):",
    "for i in range({n}, -2, -3):",
    "for i, row in enumerate(w):",
    "for i, row in zip(range(9, 0, -2), reversed(w)):",
    "for i, row in enumerate([w[0], x, w[2] * s]):",
    "while jnp.sum(x**2) > 0.3 and k < {n}:",
    "while not k >= {n}:",
    "for i in range(m):",
]
STATEMENTS = [
    "x = jnp.sin(w @ x) + 0.1 * y",
    "x = 0.7 * x + 0.01 * k",
    "y = x * 0.5 + s",
    "x, y = y, x",
    "s = s + jnp.sum(x)",
    "k += 1",
    "i = i + 1",
    "t = x * 2 + i",
    "y = y + 0.1 * t",
    "d['a'] = d['a'] * 0.5 + x",
    "d = {'n': d['n'] + 1, 'a': y - d['a']}",
    "pair = (pair[1], x + pair[0])",
    "box.value = box.value + y",
    "box.count += 1",
    "ys.append(x * (i + 1))",
    "if jnp.sum(x) > 0.9: break",
    "if k > 2 or jnp.max(jnp.abs(y)) > 1.5: break",
    "if jnp.min(x) < -0.4: s, y = s * 2, x; break",
    "if box.flag: y = y + 1",
    "if box.flag: continue",
    "table = table.at[i].add(s)",
]
PROGRAM = """
def f(x, w, m):
    y, s, k, i, t, ys = x * 0.5, 0.0, 0, 0, x, []
    d, pair, box, table = {{'a': x, 'n': 0}}, (x, y), Box(x), jnp.zeros(12)
{body}
    total = jnp.sum(x * y + t + d['a'] + pair[0] - pair[1] + box.value) + s + k + d['n'] + box.count + i
    return total + sum([jnp.sum(one) for one in ys]) + jnp.sum(table)
"""


class Box:
    def __init__(self, value):
        self.value, self.count, self.flag = value, 0, False


def block(random, depth, indent):
    lines = [indent + random.choice(HEADS).format(n=random.randint(1, 4))]
    inside = indent + "    "
    for _ in range(random.randint(1, 4)):
        if depth < 2 and random.random() < 0.2:
            lines += block(random, depth + 1, inside)
        else:
            lines.append(inside + random.choice(STATEMENTS))
    if "while" in lines[0]:
        lines.append(f"{inside}k += 1")
    return lines


def program(seed):
    random = Random(seed)
    body = [line for _ in range(random.randint(1, 2)) for line in block(random, 0, "    ")]
    return PROGRAM.format(body="\n".join(body))


def compiled(source, name):
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    scope = {"jnp": jnp, "Box": Box}
    exec(compile(source, name, "exec"), scope)
    return scope["f"]


def judged(source):
    """Whether a program is the same, or refused; anything else is an error."""
    name = f"<random program {hash(source)}>"
    try:
        f = compiled(source, name)
        wanted = jax.value_and_grad(f, (0, 1))(X, W, 3)
        try:
            found = jax.jit(jax.value_and_grad(pb.checkpoint(slots=2)(f), (0, 1)))(X, W, 3)
        except pb.SourceError as error:
            return f"refused at {error}"
    finally:
        linecache.cache.pop(name, None)
    assert_same(found, wanted, rtol=1e-4)
    return "same"


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_random_programs_are_the_same_or_refused(seed):
    source = program(seed)
    note(source)
    verdict = judged(source)
    assert verdict == "same" or verdict.startswith("refused at <random program"), verdict


def test_most_random_programs_are_not_refused():
    sources = [program(seed) for seed in range(5)]
    assert sum(judged(source) == "same" for source in sources) >= 3
