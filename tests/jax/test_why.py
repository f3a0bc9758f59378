"""Why a compiled program takes its memory: XLA's figures, and what was read off the program beside them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest

from pebbling.jax import why
from pebbling.jax.why.alive import buffers
from pebbling.jax.why.hlo import parse


def layers(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def attention(weights, x):
    for w in weights:
        q, k, v = jnp.split(x @ w, 3, -1)
        x = x + jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8.0) @ v
    return jnp.mean(x**2)


def scanned(weights, x):
    def layer(x, w):
        return jax.nn.gelu(x @ w) @ w.T + x, None

    return jax.lax.scan(jax.checkpoint(layer), x, weights)[0].sum()


def recurrent(w, x):
    last, sums = jax.lax.scan(lambda s, _: (jnp.sin(s) * s @ w, s.sum()), x, None, length=20)
    return last.sum() + sums.sum()


def trained(weights, x):
    adam = optax.adam(1e-3)
    gradient = jax.grad(layers)(weights, x)
    return optax.apply_updates(weights, adam.update(gradient, adam.init(weights))[0])


SQUARES = [jnp.ones((64, 64))] * 4
PROGRAMS = {
    "layers": (jax.grad(layers), SQUARES, jnp.ones((512, 64))),
    "attention": (jax.grad(attention), [jnp.ones((64, 192))] * 3, jnp.ones((4, 128, 64))),
    "checkpointed scan": (jax.grad(scanned), jnp.ones((8, 64, 256)), jnp.ones((128, 64))),
    "recurrent": (jax.grad(recurrent), jnp.ones((64, 64)), jnp.ones((64, 64))),
    "optimizer": (trained, SQUARES, jnp.ones((512, 64))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_off_a_program_is_within_a_twentieth_of_what_xla_sets_aside(name) -> None:
    f, *args = PROGRAMS[name]
    compiled = jax.jit(f).lower(*args).compile()
    memory = compiled.memory_analysis()
    read = max(buffers(parse(compiled.as_text())).levels())
    assert read == pytest.approx(memory.temp_size_in_bytes, rel=0.05)
    both = memory.argument_size_in_bytes + memory.output_size_in_bytes
    assert why(f, *args).peak == both + memory.temp_size_in_bytes


def test_the_peak_is_blamed_on_lines_and_scopes() -> None:
    def loss(weights, x):
        with jax.named_scope("encoder"):
            x = layers(weights, x) * x
        return x.sum()

    found = why(jax.grad(loss), SQUARES, jnp.ones((512, 64)))
    saved = [life for life, _ in found.makers if life.kind == "saved"]
    assert any(life.module == "encoder" and life.line.startswith("test_why.py:") for life in saved)
    assert found.kinds["arguments"] == sum(w.nbytes for w in SQUARES) + 512 * 64 * 4


def test_donated_arguments_count_once() -> None:
    def step(x):
        return x + 1.0

    x = jnp.ones((1000,))
    assert why(jax.jit(step, donate_argnums=0), x).peak == why(step, x).peak - x.nbytes


def test_shapes_are_enough_and_nothing_is_run() -> None:
    huge = jax.ShapeDtypeStruct((1 << 17, 1 << 17), jnp.float32)
    assert why(lambda x: x * 2, huge).peak == 2 * 4 * (1 << 34)


def test_older_texts_with_source_lines_are_read() -> None:
    text = (
        "HloModule f, is_scheduled=true\n\n"
        "ENTRY %main (p: f32[8]) -> f32[8] {\n"
        "  %p = f32[8]{0} parameter(0)\n"
        '  ROOT %t = f32[8]{0} tanh(%p), metadata={op_name="jit(f)/tanh" source_file="/a/f.py" source_line=4}\n'
        "}\n"
    )
    program = parse(text)
    assert program.computations["main"][1].line == "f.py:4"
    assert max(buffers(program).levels()) == 0
    with pytest.raises(ValueError, match="not the text of a compiled program"):
        parse("nothing")
