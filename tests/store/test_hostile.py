"""Directories and files that somebody else prepared: nothing outside is changed, and nothing of theirs is ours."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
import tracemalloc

import h5py
import numpy as np
import pytest

from pebbling import tree
from pebbling.cli import main
from pebbling.errors import CorruptSnapshot, DamagedFile, StoreError
from pebbling.graph import load
from pebbling.store import HDF5, Compressed, Disk, clean, journal, orphans

CANARY = b"somebody else's"


def kept(path, **options):
    """A store of one snapshot that was left behind."""
    with Disk(path, run="r", keep=True, **options) as store:
        store.put("key", np.arange(1000.0))
    return path / "pebbling-r.journal"


def forge(path, change):
    """Change the records of a journal, and give it right checksums."""
    records = journal.read(str(path))
    change(records)
    records[0]["sealed"] = len(records)
    path.write_bytes(journal.MAGIC + b"".join(journal.encode(number, record) for number, record in enumerate(records)))


def reopened(path, **options):
    with Disk(path, run="r", keep=True, **options) as store:
        return store.get("key")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("slot", "../outside"), ("slot", "x/../../outside"), ("slot", -1), ("slot", 10**30), ("slot", True),
        ("data", 10**12), ("data", -1), ("data", 1e12), ("data", 10**30), ("meta", 3_000_000_000), ("meta", "5"),
        ("check", None), ("meta_check", 2**40), ("put", [1]), ("put", None), ("put", 1.5), ("more", 1),
    ],
)  # fmt: skip
def test_a_forged_record_is_refused_before_anything_is_allocated(tmp_path, part, value):
    outside = tmp_path / "outside"
    outside.write_bytes(CANARY)
    path = tmp_path / "store"
    forge(kept(path), lambda records: records[1].update({part: value}))
    tracemalloc.start()
    with pytest.raises(StoreError):
        reopened(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert outside.read_bytes() == CANARY


def test_a_forged_drop_or_head_is_refused(tmp_path):
    for change in (
        lambda records: records.append({"drop": "unknown"}),
        lambda records: records.append({"drop": {}}),
        lambda records: records.append({}),
        lambda records: records[0].update(run="another"),
        lambda records: records[0].update(pebbling=9),
    ):
        path = kept(tmp_path / "store")
        forge(path, change)
        with pytest.raises(CorruptSnapshot):
            reopened(tmp_path / "store")
        path.parent.joinpath("pebbling-r-0.slot").unlink()
        path.unlink()


def test_a_description_can_not_make_more_of_the_bytes_than_there_are(tmp_path):
    path = kept(tmp_path)
    with Disk(tmp_path, run="r", keep=True) as store:
        meta, _ = tree.pack(np.broadcast_to(np.float64(1), (10**6, 10**6)).dtype)
        entry = store._held.entries["key"]
    forged = tree.packing._encoded(None, [("numpy", ("<f8", (10**6, 10**6), None))])
    slot = tmp_path / f"pebbling-r-{entry.slot}.slot"
    content = slot.read_bytes()[: 4096 + entry.data] + forged
    slot.write_bytes(content)
    check = journal.zlib.crc32(forged)
    forge(path, lambda records: records[1].update(meta=len(forged), meta_check=check))
    with pytest.raises(CorruptSnapshot, match=r"describes 7\.28 TiB"):
        reopened(tmp_path)
    assert meta


def test_directories_that_a_journal_names_are_not_removed(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for made in (
        [str(theirs)],
        [list(os.stat(theirs))[:2]],
        [[os.stat(theirs).st_dev, os.stat(theirs).st_ino]],
        "x",
        3,
    ):
        path = kept(tmp_path / "store")
        forge(path, lambda records, made=made: records[0].update(made=made))
        with Disk(tmp_path / "store", run="r", keep=True) as store:
            store.keep = False
    assert theirs.is_dir()


def test_a_store_that_was_moved_removes_no_directory_at_its_old_place(tmp_path):
    kept(tmp_path / "old" / "store")
    os.rename(tmp_path / "old" / "store", tmp_path / "new")
    (tmp_path / "old" / "store").mkdir()
    with Disk(tmp_path / "new", run="r", keep=True) as store:
        assert store.get("key")[3] == 3
        store.keep = False
    assert sorted(os.listdir(tmp_path)) == ["old"]
    assert os.listdir(tmp_path / "old") == ["store"]


def test_a_store_that_was_copied_works_in_both_places(tmp_path):
    kept(tmp_path / "one")
    import shutil

    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two"):
        with Disk(tmp_path / name, run="r", keep=True) as store:
            assert store.get("key")[3] == 3
            store.put("key", name)
    assert reopened(tmp_path / "one") == "one"
    assert reopened(tmp_path / "two") == "two"


NAMES = ["pebbling.lock", "pebbling-r.journal", "pebbling-r-0.slot", "pebbling-r.journal.new"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "how", ["hard link", "link", "pipe", "content", "empty", "zeros", "directory", "signed hard link"]
)
def test_what_only_has_a_name_of_ours_is_never_written_to_or_removed(tmp_path, name, how):
    path, target = tmp_path / "store", tmp_path / "target"
    path.mkdir()
    content = CANARY
    if how == "signed hard link":
        kept(tmp_path / "other")
        found = {"pebbling-r-0.slot": "pebbling-r-0.slot"}.get(name, "pebbling-r.journal")
        content = (tmp_path / "other" / found).read_bytes()
    target.write_bytes(content)
    {
        "hard link": lambda: os.link(target, path / name),
        "signed hard link": lambda: os.link(target, path / name),
        "link": lambda: os.symlink(target, path / name),
        "pipe": lambda: os.mkfifo(path / name),
        "content": lambda: (path / name).write_bytes(CANARY),
        "empty": lambda: (path / name).write_bytes(b""),
        "zeros": lambda: (path / name).write_bytes(bytes(5000)),
        "directory": (path / name).mkdir,
    }[how]()
    before = os.lstat(path / name)
    begun = time.monotonic()
    for attempt in (
        lambda: clean(path),
        lambda: orphans(path),
        lambda: Disk(path).close(),
        lambda: put_and_leave(path, keep=False),
        lambda: put_and_leave(path, keep=True),
        lambda: clean(path),
    ):
        try:
            attempt()
        except StoreError as error:
            assert str(path) in str(error)  # noqa: PT017
    assert time.monotonic() - begun < 5
    after = os.lstat(path / name)
    assert (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)
    assert target.read_bytes() == content


def put_and_leave(path, keep):
    with Disk(path, run="r", keep=keep) as store:
        for key in range(3):
            store.put(key, np.arange(10))


@pytest.mark.parametrize("name", ["pebbling-r-00.slot", "pebbling-r-٣.slot", "pebbling-r-1234567890.slot"])
def test_numbers_of_slots_are_written_in_one_way(tmp_path, name):
    kept(tmp_path)
    content = (tmp_path / "pebbling-r-0.slot").read_bytes()
    (tmp_path / name).write_bytes(content)
    clean(tmp_path)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("mask", [0, 0o777, 0o022])
def test_files_are_for_their_owner_alone_whatever_the_mask(tmp_path, mask):
    before = os.umask(mask)
    try:
        with Disk(tmp_path / "store", run="r", keep=True) as store, HDF5(tmp_path / "file.h5") as other:
            store.put(0, np.arange(4))
            other.put(0, np.arange(4))
            store.flush()
            found = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert len(found) == 4
            assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
            store.keep = False
    finally:
        os.umask(before)


class Evil:
    """Runs what it likes when it is unpickled."""

    def __reduce__(self):
        return (os.system, ("touch evil",))


def test_a_pickle_in_a_file_is_read_only_where_the_user_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refusal = pytest.raises(StoreError, match=r"state\['e'\] is a .*Evil, which is not data.*pickle=True")
    with Disk(tmp_path / "s", run="r", keep=True) as store, refusal:
        store.put("key", {"e": Evil()})
    with Disk(tmp_path / "s", run="r", keep=True, pickle=True) as store:
        store.put("key", {"e": Evil()})
    with Compressed(Disk(tmp_path / "c", run="r", keep=True, pickle=True)) as store:
        store.put("key", {"e": Evil()})
    (tmp_path / "evil").unlink(missing_ok=True)

    def plain(name):
        return Disk(tmp_path / name, run="r", keep=True)

    for make in (lambda: plain("s"), lambda: Compressed(plain("c"))):
        with make() as store, pytest.raises(StoreError, match="pickle runs code"):
            store.get("key")
    assert not (tmp_path / "evil").exists()
    with Disk(tmp_path / "s", run="r", keep=True, pickle=True) as store:
        store.get("key")
    assert (tmp_path / "evil").exists()


def test_a_file_may_name_no_class_that_the_program_has_not_got(tmp_path):
    for name in ("os:system", "subprocess:Popen", "antigravity:x", "builtins:eval", "pebbling.store.disk:Disk", "x:y"):
        writer = tree.encoding.Writer()
        writer.content += tree.packing._DATA + b"*"
        writer.text(name)
        for value in ((), ()):
            writer.value(value)
        writer.size(0)
        writer.size(0)
        with pytest.raises(StoreError, match="it needs what this program does not have"):
            tree.Layout(bytes(writer.content))
    assert "antigravity" not in sys.modules


def test_a_file_sets_no_attribute_that_is_more_than_content():
    from pebbling.store.conformance import Sample

    for name in ("__class__", "__dict__", ""):
        meta, _ = tree.pack(Sample(1, "x"))
        meta = meta.replace(b"s\x06values", b"s" + bytes([len(name)]) + name.encode(), 2)
        with pytest.raises((StoreError, ValueError)):
            tree.Layout(meta)


def test_hdf5_files_that_lead_elsewhere_are_refused(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.create_group("g")["0"] = np.arange(3)

    def make(name):
        with HDF5(tmp_path / name, keep=True) as store:
            store.put("key", np.arange(1000.0))
        return h5py.File(tmp_path / name, "r+")

    def external(file):
        del file["%22key%22"]["0"]
        file["%22key%22"]["0"] = h5py.ExternalLink("other.h5", "/g/0")

    def whole(file):
        del file["%22key%22"]
        file["%22key%22"] = h5py.ExternalLink("other.h5", "/g")

    def sparse(file):
        del file["%22key%22"]["0"]
        file["%22key%22"].create_dataset("0", (10**12,), "f8", chunks=(10,))

    def raw(file):
        del file["%22key%22"]["0"]
        file["%22key%22"].create_dataset("0", (1000,), "f8", external=[(str(tmp_path / "other.h5"), 0, 8000)])

    for number, change in enumerate((external, whole, sparse, raw)):
        with make(f"{number}.h5") as file:
            change(file)
        with pytest.raises(StoreError, match=f"{number}.h5"), HDF5(tmp_path / f"{number}.h5", keep=True) as store:
            store.get("key")
    os.symlink(tmp_path / "0.h5", tmp_path / "link.h5")
    os.mkfifo(tmp_path / "pipe.h5")
    for name in ("link.h5", "pipe.h5"):
        with pytest.raises(StoreError, match="plain file"):
            HDF5(tmp_path / name, keep=True)


def test_hdf5_does_not_remove_a_file_that_took_the_place_of_its_own(tmp_path):
    store = HDF5(tmp_path / "f.h5")
    os.rename(tmp_path / "f.h5", tmp_path / "mine.h5")
    (tmp_path / "f.h5").write_bytes(CANARY)
    store.close()
    assert (tmp_path / "f.h5").read_bytes() == CANARY


DOCUMENTS = {
    "deep": b"[" * 200_000,
    "cut short": None,
    "not unicode": b'"\xff\xfe"',
    "nothing": b"",
    "a number": b"3",
    "a huge number": b"9" * 10_000,
    "no plan": b'{"format": "pebbling graph plan", "version": 1, "graph": 3}',
    "a list for a kind": b'{"kind": [], "format": {}}',
    "1e30 steps": b'{"kind": "plan", "schedule": {"family": "Revolve", "steps": 1e30, "slots": 3}, "bound": null, '
    b'"problem": {}}',
    "10**30 steps": b'{"kind": "plan", "schedule": {"family": "Revolve", "steps": 1000000000000000000000000000000, '
    b'"slots": 3}, "bound": null, "problem": {}}',
    "a report of words": b'{"kind": "report", "schedule": 3, "peak": "x", "seconds": {"advance": "soon"}}',
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("compressed", [False, True])
def test_documents_that_make_no_sense_are_refused_by_name(tmp_path, capsys, name, compressed):
    import gzip

    content = DOCUMENTS[name]
    path = tmp_path / ("it.json.gz" if compressed else "it.json")
    packed = gzip.compress(b'{"kind": "plan"}')[:-9] if content is None else content
    path.write_bytes(gzip.compress(packed) if compressed and content is not None else packed)
    with pytest.raises(DamagedFile, match=r"it\.json"):
        load(path)
    assert main(["show", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_store_of_the_first_format_is_refused_by_name_and_can_be_removed(tmp_path):
    def line(number, record):
        body = f"{number} {json.dumps(record)}".encode()
        return b"%08x %s\n" % (journal.zlib.crc32(body), body)

    (tmp_path / "pebbling-r.journal").write_bytes(
        line(0, {"pebbling": 1, "run": "r", "keep": True, "made": [str(tmp_path)]})
        + line(1, {"put": "k", "slot": 0, "data": 24, "check": 1, "meta": 71, "meta_check": 2})
    )
    (tmp_path / "pebbling-r-0.slot").write_bytes(b"pebbling snapshot slot 1\n".ljust(4191, b"\0"))
    (tmp_path / "pebbling.lock").write_text(json.dumps({"pid": 1, "host": "h", "run": "r", "since": "then"}))
    with pytest.raises(StoreError, match="written by an older version of pebbling, in a format that kept pickles"):
        reopened(tmp_path, pickle=True)
    assert len(orphans(tmp_path)) == 2
    clean(tmp_path)
    assert os.listdir(tmp_path) == []
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.attrs["pebbling"] = 1
    with pytest.raises(StoreError, match="was written in format 1 by another version"):
        HDF5(tmp_path / "f.h5", keep=True)


def test_a_pipe_is_no_document_and_a_bomb_is_not_unpacked(tmp_path, capsys, monkeypatch):
    import zlib

    os.mkfifo(tmp_path / "pipe.json")
    assert main(["show", str(tmp_path / "pipe.json")]) == 2
    with pytest.raises(DamagedFile, match="no plain file"):
        load(tmp_path / "pipe.json")
    monkeypatch.setattr("pebbling.documents._LARGEST", 10_000)
    packing = zlib.compressobj(wbits=31)
    (tmp_path / "bomb.json.gz").write_bytes(packing.compress(b" " * 10**6) + packing.flush())
    with pytest.raises(DamagedFile, match="more than"):
        load(tmp_path / "bomb.json.gz")
    capsys.readouterr()


def test_a_changed_digit_of_a_plan_is_found(tmp_path):
    from pebbling.graph import Graph, Node, Storage, save

    path = tmp_path / "graph.json"
    save(Graph([Node("f", ("x",), (Storage("y", 64),), 1.5)], [Storage("x", 8, True)], ["y"]), path)
    document = json.loads(path.read_text())
    document["storages"][1][1] = 65
    path.write_text(json.dumps(document))
    with pytest.raises(DamagedFile, match="fails the check"):
        load(path)
