"""Fingerprints change with every bit and with nothing else; the first difference is found and named."""

from __future__ import annotations

import re
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pebbling import tree
from pebbling.tree import compare

MASK = (1 << 64) - 1


def obvious_digest(data: bytes) -> int:
    """The hash by its formula, one word at a time."""
    weights = []
    for index in range(1, compare._BLOCK + 1):
        mixed = index * 0x9E3779B97F4A7C15 & MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
        weights.append((mixed ^ mixed >> 31) | 1)
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data) - len(data) % 8, 8)]
    total = int.from_bytes(data[len(data) - len(data) % 8 :], "little")
    for start in range(0, len(words), compare._BLOCK):
        block = words[start : start + compare._BLOCK]
        total = (total * 0x9E3779B97F4A7C15 + sum(w * (x ^ x >> 29) for w, x in zip(weights, block))) & MASK
    return total


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000, 8 * compare._BLOCK, 8 * compare._BLOCK + 13, 300_001])
def test_the_digest_is_its_formula(size):
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    assert compare.digest(data) == obvious_digest(data.tobytes())


@given(st.integers(1, 40_000), st.data())
def test_every_flipped_bit_changes_the_fingerprint(size, data):
    state = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    before = tree.fingerprint(state)
    state[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert tree.fingerprint(state) != before


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("size", [2, 500, 70_000])
def test_signs_and_order_count(dtype, size):
    values = np.random.default_rng(1).normal(size=size).astype(dtype)
    zeros = np.zeros(size, dtype)
    states = [values, -values, values[::-1].copy(), zeros, -zeros, np.roll(values, 1)]
    for state in (values, zeros):
        pair = state.copy()
        pair[[0, size // 2]] *= -1
        states.append(pair)
    distinct = {state.tobytes() for state in states}
    assert len(distinct) >= 5
    assert len({tree.fingerprint(state) for state in states}) == len(distinct)


def test_payloads_of_nan_count():
    quiet = np.array([0x7FF8000000000000], np.uint64).view(float)
    other = np.array([0x7FF8000000000001], np.uint64).view(float)
    assert tree.fingerprint(quiet) == tree.fingerprint(quiet.copy())
    assert tree.fingerprint(quiet) != tree.fingerprint(other)
    assert tree.differing(quiet, other) == "state"
    assert tree.differing([float("nan")], [float("nan")]) is None
    assert tree.differing([0.0, 1.0], [-0.0, 1.0]) == "state[0]"


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        ({"u": np.arange(3.0)}, {"u": np.arange(3.0)}, None),
        ({"u": np.arange(3.0)}, {"u": np.arange(3)}, "state['u']"),
        ({"u": np.arange(3.0)}, {"v": np.arange(3.0)}, "state"),
        ([1, [2, 3]], [1, [2, 4]], "state[1][1]"),
        ([1, [2, 3]], [1, [2]], "state[1]"),
        ([1, [2, 3]], [1, (2, 3)], "state[1]"),
        ([1], [True], "state[0]"),
        ([1], [1.0], "state[0]"),
        ([np.float64(1)], [1.0], "state[0]"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "state"),
        (np.zeros((2, 3)), np.zeros((2, 3), order="F"), "state"),
        (np.zeros(3, ">f8"), np.zeros(3, "<f8"), "state"),
        (np.zeros(3, "f4"), torch.zeros(3), "state"),
        (torch.zeros(3), torch.zeros(3), None),
        (torch.zeros(3), -torch.zeros(3), "state"),
        (torch.zeros(3), jnp.zeros(3), "state"),
        (jnp.zeros(3), jnp.zeros(3), None),
        ({"r": np.random.default_rng(1)}, {"r": np.random.default_rng(1)}, None),
        ({"r": np.random.default_rng(1)}, {"r": np.random.default_rng(2)}, "state['r']"),
        ({1: 0}, {True: 0}, "state"),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", str(value)),
)
def test_the_first_difference_is_named(first, second, path):
    assert tree.differing(first, second) == path
    assert (tree.fingerprint(first) == tree.fingerprint(second)) == (path is None)


@given(hnp.arrays(np.float64, hnp.array_shapes(min_side=0)), hnp.arrays(np.float64, hnp.array_shapes(min_side=0)))
def test_fingerprints_are_equal_just_when_nothing_differs(first, second):
    equal = first.shape == second.shape and first.tobytes() == second.tobytes()
    assert (tree.differing(first, second) is None) == equal
    assert (tree.fingerprint(first) == tree.fingerprint(second)) == equal


def test_which_parts_are_one_object_does_not_count():
    text = "ab c"
    other = "".join(["ab", " c"])
    assert tree.fingerprint([text, text]) == tree.fingerprint([text, other])
    array = np.arange(3.0)
    assert tree.fingerprint([array, array]) == tree.fingerprint([array, array.copy()])


def test_padding_does_not_count():
    dtype = np.dtype([("a", "i1"), ("inner", np.dtype([("b", "f8"), ("c", "i2")], align=True))], align=True)
    first, second = np.zeros(5, dtype), np.zeros(5, dtype)
    second.view(np.uint8)[:] = 255
    for array in (first, second):
        array["a"] = 1
        array["inner"]["b"] = 2
        array["inner"]["c"] = 3
    assert first.tobytes() != second.tobytes()
    assert tree.differing(first, second) is None
    assert tree.fingerprint(first) == tree.fingerprint(second)
    second["inner"]["c"][4] = 4
    assert tree.differing(first, second) == "state"
    assert tree.fingerprint(first) != tree.fingerprint(second)


def test_long_doubles_compare_by_value_bits():
    first, second = np.full(4, 1 / np.longdouble(3)), np.full(4, 1 / np.longdouble(3))
    raw = second.view(np.uint8).reshape(4, -1)
    raw[:, 10:] = 77
    assert tree.differing(first, second) is None
    assert tree.fingerprint(first) == tree.fingerprint(second)
    raw[2, 3] ^= 1
    assert tree.differing(first, second) == "state"


def test_a_fingerprint_is_the_same_in_another_process():
    state = {"u": np.arange(5000.0), "rng": np.random.default_rng(3), "n": 3}
    code = "import numpy as np; from pebbling import tree; \
print(tree.fingerprint({'u': np.arange(5000.0), 'rng': np.random.default_rng(3), 'n': 3}))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert output == tree.fingerprint(state)
    assert len(output) == 32


def test_comparing_changes_nothing():
    generator = np.random.default_rng(0)
    state = generator.bit_generator.state
    tree.fingerprint([generator])
    tree.differing([generator], [generator])
    assert generator.bit_generator.state == state
