"""What running a plan costs beyond the steps themselves: an action, checks of replays, the journal, transfers.

    python benchmarks/driver.py [--quick] [--save FILE]

Costs of Python code are CPU time, the least of several runs, so that other programs on the machine
count for little; what waits for the disk or for a transfer is wall time. The peer is the loop that
anyone would write: all states in a list, then back.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import pebbling as pb
from pebbling.store import Background, Mock

Row = tuple[str, str, str, str, str]


def least(clock: Callable[[], float], repeats: int, *calls: Callable[[], object]) -> list[float]:
    """The least time of each call, taken in turn."""
    best = [float("inf")] * len(calls)
    for _ in range(repeats):
        for number, call in enumerate(calls):
            begun = clock()
            call()
            best[number] = min(best[number], clock() - begun)
    return best


def store_everything(advance, reverse, state, steps, seed):
    states = []
    for step in range(steps):
        states.append(state)
        state = advance(state, step)
    adjoint = seed
    for step in reversed(range(steps)):
        adjoint = reverse(states.pop(), adjoint, step)
    return state, adjoint


def verdict(fits: bool) -> str:
    return "holds" if fits else "MISSED"


def actions(repeats: int) -> Iterator[Row]:
    """The time of one action, with a step that does nothing, and with one that returns a new array."""
    state, steps = np.zeros(4), 2000
    for name, advance in (("empty step", lambda x, i: x), ("step that copies 4 numbers", lambda x, i: x.copy())):
        for schedule in (pb.StoreAll(steps), pb.Revolve(steps, 200), pb.Revolve(steps, 20)):

            def run(advance=advance, schedule=schedule):
                pb.adjoint(advance, lambda x, a, i: a, state, steps, state, schedule=schedule)

            count = sum(1 for _ in schedule)
            taken = least(process_time, repeats, run)[0] / count
            limit = 2e-6 if name == "empty step" else None
            what = f"an action of {type(schedule).__name__}({steps}, {schedule.cost.peak:.0f} slots), {name}"
            shown = "–" if limit is None else "≤ 2 µs"
            yield what, f"{taken * 1e6:.2f} µs", "–", shown, "–" if limit is None else verdict(taken <= limit)


def against_store_all(repeats: int) -> Iterator[Row]:
    """With enough memory, and with the checks of replays."""
    state, steps = np.random.default_rng(0).random(30_000), 300

    def advance(x, i):
        return x + 0.01 * np.sin(x)

    def reverse(x, a, i):
        return a * (1 + 0.01 * np.cos(x))

    def run(**options):
        return lambda: pb.adjoint(advance, reverse, state, steps, state, **options)

    peer, ours = least(
        process_time,
        repeats,
        lambda: store_everything(advance, reverse, state, steps, state),
        run(schedule=pb.StoreAll(steps)),
    )
    yield (
        "enough memory for all states, steps of 0.4 ms",
        f"{ours * 1e3:.1f} ms",
        f"{peer * 1e3:.1f} ms",
        "≤ 1.05 ×",
        verdict(ours <= 1.05 * peer),
    )
    without, last, every = least(process_time, repeats, *(run(slots=10, verify=how) for how in (False, "last", "all")))
    for name, taken, limit in (("last", last, 0.02), ("all", every, None)):
        share = taken / without - 1
        yield (
            f"verify={name!r}, states of 240 kB",
            f"{share:+.1%}",
            "–",
            "–" if limit is None else f"≤ {limit:.0%}",
            "–" if limit is None else verdict(share <= limit),
        )


def journal(steps: int, directory: str) -> Iterator[Row]:
    """The time that the journal takes, at steps of 10 ms."""
    state = np.random.default_rng(0).random(125_000)

    def advance(x, i):
        time.sleep(0.01)
        return 0.999 * x

    def reverse(x, a, i):
        time.sleep(0.01)
        return 0.999 * a

    def run(**options):
        return lambda: pb.adjoint(advance, reverse, state, steps, state, slots=20, **options)

    plain, journaled = least(perf_counter, 3, run(), run(resume=directory))
    share = journaled / plain - 1
    yield f"resume=, {steps} steps of 10 ms, states of 1 MB", f"{share:+.2%}", "–", "≤ 2 %", verdict(share <= 0.02)


def overlap() -> Iterator[Row]:
    """Transfers behind the computing, with a step as long as a transfer."""
    delay, steps = 0.02, 40
    state = np.zeros(1000)

    def compute():
        time.sleep(delay)

    def writing() -> tuple[float, float]:
        mock = Mock(write_delay=delay)
        begun = perf_counter()
        with Background(mock) as store:
            for step in range(steps):
                store.put(step, state)
                compute()
            store.flush()
            taken = perf_counter() - begun
        return taken, sum(call.stop - call.start for call in mock.log)

    def reading() -> tuple[float, float]:
        mock = Mock(read_delay=delay)
        for step in range(steps):
            mock.store.put(step, state)
        begun = perf_counter()
        with Background(mock) as store:
            store.prefetch(steps - 1)
            for step in reversed(range(steps)):
                store.get(step)
                if step:
                    store.prefetch(step - 1)
                compute()
            taken = perf_counter() - begun
        return taken, sum(call.stop - call.start for call in mock.log if call.name == "get")

    def whole() -> tuple[float, float]:
        """A run whose segments of one step each come from the store: the driver asks for them ahead."""
        mock = Mock(write_delay=delay, read_delay=delay)

        def slow(*arguments):
            compute()
            return arguments[-2]

        begun = perf_counter()
        pb.adjoint(slow, slow, state, steps, state, schedule=pb.chain.Staged(steps, steps, 0), store=mock)
        taken = perf_counter() - begun
        return taken, sum(call.stop - call.start for call in mock.log)

    for name, action in (("puts", writing), ("gets", reading), ("a whole run", whole)):
        taken, transfer = min(action() for _ in range(3))
        computing = steps * delay * (2 if name == "a whole run" else 1)
        longer = max(computing, transfer)
        yield (
            f"{steps} {name}, step as long as a transfer",
            f"{taken:.2f} s",
            f"{longer:.2f} s for the longer of both",
            "≤ 1.15 ×",
            verdict(taken <= 1.15 * longer),
        )


def main() -> None:
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    repeats, steps = (5, 50) if options.quick else (40, 300)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        for part in (
            actions(repeats),
            against_store_all(max(3, repeats // 4)),
            journal(steps, directory + "/run"),
            overlap(),
        ):
            for row in part:
                print(" | ".join(row), flush=True)
                rows.append(row)
    lines = [
        f"# Driver, {date.today()}",
        "",
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {os.cpu_count()} cores. "
        "The peer of the run with enough memory is a plain loop that keeps all states in a list.",
        "",
        "| what | measured | beside | limit | |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    if options.save:
        options.save.write_text("\n".join(lines) + "\n")
    sys.exit(any(row[-1] == "MISSED" for row in rows))


if __name__ == "__main__":
    main()
