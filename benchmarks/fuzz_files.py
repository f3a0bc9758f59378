"""Files that were damaged or forged: whatever is in them, they are read right or refused by name.

    python benchmarks/fuzz_files.py [--files 24000] [--seed 0] [--kinds journal plan …] [--save FILE]

Every file that pebbling reads is written once, changed at random (bits flipped, cut, words exchanged, blocks lost,
doubled and zeroed, numbers made huge, brackets nested deep, garbage), and read again, in a process that may take no
more than so many bytes and seconds. Counted is what came of it: the right content, an error of ours, or what must
never be: other content ("wrong"), an error of Python's or of a library's ("raw"), too much memory, too much time, a
dead process, a change to a file outside of the directory. Forged files have right checksums, so other content is no
fault there; all the rest is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import date
from io import StringIO
from pathlib import Path

import numpy as np

from pebbling import adjoint, tree
from pebbling.chain import plan
from pebbling.cli import main as command
from pebbling.drive import Dump
from pebbling.errors import PebblingError
from pebbling.graph import Graph, Node, Storage, load, save, solve
from pebbling.show import Sheet
from pebbling.store import HDF5, Compressed, Disk, files, journal
from pebbling.tree.data import Unreadable

MEMORY = 1 << 29
SECONDS = 20
BATCH = 100
BAD = ("wrong", "raw", "memory", "time", "dead", "outside")


def states():
    """Small trees of many kinds."""
    numbers = np.random.default_rng(0)
    return {
        "a": {"u": numbers.random(40), "step": 3, "rng": np.random.default_rng(1)},
        "b": [numbers.integers(0, 9, (3, 4)).astype("i2"), (None, "text", 2.5, 1 + 2j), {"deep": [[1], {2: b"x"}]}],
        1: np.arange(6.0).reshape(2, 3).T,
        "record": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    }


# Mutations: from bytes to bytes.


def flip(content, draw):
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        at = draw.randrange(len(content))
        content[at] ^= 1 << draw.randrange(8)


def cut(content, draw):
    del content[draw.randrange(len(content)) :]


def grow(content, draw):
    content += bytes(draw.randrange(256) for _ in range(draw.choice((1, 64, 5000))))


def exchange(content, draw):
    if len(content) > 32:
        one, two = (8 * draw.randrange(len(content) // 8) for _ in range(2))
        content[one : one + 8], content[two : two + 8] = content[two : two + 8], content[one : one + 8]


def _block(content, draw):
    size = draw.choice((1, 8, 64, 512))
    at = draw.randrange(len(content)) // size * size
    return slice(at, at + size)


def lose(content, draw):
    del content[_block(content, draw)]


def double(content, draw):
    block = _block(content, draw)
    content[block.start : block.start] = content[block]


def zero(content, draw):
    block = _block(content, draw)
    content[block] = bytes(len(content[block]))


def garbage(content, draw):
    block = _block(content, draw)
    content[block] = bytes(draw.randrange(256) for _ in content[block])


def double_line(content, draw):
    lines = bytes(content).split(b"\n")
    at = draw.randrange(len(lines))
    content[:] = b"\n".join([*lines[:at], lines[at], *lines[at:]])


def huge(content, draw):
    found = list(re.finditer(rb"[0-9]+", bytes(content)))
    if found:
        number = draw.choice((b"1" + b"0" * 12, b"1e30", b"-1", b"9" * 5000, b"NaN", b"18446744073709551616", b"1e999"))
        where = draw.choice(found)
        content[where.start() : where.end()] = number


def nest(content, draw):
    at = draw.randrange(len(content))
    content[at:at] = draw.choice((b"[", b"(\x01", b'{"a":')) * draw.choice((50, 3000, 100_000))


def empty(content, draw):
    del content[:]


MUTATIONS = [flip, flip, flip, cut, grow, exchange, lose, double, zero, garbage, double_line, huge, nest]
CRASHES = {cut, zero, lose, empty}
"""What is left of a journal that was never closed may look like one whose process was killed earlier."""


class Kind:
    """One kind of file: written once, and read again after it was changed."""

    forged = False
    shown = False

    def __init__(self, folder):
        self.folder = Path(folder)

    def make(self):
        """Write it; the files that are changed."""
        raise NotImplementedError

    def read(self):
        """What is in it."""
        raise NotImplementedError

    def right(self, found, mutation):
        """Whether that is what was written."""
        return tree.differing(found, self.want) is None


class Closed(Kind):
    """journal, closed"""

    pattern = "*.journal"

    def make(self):
        self.want = states()
        with Disk(self.folder, run="r", keep=True) as store:
            for key, state in self.want.items():
                store.put(key, "old")
                store.put(key, state)
            store.put("gone", 1)
            store.drop("gone")
        return list(self.folder.glob(self.pattern))

    def read(self):
        with Disk(self.folder, run="r", keep=True) as store:
            return {key: store.get(key) for key in list(store.keys())}


class Open(Closed):
    """journal of a killed process"""

    def make(self):
        want = states()
        store = Disk(self.folder, run="r", keep=True)
        self.states = [{}]
        for key, state in want.items():
            for each in ("old", state):
                store.put(key, each)
                self.states.append({**self.states[-1], key: each})
        self.want = self.states[-1]
        store._journal.close()
        store._directory.lock.forget()
        store._finalize.detach()
        return list(self.folder.glob(self.pattern))

    def right(self, found, mutation):
        if super().right(found, mutation):
            return True
        return mutation in CRASHES and any(tree.differing(found, state) is None for state in self.states)


class Slot(Closed):
    """slot"""

    pattern = "*.slot"


class Squeezed(Closed):
    """slot of a compressed store"""

    pattern = "*.slot"

    def make(self):
        self.want = states()
        with Compressed(Disk(self.folder, run="r", keep=True)) as store:
            for key, state in self.want.items():
                store.put(key, state)
        return list(self.folder.glob(self.pattern))

    def read(self):
        with Compressed(Disk(self.folder, run="r", keep=True)) as store:
            return {key: store.get(key) for key in list(store.keys())}


class Lock(Closed):
    """lock"""

    def make(self):
        super().make()
        store = Disk(self.folder)
        store._directory.lock.forget()
        store._journal.close()
        store._finalize.detach()
        return [self.folder / "pebbling.lock"]


class ForgedJournal(Closed):
    """forged journal"""

    forged = True
    values = (
        -1,
        10**12,
        10**30,
        1e30,
        None,
        True,
        "../../x",
        "x/../../out",
        [],
        {},
        "a" * 5000,
        "\u0000",
        3 * 10**9,
        0,
    )

    def mutate(self, content, draw):
        records = journal._parsed("it", bytes(content).rstrip(b"\0"))
        record = draw.choice(records)
        name = draw.choice([*record, "slot", "drop", "put", "made", "run", "new"])
        record[name] = draw.choice((*self.values, [str(self.folder.parent / "outside")]))
        if draw.random() < 0.2:
            record.pop(draw.choice(list(record)))
        records[0]["sealed"] = draw.choice((len(records), 10**30, None, "x"))
        content[:] = journal.MAGIC + b"".join(journal.encode(number, each) for number, each in enumerate(records))


class ForgedDescription(Kind):
    """forged description"""

    forged = True

    def make(self):
        self.want = states()
        path = self.folder / "description"
        meta, self.buffers = tree.pack(self.want)
        path.write_bytes(meta)
        return [path]

    def read(self):
        layout = tree.Layout((self.folder / "description").read_bytes())
        if layout.nbytes != sum(buffer.size for buffer in self.buffers):
            raise Unreadable("another size")
        rooms, finish = layout.allocate()
        for room in rooms:
            room[:] = 7
        return finish()


class Hdf5(Kind):
    """HDF5"""

    def make(self):
        self.want = states()
        with HDF5(self.folder / "f.h5", keep=True) as store:
            for key, state in self.want.items():
                store.put(key, state)
        return [self.folder / "f.h5"]

    def read(self):
        with HDF5(self.folder / "f.h5", keep=True) as store:
            return {key: store.get(key) for key in list(store.keys())}

    def right(self, found, mutation):
        # A group that the file no longer lists can't be missed; what is listed must be right.
        return all(key in self.want and tree.differing(state, self.want[key]) is None for key, state in found.items())


class Interrupted(Kind):
    """interrupted run"""

    def make(self):
        def back(x, a, i):
            if i == 5:
                raise KeyboardInterrupt
            return 2 * x * a

        self.at = self.folder / "run"
        with suppress(KeyboardInterrupt):
            self._call(back)
        reverse.inner = None
        first = adjoint(forward, reverse, np.full(5, 1.01), 10, np.ones(5))
        self.want = [first.state, first.adjoint]
        return [path for path in self.at.iterdir() if path.suffix != ".lock"]

    def _call(self, back):
        # The digest of what ``reverse`` is must be that of the call that was interrupted.
        reverse.inner = back
        return adjoint(forward, reverse, np.full(5, 1.01), 10, np.ones(5), slots=3, resume=self.at)

    def read(self):
        result = self._call(None)
        return [result.state, result.adjoint]


class Function:
    """Into which nobody looks to tell one run from another."""

    inner = None

    def __call__(self, x, a, i):
        return 2 * x * a if self.inner is None else self.inner(x, a, i)


reverse = Function()


def forward(x, i):
    return x * x


class Dumped(Kind):
    """dump"""

    def make(self):
        self.want = list(states().values())[:2]
        Dump(self.folder)(*self.want, step=3)
        return [self.folder / "step-3.dump"]

    def read(self):
        return list(Dump(self.folder).read(3))


def graph():
    forwards = [Node(f"f{i}", (f"f{i - 1}" if i else "x",), (Storage(f"f{i}", 8),), 1.0) for i in range(4)]
    backwards = [
        Node(f"b{i}", (f"f{i}", *(() if i == 3 else (f"b{i + 1}",))), (Storage(f"b{i}", 8),), 1.0, backward=True)
        for i in reversed(range(4))
    ]
    return Graph([*forwards, *backwards], [Storage("x", 8, True)], ["b0"])


class GraphFile(Kind):
    """graph"""

    name = "graph.json"

    def make(self):
        self.want = graph()
        save(self.want, self.folder / self.name)
        return [self.folder / self.name]

    def read(self):
        return load(self.folder / self.name)

    def right(self, found, mutation):
        return found == self.want


class PlanFile(GraphFile):
    """plan of a graph"""

    name = "plan.json"

    def make(self):
        self.want = solve(graph(), 40)
        save(self.want, self.folder / self.name)
        return [self.folder / self.name]


class PackedPlan(PlanFile):
    """compressed plan"""

    name = "plan.json.gz"


class Shown(Kind):
    """plan, shown"""

    shown = True

    def content(self):
        found = plan(1000, "1MB", forward="1s", backward="2s", memory="20MB")
        return Sheet(found.schedule, {"steps": 1000, "state": 10**6, "forward": 1.0, "backward": 2.0}, found).json()

    def make(self):
        (self.folder / "it.json").write_text(json.dumps(self.content()))
        return [self.folder / "it.json"]

    def read(self):
        said = StringIO()
        with redirect_stdout(StringIO()), redirect_stderr(said):
            code = command(["show", str(self.folder / "it.json")])
        if code:
            raise PebblingError(said.getvalue())
        return code


class ShownReport(Shown):
    """report, shown"""

    def content(self):
        return json.loads(adjoint(forward, reverse, np.ones(3), 10, np.ones(3), slots=3).report.json())


KINDS = {
    kind.__doc__: kind
    for kind in (
        Closed, Open, Slot, Squeezed, Lock, ForgedJournal, ForgedDescription, Hdf5, Interrupted, Dumped, GraphFile,
        PlanFile, PackedPlan, Shown, ShownReport,
    )
}  # fmt: skip


def attempt(kind, original, mutation, draw):
    """Change one of the files and read it; what came of it, and a word on that."""
    path = Path(draw.choice(sorted(original)))
    content = bytearray(original[str(path)])
    if kind.forged and hasattr(kind, "mutate"):
        kind.mutate(content, draw)
    else:
        mutation(content, draw)
        if draw.random() < 0.2 and content:
            second = draw.choice(MUTATIONS)
            second(content, draw)
            mutation = second if second in CRASHES else mutation
    if bytes(content) == original[str(path)]:
        return "right", ""
    path.write_bytes(content)
    signal.alarm(SECONDS)
    try:
        found = kind.read()
    except TimeoutError:
        return "time", ""
    except (PebblingError, Unreadable) as error:
        return "refused", type(error).__name__
    except MemoryError as error:
        return "memory", str(error)
    except BaseException as error:
        return "raw", f"{type(error).__name__}: {error}"[:160]
    finally:
        signal.alarm(0)
    if kind.shown:
        return "shown", ""
    if kind.right(found, mutation):
        return "right", ""
    return ("other", "") if kind.forged else ("wrong", mutation.__name__)


def too_slow(*_):
    raise TimeoutError


def batch(name, seed, count, stream):
    """So many files of one kind, in this process; one line each is written to ``stream``."""
    warnings.simplefilter("ignore")
    draw = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    outside = folder / "outside"
    outside.write_bytes(b"not yours" * 1000)
    kind = KINDS[name](folder / "in")
    kind.folder.mkdir()
    changed = {str(path): path.read_bytes() for path in kind.make()}
    everything = {str(path): path.read_bytes() for path in kind.folder.rglob("*") if path.is_file()}
    signal.signal(signal.SIGALRM, too_slow)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    for _ in range(count):
        came, word = attempt(kind, changed, draw.choice(MUTATIONS), draw)
        if outside.read_bytes() != b"not yours" * 1000 or sorted(os.listdir(folder)) not in (
            ["in", "outside"],
            ["outside"],
        ):
            came, word = "outside", str(sorted(os.listdir(folder)))
        print(json.dumps([came, word]), file=stream, flush=True)
        shutil.rmtree(kind.folder, ignore_errors=True)
        for path, content in everything.items():
            Path(path).parent.mkdir(exist_ok=True, parents=True)
            Path(path).write_bytes(content)
    shutil.rmtree(folder)


def forked(name, seed, count):
    """The same in a process of its own, which may die."""
    with tempfile.NamedTemporaryFile("r+") as lines:
        process = os.fork()
        if not process:
            try:
                with open(lines.name, "w") as stream:
                    batch(name, seed, count, stream)
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"{name}, seed {seed}: {error!r}\n")
                os._exit(1)
        _, status = os.waitpid(process, 0)
        found = [tuple(json.loads(line)) for line in Path(lines.name).read_text().splitlines()]
    if status:
        found.append(("dead", f"status {status}, seed {seed}"))
    return found


def sweep(names, total, seed):
    """Counts by kind, and an example of each that must not be."""
    counts, words = {}, Counter()
    share = -(-total // len(names))
    for name in names:
        counts[name] = Counter()
        begun = 0
        while sum(counts[name].values()) < share:
            for came, word in forked(name, seed * 10**6 + begun, min(BATCH, share - sum(counts[name].values()))):
                counts[name][came] += 1
                if came in BAD:
                    words[name, came, word] += 1
            begun += 1
        print(name, dict(counts[name]), flush=True)
    return counts, words


def main() -> None:
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=24_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    # Nothing here depends on what a power failure would leave, and waiting for the disk takes its time.
    files.sync = files.sync_directory = lambda _: None
    counts, words = sweep(options.kinds, options.files, options.seed)
    columns = ("right", "refused", "shown", "other", *BAD)
    rows = [[name, *(str(counts[name][column]) for column in columns)] for name in counts]
    rows.append(["all", *(str(sum(found[column] for found in counts.values())) for column in columns)])
    lines = [
        f"# Damaged and forged files, {date.today()}",
        "",
        f"`python benchmarks/fuzz_files.py --files {options.files} --seed {options.seed}`, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, shared. A process that reads "
        f'may take {MEMORY >> 20} MiB above what it has, and {SECONDS} s a file. "shown": `pebbling show` printed what '
        'is in it; "other": a forged file, with right checksums, that says something else; the columns from "wrong" '
        "on must be 0.",
        "",
        "| file | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    print("\n".join(lines))
    for (name, came, word), count in words.most_common(40):
        print(f"{came} × {count}, {name}: {word}", file=sys.stderr)
    if options.save:
        options.save.write_text("\n".join(lines) + "\n")
    sys.exit(bool(words))


if __name__ == "__main__":
    main()
