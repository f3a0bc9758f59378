"""Proof that a store keeps the contract: the rules, each with the check that would catch a breach.

For whoever writes a store of their own: ``conformance(lambda: MyStore(…))`` in a test of theirs.
``make_store`` gives an empty store each time it is called; the one before is closed by then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import StoreError
from ..tree import copy, differing
from .contract import Key, Store

Rule = Callable[[Store], None]


def conformance(make_store: Callable[[], Store]) -> list[str]:
    """Run every rule on a fresh store; the rules kept, or an ``AssertionError`` naming the one that is broken."""
    kept = []
    for rule in _RULES:
        store = make_store()
        name = (rule.__doc__ or "").rstrip(".")
        try:
            rule(store)
        except Exception as error:
            raise AssertionError(f"{type(store).__name__} breaks the rule {name!r}: {error}") from error
        finally:
            store.close()
        kept.append(name)
    return kept


class Pair(NamedTuple):
    """A named tuple to be found again."""

    left: Any
    right: Any


@dataclass
class Sample:
    """A dataclass to be found again."""

    values: Any
    label: str


def examples() -> Iterator[tuple[str, Any]]:
    """Trees of every kind that a state may be; torch's and jax's where they are loaded."""
    numbers = np.random.default_rng(7)
    yield "one array", numbers.random(1000)
    for dtype in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", ">f8", "c8", "c16", "M8[ns]", "S5", "U3"):
        yield f"dtype {dtype}", numbers.integers(0, 2, 12).astype(dtype).reshape(3, 4)
    yield "no dimension", np.array(3.5)
    yield "no elements", np.empty((0, 3))
    yield "Fortran order", np.asfortranarray(numbers.random((4, 5)))
    yield "axes in another order", numbers.random((2, 3, 4)).transpose(1, 0, 2)
    yield "a view with gaps", numbers.random((6, 6))[::2, 1::3]
    yield "a structured array", np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i2"), ("b", ">f8")])
    yield "signed zeros, infinities and NaN", np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan])
    yield "a NaN with a payload", np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    yield "containers", {"u": [np.arange(3.0), (1, None)], 2: Pair(np.eye(2), "x"), "r": Sample(np.ones(2), "label")}
    yield "nothing", None
    yield "plain values", [1, -0.0, 2 + 3j, True, "text", b"bytes", np.float32(0.1)]
    yield "a megabyte and a bit", numbers.random(131_073)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        yield "torch tensors", {"f": torch.arange(6.0).reshape(2, 3).T, "b": torch.ones(3, dtype=torch.bfloat16)}
    jax: Any = sys.modules.get("jax")
    if jax is not None:
        yield "jax arrays", [jax.numpy.arange(5), jax.numpy.ones((2, 2), jax.numpy.bfloat16)]


def _round_trip(store: Store) -> None:
    """What comes out is what went in."""
    for name, tree in examples():
        before = copy(tree)
        store.put("tree", tree)
        _equal(tree, before, f"put changed {name}")
        if not store.lossy:
            _equal(store.get("tree"), before, f"get after put of {name}")
            _equal(store.take("tree"), before, f"take after put of {name}")


def _generators(store: Store) -> None:
    """A random generator comes back in the state in which it was put."""
    generator = np.random.default_rng(3)
    generator.random(5)
    store.put("rng", {"rng": generator, "legacy": np.random.RandomState(3)})
    expected = generator.random(4)
    for _ in range(2):
        _equal(store.get("rng")["rng"].random(4), expected, "the numbers drawn after a get")


def _put_copies(store: Store) -> None:
    """What is put may be changed afterwards."""
    array = np.arange(4)
    store.put(0, {"u": array})
    array[:] = -1
    _equal(store.get(0), {"u": np.arange(4)}, "the snapshot after its source was changed")


def _get_copies(store: Store) -> None:
    """What was got may be changed."""
    store.put(0, {"u": np.arange(4)})
    store.get(0)["u"][:] = -1
    _equal(store.get(0), {"u": np.arange(4)}, "the snapshot after a copy of it was changed")


def _one_object(store: Store) -> None:
    """Two leaves that are one object come back as one object."""
    shared, generator = np.arange(3.0), np.random.default_rng(1)
    store.put(0, [shared, {"again": shared}, generator, generator])
    first, second, one, other = store.get(0)
    _true(first is second["again"], "an array that occurs twice came back as two")
    _true(one is other, "a generator that occurs twice came back as two")


def _keys(store: Store) -> None:
    """Keys are texts and ints, and 1 is not "1"."""
    keys: list[Key] = [1, "1", 0, -5, 10**12, "", "a/b", "..", "Ω \n'\"", "1.0"]
    for number, key in enumerate(keys):
        store.put(key, number)
    _true(sorted(map(repr, store.keys())) == sorted(map(repr, keys)), f"keys() gives {store.keys()}")
    for number, key in enumerate(keys):
        _true(store.get(key) == number, f"get({key!r}) gives the snapshot of another key")
        _true(key in store, f"{key!r} in store is False")


def _replacing(store: Store) -> None:
    """A put under a key in use replaces the snapshot."""
    for size in (3, 300, 30_000, 3):
        store.put("u", np.full(size, size))
        _equal(store.get("u"), np.full(size, size), "the snapshot after it was replaced")
    _true(store.keys() == ["u"], f"keys() gives {store.keys()}")


def _drop(store: Store) -> None:
    """A dropped key is gone, the others stay."""
    for key in range(4):
        store.put(key, np.full(10, key))
    store.drop(1)
    _true(sorted(store.keys(), key=repr) == [0, 2, 3], f"keys() gives {store.keys()}")
    _equal(store.take(2), np.full(10, 2), "what take gave")
    _true(sorted(store.keys(), key=repr) == [0, 3], f"keys() after take gives {store.keys()}")
    for key in (0, 3):
        _equal(store.get(key), np.full(10, key), f"snapshot {key} after others were dropped")


def _unknown(store: Store) -> None:
    """An unknown key is a StoreError, and the store goes on."""
    store.put(0, 1)
    for method in (store.get, store.take, store.drop):
        _raises(partial(method, "unknown"), f"{method.__name__} of an unknown key")
    _true(store.get(0) == 1, "a snapshot was lost")


def _size(store: Store) -> None:
    """``nbytes`` follows what is held, and room that was freed is used again."""
    _true(store.nbytes == 0, f"an empty store holds {store.nbytes} bytes")
    noise = np.random.default_rng(5).random(4096)
    sizes = []
    for _ in range(5):
        for key in range(3):
            store.put(key, noise)
        store.flush()
        sizes.append(store.nbytes)
        for key in range(3):
            store.drop(key)
    store.flush()
    _true(store.lossy or sizes[0] >= 2 * noise.nbytes, f"three snapshots of {noise.nbytes} bytes count {sizes[0]}")
    _true(len(set(sizes)) == 1, f"the same snapshots count {sizes} bytes")
    _true(store.nbytes == 0, f"a store whose snapshots were all dropped holds {store.nbytes} bytes")


def _closed(store: Store) -> None:
    """A closed store refuses, and may be closed again."""
    with store as entered:
        _true(entered is store, "`with store` gives something else")
        store.put(0, np.arange(3.0))
    store.close()
    _raises(lambda: store.put(0, 1), "put after close")
    _raises(lambda: store.get(0), "get after close")
    _raises(store.keys, "keys after close")


def _equal(found: Any, expected: Any, what: str) -> None:
    path = differing(found, expected)
    _true(path is None, f"{what} differs at {path}")


def _true(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _raises(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except StoreError:
        return
    raise AssertionError(f"{what} raised no StoreError")


_RULES: list[Rule] = [
    _round_trip,
    _generators,
    _put_copies,
    _get_copies,
    _one_object,
    _keys,
    _replacing,
    _drop,
    _unknown,
    _size,
    _closed,
]
