"""Whatever happens to the files of a snapshot, wrong content is never handed out."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pebbling import tree
from pebbling.errors import CorruptSnapshot, StoreError
from pebbling.store import Disk, clean
from pebbling.store.checksum import PIECE, ROW, batches, checksum

START = 4096


def state():
    values = np.random.default_rng(0).random(3000)
    return {"u": values, "v": values[:5].astype("f4"), "label": "text", "rng": np.random.default_rng(1)}


@pytest.fixture(params=["live", "found again"])
def damaged(request, tmp_path):
    """Lets a function loose on the file of a snapshot, then reads it."""
    stores = []

    def damage(change):
        store = Disk(tmp_path, run="r", keep=True)
        stores.append(store)
        store.put("key", state())
        if len(stores) % 2:
            store.get("key")
        (slot,) = [file.path for file in store._directory.own() if file.number == store._held.entries["key"].slot]
        if request.param == "found again":
            store.close()
        change(slot)
        if request.param == "found again":
            store = Disk(tmp_path, run="r", keep=True)
            stores.append(store)
        try:
            return store.get("key"), slot
        finally:
            store.keep = False
            store.close()

    return damage


def flip(offset, bit):
    def change(path):
        with open(path, "r+b") as file:
            file.seek(offset)
            (value,) = file.read(1)
            file.seek(offset)
            file.write(bytes([value ^ 1 << bit]))

    return change


def size_of_data():
    return sum(buffer.size for buffer in tree.pack(state())[1])


DATA = size_of_data()
META = len(tree.pack(state())[0])
OFFSETS = [
    *[START + offset for offset in (0, 1, 7, 8, ROW - 1, ROW, 2 * ROW, 2 * ROW + 5, 23_999, 24_000, DATA - 1)],
    *[START + DATA + offset for offset in (0, 1, META // 2, META - 1)],
]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_found(damaged, offset, bit):
    with pytest.raises(CorruptSnapshot, match=r"snapshot 'key' in .*pebbling-r-\d+\.slot is not what was written"):
        damaged(flip(offset, bit))


def test_a_bit_of_the_first_page_does_not_matter(damaged):
    found, _ = damaged(flip(2000, 3))
    assert tree.differing(found, state()) is None


@pytest.mark.parametrize(
    "length", [0, 1, 100, START, START + 1, START + DATA // 2, START + DATA, START + DATA + META - 1]
)
def test_a_truncated_file_is_found(damaged, length):
    with pytest.raises(CorruptSnapshot, match=r"snapshot 'key' in .*slot is not what was written: the file ends"):
        damaged(lambda path: os.truncate(path, length))


def test_a_removed_file_is_found(damaged):
    with pytest.raises(CorruptSnapshot, match=r"snapshot 'key' is gone: .*slot was removed"):
        damaged(os.unlink)


def test_zeroed_exchanged_and_foreign_pages_are_found(damaged):
    def page(path, number, content=None):
        with open(path, "r+b") as file:
            file.seek(START + 4096 * number)
            old = file.read(4096)
            if content is not None:
                file.seek(START + 4096 * number)
                file.write(content)
        return old

    def zero(path):
        page(path, 2, bytes(4096))

    def exchange(path):
        first = page(path, 1)
        page(path, 1, page(path, 2, first))

    def exchange_far(path):
        first = page(path, 0)
        page(path, 0, page(path, 4, first))

    for change in (zero, exchange, exchange_far):
        with pytest.raises(CorruptSnapshot):
            damaged(change)


def test_a_link_in_the_place_of_a_file_is_not_followed(damaged, tmp_path):
    def link(path):
        os.rename(path, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", path)

    with pytest.raises(StoreError, match="key"):
        damaged(link)
    assert (tmp_path / "elsewhere").exists()


def test_the_other_snapshots_stay(tmp_path):
    with Disk(tmp_path / "s") as store:
        for key in range(3):
            store.put(key, np.full(1000, key))
        flip(START + 100, 0)(store._directory.slot(store._held.entries[1].slot))
        with pytest.raises(CorruptSnapshot, match="snapshot 1"):
            store.get(1)
        assert (store.get(0)[0], store.get(2)[0]) == (0, 2)
        store.put(1, np.arange(3))
        assert store.get(1).tolist() == [0, 1, 2]


def blocks(content):
    """Where each copy of each record of a journal begins, and its length."""
    found, at = [], 64
    while at < len(content) and content[at]:
        length = content.index(b"\n", at) + 1 - at
        found.append((at, length))
        at += length
    return found


def kept(path, sealed=True):
    """The journal of four snapshots, closed in an orderly way or not."""
    store = Disk(path, run="r", keep=True)
    for key in range(4):
        store.put(key, np.full(10, key))
    journal = path / "pebbling-r.journal"
    if sealed:
        store.close()
        return journal, journal.read_bytes()
    content = journal.read_bytes()
    store.close()
    journal.write_bytes(content)
    return journal, content


def found_again(path):
    with Disk(path, run="r", keep=True) as store:
        return {key: store.get(key)[0] for key in store.keys()}  # noqa: SIM118


@pytest.mark.parametrize("sealed", [True, False])
def test_no_flipped_bit_of_a_journal_changes_what_is_found(tmp_path, sealed):
    journal, good = kept(tmp_path, sealed)
    for at in range(0, len(good.rstrip(b"\0")), 3):
        journal.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            assert found_again(tmp_path) == {0: 0, 1: 1, 2: 2, 3: 3}
        except StoreError:
            assert at < 64


@pytest.mark.parametrize("sealed", [True, False])
def test_a_record_that_is_damaged_in_both_copies_is_found(tmp_path, sealed):
    journal, good = kept(tmp_path, sealed)
    copies = blocks(good)
    assert len(copies) == 10
    for number in range(5):
        content = bytearray(good)
        for at, length in copies[2 * number : 2 * number + 2]:
            content[at + length // 2] ^= 4
        journal.write_bytes(content)
        with pytest.raises(CorruptSnapshot, match=rf"record {number + 1} of .*pebbling-r\.journal was damaged"):
            Disk(tmp_path, run="r", keep=True)


def test_a_journal_that_was_closed_misses_no_record_at_its_end(tmp_path):
    journal, good = kept(tmp_path)
    for at, _ in blocks(good)[2::2]:
        journal.write_bytes(good[:at])
        with pytest.raises(CorruptSnapshot, match="was damaged after it was written"):
            Disk(tmp_path, run="r", keep=True)


def test_a_journal_that_a_crash_cut_short_ends_with_its_last_whole_record(tmp_path):
    journal, good = kept(tmp_path, sealed=False)
    at, length = blocks(good)[-2]
    for cut in range(at, at + length, 7):
        journal.write_bytes(good[:cut] + bytes(500))
        assert found_again(tmp_path) == {0: 0, 1: 1, 2: 2}
    for cut in range(at + length, at + 2 * length, 7):
        journal.write_bytes(good[:cut])
        assert found_again(tmp_path) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_snapshots_without_a_journal_are_not_trusted_and_can_be_removed(tmp_path):
    journal, _ = kept(tmp_path)
    journal.unlink()
    with pytest.raises(StoreError, match=r"without a journal.*clean"):
        Disk(tmp_path, run="r", keep=True)
    clean(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_is_gone_is_named(tmp_path, monkeypatch):
    @dataclass
    class Temporary:
        a: int

    Temporary.__qualname__ = "Temporary"
    Temporary.__module__ = "numpy"
    monkeypatch.setattr(np, "Temporary", Temporary, raising=False)
    with Disk(tmp_path, run="r", keep=True) as store:
        store.put(0, [Temporary(1)])
        assert store.get(0) == [Temporary(1)]
    monkeypatch.undo()
    with Disk(tmp_path, run="r", keep=True) as store, pytest.raises(StoreError, match="Temporary"):
        store.get(0)


def obvious_checksum(data: bytes) -> int:
    rows = [data[start : start + ROW] for start in range(0, len(data) - len(data) % ROW, ROW)]
    words = [np.frombuffer(row, np.uint64).tolist() for row in rows]
    tables = [words[start : start + PIECE // ROW] for start in range(0, len(words), PIECE // ROW)]
    by_rows = zlib.crc32(b"".join(as_bytes(sum(row)) for row in words))
    by_columns = zlib.crc32(b"".join(as_bytes(sum(column)) for table in tables for column in zip(*table)))
    return by_columns << 32 | zlib.crc32(data[len(rows) * ROW :], by_rows)


def as_bytes(number):
    return (number % 2**64).to_bytes(8, "little")


@given(st.integers(ROW, 5 * ROW), st.data())
def test_two_words_that_were_exchanged_are_found(size, data):
    content = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    before = checksum(content)
    words = content[: size // 8 * 8].view(np.uint64)
    one, two = (data.draw(st.integers(0, words.size - 1)) for _ in range(2))
    words[[one, two]] = words[[two, one]]
    assert (checksum(content) != before) == (words[one] != words[two])


def test_no_run_of_flipped_bits_escapes_the_crc():
    for length in range(1, 65):
        for start in range(65 - length):
            run = ((1 << length) - 1 << start).to_bytes(8, "little")
            assert zlib.crc32(run) != zlib.crc32(bytes(8))


@given(st.integers(0, 5 * ROW), st.data())
def test_the_checksum_finds_any_change_in_one_word(size, data):
    content = np.random.default_rng(size).integers(0, 256, size + 1).astype(np.uint8)
    before = checksum(content)
    assert before == obvious_checksum(content.tobytes())
    start = data.draw(st.integers(0, size // 8)) * 8
    word = content[start : start + 8]
    change = np.frombuffer(data.draw(st.binary(min_size=8, max_size=8)), np.uint8)[: word.size]
    word ^= change
    assert (checksum(content) != before) == change.any()


@given(st.lists(st.integers(0, 3 * PIECE), max_size=6))
def test_batches_are_the_buffers_in_order(sizes):
    buffers = [np.broadcast_to(np.uint8(number), size) for number, size in enumerate(sizes)]
    found = []
    for batch, size in batches(buffers):
        assert size == sum(buffer.size for buffer in batch)
        assert size <= PIECE or len(batch) == 1
        found += batch
    assert [id(buffer) for buffer in found] == [id(buffer) for buffer in buffers if buffer.size]


@given(st.sampled_from([0, 1, ROW - 1, ROW, 5 * ROW + 3, PIECE, PIECE + 1, 2 * PIECE + ROW + 9]))
def test_pieces_are_moved_in_order_before_they_are_summed(size):
    source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    target, moved = np.zeros(size, np.uint8), []

    def move(piece):
        start = sum(moved)
        np.copyto(piece, source[start : start + piece.size])
        moved.append(piece.size)

    assert checksum(target, move=move) == checksum(source)
    assert sum(moved) == size
    assert all(piece <= PIECE for piece in moved)
