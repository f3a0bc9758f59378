"""``fit``: gradients of whole functions within a budget, as XLA measures it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pebbling as pb
import pebbling.jax as pj
from pebbling.jax.models import convolutions

WEIGHTS = [jnp.eye(32) * 0.5 + 0.01 * k for k in range(5)]
BATCH = jax.random.normal(jax.random.key(0), (512, 32))


def blocks(weights, x):
    for w in weights:
        x = x + jnp.sin(jnp.tanh(x @ w))
    return jnp.mean(x**2)


def taken(program):
    memory = program.memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


def compiled(f, *args):
    return jax.jit(jax.grad(f)).lower(*args).compile()


def close(found, expected):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


@pytest.fixture(scope="module")
def plain():
    return compiled(blocks, WEIGHTS, BATCH)


def test_the_compiled_gradient_stays_within_the_budget_where_jax_checkpoint_does_not(plain):
    checkpointed = compiled(lambda w, x: blocks_of_jax(w, x), WEIGHTS, BATCH)
    assert taken(checkpointed) > 0.8 * taken(plain)  # XLA on CPUs drops the barriers
    repeated = []
    for share in (1.02, 0.7):
        limit = int(share * taken(plain))
        fitted = pj.fit(blocks, memory=limit, time_limit=0.3)
        assert fitted.plan is None
        program = compiled(fitted, WEIGHTS, BATCH)
        assert taken(program) <= limit
        assert fitted.plan.peak <= limit
        assert close(program(WEIGHTS, BATCH), plain(WEIGHTS, BATCH))
        repeated.append(fitted.plan.overhead)
    assert repeated[0] == 0.0
    assert repeated == sorted(repeated)
    assert repeated[-1] > 0


def blocks_of_jax(weights, x):
    block = jax.checkpoint(lambda w, x: x + jnp.sin(jnp.tanh(x @ w)))
    for w in weights:
        x = block(w, x)
    return jnp.mean(x**2)


def test_the_smallest_budget_works():
    with pytest.raises(pb.BudgetError, match="the compiled gradient takes at least") as refused:
        jax.grad(pj.fit(blocks, memory="1kB", time_limit=0.3))(WEIGHTS, BATCH)
    smallest = int(refused.value.minimum)
    assert taken(compiled(pj.fit(blocks, memory=smallest, time_limit=0.3), WEIGHTS, BATCH)) <= smallest


def test_a_step_of_an_optimizer_with_donated_arguments_stays_within_the_budget():
    def loss(weights, x, *, key, name):
        kept = jax.random.bernoulli(key, 0.9, x.shape)
        return blocks(weights, jnp.where(kept, x, 0).astype(jnp.bfloat16).astype(jnp.float32)), {
            "x": x[0],
            "name": name,
        }

    def step(f, weights, moments, x, key):
        (value, aux), gradient = jax.value_and_grad(f, has_aux=True)(weights, x, key=key, name="here")
        assert aux["name"] == "here"
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradient)
        return jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments, value, aux["x"]

    args = (WEIGHTS, jax.tree.map(jnp.zeros_like, WEIGHTS), BATCH, jax.random.key(1))

    def program(f):
        return jax.jit(lambda *a: step(f, *a), donate_argnums=(0, 1)).lower(*args).compile()

    without = program(loss)
    limit = without.memory_analysis().temp_size_in_bytes * 8 // 10
    within = program(pj.fit(loss, memory=limit, time_limit=0.3))
    assert within.memory_analysis().temp_size_in_bytes <= limit
    first, second = (p(*jax.tree.map(jnp.copy, args)) for p in (within, without))
    assert close(first, second)


def test_batches_around_it_count(plain):
    limit = taken(plain) * 7 // 10
    fitted = pj.fit(blocks, memory=limit, time_limit=0.3)
    batched = jax.jit(jax.vmap(jax.grad(fitted), (None, 0))).lower(WEIGHTS, BATCH.reshape(4, 128, 32)).compile()
    assert taken(batched) <= limit
    assert close(jax.tree.map(lambda g: g.mean(0), batched(WEIGHTS, BATCH.reshape(4, 128, 32))), plain(WEIGHTS, BATCH))
    assert jnp.isclose(fitted(WEIGHTS, BATCH), blocks(WEIGHTS, BATCH))

    with pytest.raises(ValueError, match="two reverse derivatives"):
        jax.grad(lambda w: jax.grad(fitted)(w, BATCH)[0].sum())(WEIGHTS)


def test_verify_measures_how_far_the_gradient_is_from_the_plain_one(plain):
    found = pj.fit(blocks, memory=taken(plain) * 7 // 10, time_limit=0.3).verify(WEIGHTS, BATCH)
    assert found.equal or 0 < found.relative < 1e-5
    assert not pj.Deviation.between([jnp.ones(2)], [jnp.array([1.0, 2.0])]).equal
    assert pj.Deviation.between([jnp.ones(2)], [jnp.array([1.0, 2.0])]).relative == 0.5


def test_what_can_not_be_kept_to_is_refused():
    def two(x):
        return jnp.sum(x), x

    with pytest.raises(pb.errors.CaptureError, match="differentiated by that result alone"):
        jax.grad(lambda x: jnp.sum(pj.fit(two)(x)[1]))(BATCH)

    @jax.tree_util.register_pytree_node_class
    class State:
        def __init__(self, x):
            self.x = x

        def tree_flatten(self):
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    def changing(state):
        state.x = state.x + 1
        return jnp.sum(state.x)

    with pytest.raises(pb.errors.CaptureError, match="changing changes an argument"):
        jax.grad(pj.fit(changing))(State(BATCH))
    for wrong in (0, True, "soon"):
        with pytest.raises(ValueError, match="time_limit"):
            pj.fit(two, time_limit=wrong)


def test_convolutions_in_order_are_the_same():
    # Of the kernel's derivative the batch is the channels; see the module for why this matters.
    x, w = jnp.arange(96.0).reshape(2, 4, 4, 3), jnp.arange(54.0).reshape(3, 3, 3, 2)

    def loss(x, w):
        return jnp.sum(lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2)

    traced = jax.make_jaxpr(jax.grad(loss, (0, 1)))(x, w)
    found = [e for e in traced.jaxpr.eqns if e.primitive.name == "conv_general_dilated"]
    assert len(found) == 3
    for eqn in found:
        values = [jnp.cos(jnp.arange(v.aval.size, dtype=v.aval.dtype)).reshape(v.aval.shape) for v in eqn.invars]
        ordered = jax.make_jaxpr(lambda *a, eqn=eqn: convolutions.run(eqn, a))(*values)
        numbers = next(e for e in ordered.jaxpr.eqns if "conv" in e.primitive.name).params["dimension_numbers"]
        assert numbers == lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
        assert np.allclose(convolutions.run(eqn, values)[0], eqn.primitive.bind(*values, **eqn.params), atol=1e-5)
