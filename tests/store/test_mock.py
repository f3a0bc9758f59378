"""The mock does what it was told, and tells what was asked of it."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from pebbling import tree
from pebbling.errors import CorruptSnapshot, StoreError, StoreFull
from pebbling.store import Memory, Mock


def test_calls_are_counted_and_logged():
    mock = Mock()
    mock.put("a", 1)
    mock.put("b", 2)
    mock.get("a")
    mock.take("a")
    mock.drop("b")
    assert [(call.name, call.key) for call in mock.log] == [
        ("put", "a"), ("put", "b"), ("get", "a"), ("take", "a"), ("drop", "b"),
    ]  # fmt: skip
    assert (mock.count("put"), mock.count("get"), mock.count("drop")) == (2, 1, 1)
    assert all(first.stop <= second.start for first, second in zip(mock.log, mock.log[1:]))


def test_delays_are_spent():
    mock = Mock(write_delay="20ms", read_delay=0.03)
    start = time.perf_counter()
    mock.put(0, 1)
    middle = time.perf_counter()
    mock.get(0)
    assert middle - start >= 0.02
    assert time.perf_counter() - middle >= 0.03


def test_the_chosen_calls_fail():
    mock = Mock(fail_at=(2, 4), error=CorruptSnapshot)
    mock.put(0, "old")
    with pytest.raises(CorruptSnapshot, match="call 2, put of snapshot 0"):
        mock.put(0, "new")
    assert mock.get(0) == "old"
    with pytest.raises(CorruptSnapshot, match="call 4, drop"):
        mock.drop(0)
    assert mock.get(0) == "old"
    with pytest.raises(StoreError, match="call 1, get"):
        Mock(fail_at=1).get(0)


def test_the_limit_holds():
    mock = Mock(limit="1KiB")
    mock.put(0, np.zeros(100))
    with pytest.raises(StoreFull, match=r"2 snapshots need 1\.56 KiB, and this store holds 1 KiB"):
        mock.put(1, np.zeros(100))
    assert mock.keys() == [0]
    with pytest.raises(StoreFull, match="3 snapshots"):
        mock.reserve(3, 400)
    mock.reserve(2, 400)


@pytest.mark.parametrize("array", [np.zeros(9), torch.zeros(9, dtype=torch.bfloat16), np.zeros((2, 3), order="F")])
def test_one_bit_comes_out_flipped(array):
    mock = Mock(corrupt={"bad"})
    for key in ("good", "bad"):
        mock.put(key, {"n": 3, "empty": np.zeros(0), "u": array})
    assert tree.differing(mock.get("good")["u"], array) is None
    bad = mock.get("bad")
    assert tree.differing(bad["u"], array) == "state"
    before, after = (tree.pack(value)[1][0] for value in (array, bad["u"]))
    assert np.unpackbits(before ^ after).sum() == 1
    assert tree.differing(mock.take("bad"), bad) is None


def test_it_closes_what_it_wraps():
    inner = Memory()
    mock = Mock(inner)
    mock.close()
    assert mock.closed
    with pytest.raises(StoreError, match="closed"):
        inner.keys()
