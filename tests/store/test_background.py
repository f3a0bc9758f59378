"""Transfers behind the computing: overlap, order, bounds, and errors that are never lost."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from pebbling.errors import CorruptSnapshot, StoreError, StoreFull
from pebbling.store import Background, Compressed, Disk, Memory, Mock, Store

STEPS = 20


class Gate(Memory):
    """A tier whose copies last until they are let through, one by one."""

    def __init__(self):
        super().__init__()
        self.passes = threading.Semaphore(0)
        self.events = []

    def put(self, key, tree):
        self.events.append(("put begins", key))
        assert self.passes.acquire(timeout=20)
        super().put(key, tree)
        self.events.append(("put ends", key))

    def get(self, key):
        self.events.append(("get begins", key))
        assert self.passes.acquire(timeout=20)
        tree = super().get(key)
        self.events.append(("get ends", key))
        return tree

    def drop(self, key):
        self.events.append(("drop", key))
        super().drop(key)

    def allow(self, count):
        for _ in range(count):
            self.passes.release()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_writing_overlaps_with_computing():
    """Every transfer begins before the computing that follows it, and ends only after that."""
    gate = Gate()
    with Background(gate) as store:
        for step in range(STEPS):
            store.put(step, np.full(10, step))
            until(lambda step=step: ("put begins", step) in gate.events)
            gate.events.append(("computed", step))
            gate.allow(1)
        store.flush()
    assert gate.events == [(what, step) for step in range(STEPS) for what in ("put begins", "computed", "put ends")]


def test_computing_goes_on_while_several_wait_to_be_written():
    gate = Gate()
    with Background(gate, pending=3) as store:
        for step in range(3):
            store.put(step, np.full(10, step))
            gate.events.append(("computed", step))
        until(lambda: ("put begins", 0) in gate.events)
        assert not any(name == "put ends" for name, _ in gate.events)
        gate.allow(3)
    assert [key for name, key in gate.events if name == "put ends"] == [0, 1, 2]


def test_reading_overlaps_with_computing():
    """What was asked for ahead is read while the step before it is computed, and read once."""
    gate = Gate()
    for step in range(STEPS):
        Memory.put(gate, step, np.full(10, step))
    with Background(gate) as store:
        gate.allow(1)
        store.prefetch(STEPS - 1)
        for step in reversed(range(STEPS)):
            assert (store.get(step) == step).all()
            if step:
                store.prefetch(step - 1)
                until(lambda step=step: ("get begins", step - 1) in gate.events)
                gate.events.append(("computed", step))
                gate.allow(1)
    order = [("get begins", STEPS - 1), ("get ends", STEPS - 1)]
    for step in reversed(range(1, STEPS)):
        order += [("get begins", step - 1), ("computed", step), ("get ends", step - 1)]
    assert gate.events == order


def test_what_is_lent_is_not_copied_and_is_needed_until_it_is_written():
    class Looking(Gate):
        def put(self, key, tree):
            super().put(key, tree)
            self.seen = tree

    gate, state = Looking(), np.arange(5.0)
    with Background(gate) as store:
        task = store.lend(0, state)
        until(lambda: gate.events)
        assert not task.done
        assert store.get(0) is not state
        gate.allow(1)
        store.flush()
        assert task.done
        assert gate.seen is state
        first = store.lend(1, state)
        until(lambda: ("put begins", 1) in gate.events)
        second = store.lend(2, state)
        store.drop(2)
        assert second.done
        assert not first.done
        gate.allow(1)


def test_no_more_copies_wait_than_were_allowed():
    gate = Gate()
    store = Background(gate, pending=2)
    state = np.arange(1000.0)
    store.put(0, state)
    store.put(1, state)
    assert store.pending_bytes == 2 * state.nbytes
    third = threading.Thread(target=store.put, args=(2, state))
    third.start()
    time.sleep(0.05)
    assert third.is_alive()
    assert store.pending_bytes == 2 * state.nbytes
    gate.allow(1)
    third.join(20)
    assert not third.is_alive()
    gate.allow(2)
    store.flush()
    assert store.pending_bytes == 0
    assert store.nbytes == gate.nbytes == 3 * state.nbytes
    store.close()


def test_what_waits_is_given_from_memory_as_it_was_put():
    gate = Gate()
    with Background(gate) as store:
        state = {"u": np.arange(3)}
        store.put(0, state)
        state["u"][:] = -1
        first = store.get(0)
        first["u"][:] = -2
        assert store.get(0)["u"].tolist() == [0, 1, 2]
        assert not any(name == "get begins" for name, _ in gate.events)
        gate.allow(1)
        store.flush()
        gate.allow(1)
        assert store.get(0)["u"].tolist() == [0, 1, 2]
        assert gate.events[-1] == ("get ends", 0)


def test_a_slot_is_not_used_again_before_its_copy_is_complete():
    gate = Gate()
    with Background(gate, pending=3) as store:
        store.put("slot", 1)
        until(lambda: gate.events == [("put begins", "slot")])
        store.drop("slot")
        store.put("slot", 2)
        time.sleep(0.05)
        assert gate.events == [("put begins", "slot")]
        assert store.get("slot") == 2
        gate.allow(1)
        until(lambda: ("drop", "slot") in gate.events)
        gate.allow(1)
        store.flush()
        names = [name for name, _ in gate.events]
        assert names == ["put begins", "put ends", "drop", "put begins", "put ends"]
        gate.allow(1)
        assert store.get("slot") == 2


def test_a_slot_is_not_written_while_it_is_read():
    gate = Gate()
    Memory.put(gate, "slot", 1)
    with Background(gate) as store:
        store.prefetch("slot")
        until(lambda: gate.events == [("get begins", "slot")])
        store.put("slot", 2)
        assert store.get("slot") == 2
        time.sleep(0.05)
        assert gate.events == [("get begins", "slot")]
        gate.allow(2)
        store.flush()
        assert gate.events[1:] == [("get ends", "slot"), ("put begins", "slot"), ("put ends", "slot")]
        gate.allow(1)
        assert store.get("slot") == 2


def test_copies_that_are_no_longer_wanted_are_called_off():
    gate = Gate()
    with Background(gate, pending=3) as store:
        store.put("first", 1)
        until(lambda: gate.events)
        store.put("dropped", 2)
        store.drop("dropped")
        store.put("replaced", 3)
        store.put("replaced", 4)
        store.put("taken", 5)
        assert store.take("taken") == 5
        assert store.keys() == ["first", "replaced"]
        gate.allow(2)
        store.flush()
        assert [key for name, key in gate.events if name == "put begins"] == ["first", "replaced"]
        assert sorted(Memory.keys(gate)) == ["first", "replaced"]
        with pytest.raises(StoreError, match="no snapshot 'dropped'"):
            store.get("dropped")


def test_reads_go_before_writes_that_wait():
    gate = Gate()
    Memory.put(gate, "old", 1)
    with Background(gate, pending=3) as store:
        store.put(0, 0)
        until(lambda: gate.events)
        store.put(1, 1)
        store.prefetch("old")
        gate.allow(2)
        assert store.get("old") == 1
        assert gate.events[:4] == [("put begins", 0), ("put ends", 0), ("get begins", "old"), ("get ends", "old")]
        gate.allow(1)


def test_only_so_many_are_read_ahead():
    mock = Mock()
    for key in range(5):
        mock.store.put(key, np.full(100, key))
    with Background(mock, pending=2) as store:
        assert [store.prefetch(key) for key in range(4)] == [True, True, False, False]
        assert store.prefetch(0)
        store.flush()
        assert store.pending_bytes == 2 * 800
        assert store.get(1)[0] == 1
        assert store.pending_bytes == 800
        assert store.prefetch(3)
        assert store.take(0)[0] == 0
        store.drop(3)
        assert store.keys() == [1, 2, 4]
        assert store.pending_bytes == 0
        assert mock.count("get") <= 3


def test_what_was_read_ahead_is_private():
    inner = Memory()
    inner.put(0, np.arange(3))
    with Background(inner) as store:
        for _ in range(2):
            store.prefetch(0)
            state = store.get(0)
            assert state.tolist() == [0, 1, 2]
            state[:] = -1


@pytest.mark.parametrize("call", ["put", "get", "drop", "prefetch", "flush", "close", "reserve"])
@pytest.mark.parametrize("kind", [StoreError, StoreFull, CorruptSnapshot, OSError])
def test_an_error_is_raised_by_the_next_call(call, kind):
    mock = Mock(fail_at=2, error=kind)
    store = Background(mock)
    store.put("fine", 1)
    store.flush()
    store.put("lost", 2)
    until(lambda: len(mock.log) >= 2 and store._worker.idle())
    arguments = {"put": (3, 3), "get": ("fine",), "drop": ("fine",), "prefetch": ("fine",), "reserve": (1, 1)}
    with pytest.raises(StoreError, match="put of snapshot 'lost' failed in the background: call 2") as caught:
        getattr(store, call)(*arguments.get(call, ()))
    assert isinstance(caught.value, kind) or kind is OSError
    assert isinstance(caught.value.__cause__, kind)
    if call == "close":
        assert mock.closed
        return
    assert store.get("fine") == 1
    with pytest.raises(StoreError, match="holds no snapshot 'lost'"):
        store.get("lost")
    store.put("lost", 3)
    store.flush()
    assert store.get("lost") == 3
    store.close()
    assert mock.closed


def test_a_snapshot_that_could_not_be_replaced_is_gone_not_old():
    mock = Mock(fail_at=2)
    store = Background(mock)
    store.put(0, "old")
    store.flush()
    store.put(0, "new")
    with pytest.raises(StoreError, match="put of snapshot 0"):
        store.flush()
    with pytest.raises(StoreError, match="holds no snapshot 0"):
        store.get(0)
    store.flush()
    assert mock.keys() == []
    store.close()


def test_every_error_is_raised_in_turn():
    mock = Mock(fail_at=(1, 2))
    store = Background(mock)
    store.put(0, 0)
    until(lambda: len(mock.log) == 1 and store._worker.idle())
    with pytest.raises(StoreError, match="put of snapshot 0"):
        store.put(1, 1)
    store.put(1, 1)
    with pytest.raises(StoreError, match="put of snapshot 1"):
        store.close()
    store.close()
    assert mock.closed


def test_an_error_in_reading_ahead_is_raised_where_it_is_read():
    mock = Mock(fail_at=1, error=CorruptSnapshot)
    mock.store.put(0, 0)
    mock.store.put(1, 1)
    with Background(mock) as store:
        store.prefetch(0)
        store.flush()
        assert store.get(1) == 1
        with pytest.raises(CorruptSnapshot, match="call 1"):
            store.get(0)
        assert store.get(0) == 0


def test_a_lossy_store_gives_the_same_however_far_it_got():
    mock = Mock(write_delay=0.05)
    with Background(Compressed(mock, lossy_bits=2)) as store:
        assert store.lossy
        store.put(0, np.array([1.3]))
        early = store.get(0)
        store.flush()
        assert early.tolist() == store.get(0).tolist() == [1.25]


def test_closing_finishes_what_waits(tmp_path):
    with Background(Mock(Disk(tmp_path, run="r", keep=True), write_delay=0.02), pending=4) as store:
        for key in range(4):
            store.put(key, np.full(10, key))
    with Disk(tmp_path, run="r", keep=True) as disk:
        assert [disk.get(key)[0] for key in range(4)] == [0, 1, 2, 3]


def test_a_store_that_is_forgotten_ends_its_thread(tmp_path):
    store = Background(Disk(tmp_path / "s"))
    thread = store._worker._thread
    store.put(0, np.arange(10))
    del store
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_is_there():
    inner = Memory()
    inner.put("before", 1)
    with Background(inner) as store:
        assert store.keys() == ["before"]
        assert store.get("before") == 1
        store.reserve(10, 10)


def test_at_least_one_copy_must_be_allowed():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        Background(Memory(), pending=0)


def test_a_background_store_is_a_store():
    assert isinstance(Background(Memory()), Store)
