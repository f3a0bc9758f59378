"""The schedule that tapes runs of steps at once: what it holds, and what it saves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.chain import Mixed, Revolve, Runs, check, stream


@given(st.integers(0, 120), st.integers(1, 12), st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.5]))
@settings(max_examples=200, deadline=None)
def test_its_actions_are_those_of_its_tree_and_cost_what_it_says(steps, slots, tape):
    plan = Runs(steps, slots, tape)
    assert list(plan) == list(stream.actions(plan))
    assert check(plan) == plan.cost
    assert plan.cost.peak <= slots
    assert plan.cost.forwards <= Revolve(steps, slots).cost.forwards


@pytest.mark.parametrize("slots", [2, 3, 5, 8, 16])
def test_with_tapes_like_states_it_is_close_to_the_optimum(slots):
    for steps in range(1, 150, 7):
        best = Mixed(steps, slots).cost.forwards
        assert best <= Runs(steps, slots).cost.forwards <= 1.05 * best + 1


def test_arguments_that_make_no_sense_are_refused():
    for arguments, message in [((-1, 3), "steps"), ((5, 0), "slots"), ((5, 2, 0.0), "tape must be a positive")]:
        with pytest.raises(ValueError, match=message):
            Runs(*arguments)
