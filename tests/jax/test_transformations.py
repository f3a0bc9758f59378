"""Every transformation of JAX, in every order, against plain ``scan``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_common import PLAIN, START, TIMES, WEIGHTS, assert_same, ours

import pebbling.jax as pj

ALL = (0, 1, 2)


def dot(a, b):
    return sum(jnp.vdot(x, y) for x, y in zip(a, b))


TRANSFORMED = {
    "grad": lambda f: jax.grad(f, ALL),
    "value_and_grad": lambda f: jax.value_and_grad(f, ALL),
    "jit grad": lambda f: jax.jit(jax.grad(f, ALL)),
    "jvp": lambda f: lambda *a: jax.jvp(f, a, a),
    "linearize": lambda f: lambda *a: jax.linearize(f, *a)[1](*a),
    "forward over reverse": lambda f: lambda *a: jax.jvp(jax.grad(f, ALL), a, a),
    "reverse over forward": lambda f: jax.grad(lambda *a: jax.jvp(f, a, a)[1], ALL),
    "reverse over reverse": lambda f: jax.grad(lambda *a: dot(jax.grad(f, ALL)(*a), a), ALL),
    "linearize of grad": lambda f: lambda *a: jax.linearize(jax.grad(f, ALL), *a)[1](*a),
    "hessian": lambda f: jax.hessian(f, (0, 2)),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(f)),
    "third order": lambda f: jax.grad(
        lambda *a: jnp.sum(jax.grad(lambda *b: dot(jax.grad(f, ALL)(*b), b))(*a) ** 2), ALL
    ),
    "forward over reverse over reverse": lambda f: (
        lambda *a: jax.jvp(jax.grad(lambda *b: dot(jax.grad(f, ALL)(*b), b), ALL), a, a)
    ),
    "vmap of grad": lambda f: lambda x, w, t: jax.vmap(jax.grad(f), (0, None, None))(jnp.stack([x, 2 * x]), w, t),
    "grad of vmap": lambda f: (
        lambda x, w, t: jax.grad(lambda xs: jnp.sum(jax.vmap(f, (0, None, 0))(xs, w, jnp.stack([t, 2 * t]))))(
            jnp.stack([x, 2 * x])
        )
    ),
    "inside jax.checkpoint": lambda f: jax.grad(jax.checkpoint(f), ALL),
    "inside scan": lambda f: jax.grad(
        lambda x, w, t: lax.scan(lambda c, _: (0.1 * f(c, w, t) + c, None), x, None, 3)[0].sum(), ALL
    ),
    "inside cond": lambda f: jax.grad(lambda x, w, t: lax.cond(x[0] > 0, f, lambda x, w, t: jnp.sum(x), x, w, t), ALL),
}


def assert_equal_to_plain(name, slots):
    compiled = [jax.jit(TRANSFORMED[name](f)) for f in (ours(slots), PLAIN)]
    assert_same(*(f(START, WEIGHTS, TIMES) for f in compiled))


def test_without_compiling_the_whole():
    gradient = TRANSFORMED["grad"]
    assert_same(gradient(ours(3))(START, WEIGHTS, TIMES), gradient(PLAIN)(START, WEIGHTS, TIMES))


@pytest.mark.parametrize("name", TRANSFORMED)
def test_equals_plain_scan(name):
    assert_equal_to_plain(name, 3)


@pytest.mark.parametrize("slots", [1, 30])
@pytest.mark.parametrize("name", ["grad", "reverse over reverse", "hessian"])
def test_with_the_fewest_and_with_more_than_enough_slots(name, slots):
    assert_equal_to_plain(name, slots)


@pytest.mark.parametrize("name", ["inside jax.checkpoint", "reverse over reverse"])
def test_the_other_remat(name):
    before = jax.config.jax_remat3
    jax.config.update("jax_remat3", not before)
    try:
        assert_equal_to_plain(name, 3)
    finally:
        jax.config.update("jax_remat3", before)


@pytest.mark.parametrize("name", ["grad", "forward over reverse", "reverse over reverse"])
def test_double_precision(name):
    transformed = TRANSFORMED[name]
    with jax.enable_x64(True):
        arguments = [jnp.asarray(np.asarray(a), jnp.float64) for a in (START, WEIGHTS, TIMES)]
        compiled = [jax.jit(transformed(f)) for f in (ours(3), PLAIN)]
        assert_same(*(f(*arguments) for f in compiled), rtol=1e-12)


def counted(x, n, slots=4):
    return pj.fori_loop(0, n, lambda i, y: jnp.sin(1.1 * y) + 0.3, x, slots=slots)


def online(x, n, slots=4):
    step = lambda c: (c[0] + 1, jnp.sin(1.1 * c[1]) + 0.3)  # noqa: E731
    return pj.while_loop(lambda c: c[0] < n, step, (0, x), slots=slots)[1]


def fixed(x, n):
    return lax.fori_loop(0, int(n), lambda i, y: jnp.sin(1.1 * y) + 0.3, x)


@pytest.mark.parametrize("run", [counted, online])
def test_run_time_lengths_in_every_mode(run):
    n, x = 13, jnp.float32(0.7)
    for transformed in (
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1]),
        lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x,)),
        lambda f: jax.grad(jax.grad(f)),
        lambda f: jax.grad(jax.grad(jax.grad(f))),
        lambda f: jax.grad(jax.checkpoint(f)),
        jax.hessian,
    ):
        assert_same(jax.jit(transformed(lambda x: run(x, n)))(x), jax.jit(transformed(lambda x: fixed(x, n)))(x))


@pytest.mark.parametrize("run", [counted, online])
def test_vmap_over_lengths(run):
    xs, lengths = jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([3, 0, 17, 40])
    for gradient in (jax.grad, lambda f: jax.grad(jax.grad(f))):
        expected = jnp.stack([jax.jit(gradient(lambda x, n=n: fixed(x, n)))(x) for x, n in zip(xs, lengths)])
        assert_same(jax.jit(jax.vmap(gradient(run)))(xs, lengths), expected)
    values = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(run)(x, lengths))))(xs)
    assert_same(values, jnp.stack([jax.grad(lambda x, n=n: fixed(x, n))(x) for x, n in zip(xs, lengths)]))


@pytest.mark.parametrize("run", [counted, online])
def test_run_time_lengths_in_double_precision(run):
    with jax.enable_x64(True):
        x = jnp.float64(0.7)
        assert_same(jax.jit(jax.grad(run))(x, 50), jax.jit(jax.grad(lambda x: fixed(x, 50)))(x), rtol=1e-12)


def test_trees_with_integers_booleans_and_keys():
    def run(scan):
        def loss(x, key):
            def body(carry, _):
                y, count, flag, key = carry["y"], carry["n"], carry["flag"], carry["key"]
                key, used = jax.random.split(key)
                noise = jax.random.normal(used, y.shape)
                y = jnp.where(flag, jnp.sin(y), jnp.cos(y)) + 0.1 * noise + 0.01 * count
                return {"y": y, "n": count + 2, "flag": ~flag, "key": key}, (count, flag)

            init = {"y": x, "n": jnp.int32(3), "flag": True, "key": key}
            last, (counts, _) = scan(body, init, None, 11)
            return jnp.sum(last["y"]) + 0.0 * jnp.sum(counts)

        return loss

    key = jax.random.key(5)
    for transformed in (jax.grad, lambda f: jax.grad(lambda x, k: jnp.sum(jax.grad(f)(x, k) ** 2))):
        mine = jax.jit(transformed(run(functools.partial(pj.scan, slots=3))))(START, key)
        assert_same(mine, jax.jit(transformed(run(lax.scan)))(START, key))


def test_any_cotangent_and_outputs():
    def run(scan):
        return lambda x: scan(lambda c, t: (jnp.sin(c) * t, (c, c**2)), x, TIMES, reverse=True)

    (value, outs), pull = jax.vjp(run(functools.partial(pj.scan, slots=2)), START)
    (expected, expected_outs), expected_pull = jax.vjp(run(lax.scan), START)
    assert_same((value, outs), (expected, expected_outs))
    seeds = jax.tree.map(lambda a: jnp.arange(a.size, dtype=a.dtype).reshape(a.shape), (value, outs))
    assert_same(pull(seeds), expected_pull(seeds))


def test_integer_inputs_have_float0_cotangents():
    _, pull = jax.vjp(lambda x, k: pj.fori_loop(0, 9, lambda i, y: jnp.sin(y) * k, x, slots=2), 0.5, 2)
    _, of_k = pull(jnp.float32(1))
    assert of_k.dtype == jax.dtypes.float0


def test_closed_over_arrays_and_tracers():
    def run(loop):
        def loss(w, scale):
            y = jnp.exp(w)
            return jnp.sum(loop(0, 9, lambda i, x: jnp.tanh(x @ WEIGHTS * y + scale), START))

        return loss

    mine = jax.grad(run(functools.partial(pj.fori_loop, slots=3)), (0, 1))(0.2, 0.3)
    assert_same(mine, jax.grad(run(lax.fori_loop), (0, 1))(0.2, 0.3))


def test_nested_loops():
    def run(outer, inner):
        def loss(x):
            return jnp.sum(outer(0, 7, lambda i, y: inner(0, 5, lambda j, z: jnp.sin(z) + 0.1 * i * j + 0.1 * y, y), x))

        return loss

    mine = run(functools.partial(pj.fori_loop, slots=2), functools.partial(pj.fori_loop, slots=2))
    plain = run(lax.fori_loop, lax.fori_loop)
    for transformed in (jax.grad, jax.hessian, lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))):
        assert_same(jax.jit(transformed(mine))(START), jax.jit(transformed(plain))(START))


def test_own_derivative_rules_inside_the_body():
    @jax.custom_vjp
    def scaled(x):
        return jnp.sin(x)

    scaled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (0.7 * ct * jnp.cos(x + 0.1),))

    @jax.custom_jvp
    def odd(x):
        return x**3

    odd.defjvp(lambda p, t: (p[0] ** 3, 2.5 * p[0] ** 2 * t[0]))

    def run(loop):
        return lambda x: jnp.sum(loop(0, 9, lambda i, y: scaled(y) + 0.1 * odd(y), x))

    mine, plain = run(functools.partial(pj.fori_loop, slots=2)), run(lax.fori_loop)
    assert_same(jax.grad(mine)(START), jax.grad(plain)(START))
    second = lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))  # noqa: E731
    assert_same(jax.jit(second(mine))(START), jax.jit(second(plain))(START))


def test_a_rule_that_is_not_linear_in_the_cotangent():
    @jax.custom_vjp
    def clipped(x):
        return jnp.sin(x)

    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.clip(ct, -0.5, 0.5) * jnp.cos(x),))

    def run(loop):
        return lambda x: jnp.sum(loop(0, 9, lambda i, y: 1.5 * clipped(y), x))

    mine, plain = run(functools.partial(pj.fori_loop, slots=2)), run(lax.fori_loop)
    assert_same(jax.grad(mine)(START), jax.grad(plain)(START))
    forward = lambda f: jax.jvp(jax.grad(f), (START,), (START,))  # noqa: E731
    assert_same(forward(mine), forward(plain))
    with pytest.raises(NotImplementedError, match="not linear in the cotangent"):
        jax.grad(lambda x: jnp.sum(jax.grad(mine)(x) ** 2))(START)


def test_donated_arguments():
    step = jax.jit(jax.grad(lambda x: jnp.sum(counted(x, 20))), donate_argnums=0)
    expected = jax.grad(lambda x: jnp.sum(fixed(x, 20)))(START)
    assert_same(step(jnp.array(START)), expected)


@pytest.mark.parametrize("n", [0, 1])
def test_no_iteration_and_one(n):
    run = lambda loop, **more: jax.grad(lambda x: jnp.sum(loop(0, n, lambda i, y: y**2, x, **more)))(START)  # noqa: E731
    assert_same(run(pj.fori_loop, slots=2), run(lax.fori_loop))
    last, outs = pj.scan(lambda c, t: (c + t, c), 1.0, jnp.arange(float(n)), slots=2)
    assert outs.shape == (n,)
    assert last == 1.0


@pytest.mark.parametrize("steps", [9, lambda state, i: i < 9], ids=["number", "predicate"])
def test_loop_takes_a_number_or_a_predicate(steps):
    body = lambda i, y, w: jnp.sin(y * w) + 0.1 * i  # noqa: E731
    mine = jax.grad(lambda x, w: pj.loop(body, x, steps, w, slots=3), (0, 1))(0.5, 1.2)
    expected = jax.grad(lambda x, w: lax.fori_loop(0, 9, lambda i, y: body(i, y, w), x), (0, 1))(0.5, 1.2)
    assert_same(mine, expected)
