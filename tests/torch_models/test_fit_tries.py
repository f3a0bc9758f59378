"""Which plans are compiled for a budget, with a compiler that is made up, and how those that fit are timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pebbling.graph import Graph, Node, Storage
from pebbling.torch.models.trial import times_of
from pebbling.torch.models.tries import TRIES, Tried, Tries, Trying


class Compiler:
    """Plans take what they are asked for, within what their cut allows; compiled, they take some bytes more or less."""

    def __init__(self, least: tuple[int, int], everything: tuple[int, int], more: tuple[int, int]) -> None:
        self.least, self.everything, self.more = least, everything, more

    def tried(self, trying: Trying) -> Tried:
        cut = int(trying.freely)
        whole = self.everything[cut]
        peak = max(min(trying.ask, whole), self.least[cut])
        made = Node("made", (), (Storage("made", whole),))
        plan: Any = SimpleNamespace(
            peak=peak,
            replayed={"made": 1} if peak < whole else {},
            overhead=(whole - peak) / whole,
            time=2 - peak / whole,
            graph=Graph([made], [], ["made"]),
        )
        compiled: Any = SimpleNamespace(plan=plan, what=SimpleNamespace(later=frozenset({"made"})))
        return Tried(compiled, trying.freely, trying.ask, trying.ask < self.least[cut], peak + self.more[cut])

    def search(self, memory: int) -> Tries:
        tries = Tries(memory)
        while (trying := tries.following()) is not None:
            tries.made.append(self.tried(trying))
        return tries


sizes = st.integers(1_000, 10_000)
errors = st.integers(-500, 500)


@settings(deadline=None)
@given(st.tuples(sizes, sizes), st.tuples(sizes, sizes), st.tuples(errors, errors), st.integers(1, 12_000))
def test_few_plans_are_compiled_and_one_fits_if_any_plan_does(
    least: tuple[int, int], saved: tuple[int, int], more: tuple[int, int], memory: int
) -> None:
    compiler = Compiler(least, (least[0] + saved[0], least[1] + saved[1]), more)
    tries = compiler.search(memory)
    assert (tries.made[0].freely, tries.made[0].asked) == (False, memory)
    assert len(tries.made) <= TRIES
    assert bool(tries.fitting) == (min(least[0] + more[0], least[1] + more[1]) <= memory)


@settings(deadline=None)
@given(sizes, sizes, errors)
def test_a_cut_that_fits_as_it_is_is_compiled_once(least: int, saved: int, more: int) -> None:
    whole = least + saved
    tries = Compiler((least, least), (whole, whole), (min(more, 0), 0)).search(whole)
    assert [each.freely for each in tries.made] == [False]


def test_a_cut_that_was_thought_too_large_is_tried_as_it_is_once_it_is_known_to_fit() -> None:
    # Planned, it takes 9 000 and seems not to fit into 8 500; compiled, it takes 1 000 less.
    tries = Compiler((1_000, 1_000), (9_000, 7_000), (-1_000, 0)).search(8_500)
    assert [(each.freely, bool(each.plan.replayed)) for each in tries.made] == [
        (False, True),
        (True, False),
        (False, False),
    ]
    assert tries.made[-1].peak <= 8_500


def test_what_is_over_the_budget_asks_for_less_and_what_leaves_room_for_more() -> None:
    over = Compiler((1_000, 1_000), (9_000, 9_000), (300, 300)).search(5_000)
    assert [each.asked for each in over.made] == [5_000, 4_684, 4_700 - 15 - 1]
    assert over.made[-1].peak <= 5_000
    roomy = Tries(5_000)
    compiler = Compiler((1_000, 1_000), (9_000, 9_000), (0, 0))
    roomy.made += [compiler.tried(Trying(False, 3_000)), compiler.tried(Trying(True, 3_200))]
    assert roomy.following() == Trying(True, 5_000)


def test_a_cut_that_is_a_little_too_large_has_a_second_chance_against_one_that_is_small() -> None:
    near = Compiler((1_000, 1_000), (5_000, 3_000), (30, 0)).search(5_000)
    assert [(each.freely, each.asked, each.peak) for each in near.made] == [
        (False, 5_000, 5_030),
        (True, 4_968, 3_000),
        (False, 4_968, 4_998),
    ]
    far = Compiler((1_000, 1_000), (5_000, 3_000), (300, 0)).search(5_000)
    assert [each.freely for each in far.made] == [False, True]


def test_steps_are_timed_in_turns_and_leave_no_trace() -> None:
    order: list[str] = []
    weight, statistics = torch.ones(3, requires_grad=True), torch.zeros(3)

    def named(name: str, again: int) -> Any:
        def run(weight: torch.Tensor, statistics: torch.Tensor) -> torch.Tensor:
            order.append(name)
            statistics += torch.rand(3)
            for _ in range(again):
                weight = weight.sin()
            return weight.sum()

        return run

    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    quick, slow = times_of([named("quick", 1), named("slow", 300)], (weight, statistics), {1}, None)
    assert quick < slow
    assert order == ["quick", "slow"] * (len(order) // 2)
    assert len(order) >= 10
    assert weight.grad is None
    assert torch.equal(statistics, torch.zeros(3))
    assert torch.equal(torch.rand(3), expected)
