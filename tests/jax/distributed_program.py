"""Run by ``test_sharding.py`` as each of two processes of ``jax.distributed``: a loop over a state in shards."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import pebbling.jax as pj


def main(rank, address):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, rank)
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    values = np.linspace(0, 1, 16, dtype=np.float32)
    x = jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    def body(i, u):
        return jnp.sin(u) + 0.1 * jnp.roll(u, 1)

    def plain(u):
        return jax.lax.scan(lambda u, i: (body(i, u), None), u, jnp.arange(20))[0]

    def ours(u):
        return pj.fori_loop(0, 20, body, u, slots=4)

    want, found = (jax.jit(jax.grad(lambda u, run=run: jnp.sum(run(u) ** 2)))(x) for run in (plain, ours))
    assert found.sharding.spec == sharding.spec
    for one, two in zip(want.addressable_shards, found.addressable_shards, strict=True):
        assert np.asarray(one.data).tobytes() == np.asarray(two.data).tobytes()
    print("equal", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
