"""Steps that differ: optimal by every slow way of finding out, valid on the machine, honest about what does not fit."""

from __future__ import annotations

import heapq
import itertools
import math
import pickle
import random
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.chain import Revolve, check, compiled, decode, rotor, uneven_cost
from pebbling.chain.actions import Advance, Free, Record, Restore, Reverse, Snapshot, Turn
from pebbling.chain.grid import Grid, onto_grid
from pebbling.chain.tally import by_step
from pebbling.chain.uneven import Uneven
from pebbling.errors import BudgetError

ROUGH = [1, 5, 1, 1, 9, 1, 2, 1, 1, 4, 1, 1]
FORWARD = [1, 2, 1, 4, 1, 1, 3, 1]
BACKWARD = [2 * cost for cost in FORWARD]
STATE = [2, 1, 3, 1, 2, 1, 1, 2]
TAPE = [4, 2, 5, 3, 4, 2, 2, 4]


def fewest_advances(forward, slots):
    """Weighted advances by trying every split."""

    @cache
    def least(start, stop, slots):
        if stop - start <= 1:
            return 0
        if slots == 0:
            return math.inf
        return min(
            sum(forward[start:split]) + least(start, split, slots) + least(split, stop, slots - 1)
            for split in range(start + 1, stop)
        )

    return least(0, len(forward), slots)


def least_time(forward, backward, state, tape, memory):
    """Time by trying to tape the first step, and every split."""

    @cache
    def least(start, stop, memory):
        if memory < 0:
            return math.inf
        if stop - start <= 1:
            return sum(forward[start:stop]) + sum(backward[start:stop])
        taped = forward[start] + backward[start] + least(start + 1, stop, memory - tape[start])
        return min(
            taped,
            *(
                sum(forward[start:split]) + least(split, stop, memory - state[start]) + least(start, split, memory)
                for split in range(start + 1, stop)
            ),
        )

    return least(0, len(forward), memory)


def least_of_all(forward, backward, state, tape, memory):
    """Time of the cheapest of all plans: the shortest way through what the machine may hold."""
    first = (len(forward), 0, frozenset(), frozenset())
    found, queue, order = {first: 0}, [(0, 0, first)], itertools.count(1)
    while queue:
        time, _, here = heapq.heappop(queue)
        end, working, states, tapes = here
        if time > found[here]:
            continue
        if end == 0:
            return time
        free = memory - sum(state[i] for i in states) - sum(tape[i] for i in tapes)
        ways = [(0, (end, working, states - {i}, tapes)) for i in states]
        ways += [(0, (end, i, states, tapes)) for i in states if i < end]
        if end - 1 in tapes:
            ways.append((0, (end - 1, None, states, tapes - {end - 1})))
        if working is not None and working < end:
            run, both = forward[working], forward[working] + backward[working]
            ways.append((run, (end, working + 1, states, tapes)))
            if working == end - 1:
                ways.append((both, (end - 1, None, states, tapes)))
            if working not in states and state[working] <= free:
                ways.append((0, (end, working, states | {working}, tapes)))
            if working not in tapes and tape[working] <= free:
                ways.append((both, (end, working + 1, states, tapes | {working})))
        for more, there in ways:
            if time + more < found.get(there, math.inf):
                found[there] = time + more
                heapq.heappush(queue, (time + more, next(order), there))
    return math.inf


def weighted(schedule, forward):
    """The advances of any schedule, weighted with the costs of the steps."""
    return sum(times * cost for times, cost in zip(by_step(schedule, len(forward)), forward, strict=True))


def proven(schedule):
    """The cost of a schedule that the machine accepts, which is the one that it claims to have."""
    assert check(schedule) == schedule.cost
    return schedule.cost


numbers = st.floats(0, 100, allow_subnormal=False)
whole_numbers = st.integers(0, 12)


@st.composite
def problems(draw, number=numbers, most=14):
    """Costs, sizes and a memory that suffices."""
    steps = draw(st.integers(0, most))
    lists = [draw(st.lists(number, min_size=steps, max_size=steps)) for _ in range(4)]
    least = lists[2][0] if steps else 0
    return lists, least + draw(number)


@pytest.mark.parametrize(("slots", "advances"), [(1, 173), (2, 59), (3, 43), (4, 37)])
def test_known_weighted_advances(slots, advances):
    cost = proven(Uneven(ROUGH, slots=slots))
    assert cost.time - sum(ROUGH) == advances


def test_every_small_list_of_costs():
    for steps in range(7):
        for forward in itertools.product((0, 1, 5), repeat=steps):
            for slots in range(1, min(steps, 4) + 1):
                cost = Uneven(forward, slots=slots).cost
                assert cost.time - sum(forward) == fewest_advances(forward, slots), (forward, slots)


def test_no_plan_that_keeps_states_is_cheaper():
    choose = random.Random(5)
    for _ in range(120):
        forward = [choose.randint(0, 9) for _ in range(choose.randint(2, 7))]
        slots, steps = choose.randint(1, 4), len(forward)
        best = least_of_all(forward, [0] * steps, [1] * steps, [slots + 1] * steps, slots)
        assert Uneven(forward, slots=slots).cost.time == best, (forward, slots)


@given(st.lists(numbers, max_size=40), st.integers(1, 12))
@settings(deadline=None)
def test_costs_alone_valid_and_optimal(forward, slots):
    schedule = Uneven(forward, slots=slots)
    cost = proven(schedule)
    assert cost.peak <= slots
    advances = cost.time - sum(forward)
    assert advances == pytest.approx(fewest_advances(tuple(forward), slots), abs=1e-9, rel=1e-9)
    assert advances == pytest.approx(uneven_cost.solve(forward, slots).value, abs=1e-9, rel=1e-9)
    assert Uneven(forward, slots=slots + 1).cost.time <= cost.time * (1 + 1e-12)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10, 50, 127])
@pytest.mark.parametrize("slots", [1, 2, 3, 7, 200])
def test_equal_costs_are_revolve(steps, slots):
    cost, even = proven(Uneven([1] * steps, slots=slots)), Revolve(steps, slots).cost
    assert (cost.forwards, cost.advances, cost.time) == (even.forwards, even.advances, even.time)
    assert (cost.peak, cost.restores) == (even.peak, even.restores)
    assert isinstance(cost.advances, int)


def test_cost_blind_plans_lose():
    losses = []
    for seed in range(20):
        forward = np.random.default_rng(seed).lognormal(sigma=1.5, size=60)
        blind = weighted(Revolve(60, 4), forward)
        seeing = weighted(Uneven(forward, slots=4), forward)
        assert seeing <= blind
        losses.append(blind / seeing - 1)
    assert np.mean(losses) > 0.1
    assert weighted(Uneven(ROUGH, slots=3), ROUGH) == 43 < weighted(Revolve(12, 3), ROUGH)


def test_backward_is_added_once_a_step():
    forward, backward = [1, 5, 2, 3], [10, 20, 30, 40]
    assert Uneven(forward, backward, slots=2).cost.time == Uneven(forward, slots=2).cost.time + 100


@pytest.mark.parametrize(("memory", "time"), [(2, 90), (4, 61), (6, 52), (8, 51), (10, 48), (12, 47), (16, 45)])
def test_known_times(memory, time):
    cost = proven(Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=memory))
    assert cost.time == time
    assert cost.peak <= memory


def test_every_small_list_of_sizes():
    for steps in range(1, 5):
        forward, backward = [1, 3, 1, 2][:steps], [2, 0, 1, 5][:steps]
        for state in itertools.product((0, 1, 2), repeat=steps):
            for tape in itertools.product((1, 3), repeat=steps):
                for memory in (0, 2, 3, 5):
                    best = least_time(forward, backward, state, tape, memory)
                    try:
                        time = Uneven(forward, backward, state, tape, memory=memory).cost.time
                    except BudgetError:
                        time = math.inf
                    assert time == best, (state, tape, memory)


@given(problems(whole_numbers, most=9))
@settings(deadline=None)
def test_whole_numbers_are_optimal(problem):
    lists, memory = problem
    schedule = Uneven(*lists, memory=memory)
    assert proven(schedule).time == least_time(*map(tuple, lists), memory)


@given(problems(), st.sampled_from([None, 1, 7, 40]))
@settings(deadline=None)
def test_sizes_of_any_kind_are_valid(problem, units):
    lists, memory = problem
    schedule = Uneven(*lists, memory=memory, units=units)
    cost = proven(schedule)
    assert cost.peak <= memory
    assert cost.time >= least_time(*map(tuple, lists), memory) * (1 - 1e-12)
    solved = rotor.solve(lists[0], lists[1], onto_grid(*schedule._sizes))
    assert cost.time == pytest.approx(solved.value, rel=1e-12)


@given(problems(), numbers, st.sampled_from([1, 7, 40]))
@settings(deadline=None)
def test_more_memory_never_hurts(problem, more, units):
    lists, memory = problem
    less = Uneven(*lists, memory=memory, units=units).cost.time
    assert Uneven(*lists, memory=memory + more, units=units).cost.time <= less * (1 + 1e-12)


def test_more_memory_never_hurts_across_the_end_of_exactness():
    choose = random.Random(2)
    state, tape = ([choose.randint(1, 9) for _ in range(12)] for _ in range(2))
    memories = range(9, sum(tape) + 1)
    times = [Uneven([1] * 12, None, state, tape, memory=memory, units=20).cost.time for memory in memories]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1] == 12


@pytest.mark.parametrize(("steps", "memory"), [(1, 1), (2, 1), (10, 3), (50, 7), (60, 59)])
def test_tapes_that_never_fit_are_revolve(steps, memory):
    ones = [1] * steps
    cost = proven(Uneven(ones, [0] * steps, ones, [memory + 1] * steps, memory=memory))
    even = Revolve(steps, memory).cost
    assert (cost.forwards, cost.advances, cost.time) == (even.forwards, even.advances, even.time)


@pytest.mark.parametrize(
    ("steps", "memory", "tape", "forwards"),
    [(10, 3, 1, 19), (100, 5, 1, 352), (100, 10, 1, 237), (10, 3, 2, 24), (50, 10, 2, 113), (50, 10, 3, 124)],
)
def test_equal_sizes_are_states_and_tapes_together(steps, memory, tape, forwards):
    ones = [1] * steps
    assert proven(Uneven(ones, None, ones, [tape] * steps, memory=memory)).forwards == forwards


def test_ample_memory_tapes_everything():
    tape = [0.1, 0.7, 0.3, 0.2]
    schedule = Uneven([1, 2, 3, 4], [4, 3, 2, 1], [9] * 4, tape, memory=math.fsum(tape[:-1]) + 1e-9)
    assert proven(schedule).time == 20
    assert schedule.cost.advances == 0
    assert Uneven([1.0] * 5000, None, [1] * 5000, [1] * 5000, memory=4999).cost.forwards == 5000


def test_a_state_dropped_early_can_be_cheaper():
    """The stated limit: only plans that keep a state until the steps after it are reversed are looked at."""
    problem = [0, 2, 2, 0, 0, 2], [0] * 6, [4, 4, 3, 4, 2, 3], [6, 3, 6, 3, 3, 3], 7
    *lists, memory = problem
    assert Uneven(*lists, memory=memory).cost.time == 14 == least_time(*problem)
    assert least_of_all(*problem) == 12


def test_scaling_sizes_changes_nothing():
    small = Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=8)
    large = Uneven(FORWARD, BACKWARD, [s * 2**20 for s in STATE], [t * 2**20 for t in TAPE], memory=8 * 2**20)
    assert list(small) == list(large)
    assert large.cost.peak == small.cost.peak * 2**20


def test_units_round_sizes_up():
    assert onto_grid([2, 4], [6, 8], 7, 100) == Grid(0, (0, 0), (0, 0))
    assert onto_grid([2, 4], [8, 8], 7, 100) == Grid(3, (1, 2), (4, 4))
    assert onto_grid([2.0, 0.0], [8.0, 1.0], 7.0, 2) == Grid(2, (1, 0), (3, 1))
    coarse = Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=8, units=2)
    assert proven(coarse).time > 51
    assert coarse.cost.peak <= 8


@given(problems(), st.sampled_from([None, 1, 7, 40]))
@settings(deadline=None)
def test_the_minimum_works_and_nothing_less(problem, units):
    lists, _ = problem
    try:
        Uneven(*lists, memory=0, units=units)
    except BudgetError as error:
        least = error.minimum
        assert proven(Uneven(*lists, memory=least, units=units)).peak <= least
        with pytest.raises(BudgetError) as again:
            Uneven(*lists, memory=math.nextafter(least, 0), units=units)
        assert again.value.minimum == least


@given(problems(whole_numbers, most=7))
@settings(deadline=None)
def test_the_minimum_of_whole_numbers_is_the_true_one(problem):
    lists, memory = problem
    truth = next(m for m in itertools.count() if least_time(*map(tuple, lists), m) < math.inf)
    assert truth <= memory
    if truth:
        with pytest.raises(BudgetError) as refused:
            Uneven(*lists, memory=truth - 1)
        assert refused.value.minimum == truth


def test_too_little_memory_says_how_much_it_takes():
    with pytest.raises(BudgetError, match=r"8 steps fits in memory=1\.5: the smallest that works is 2\.0"):
        Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=1.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slots": 2, "memory": 3}, "both was given"),
        ({}, "neither was given"),
        ({"slots": 0}, "slots must be a whole number of at least 1, not 0"),
        ({"slots": 2, "state": [1, 1]}, "state says nothing where slots are counted"),
        ({"slots": 2, "tape": [1, 1]}, "tape says nothing"),
        ({"slots": 2, "units": 9}, "units says nothing"),
        ({"memory": 3, "state": [1, 1]}, "tape is missing"),
        ({"memory": 3, "tape": [1, 1]}, "state is missing"),
        ({"memory": 3, "state": [1], "tape": [1, 1]}, "state has 1 entries for 2 steps"),
        ({"memory": 3, "state": [1, 1], "tape": [1, -1]}, r"tape\[1\] must be a zero or positive, finite number"),
        ({"memory": math.nan, "state": [1, 1], "tape": [1, 1]}, "memory must be"),
        ({"memory": 3, "state": [1, 1], "tape": [1, 1], "units": 0}, "units must be a whole number of at least 1"),
        ({"slots": 2, "backward": [1, 2, 3]}, "backward has 3 entries for 2 steps"),
        ({"slots": 2, "forward": [1, math.nan]}, r"forward\[1\] must be"),
        ({"slots": 2, "forward": 7}, "forward must be a list with one number a step"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        Uneven(**{"forward": [1, 2], **arguments})


@pytest.mark.parametrize("budget", ["slots", "memory"])
def test_a_table_beyond_all_bounds_is_refused(budget):
    ones = np.ones(100_000)
    schedule = Uneven(ones, slots=10) if budget == "slots" else Uneven(ones, None, ones, 1 + ones, memory=10)
    with pytest.raises(ValueError, match=r"100000 steps and 10 .* join neighbouring steps into one"):
        schedule.cost  # noqa: B018


EXAMPLES = [
    Uneven(ROUGH, slots=3),
    Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=8),
    Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=16),
    Uneven([], slots=1),
    Uneven([], [], [], [], memory=0),
    Uneven([3], None, [1], [1], memory=0),
    Uneven(np.random.default_rng(0).random(1300), slots=6),
    Uneven([1] * 1300, None, [1] * 1300, [1] * 1300, memory=1300),
]


@pytest.mark.parametrize("schedule", EXAMPLES, ids=range(len(EXAMPLES)))
def test_streams_agree(schedule):
    actions = list(schedule)
    assert list(schedule) == actions
    assert [action for rows in schedule.chunks() for action in decode(rows)] == actions
    for start in range(0, len(actions), 7 + len(actions) // 20):
        assert list(schedule.since(start)) == actions[start:]


@pytest.mark.parametrize("schedule", EXAMPLES, ids=range(len(EXAMPLES)))
def test_seek_is_a_run_of_the_prefix(schedule):
    snapshots, tapes, forwards, sought = {}, set(), 0, 0
    for index, action in enumerate(schedule):
        match action:
            case Turn(step) | Reverse(step):
                position = schedule.seek(step)
                assert position == index
                assert position.snapshots == snapshots
                assert {kept for run in position.tapes for kept in run} == tapes
                assert position.forwards == forwards
                forwards += isinstance(action, Turn)
                tapes.discard(step)
                sought += 1
            case Record(step):
                tapes.add(step)
                forwards += 1
            case Advance(start, stop):
                forwards += stop - start
            case Snapshot(step, slot, tier):
                assert slot == len(snapshots)
                snapshots[tier, slot] = step
            case Restore(step, slot, tier):
                assert snapshots[tier, slot] == step
            case Free(_, slot, tier):
                del snapshots[tier, slot]
    assert sought == schedule.steps


@pytest.mark.parametrize("schedule", EXAMPLES, ids=range(len(EXAMPLES)))
def test_plain_values(schedule):
    schedule.cost  # noqa: B018
    copy = pickle.loads(pickle.dumps(schedule))
    assert copy == schedule
    assert hash(copy) == hash(schedule)
    assert list(copy) == list(schedule)
    assert eval(repr(schedule)) == schedule


def test_arrays_and_lists_are_alike():
    lists = Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=8)
    assert Uneven(*map(np.array, (FORWARD, BACKWARD, STATE, TAPE)), memory=np.float32(8)) == lists
    assert Uneven(FORWARD, BACKWARD, STATE, TAPE, memory=9) != lists
    assert Uneven(ROUGH, slots=2) != Uneven(ROUGH, slots=3)
    with pytest.raises(AttributeError):
        lists.memory = 9


@given(st.lists(st.integers(0, 5), max_size=25), st.integers(1, 8), st.sampled_from([1, 300, 1 << 25]))
@settings(deadline=None, max_examples=40)
def test_loops_and_blocks_choose_alike(forward, slots, cells):
    with pytest.MonkeyPatch.context() as patch:
        vectors = uneven_cost.solve(forward, slots)
        patch.setattr(uneven_cost, "_fill", uneven_cost._fill_loop)
        patch.setattr(uneven_cost, "_CELLS", cells)
        assert uneven_cost.solve(forward, slots) == vectors


@given(problems(st.integers(0, 6), most=10))
@settings(deadline=None, max_examples=40)
def test_rotor_loops_choose_alike(problem):
    (forward, backward, state, tape), memory = problem
    with pytest.MonkeyPatch.context() as patch:
        vectors = rotor.solve(forward, backward, onto_grid(state, tape, memory, 99))
        patch.setattr(rotor, "_fill", rotor._fill_loop)
        assert rotor.solve(forward, backward, onto_grid(state, tape, memory, 99)) == vectors


def test_compiled_loops_choose_alike(monkeypatch):
    choose = np.random.default_rng(3)
    forward, backward = choose.random(150), choose.random(150)
    grid = onto_grid(choose.random(150), 3 * choose.random(150), 9.0, 60)

    def solve():
        return uneven_cost.solve(forward, 7), rotor.solve(forward, backward, grid)

    vectors = solve()
    for module in (uneven_cost, rotor):
        monkeypatch.setattr(module, "_WORTH", 0)
        monkeypatch.setattr(module, "_fill", None)
    assert solve() == vectors


def test_without_numba_the_twin_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled._compiled.cache_clear()
    assert compiled.faster(len, max, work=2, worth=1) is max
    compiled._compiled.cache_clear()
    assert compiled.faster(len, max, work=0, worth=1) is max
