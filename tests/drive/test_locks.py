"""A step or reversal that writes into its input is found out, and the user's arrays are left as they were."""

from __future__ import annotations

import threading

import jax
import numpy as np
import pytest
import torch
from drive_problems import advance, reverse, same, schedules_of, start, store_everything

from pebbling import Online, ReplayError, adjoint
from pebbling.chain import Periodic, Revolve, Snapshot, StoreAll
from pebbling.store import Memory

SEED = np.ones(7)


def writes_at(when, where=lambda s: s):
    """A step that changes its input at step ``when``, and is right otherwise."""

    def step(x, i):
        result = advance(x, i)
        if i == when:
            where(x)[0] = 0.0
        return result

    return step


def unlocked(*arrays):
    return all(array.flags.writeable for array in arrays)


@pytest.mark.parametrize("when", [0, 11])
@pytest.mark.parametrize("name", schedules_of(12, 3))
def test_a_step_that_writes_into_its_input(name, when):
    state = start()
    with pytest.raises(
        ReplayError, match=rf"^step {when} writes into a state that is stored \(.*read-only\)"
    ) as caught:
        adjoint(writes_at(when), reverse, state, 12, SEED, schedule=schedules_of(12, 3)[name])
    assert isinstance(caught.value.__cause__, ValueError)
    assert unlocked(state)
    assert same(state, start())


def test_a_single_step_that_writes_into_its_input():
    for schedule in (Revolve(1, 1), StoreAll(1)):
        with pytest.raises(ReplayError, match="step 0 writes"):
            adjoint(writes_at(0), reverse, start(), 1, SEED, schedule=schedule)
    with pytest.raises(ReplayError, match="step 0 writes"):
        adjoint(writes_at(0), reverse, start(), 1, SEED, memory="1MB")


@pytest.mark.parametrize("when", range(12))
def test_whichever_step_it_is_the_answer_is_right_or_refused(when):
    """A step whose input nobody holds may do with it what it likes."""
    want = store_everything(advance, reverse, start(), range(12), SEED)
    refused = 0
    for schedule in (*schedules_of(12, 3).values(), Revolve(12, 1), Revolve(12, 12)):
        try:
            result = adjoint(writes_at(when), reverse, start(), 12, SEED, schedule=schedule)
            assert same((result.state, result.adjoint), want)
        except ReplayError:
            refused += 1
    assert refused >= 3


@pytest.mark.parametrize("when", [0, 5, 8])
def test_a_step_that_writes_in_a_loop_of_unknown_length(when):
    state = start()
    for verify in ("last", "all", False):
        if when and verify != "last":
            continue
        with pytest.raises(ReplayError, match=f"step {when} writes"):
            adjoint(writes_at(when), reverse, state, lambda x, i: i < 9, SEED, slots=3, verify=verify)
        assert unlocked(state)


@pytest.mark.parametrize("when", [0, 4, 11])
@pytest.mark.parametrize("name", schedules_of(12, 3))
def test_a_reversal_that_writes_into_the_state(name, when):
    def back(x, a, i):
        if i == when:
            x *= 2
        return reverse(x, a, i)

    state = start()
    with pytest.raises(ReplayError, match=rf"^the reversal of step {when} writes into a state"):
        adjoint(advance, back, state, 12, SEED, schedule=schedules_of(12, 3)[name])
    assert unlocked(state)


def test_a_step_that_writes_into_one_leaf_of_a_tree():
    def step(s, i):
        if i == 4:
            s["deep"][1][2] = 1.0
        return {"u": advance(s["u"], i), "deep": (s["deep"][0] * 2, s["deep"][1] + 1)}

    state = {"u": start(), "deep": (np.ones(2), np.ones(3))}
    with pytest.raises(ReplayError, match="step 4 writes"):
        adjoint(step, lambda s, a, i: a, state, 9, SEED, schedule=StoreAll(9))
    assert unlocked(state["u"], *state["deep"])


TORCH = {
    "the first step": lambda x, a, i: i == 0 and a is None,
    "the last step": lambda x, a, i: i == 11 and a is None,
    "every step": lambda x, a, i: a is None,
    "a reversal": lambda x, a, i: i == 3 and a is not None,
}


@pytest.mark.parametrize("name", ["Revolve", "Revolve runs", "StoreAll", "Periodic", "Mixed", "Online"])
@pytest.mark.parametrize("when", TORCH)
def test_torch_tensors_that_change_are_noticed(name, when):
    def step(s, i):
        result = {"u": 3.6 * s["u"] * (1 - s["u"]), "v": s["v"] + 1}
        if TORCH[when](s, None, i):
            s["u"][0] = 0.5
        return result

    def back(s, a, i):
        result = 3.6 * (1 - 2 * s["u"]) * a
        if TORCH[when](s, a, i):
            s["u"].mul_(2)
        return result

    state = {"v": torch.zeros(2), "u": torch.tensor(start())}
    options = {"schedule": Online(3), "steps": lambda s, i: i < 12}
    if name != "Online":
        options = {"schedule": schedules_of(12, 3)[name], "steps": 12}
    with pytest.raises(ReplayError, match=r"state\['u'\] was changed in place"):
        adjoint(step, back, state, seed=torch.ones(7, dtype=torch.float64), **options)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_a_jax_array_that_was_given_away_is_noticed():
    state = {"u": jax.numpy.asarray(start())}
    given = jax.jit(lambda s: {"u": 3.6 * s["u"] * (1 - s["u"])}, donate_argnums=0)
    with pytest.raises(ReplayError, match=r"state\['u'\] was given away"):
        adjoint(lambda s, i: given(s), lambda s, a, i: a, state, 8, jax.numpy.ones(7), slots=3)


@pytest.mark.parametrize("name", schedules_of(12, 3))
@pytest.mark.parametrize("when", [0, 3, 11])
def test_flags_are_restored_whatever_goes_wrong(name, when):
    class Broken(Exception):
        pass

    def step(s, i):
        if i == when:
            raise Broken
        return {"u": advance(s["u"], i), "v": s["v"], "fixed": s["fixed"]}

    def back(s, a, i):
        if i == when:
            raise Broken
        return reverse(s["u"], a, i)

    fixed = np.ones(3)
    fixed.setflags(write=False)
    state = {"u": start(), "v": np.ones(4), "fixed": fixed}

    def good(s, i):
        return {"u": advance(s["u"], i), "v": s["v"], "fixed": s["fixed"]}

    schedule = schedules_of(12, 3)[name]
    for forward, backward in ((step, back), (good, back)):
        with pytest.raises(Broken):
            adjoint(forward, backward, state, 12, SEED, schedule=schedule)
        assert unlocked(state["u"], state["v"])
        assert not fixed.flags.writeable
    result = adjoint(good, lambda s, a, i: reverse(s["u"], a, i), state, 12, SEED, schedule=schedule)
    assert unlocked(state["u"], state["v"], result.state["u"], result.state["v"], result.adjoint)
    assert not fixed.flags.writeable


def test_an_array_and_a_view_of_it_in_one_state():
    whole = start()
    state = {"whole": whole, "part": whole[2:5]}

    def step(s, i):
        new = advance(s["whole"], i)
        return {"whole": new, "part": new[2:5]}

    def back(s, a, i):
        assert same(s["whole"][2:5], s["part"])
        return reverse(s["whole"], a, i)

    want = store_everything(advance, reverse, whole, range(12), SEED)
    for schedule in schedules_of(12, 3).values():
        result = adjoint(step, back, state, 12, SEED, schedule=schedule, verify="all")
        assert same((result.state["whole"], result.adjoint), want)
        assert unlocked(whole, state["part"])


@pytest.mark.parametrize("how", ["two rows in turn", "one row", "a view through another view"])
def test_results_in_memory_that_the_step_uses_again(how):
    """Such a step is wrong where states are held by reference: here its views are copied, so it is right."""
    rows = np.empty((2, 7))

    def step(x, i):
        if how == "two rows in turn":
            row = rows[i % 2]
        elif how == "one row":
            row = rows[0]
        else:
            row = rows.reshape(-1)[:7]
        row[:] = advance(x, i)
        return row

    want = store_everything(advance, reverse, start(), range(12), SEED)
    for schedule in schedules_of(12, 3).values():
        result = adjoint(step, reverse, start(), 12, SEED, schedule=schedule, verify="all")
        assert same((result.state.copy(), result.adjoint), want)


def test_a_buffer_that_the_step_returns_again_and_again_is_refused():
    buffer = np.empty(7)

    def step(x, i):
        np.copyto(buffer, advance(x, i))
        return buffer

    for schedule in schedules_of(12, 3).values():
        with pytest.raises(ReplayError, match="writes into a state"):
            adjoint(step, reverse, start(), 12, SEED, schedule=schedule)
    assert unlocked(buffer)


def test_a_view_whose_memory_is_its_own_is_not_copied():
    def step(x, i):
        return advance(x.reshape(-1), i).reshape(7, 1)

    def back(x, a, i):
        return reverse(x.reshape(-1), a, i)

    result = adjoint(step, back, start().reshape(7, 1), 20, SEED, slots=4)
    assert same(result.adjoint, store_everything(advance, reverse, start(), range(20), SEED)[1])
    assert result.report.peak["memory"] == 4 * 56


def test_writing_past_the_lock_is_found_by_verify_all():
    owner = np.empty(7)
    hidden = owner[:]

    def step(x, i):
        result = advance(x, i)
        if i == 0:
            hidden[:] = result
            return owner
        if i == 5:
            hidden[:] = 0.0
        return result

    for schedule in (StoreAll(9), Revolve(9, 9), Periodic(9, 1)):
        with pytest.raises(ReplayError, match="before step 1 differs in state from what it was when it was stored"):
            adjoint(step, reverse, start(), 9, SEED, schedule=schedule, verify="all")


class Slow(Memory):
    """Waits with every put until it is told that the steps have gone on, and notes what it is given."""

    def __init__(self):
        super().__init__()
        self.begun, self.go_on, self.given = threading.Event(), threading.Event(), []

    def put(self, key, tree):
        self.given.append(tree)
        self.begun.set()
        assert self.go_on.wait(20)
        super().put(key, tree)


def test_a_state_on_its_way_to_a_store_is_not_copied_but_locked():
    states = []

    def step(x, i):
        if not states:
            assert store.begun.wait(20)
            assert not x.flags.writeable
        if i == 2:
            store.go_on.set()
        states.append(advance(x, i))
        return states[-1]

    want = store_everything(advance, reverse, start(), range(9), SEED)
    state = start()
    with Slow() as store:
        result = adjoint(step, reverse, state, 9, SEED, schedule=Revolve(9, 3), store=store)
    assert same((result.state, result.adjoint), want)
    assert store.given[0] is state
    assert store.given[1] is states[3]
    assert unlocked(state, *states)


def test_a_step_that_writes_into_a_state_that_was_just_put_in_a_store():
    """However quick the store is: what is an error must not depend on time."""
    for schedule in (Revolve(9, 3), Revolve(9, 9)):
        stored = [action.step for action in schedule if isinstance(action, Snapshot)]
        for when in stored[1:3]:
            with Memory() as store, pytest.raises(ReplayError, match=f"step {when} writes into a state"):
                adjoint(writes_at(when), reverse, start(), 9, SEED, schedule=schedule, store=store)


def test_steps_from_states_that_are_not_stored_may_write():
    want = store_everything(advance, reverse, start(), range(9), SEED)
    assert 4 not in [action.step for action in Revolve(9, 2) if isinstance(action, Snapshot)]
    with Memory() as store:
        result = adjoint(writes_at(4), reverse, start(), 9, SEED, slots=2, store=store)
    assert same((result.state, result.adjoint), want)


def test_other_errors_are_the_users_own():
    def step(x, i):
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        adjoint(step, reverse, start(), 3, SEED)


def test_a_seed_that_writes_into_the_final_state():
    def seed(x):
        x *= 2
        return x

    for schedule in schedules_of(5, 2).values():
        with pytest.raises(ReplayError, match=r"^seed writes into a state"):
            adjoint(advance, reverse, start(), 5, seed, schedule=schedule)
