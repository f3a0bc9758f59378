"""Values as data: what is written is what is read, to the last bit, and bytes that nobody wrote are refused."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import random
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pebbling import tree
from pebbling.errors import StoreError
from pebbling.tree.data import Unreadable


def again(state, pickle=False):
    meta, buffers = tree.pack(state, pickle)
    rooms, finish = tree.Layout(meta, pickle).allocate()
    for room, buffer in zip(rooms, buffers):
        room[:] = buffer
    return finish()


def same(found, expected):
    assert tree.differing(found, expected) is None
    assert tree.fingerprint(found) == tree.fingerprint(expected)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Frozen:
    inner: Any
    label: str = "x"


@dataclass(slots=True)
class Slotted:
    inner: Any
    more: list[Any] = field(default_factory=list)


class Colour(enum.Enum):
    RED = 1


class Own:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Own and self.value == other.value

    def __reduce__(self):
        return (Own, (self.value,))


tree.register(Own, lambda own: ([own.value], {"note": "kept"}), lambda rest, children: Own(children[0]))

numbers = hnp.from_dtype(np.dtype("f8")) | st.integers() | st.integers(-(10**400), 10**400)
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.text(st.characters(categories=["Cs", "L"]))
    | st.binary()
    | numbers
    | hnp.scalar_dtypes().flatmap(hnp.from_dtype)
    | st.sampled_from([Colour.RED, ..., np.float32, int, torch.float16, slice(1, None, 2), range(3, 9)])
)
others = (
    st.datetimes(timezones=st.none() | st.just(datetime.UTC) | st.just(zoneinfo.ZoneInfo("Europe/Paris")))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.lists(st.integers()).map(lambda items: deque(items, 7))
    | st.lists(st.text()).map(Counter)
    | st.binary().map(bytearray)
    | st.integers(0, 2**64).map(np.random.default_rng)
    | st.integers(0, 2**32 - 1).map(np.random.RandomState)
    | st.integers(0, 99).map(random.Random)
    | st.integers(0, 99).map(lambda seed: np.random.Generator(np.random.Philox(seed)))
    | st.text("ab/.", min_size=1).map(pathlib.PurePosixPath)
)
leaves = plain | others | hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_side=0, max_side=3))


def containers(children):
    keys = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.none() | st.booleans()
    few = st.lists(children, max_size=4)
    named = st.dictionaries(st.from_regex("[a-z]{1,4}", fullmatch=True), children, max_size=3)
    mapping = st.dictionaries(keys, children, max_size=4)
    return (
        few
        | few.map(tuple)
        | mapping
        | mapping.map(OrderedDict)
        | mapping.map(lambda found: defaultdict(list, found))
        | named.map(lambda found: SimpleNamespace(**found))
        | st.builds(Point, children, children)
        | st.builds(Frozen, children)
        | st.builds(Slotted, children, few)
        | st.builds(Own, children)
    )


@settings(deadline=None)
@given(st.recursive(leaves, containers, max_leaves=12))
def test_any_state_comes_back_to_the_last_bit(state):
    same(again(state), state)


@settings(deadline=None)
@given(st.recursive(plain, containers, max_leaves=6), st.data())
def test_changed_bytes_are_refused_or_are_another_value(state, data):
    meta, _ = tree.pack(state)
    content = bytearray(meta)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Unreadable, StoreError):
        layout = tree.Layout(bytes(content))
        if layout.nbytes < 10**6:
            layout.allocate()[1]()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_are_a_value(content):
    for start in (b"", b"peb\x01", b"peb\x01-\x01c"):
        with suppress(Unreadable, StoreError):
            tree.Layout(start + content)


def test_generators_go_on_where_they_were():
    generator = np.random.default_rng(3)
    generator.random(5)
    generator.bit_generator.seed_seq.spawn(3)
    legacy, python, of_torch = np.random.RandomState(3), random.Random(4), torch.Generator().manual_seed(5)
    legacy.normal()
    python.gauss(0, 1)
    torch.rand(3, generator=of_torch)
    key = jax.random.key(3)
    found = again([generator, legacy, python, of_torch, key, generator.bit_generator])
    assert found[0].bit_generator is found[5]
    assert found[0].spawn(1)[0].random() == generator.spawn(1)[0].random()
    assert found[0].random() == generator.random()
    assert [found[1].normal() for _ in range(3)] == [legacy.normal() for _ in range(3)]
    assert [found[2].gauss(0, 1) for _ in range(3)] == [python.gauss(0, 1) for _ in range(3)]
    assert torch.equal(torch.rand(3, generator=found[3]), torch.rand(3, generator=of_torch))
    assert jax.random.normal(found[4]) == jax.random.normal(key)


def test_weakly_typed_arrays_of_jax_stay_so():
    for state in (jax.numpy.asarray(1.5), jax.numpy.broadcast_to(jax.numpy.asarray(2), (2, 3))):
        found = again(state)
        assert found.weak_type
        assert found.tolist() == state.tolist()


def test_what_is_no_data_is_refused_by_its_place_and_pickled_on_request():
    class Local:
        pass

    for value, path in (
        ({"f": [np.sin]}, r"state\['f'\]\[0\]"),
        ({"o": np.array([object()])}, r"state\['o'\]"),
        ((1, Local()), r"state\[1\] is a .*Local"),
        ({"d": {Local: 1}}, "the state holds .*type"),
        (defaultdict(lambda: 0), "the state holds .*function"),
    ):
        with pytest.raises(StoreError, match=rf"{path}.*pickle=True"):
            tree.pack(value)
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(again([sparse, np.sin], pickle=True)[0].to_dense(), torch.eye(3))
    meta, _ = tree.pack([sparse], True)
    with pytest.raises(StoreError, match="pickle runs code"):
        tree.Layout(meta)


def test_a_class_with_other_fields_than_it_had_is_refused(monkeypatch):
    meta, _ = tree.pack(Point(1, 2))
    monkeypatch.setitem(globals(), "Point", NamedTuple("Point", [("x", int), ("z", int)]))
    with pytest.raises(StoreError, match=r"Point was written with the fields \('x', 'y'\) and has \('x', 'z'\) now"):
        tree.Layout(meta)


def test_a_state_that_holds_itself_is_refused():
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    with pytest.raises(ValueError, match="a dict holds itself"):
        tree.pack({"x": holds_itself})
    loop = deque()
    loop.append(loop)
    with pytest.raises(StoreError, match="holds itself"):
        tree.pack(loop)


def test_reading_takes_no_more_than_a_small_multiple_of_the_bytes():
    import tracemalloc

    for content in (
        b"peb\x01-\x01c" + b"(" + b"\xff" * 8 + b"\x01", b"peb\x01-\x01cs" + b"\xff" * 8 + b"\x7f",
        b"peb\x01-\x01ni" + b"\x05\x00\x00\x00\x00\x7f", b"peb\x01" + b"[\x01" * 5000,
        b"peb\x01-\x01c" + b"(\x01" * 5000,
        b"peb\x01-\x01ca(\x03s\x03<f8(\x01i\x06\x00\x00\x00\x00\x00\x01N\x00",
    ):  # fmt: skip
        tracemalloc.start()
        with pytest.raises((Unreadable, StoreError)):
            tree.Layout(content)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5_000_000


@settings(deadline=None)
@given(st.frozensets(st.integers() | st.text() | st.tuples(st.text())))
def test_sets_come_back(items):
    # In which order they are gone through depends on how they grew, in Python itself.
    assert again([items, set(items)]) == [items, set(items)]


def test_exact_numbers_keep_every_digit():
    state = [
        decimal.Decimal("1.500"),
        decimal.Decimal("NaN"),
        fractions.Fraction(1, 3),
        10**400,
        -(2**63),
        uuid.uuid4(),
    ]
    assert repr(again(state)) == repr(state)
