"""Trees taken apart and put together again: containers, registered classes, names of leaves."""

from __future__ import annotations

import timeit
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pebbling import tree

Pair = namedtuple("Pair", ["left", "right"])


@dataclass(frozen=True)
class Frozen:
    values: Any
    derived: Any = field(init=False, default=0)


@dataclass(slots=True)
class Slotted:
    values: Any
    unset: Any = field(init=False)


@dataclass
class Counting:
    values: Any
    made = 0

    def __post_init__(self):
        Counting.made += 1
        self.undeclared = "kept"


class Grid:
    def __init__(self, spacing, values):
        self.spacing, self.values = spacing, values


tree.register(Grid, lambda grid: ((grid.values,), grid.spacing), lambda spacing, children: Grid(spacing, *children))

leaves = st.none() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Frozen, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


@given(trees)
def test_unflatten_undoes_flatten(state):
    parts, structure = tree.flatten(state)
    again = tree.unflatten(structure, parts)
    assert again == state
    assert type(again) is type(state)
    assert len(tree.paths(structure)) == len(parts)


@given(trees)
def test_leaves_are_replaced_in_order(state):
    parts, structure = tree.flatten(state)
    numbered = tree.unflatten(structure, range(len(parts)))
    assert tree.flatten(numbered) == (list(range(len(parts))), structure)


def test_dictionaries_keep_their_order_and_kind():
    state = defaultdict(list, {"z": 1, "a": 2})
    again = tree.copy(state)
    assert list(again) == ["z", "a"]
    assert again["new"] == []
    assert type(tree.copy(OrderedDict(b=1, a=2))) is OrderedDict


def test_dataclasses_come_back_without_being_made_anew():
    state = Counting([1])
    made = Counting.made
    again = tree.copy(state)
    assert Counting.made == made
    assert (again.values, again.undeclared) == ([1], "kept")
    assert tree.copy(Frozen({"a": 1})) == Frozen({"a": 1})


def test_a_field_that_was_never_set_stays_unset():
    again = tree.copy(Slotted([2]))
    assert again.values == [2]
    assert not hasattr(again, "unset")


def test_namespaces_are_taken_apart():
    parts, structure = tree.flatten(SimpleNamespace(u=1, v=[2]))
    assert (parts, tree.paths(structure)) == ([1, 2], ["state.u", "state.v[0]"])


def test_registered_classes_are_taken_apart():
    state = {"grid": Grid(0.5, [np.arange(3.0)])}
    again = tree.copy(state)["grid"]
    assert again.spacing == 0.5
    assert again.values[0] is not state["grid"].values[0]
    assert tree.nbytes(state) == 24
    assert tree.paths(tree.flatten(state)[1]) == ["state['grid'][0][0]"]


class Own(dict):
    pass


def test_subclasses_of_containers_are_leaves():
    own = Own(a=np.arange(2.0))
    assert tree.flatten([own])[0] == [own]
    again = tree.copy([own])[0]
    assert type(again) is Own
    assert again["a"] is not own["a"]
    assert tree.nbytes([own]) > 16


def test_what_cannot_be_pickled_can_still_be_copied():
    class Local:
        values = (1, 2)

    local = Local()
    assert tree.copy([local])[0] is not local
    assert tree.nbytes([local]) > 0


def test_paths_read_like_python():
    state = {"u": [1, (2,)], 3: Pair(4, Frozen(5))}
    names = tree.paths(tree.flatten(state)[1])
    assert names == [
        "state['u'][0]",
        "state['u'][1][0]",
        "state[3].left",
        "state[3].right.values",
        "state[3].right.derived",
    ]
    assert [eval(name, {"state": state}) for name in names] == [1, 2, 4, 5, 0]


def test_too_few_leaves_are_refused():
    _, structure = tree.flatten([1, 2])
    with pytest.raises(StopIteration):
        tree.unflatten(structure, [1])


def test_one_array_takes_less_than_two_microseconds():
    array = np.zeros(10)

    def both():
        parts, structure = tree.flatten(array)
        return tree.unflatten(structure, parts)

    assert min(timeit.repeat(both, number=1000, repeat=20)) / 1000 < 2e-6
