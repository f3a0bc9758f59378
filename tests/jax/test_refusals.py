"""What can't work says so, by name."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import io_callback

import pebbling as pb
import pebbling.jax as pj


def test_a_carry_that_changes_type():
    with pytest.raises(TypeError, match=r"carry\['x'\] as float32\[3\] and returns it as float32\[\]"):
        pj.fori_loop(0, 5, lambda i, c: {"x": jnp.sum(c["x"])}, {"x": jnp.ones(3)})


def test_a_carry_that_changes_structure():
    with pytest.raises(TypeError, match="structure"):
        pj.scan(lambda c, x: ((c, c), None), 1.0, None, 5)


def test_more_than_one_budget():
    with pytest.raises(ValueError, match="slots and memory"):
        pj.fori_loop(0, 5, lambda i, x: x, 1.0, slots=3, memory="1MB")


def test_slots_that_make_no_sense():
    with pytest.raises(ValueError, match="slots must be a whole number of at least 1"):
        pj.fori_loop(0, 5, lambda i, x: x, 1.0, slots=0)


def test_a_schedule_of_another_length():
    with pytest.raises(ValueError, match="for 6 steps and the loop has 5"):
        pj.fori_loop(0, 5, lambda i, x: x, 1.0, schedule=pb.Revolve(6, 2))


def test_a_schedule_for_an_unknown_length():
    with pytest.raises(ValueError, match="no known number of steps"):
        pj.while_loop(lambda x: x < 1, lambda x: x + 1, 0.0, schedule=pb.Revolve(6, 2))
    with pytest.raises(ValueError, match="known number of steps"):
        jax.jit(lambda n: pj.fori_loop(0, n, lambda i, x: x, 1.0, schedule=pb.Revolve(6, 2)))(6)


def test_something_else_for_a_schedule():
    with pytest.raises(ValueError, match="pebbling plan"):
        pj.fori_loop(0, 5, lambda i, x: x, 1.0, schedule="binomial")


def test_effects_in_order():
    def body(i, x):
        io_callback(lambda: None, None, ordered=True)
        return x

    with pytest.raises(ValueError, match="effects"):
        pj.fori_loop(0, 5, body, 1.0)


def test_a_condition_that_is_not_a_boolean():
    with pytest.raises(TypeError, match="one boolean scalar"):
        pj.while_loop(lambda x: x, lambda x: x + 1, 0.0)


def test_lengths_that_disagree():
    with pytest.raises(ValueError, match=r"\[4, 5\]"):
        pj.scan(lambda c, x: (c, None), 1.0, jnp.ones(4), 5)
    with pytest.raises(ValueError, match="neither xs nor length"):
        pj.scan(lambda c, x: (c, None), 1.0)


def test_bounds_that_are_not_integers():
    with pytest.raises(TypeError, match="integers"):
        pj.fori_loop(0, 5.0, lambda i, x: x, 1.0)
