"""Does a gradient in float32 depend on the number of slots? On programs that others wrote: jaxley, jax-md, diffrax.

python benchmarks/jax_bits.py > benchmarks/results/….md
"""

import jax
import jax.numpy as jnp
import numpy as np

import pebbling.jax as pj


def neuron():
    import jaxley as jx
    from jaxley.channels import HH

    cell = jx.Cell(jx.Branch(jx.Compartment(), 2), parents=[-1, 0, 0])
    cell.insert(HH())
    cell[0, 0].record(verbose=False)
    cell[0, 0].stimulate(jx.step_current(1.0, 1.0, 0.1, 0.025, 10.0), verbose=False)
    cell.make_trainable("HH_gNa", verbose=False)
    return lambda p: jnp.mean(jx.integrate(cell, params=p) ** 2), cell.get_parameters()


def molecules():
    from jax_md import energy, simulate, space

    displacement, shift = space.periodic(6.0)
    place = jnp.stack(jnp.meshgrid(*[jnp.arange(4.0) * 1.4] * 2), -1).reshape(-1, 2)

    def loss(strength):
        force = energy.soft_sphere_pair(displacement, epsilon=strength, sigma=1.6)
        begin, step = simulate.nve(force, shift, 5e-3)
        state = begin(jax.random.key(0), place, kT=0.3)
        last = jax.lax.fori_loop(0, 200, lambda i, s: step(s), state)
        return jnp.mean(last.position**2)

    return loss, jnp.float32(1.0)


def differential_equation():
    import diffrax as dfx

    def loss(p):
        term = dfx.ODETerm(lambda t, y, p: jnp.stack([y[1], p * (1 - y[0] ** 2) * y[1] - y[0]]))
        solution = dfx.diffeqsolve(
            term, dfx.Tsit5(), 0.0, 10.0, 0.02, jnp.array([1.0, 0.5]), args=p, max_steps=600,
            adjoint=dfx.DirectAdjoint(),
        )  # fmt: skip
        return jnp.sum(solution.ys**2)

    return loss, jnp.float32(1.5)


def main():
    print("| program | slots | gradient | same bits |")
    print("|---|---|---|---|")
    for make in (neuron, molecules, differential_equation):
        try:
            loss, x = make()
        except ImportError as error:
            print(f"| {make.__name__} | | not run: {error} | |")
            continue
        first = None
        for slots in (3, 8, 20, 60, 150):
            leaves = jax.tree.leaves(jax.jit(jax.grad(pj.checkpoint_loops(loss, slots=slots)))(x))
            found = np.concatenate([np.ravel(leaf) for leaf in leaves])
            first = found if first is None else first
            same = "yes" if np.array_equal(found, first) else "NO"
            print(f"| {make.__name__} | {slots} | {found[0]:.9g} | {same} |", flush=True)
        plain = jax.tree.leaves(jax.jit(jax.grad(loss))(x))[0]
        print(f"| {make.__name__} | plain | {np.ravel(plain)[0]:.9g} | |", flush=True)


main()
