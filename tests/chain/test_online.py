"""Loops of unknown length: the rule against its obvious version, plans on the machine, cost against the optimum."""

from __future__ import annotations

import pickle
import random
import time
from itertools import islice, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.chain import Advance, EndForward, Free, Restore, Snapshot, Turn, check, decode
from pebbling.chain.binomial import advances, beta
from pebbling.chain.online import Ended, Online
from pebbling.chain.placement import placements
from pebbling.errors import PebblingError

SMALL = [(steps, slots) for slots in range(1, 9) for steps in range(61)]


def way_back(held, end, slots):
    return sum(advances(b - a, slots - i) for i, (a, b) in enumerate(zip(held, [*held[1:], end])))


def obvious_rule(slots, steps):
    """The states held when each step is reached, by trying every eviction at every step."""
    held, pinned, stage, targets = [0], {0}, 0, []
    for step in range(1, steps + 1):
        yield list(held)
        if step >= beta(slots, stage):
            stage += 1
            targets = [sum(beta(slots - q, stage - 1) for q in range(i)) for i in range(slots)]
            pinned = {0}
        # of equally good evictions the latest, and that of the last state only if it is better
        order = [i for i in [*range(slots - 2, 0, -1), slots - 1] if i < len(held) and held[i] not in pinned]
        tries = [[*held, step]] if len(held) < slots else [[*held[:i], *held[i + 1 :], step] for i in order]
        best = min(tries, key=lambda new: way_back(new, step + 1, slots), default=None)
        if step in targets:
            held = best
            pinned.add(step)
        elif best and way_back(best, step + 1, slots) < way_back(held, step + 1, slots):
            held = best


def held_when_reaching(slots, steps):
    slot_of, placement = {}, placements(slots)
    kept = next(placement, None)
    for step in range(1, steps + 1):
        while kept is not None and kept.step < step:
            assert slot_of.get(kept.slot) == kept.evicted
            slot_of[kept.slot] = kept.step
            kept = next(placement, None)
        yield sorted(slot_of.values())


@pytest.mark.parametrize("slots", range(1, 9))
def test_the_rule_is_the_obvious_one(slots):
    for step, (fast, slow) in enumerate(zip(held_when_reaching(slots, 300), obvious_rule(slots, 300)), 1):
        assert fast == slow, f"states held when step {step} is reached"


@settings(deadline=None)
@given(st.integers(9, 40))
def test_the_rule_is_the_obvious_one_with_many_slots(slots):
    assert list(held_when_reaching(slots, 150)) == list(obvious_rule(slots, 150))


def test_published_counts():
    def forwards(slots, *lengths):
        return [Online(slots).ended(steps).cost.forwards for steps in lengths]

    assert forwards(3, 5, 10, 20, 50, 100) == [12, 28, 69, 240, 613]
    assert forwards(5, 100, 1000) == [421, 7369]
    assert forwards(10, 100, 1000) == [325, 4640]


@pytest.mark.parametrize(("steps", "slots"), SMALL)
def test_small_plans_are_valid_and_cost_what_they_say(steps, slots):
    plan = Online(slots).ended(steps)
    cost = check(plan)
    assert plan.cost == cost
    assert cost.peak <= min(slots, steps)
    assert cost.forwards >= steps + advances(steps, slots)
    actions = list(plan)
    assert list(plan) == actions
    assert list(decode(np.concatenate(list(plan.chunks())))) == actions
    assert actions[plan.end_forward] == EndForward()


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(1, 60))
def test_plans_are_valid_and_cost_what_they_say(steps, slots):
    plan = Ended(steps, slots)
    assert check(plan) == plan.cost
    assert plan.cost.forwards == 2 * steps + way_back([step for step, _ in plan.held], steps, slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("steps", [1, 2, 9, 40, 61])
def test_positions_agree_with_a_run_of_the_prefix(steps, slots):
    plan = Ended(steps, slots)
    held, forwards, seen = {}, 0, []
    for index, action in enumerate(plan):
        match action:
            case Turn(step):
                position = plan.seek(step)
                assert (position, position.snapshots, position.forwards) == (index, held, forwards)
                assert list(islice(plan.since(index), 3)) == list(islice(plan, index, index + 3))
                forwards += 1
                seen.append(step)
            case Advance(start, stop):
                forwards += stop - start
            case Snapshot(step, slot, tier):
                held[tier, slot] = step
            case Free(_, slot, tier):
                del held[tier, slot]
    assert seen == list(reversed(range(steps)))


def joined(actions):
    """Neighbouring advances as one."""
    out = []
    for action in actions:
        if out and isinstance(action, Advance) and isinstance(out[-1], Advance):
            action = Advance(out.pop().start, action.stop)
        out.append(action)
    return out


@pytest.mark.parametrize(("steps", "slots"), SMALL)
def test_a_run_that_ends_has_done_what_the_endless_one_does(steps, slots):
    endless = []
    for action in Online(slots) if steps else []:
        endless.append(action)
        if action == Advance(steps - 1, steps):
            break
    plan = Online(slots).ended(steps)
    assert joined(endless) == list(plan)[: plan.end_forward]


def test_the_endless_stream_is_the_same_each_time():
    online = Online(4)
    assert list(islice(online, 500)) == list(islice(online, 500))
    assert list(islice(online.placement(), 99)) == list(islice(online.placement(), 99))


def test_no_step():
    assert list(Online(3).ended(0)) == [EndForward()]


def test_one_step():
    assert list(Online(3).ended(1)) == [
        Snapshot(0, 0, 0),
        Advance(0, 1),
        EndForward(),
        Restore(0, 0, 0),
        Free(0, 0, 0),
        Turn(0),
    ]


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (5, 5), (40, 41), (200, 1000)])
def test_with_a_slot_for_every_step_none_runs_more_than_twice(steps, slots):
    cost = check(Ended(steps, slots))
    assert (cost.forwards, cost.stores, cost.restores) == (2 * steps, steps, steps)


@pytest.mark.parametrize(
    ("slots", "excess", "written"), [(3, 1.0, 3), (5, 0.7, 6), (10, 0.16, 13), (20, 0.06, 20), (50, 0.05, 29)]
)
def test_close_to_a_plan_that_knows_the_length(slots, excess, written):
    """Mean excess of evaluations, and snapshots written on the way in a run of 10⁴ steps, both in per cent."""
    draw = random.Random(slots)
    lengths = [round(1000 * 10 ** (i / 25)) for i in range(26)] + [draw.randint(1000, 10_000) for _ in range(14)]
    ratios = [Ended(n, slots).cost.forwards / (n + advances(n, slots)) for n in lengths]
    assert min(ratios) >= 1
    assert 100 * (np.mean(ratios) - 1) < excess
    assert sum(isinstance(action, Snapshot) for action in takewhile(is_forward, Ended(10_000, slots))) <= 100 * written


def is_forward(action):
    return action != EndForward()


def test_the_cost_of_a_long_run_is_found_quickly():
    def seconds(steps):
        start = time.perf_counter()
        assert Ended(steps, 10).cost.forwards > steps
        return time.perf_counter() - start

    assert min(seconds(10_000) for _ in range(3)) < 0.2
    assert seconds(100_000) < 2


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_a_chaotic_gradient_is_that_of_storing_everything(slots):
    steps = 83

    def advance(x):
        return 3.9 * x * (1.0 - x)

    def reverse(x, adjoint):
        return adjoint * (3.9 - 7.8 * x)

    states = [0.3]
    for _ in range(steps):
        states.append(advance(states[-1]))
    expected = 1.0
    for x in reversed(states[:-1]):
        expected = reverse(x, expected)

    x, adjoint, snapshots = 0.3, 1.0, {}
    for action in Ended(steps, slots):
        match action:
            case Advance(start, stop):
                for _ in range(start, stop):
                    x = advance(x)
            case Snapshot(_, slot, _):
                snapshots[slot] = x
            case Restore(_, slot, _):
                x = snapshots[slot]
            case Free(_, slot, _):
                del snapshots[slot]
            case Turn(_):
                adjoint = reverse(x, adjoint)
    assert adjoint == expected


def test_a_driver_that_asks_after_every_step_follows_the_plan():
    slots, steps = 4, 70
    placement = Online(slots).placement()
    kept, held, i = next(placement), {}, 0
    while i < steps:
        if kept is not None and kept.step == i:
            held[kept.slot] = i
            kept = next(placement, None)
        i += 1
    plan = Online(slots).ended(steps)
    swept = {}
    for action in islice(plan, plan.end_forward):
        match action:
            case Snapshot(step, slot, _):
                swept[slot] = step
            case Free(step, slot, _):
                assert swept.pop(slot) == step
    assert held == swept
    way_back = list(plan.since(plan.end_forward + 1))
    assert list(plan)[plan.end_forward + 1 :] == way_back
    assert way_back[0] == Restore(max(held.values()), max(held, key=held.get), 0)


def test_values():
    assert Online(3) == Online(np.int64(3)) != Online(4)
    assert Online(3).ended(10) == Ended(10, 3) != Ended(11, 3)
    assert len({Online(3), Online(3), Ended(10, 3), Ended(10, 3), Ended(10, 4)}) == 3
    plan = Online(3).ended(100)
    assert pickle.loads(pickle.dumps(Online(3))) == Online(3)
    assert plan.cost == pickle.loads(pickle.dumps(plan)).cost
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert repr(Online(3)) == "Online(slots=3)"
    with pytest.raises(AttributeError):
        plan.steps = 3


@pytest.mark.parametrize("slots", [0, -1, 2.5, "3", True, None])
def test_slots_that_make_no_sense(slots):
    with pytest.raises(ValueError, match="slots must be a whole number of at least 1"):
        Online(slots)


def test_a_length_that_makes_no_sense():
    with pytest.raises(ValueError, match="steps must be a whole number of at least 0"):
        Online(3).ended(-1)


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        (lambda online: online.cost, r"ended\(steps\)\.cost"),
        (lambda online: online.model, r"ended\(steps\)\.model"),
        (lambda online: online.chunks(), r"ended\(steps\)\.chunks\(\)"),
        (lambda online: online.seek(7), r"ended\(steps\)\.seek\(7\)"),
        (list, r"ended\(steps\)"),
        (check, r"ended\(steps\)"),
    ],
)
def test_what_an_unknown_length_can_not_tell(ask, instead):
    with pytest.raises(PebblingError, match=r"Online\(slots=3\)\." + instead):
        ask(Online(3))
