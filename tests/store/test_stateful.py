"""Any sequence of puts, gets, takes, drops and reopenings does what a dictionary would."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pebbling import tree
from pebbling.errors import StoreError
from pebbling.store import HDF5, Background, Compressed, Disk, Memory, orphans

keys = st.integers(0, 3) | st.sampled_from(["0", "a", "long key/with .. everything"])
arrays = hnp.arrays(
    st.sampled_from(["f8", "f4", ">i2", "?", "c16"]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
)
states = st.one_of(
    arrays,
    st.dictionaries(st.text(max_size=2), arrays, max_size=3),
    st.tuples(arrays, st.integers(), st.none()),
    st.integers(0, 40_000).map(lambda size: {"noise": np.random.default_rng(size).random(size), "n": size}),
)


class Machine(RuleBasedStateMachine):
    open = None
    keeps = False

    def __init__(self):
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.store = type(self).open(self.path)
        self.model = {}

    @rule(key=keys, state=states)
    def put(self, key, state):
        self.store.put(key, state)
        self.model[key] = tree.copy(state)
        for leaf in tree.flatten(state)[0]:
            if isinstance(leaf, np.ndarray):
                leaf[...] = 1

    @rule(key=keys)
    def get(self, key):
        if key in self.model:
            found = self.store.get(key)
            assert tree.differing(found, self.model[key]) is None
        else:
            with pytest.raises(StoreError):
                self.store.get(key)

    @rule(key=keys)
    def take(self, key):
        if key in self.model:
            assert tree.differing(self.store.take(key), self.model.pop(key)) is None
        else:
            with pytest.raises(StoreError):
                self.store.take(key)

    @rule(key=keys)
    def drop(self, key):
        if key in self.model:
            self.store.drop(key)
            del self.model[key]
        else:
            with pytest.raises(StoreError):
                self.store.drop(key)

    @precondition(lambda self: self.keeps)
    @rule()
    def reopen(self):
        self.store.close()
        self.store = type(self).open(self.path)

    @invariant()
    def same_keys(self):
        assert sorted(map(repr, self.store.keys())) == sorted(map(repr, self.model))

    @invariant()
    def size(self):
        self.store.flush()
        assert (self.store.nbytes == 0) <= (sum(map(tree.nbytes, self.model.values())) == 0)
        if not self.model:
            assert self.store.nbytes == 0

    def teardown(self):
        for key, state in self.model.items():
            assert tree.differing(self.store.get(key), state) is None
        self.store.close()
        shutil.rmtree(self.path)


class ClosingMachine(Machine):
    """As above, and nothing is left at the end."""

    def teardown(self):
        for key, state in self.model.items():
            assert tree.differing(self.store.get(key), state) is None
        self.store.close()
        assert list(self.path.iterdir()) == []
        self.path.rmdir()


OPENED = {
    "Memory": (ClosingMachine, lambda path: Memory(), False),
    "Disk": (ClosingMachine, lambda path: Disk(path / "d"), False),
    "Disk kept": (Machine, lambda path: Disk(path, run="r", keep=True), True),
    "HDF5": (ClosingMachine, lambda path: HDF5(path / "f.h5"), False),
    "HDF5 kept": (Machine, lambda path: HDF5(path / "f.h5", keep=True), True),
    "Compressed": (ClosingMachine, lambda path: Compressed(Memory()), False),
    "Compressed kept": (Machine, lambda path: Compressed(Disk(path, run="r", keep=True)), True),
    "Background": (ClosingMachine, lambda path: Background(Disk(path / "d")), False),
    "Background kept": (Machine, lambda path: Background(Disk(path, run="r", keep=True)), True),
}


@pytest.mark.parametrize("name", OPENED)
@pytest.mark.usefixtures("short_journal")
def test_a_store_does_what_a_dictionary_would(name):
    base, opener, keeps = OPENED[name]
    machine = type("TheMachine", (base,), {"open": staticmethod(opener), "keeps": keeps})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))


def test_the_slots_of_a_disk_store_are_used_again(tmp_path):
    with Disk(tmp_path / "d") as store:
        for number in range(200):
            store.put(number % 3, np.full(1000, number))
            if number % 7 == 0:
                store.drop(number % 3)
        assert len([file for file in store._directory.own() if file.number is not None]) <= 4
    assert not (tmp_path / "d").exists()


def test_the_journal_does_not_grow_for_ever(tmp_path, short_journal):
    with Disk(tmp_path, run="r", keep=True) as store:
        for number in range(500):
            store.put("k", number)
        assert (tmp_path / "pebbling-r.journal").stat().st_size < 40_000
        store.keep = False
    assert orphans(tmp_path) == []
