"""The likeliest mistakes, and the answer that each gets: what was asked, what was found, what to do."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import pebbling as pb

u = np.linspace(0.1, 1.0, 50)
one = np.ones(50)


def advance(state, i):
    return state + 0.1 * np.sin(state)


def reverse(state, adjoint, i):
    return adjoint * (1 + 0.1 * np.cos(state))


def run(**changed):
    given = {"advance": advance, "reverse": reverse, "state": u, "steps": 20, "seed": one, "slots": 4} | changed
    return pb.adjoint(**given)


def two_budgets():
    run(memory="1MB")


def swapped_body():
    pb.grad(lambda u: np.sum(pb.loop(lambda state, i: state * 1.1 + i, u, 10)))(u)


def body_without_return():
    pb.grad(lambda u: np.sum(pb.loop(lambda i, state: None, u, 10)))(u)


def argnums_too_large():
    pb.grad(lambda a, b: np.sum(a * b), argnums=3)(u, u)


def hvp_without_direction():
    pb.hvp(lambda u: np.sum(u**3))(u)


def grad_of_a_torch_tensor():
    import torch

    pb.grad(lambda x: (x**2).sum())(torch.ones(3))


def grad_of_a_jax_array():
    import jax.numpy as jnp

    pb.grad(lambda x: jnp.sum(x**2))(jnp.ones(3))


def checkpoint_of_a_number():
    pb.checkpoint(8)


def handles_added():
    tape = pb.Tape()
    leaf = tape.leaf(u)
    leaf + leaf


def a_size_that_is_none():
    pb.plan(1000, state="lots")


def step_with_swapped_parameters():
    run(advance=lambda i, state: state + 0.1 * np.sin(state))


def step_with_swapped_parameters_of_other_names():
    run(advance=lambda first, second: second + 0.1 * np.sin(second))


def reversal_with_swapped_parameters():
    run(reverse=lambda adjoint, state, i: adjoint * (1 + 0.1 * np.cos(state)))


def reversal_without_return():
    run(reverse=lambda state, adjoint, i: None)


def reversal_that_returns_two():
    run(reverse=lambda state, adjoint, i: (adjoint, adjoint))


def reversal_of_another_shape():
    run(reverse=lambda state, adjoint, i: adjoint[:3])


def reversal_in_single_precision():
    run(reverse=lambda state, adjoint, i: adjoint.astype(np.float32))


def step_that_returns_two():
    run(advance=lambda state, i: (state, state))


def step_without_return():
    run(advance=lambda state, i: None)


def step_that_shortens_its_state():
    run(advance=lambda state, i: state[:-1])


def step_in_single_precision():
    run(advance=lambda state, i: state.astype(np.float32))


def step_that_leaves_a_part_out():
    run(advance=lambda state, i: {"u": state["u"]}, state={"u": u, "t": 0.0})


def seed_of_another_shape():
    run(seed=np.ones(3))


def seed_function_of_another_shape():
    run(seed=lambda state: np.ones(3))


def seed_of_whole_numbers():
    run(seed=np.ones(50, int))


def no_seed():
    run(seed=None)


def class_of_a_store():
    run(store=pb.store.Disk)


def store_that_is_a_number():
    run(store=3)


def name_of_a_schedule():
    run(slots=None, schedule="revolve")


def share_of_more_than_all():
    run(slots=None, memory="120%")


def share_where_none_is_known():
    pb.plan(10, "10%")


def sizes_by_position():
    pb.plan(1000, "1GB", "16GB")


MISTAKES = {
    step_with_swapped_parameters: r"advance\(state, i\), and yours takes \(i, state\): swap the parameters",
    step_with_swapped_parameters_of_other_names: r"only if it is called as advance\(i, state\).*: swap its parameters",
    reversal_with_swapped_parameters: r"reverse\(state, adjoint, i\), and yours takes \(adjoint, state, i\): swap",
    reversal_without_return: r"reverse.* returned None: does it lack a return",
    reversal_that_returns_two: r"reverse.* became a tuple .*return one value",
    reversal_of_another_shape: r"reverse.* shape \(50,\).* became .* shape \(3,\)",
    reversal_in_single_precision: r"reverse.* float64 became .* float32",
    step_that_returns_two: r"advance.* became a tuple .*return one value",
    step_without_return: r"advance.* returned None: does it lack a return",
    step_that_shortens_its_state: r"changes the shape of its state .*\(50,\).*\(49,\)",
    step_in_single_precision: r"advance.* float64 became .* float32",
    step_that_leaves_a_part_out: r"advance.*\['u'\], \['t'\] became a dict of \['u'\]",
    seed_of_another_shape: r"seed has the shape \(3,\) and the state the shape \(50,\)",
    seed_function_of_another_shape: r"seed has the shape \(3,\) and the state the shape \(50,\)",
    seed_of_whole_numbers: r"began|begins as the seed.* int64 became .* float64",
    no_seed: r"seed is the adjoint of the final state, or a function of that state, not None",
    class_of_a_store: r"store=Disk is the class: give a store",
    store_that_is_a_number: r"store is a path or a store",
    name_of_a_schedule: r"schedule is a plan or a schedule such as pb\.Revolve",
    share_of_more_than_all: r"'120%' is not a share of the free memory",
    share_where_none_is_known: r"'10%' is a share of something that is not known here",
    sizes_by_position: r"plan\(\) takes 2 positional arguments",
    two_budgets: r"at most one of slots, memory and schedule",
    swapped_body: r"body\(i, state",
    body_without_return: r"body .*None",
    argnums_too_large: r"argnums.*3.*2 arguments",
    hvp_without_direction: r"direction",
    grad_of_a_torch_tensor: r"torch.*(backward|torch\.autograd|torch\.func)",
    grad_of_a_jax_array: r"jax\.grad",
    checkpoint_of_a_number: r"slots=8",
    handles_added: r"pb\.op|@op",
    a_size_that_is_none: r"64MiB",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_answered_by_what_to_do(mistake) -> None:
    with pytest.raises((pb.PebblingError, ValueError, TypeError)) as found:
        mistake()
    assert re.search(MISTAKES[mistake], str(found.value), re.DOTALL), f"{type(found.value).__name__}: {found.value}"


def test_what_is_not_a_mistake_goes_through(tmp_path) -> None:
    want = run().adjoint
    for given in ("1M", np.int64(10**6), np.float64(1e6), "50%"):
        assert np.array_equal(run(slots=None, memory=given).adjoint, want)
    assert np.array_equal(run(store=tmp_path / "store").adjoint, want)
    assert np.array_equal(run(store=str(tmp_path / "store"), resume=tmp_path / "run").adjoint, want)
    assert np.array_equal(run(slots=None, schedule=pb.plan(20, "1MB", memory="6MB")).adjoint, want)
    assert np.array_equal(run(dump=str(tmp_path / "dump")).adjoint, want)
    assert np.array_equal(pb.Dump(tmp_path / "dump").read(0)[1], want)
    several = run(seed=np.ones((3, 50)))  # three adjoints at once
    assert np.array_equal(several.adjoint[1], want)


def test_a_failing_reversal_says_what_it_was_called_with() -> None:
    with pytest.raises(TypeError) as found:
        run(seed={"u": one})
    assert "an adjoint that is a dict of ['u'], which began as the seed" in found.value.__notes__[0]


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_front_end_without_its_framework_says_what_to_install(name: str) -> None:
    program = f"import sys; sys.modules['{name}'] = None; import pebbling.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"pip install 'pebbling[{name}]'" in done.stderr
