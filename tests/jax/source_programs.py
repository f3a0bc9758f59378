"""Programs whose plain loops run on JAX arrays, for the tests of ``@pebbling.checkpoint``."""

import dataclasses
from collections import deque
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pebbling as pb

X = jnp.array([0.3, -0.2, 0.5], jnp.float32)
W = jnp.array(np.random.default_rng(3).normal(size=(3, 3)) * 0.5, jnp.float32)
ROWS = jnp.array(np.random.default_rng(4).normal(size=(7, 3)), jnp.float32)


class Pair(NamedTuple):
    position: jax.Array
    speed: jax.Array


@dataclasses.dataclass
class Body:
    position: jax.Array
    speed: jax.Array
    mass: float = 2.0
    name: str = "ball"


@dataclasses.dataclass(frozen=True)
class Settings:
    layers: int
    scale: float


class Model:
    def __init__(self, weights):
        self.weights, self.layers, self.calls = weights, 2, 0

    def step(self, x):
        for _ in range(self.layers):
            x = jnp.tanh(self.weights @ x)
        return x


def over_a_range(x, w):
    for i in range(17):
        x = jnp.sin(w @ x) + 0.01 * i
    return jnp.sum(x**2)


def over_a_range_with_a_stride(x, w):
    for i in range(20, -3, -4):
        x = jnp.sin(w @ x) * i / 10
    return jnp.sum(x**2)


def over_rows(x, w):
    for row in ROWS * w[0, 0]:
        x = jnp.tanh(w @ x + row)
    return jnp.sum(x)


def over_the_columns_of_an_argument(x, w):
    for column in w.T:
        x = jnp.tanh(x + column * x)
    return jnp.sum(x)


def zipped(x, w):
    for i, (row, j) in enumerate(zip(ROWS, range(3, 90, 2)), 2):
        x = jnp.tanh(w @ x + row * i) + 0.1 * j
    return jnp.sum(x)


def backwards(x, w):
    for i, row in reversed(list(enumerate(ROWS))):
        x = jnp.tanh(w @ x + row) + 0.1 * i
    for row in reversed(ROWS):
        x = jnp.sin(x + row)
    for i, row in zip(reversed(range(5)), reversed(ROWS)):
        x = jnp.sin(x * i + row)
    return jnp.sum(x)


def over_a_list_of_arrays(x, w):
    for part in [w[0], 2 * w[1], w[2]]:
        x = jnp.tanh(x + part)
    for pair in [(w[0], 0.1), (w[1], 0.2), (w[2], 0.4)]:
        x = jnp.sin(x + pair[0] * pair[1])
    for value in {"a": w[0], "b": w[1]}.values():
        x = x * value
    return jnp.sum(x)


def over_numbers(x, w):
    for dt in (0.1, 0.2, 0.4, 0.3):
        x = x + dt * jnp.tanh(w @ x)
    for k in [1, 5, 2]:
        x = x * k
    return jnp.sum(x)


def over_a_numpy_array(x, w):
    for row in np.arange(12.0).reshape(4, 3):
        x = jnp.tanh(w @ x + row)
    return jnp.sum(x)


def several_names(x, w):
    y, t, k, total = x * 2, 0.0, 0, 0
    for _ in range(9):
        x, y = y, jnp.sin(w @ x) + y * t
        t += 0.1
        k = k + 1
        total = total + jnp.sum(x)
    return jnp.sum(x * y) * t + k + total


def containers(x, w):
    s = {"pair": (x, 2 * x), "list": [x, x + 1], "settings": None, "count": 0}
    for _ in range(6):
        first, second = s["pair"]
        s["list"][1] = jnp.sin(s["list"][1] + first)
        s = {"pair": (second, jnp.tanh(w @ first)), "list": s["list"], "settings": None, "count": s["count"] + 2}
    return jnp.sum(s["pair"][0] * s["list"][1]) + s["count"]


def in_place(x, w):
    body = Body(x, w @ x)
    history = deque([x, x], maxlen=2)
    other = body
    for _ in range(8):
        body.position = body.position + 0.1 * body.speed / body.mass
        body.speed = body.speed - 0.1 * jnp.sin(body.position) + 0.01 * history[0]
        history.append(body.position)
    assert other is body
    assert (body.name, type(body.mass)) == ("ball", float)
    return jnp.sum(other.position * history[0])


def named_tuples(x, w):
    pair = Pair(x, w @ x)
    for _ in range(8):
        pair = pair._replace(position=pair.position + 0.1 * pair.speed)
        pair = Pair(pair.position, pair.speed - jnp.sin(pair.position))
    return jnp.sum(pair.position)


def objects_that_are_handed_on(x, w):
    model, settings, table = Model(w), Settings(2, 0.5), [1.0, 2.0]
    for _ in range(5):
        x = model.step(x) * settings.scale
        for _ in range(settings.layers):
            x = x + len(table)
    return jnp.sum(x) + model.calls


def functions_with_closures(x, w):
    gain = w[0, 0] * 2

    def rhs(y):
        return jnp.sin(w @ y) * gain

    for _ in range(9):
        k1 = rhs(x)
        k2 = rhs(x + 0.1 * k1)
        x = x + 0.05 * (k1 + k2)
    return jnp.sum(x)


def nested(x, w):
    for i in range(4):
        y = x
        for j in range(3):
            y = jnp.sin(w @ y) + i * j
            for row in ROWS:
                y = y + 0.1 * row * x
        x = x + y
    return jnp.sum(x)


def one_after_another(x, w):
    for _ in range(4):
        x = jnp.sin(w @ x)
    for i in range(5):
        x = jnp.cos(x) + i
    return jnp.sum(x)


def collected(x, w):
    ys, pairs = [x], []
    for i in range(6):
        x = jnp.sin(w @ x)
        ys.append(x * i)
        pairs.append({"sum": jnp.sum(x), "name": "row", "number": 3})
        ys.append(x)
    assert (len(ys), len(pairs)) == (13, 6)
    assert (pairs[2]["name"], pairs[2]["number"]) == ("row", 3)
    return jnp.sum(jnp.stack(ys) ** 2) + sum(pair["sum"] for pair in pairs)


def left_behind(x, w):
    for i in range(6):  # noqa: B007
        new = jnp.sin(w @ x)
        change = jnp.sum((new - x) ** 2)
        both = (new, {"change": change})
        x = new
    return change + jnp.sum(new) + i + both[1]["change"] + jnp.sum(both[0])


def by_settings(x, w, damped=True, skip=False):
    for _ in range(6):
        x = jnp.sin(w @ x)
        if skip:
            continue
        if damped:
            x = 0.9 * x
        else:
            x = 1.1 * x
    else:
        x = x + 1
    return jnp.sum(x)


def left_at_once(x, w, once=True):
    for _ in range(6):
        x = jnp.sin(w @ x)
        if once:
            break
    else:
        x = x * 100
    for _ in range(3):
        x = jnp.cos(x)
        if once:
            return jnp.sum(x)
    return x


def updates(x, w):
    table = jnp.zeros((8, 3))
    for i in range(8):
        table = table.at[i].set(jnp.sin(w @ x) + table[i - 1])
        x = x + 0.1 * table[i]
    return jnp.sum(table**2)


def random_steps(x, w):
    key = jax.random.key(1)
    for i in range(6):
        key, this = jax.random.split(key)
        noise = jax.random.normal(jax.random.fold_in(this, i), (3,))
        x = jnp.sin(w @ x) + noise * x
    return jnp.sum(x)


def gradient_descent(x, w):
    params = {"w": w, "b": x}
    speed = jax.tree.map(jnp.zeros_like, params)
    for _ in range(5):
        error = jax.grad(lambda p: jnp.sum((p["w"] @ x + p["b"] - 1) ** 2))(params)
        speed = jax.tree.map(lambda s, e: 0.9 * s + e, speed, error)
        params = jax.tree.map(lambda p, s: p - 0.05 * s, params, speed)
    return jnp.sum(params["w"] @ params["b"])


def small_functions_in_a_step(x, w):
    for _ in range(4):
        y = jax.vmap(lambda row: row @ x)(w)  # noqa: B023
        x = jax.lax.cond(jnp.sum(y) > 0, lambda: x + y, lambda: x - y)  # noqa: B023
        x = jnp.array([2 * value for value in x])
    return jnp.sum(x)


def small_functions_in_two_loops(x, w):
    for _ in range(4):
        y = jnp.sin(w @ x)
        x = jax.lax.map(lambda value: value * y[0] + x[0], x)  # noqa: B023
    for i in range(3):
        y = x[:2] * i
        x = x + jax.lax.map(lambda value: value + jnp.sum(y), x)  # noqa: B023
    return jnp.sum(x) + jnp.sum(y)


@pb.checkpoint(slots=2)
def inner(x):
    for _ in range(3):
        x = jnp.sin(x)
    return x


def checkpointed_inside(x, w):
    for _ in range(3):
        x = inner(w @ x) * 2
    return jnp.sum(x)


def no_steps(x, w):
    y = x
    for i in range(0):
        y = jnp.sin(x) + i
    for row in ROWS[:0]:
        y = y + row
    for _ in range(1):
        y = y * 2
    return jnp.sum(y * (w @ x))


FOR_LOOPS = [
    over_a_range,
    over_a_range_with_a_stride,
    over_rows,
    over_the_columns_of_an_argument,
    zipped,
    backwards,
    over_a_list_of_arrays,
    over_numbers,
    over_a_numpy_array,
    several_names,
    containers,
    in_place,
    named_tuples,
    objects_that_are_handed_on,
    functions_with_closures,
    nested,
    one_after_another,
    collected,
    left_behind,
    by_settings,
    left_at_once,
    updates,
    random_steps,
    gradient_descent,
    small_functions_in_a_step,
    small_functions_in_two_loops,
    checkpointed_inside,
    no_steps,
]


def until_small(x, w):
    while jnp.linalg.norm(x) > 0.05:
        x = 0.8 * jnp.sin(w @ x)
    return jnp.sum(x)


def with_a_counter(x, w, most=11):
    k, best = 0, jnp.inf
    while jnp.max(jnp.abs(x)) > 1e-3 and not k >= most:
        x = 0.9 * jnp.sin(x) + 0.01 * (w @ x)
        best = jnp.minimum(best, jnp.sum(x))
        k += 1
    else:
        k = k + 1
    return jnp.sum(x) * k + best


def named_in_the_head(x, w):
    k = 0
    while 0.01 < (size := jnp.sum(x**2)) < 100 or k < 2:
        x = 0.8 * x + 0.01 * size
        k += 1
    return jnp.sum(x) * size + 0 * w[0, 0]


def while_in_for(x, w):
    for i in range(3):
        r = jnp.float32(10.0)
        while r > 1.5:
            x = jnp.sin(w @ x) + 0.1 * i
            r = r * 0.6
        x = x * r
    return jnp.sum(x)


def kept_from_the_last_step(x, w):
    r = 0.0
    while jnp.sum(x**2) > 0.1:
        r = jnp.sum(x)
        x = 0.7 * x
    return r * jnp.sum(x) + 0 * w[0, 0]


def until_it_says_so(x, w):
    done, last = False, 1e9
    while not done:
        last = jnp.sum(x)
        x = 0.8 * x + 0.01 * (w @ x)
        done = jnp.abs(jnp.sum(x) - last) < 1e-2
    return jnp.sum(x) * last


WHILE_LOOPS = [
    until_small,
    with_a_counter,
    named_in_the_head,
    while_in_for,
    kept_from_the_last_step,
    until_it_says_so,
]


def until_it_settles(x, w):
    for k in range(50):  # noqa: B007
        new = 0.5 * jnp.cos(x) + 0.1 * (w @ x)
        change = jnp.max(jnp.abs(new - x))
        if change < 1e-3:
            break
        x = new
    return jnp.sum(x) * k + jnp.sum(new) + change


def never_left(x, w):
    for row in ROWS:
        x = jnp.sin(w @ x) + row
        if jnp.sum(x) > 100 and jnp.sum(x) < 200:
            break
        x = x * 1.1
    return jnp.sum(x)


def forever(x, w):
    k, last = 0, x
    while True:
        x = 0.7 * x
        k += 1
        if not jnp.max(x) >= 0.01 or k > 30:
            break
        last = x
        x = x + 0.001 * (w @ x)
    return jnp.sum(x) * k + jnp.sum(last)


def left_before_what_has_no_derivative(x, w):
    for row in jnp.stack([x, w[0], 0 * x, x]):
        size = jnp.sum(row**2)
        if size == 0:
            break
        x = x + row / jnp.sqrt(size)
    return jnp.sum(x)


def two_exits_of_an_object(x, w):
    body = {"x": x, "k": 0}
    for _ in range(20):
        if jnp.sum(body["x"]) < 0.05:
            break
        body["x"] = body["x"] * 0.8 + 0.01 * (w @ x)
        if jnp.max(body["x"]) < 0.2:
            break
        body["k"] += 1
        body["x"] = body["x"] - 0.001
    return jnp.sum(body["x"]) * (1 + body["k"])


def left_inside(x, w):
    for i in range(3):
        k = 0
        while k < 9:
            k += 1
            x = jnp.sin(x) + 0.01 * (w @ x)
            if x[2] < 0.4 - 0.05 * i:
                break
        x = x * 1.5
    return jnp.sum(x)


def named_in_an_exit(x, w):
    for _ in range(9):
        x = 0.7 * x + 0.01 * (w @ x)
        if (size := jnp.sum(x**2)) < 0.1:
            break
        x = x + 0.01 * size
    return jnp.sum(x) * size


def told_at_an_exit(x, w):
    settled, k = False, 0
    for i in range(30):
        new = 0.5 * jnp.cos(x) + 0.1 * (w @ x)
        if jnp.max(jnp.abs(new - x)) < 1e-3 or i > 25:
            settled, last = True, new * 2
            k += 100
            break
        last = x
        x = new
        k += 1
    return jnp.sum(x) * k + jnp.where(settled, jnp.sum(last), 0.0)


LEFT_LOOPS = [
    until_it_settles,
    told_at_an_exit,
    named_in_an_exit,
    never_left,
    forever,
    left_before_what_has_no_derivative,
    two_exits_of_an_object,
    left_inside,
]


def checkpointed(f, **budget):
    return pb.checkpoint(**(budget or {"slots": 3}))(f)


def breaks(x):
    for _ in range(5):
        x = jnp.sin(x)
        if x[0] < 0.1:  # here
            x = 2 * x
            print("done")
            break
    return jnp.sum(x)


def fill(table, x):
    table[0] += 1  # inside
    return x * table[0]


def hands_on_a_numpy_array(x):
    table = np.zeros(3)
    for _ in range(3):
        x = fill(table, x)
    return jnp.sum(x)
