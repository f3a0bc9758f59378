"""Compression: smaller, exact unless asked otherwise, and honest when it is not."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pebbling import tree
from pebbling.errors import CorruptSnapshot, StoreError
from pebbling.store import Compressed, Disk, Memory, Mock
from pebbling.store import compressed as module


def test_smooth_fields_get_smaller():
    smooth = np.sin(np.linspace(0, 1, 100_000))
    for codec in ("lz4", "zstd"):
        with Compressed(Memory(), codec) as store:
            store.put(0, smooth)
            assert store.nbytes < 0.9 * smooth.nbytes
            assert not store.lossy
            assert tree.differing(store.get(0), smooth) is None
    with Compressed(Memory()) as store:
        store.put(0, np.zeros(100_000))
        assert store.nbytes < 5000


def test_noise_does_not_get_much_larger():
    noise = np.random.default_rng(0).integers(0, 256, 10**6).astype(np.uint8)
    with Compressed(Memory(), level=9) as store:
        store.put(0, noise)
        assert store.nbytes < 1.01 * noise.nbytes


@given(
    hnp.arrays(
        st.sampled_from(["f8", "f4", "f2", ">f8", ">f4", "c8", "c16"]),
        hnp.array_shapes(max_side=6),
        elements={"allow_nan": True, "allow_infinity": True},
    ),
    st.integers(0, 52),
)
def test_the_error_of_cleared_bits_is_bounded(array, bits):
    with Compressed(Memory(), lossy_bits=bits) as store:
        store.put(0, array)
        found = store.get(0)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    parts = [(array.real, found.real), (array.imag, found.imag)] if array.dtype.kind == "c" else [(array, found)]
    for before, after in parts:
        special = ~np.isfinite(before)
        assert before[special].tobytes() == after[special].tobytes()
        assert (np.signbit(before) == np.signbit(after)).all()
        before, after = before[~special].astype("g"), after[~special].astype("g")
        tiny = np.abs(before) < np.finfo(array.dtype).tiny
        assert (np.abs(after) <= np.abs(before)).all()
        assert (np.abs(before - after)[~tiny] <= np.abs(before)[~tiny] * np.longdouble(2.0) ** -bits).all()
    if bits >= np.finfo(array.dtype).nmant:
        assert found.tobytes() == array.tobytes()


def test_cleared_bits_make_noise_smaller_and_leave_integers():
    noise = np.random.default_rng(0).random(100_000)
    state = {
        "noise": noise,
        "n": np.arange(1000),
        "t": torch.full((9,), 1.3, dtype=torch.bfloat16),
        "j": jnp.full(5, 1.3, jnp.bfloat16),
        "rng": np.random.default_rng(3),
        "small": 0.1,
    }
    with Compressed(Memory(), lossy_bits=10) as store, Compressed(Memory()) as exact:
        assert store.lossy
        store.put(0, state)
        exact.put(0, state)
        assert store.nbytes < 0.5 * exact.nbytes
        found = store.get(0)
        assert tree.differing(found["n"], state["n"]) is None
        assert tree.differing(found["t"], state["t"]) is None
        assert found["small"] == 0.1
        assert found["rng"].random() == np.random.default_rng(3).random()
        assert 0 < np.abs(found["noise"] - noise).max() < 2**-10
    with Compressed(Memory(), lossy_bits=1) as store:
        store.put(0, state)
        assert store.get(0)["t"].tolist() == [1.0] * 9
        assert store.get(0)["j"].tolist() == [1.0] * 5


def test_the_state_that_was_put_is_not_touched():
    noise = np.random.default_rng(0).random(1000)
    before = noise.copy()
    with Compressed(Memory(), lossy_bits=3) as store:
        store.put(0, noise)
    assert noise.tobytes() == before.tobytes()


def test_a_lossy_store_below_is_told():
    with Compressed(Compressed(Memory(), lossy_bits=3)) as store:
        assert store.lossy
    with Mock(Compressed(Memory(), lossy_bits=3)) as store:
        assert store.lossy


def test_large_arrays_are_compressed_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 1000)
    values = np.random.default_rng(0).integers(0, 4, 5003).astype(np.uint8)
    with Compressed(Memory()) as store:
        store.put(0, values)
        assert len(store.store.get(0)[1][0]) == 6
        assert tree.differing(store.get(0), values) is None


def test_damage_is_found(tmp_path):
    inner = Memory()
    with Compressed(inner) as store:
        store.put(0, np.zeros(10_000))
        meta, squeezed = inner.get(0)
        inner.put(0, [meta, [[squeezed[0][0][:20]]]])
        with pytest.raises(CorruptSnapshot, match="snapshot 0 can't be decompressed"):
            store.get(0)
    with Compressed(Disk(tmp_path / "d")) as store:
        store.put(0, np.arange(1000))
        path = store.store._directory.slot(0)
        with open(path, "r+b") as file:
            file.seek(4200)
            (byte,) = file.read(1)
            file.seek(4200)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(CorruptSnapshot, match="snapshot 0 in"):
            store.get(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"codec": "gzip"}, "codec must be one of blosclz, lz4, lz4hc, zlib, zstd, not 'gzip'"),
        ({"level": 10}, "level must be from 0 to 9, not 10"),
        ({"lossy_bits": -1}, "lossy_bits must be from 0 to 52, not -1"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Compressed(Memory(), **arguments)


def test_room_is_asked_of_the_store_below():
    with Compressed(Mock(limit=1000)) as store, pytest.raises(StoreError, match="2 snapshots"):
        store.reserve(2, 600)
