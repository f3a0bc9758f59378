"""The tape on a compiled diffusion solver: memory and time beside storing everything and beside pyadjoint.

100 steps of the solver in examples/diffusion.py, with its adjoint written by hand; pyadjoint runs the same
functions in blocks of its own, with and without its checkpointing. Memory is the peak by tracemalloc above what was
there before the call, in states; time is CPU time of the process, the minimum of several runs taken in turns.

Run: python benchmarks/tape.py [--points 100000] [--repeats 5] [--save FILE]
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import platform
import sys
import time
import tracemalloc
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

import pebbling as pb

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import diffusion

STEPS = 100
LIMITS = {4: 12, 8: 16, 16: 24}


def peak(function, state):
    """The most memory that a call takes, in states."""
    function()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    function()
    found = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return found / state


def seconds(functions, repeats):
    """The minimum of each, taken in turns so that a busy moment of the machine hits all of them."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            begun = time.process_time()
            function()
            best[i] = min(best[i], time.process_time() - begun)
    return best


def peer(problem):
    """The gradient with respect to k by pyadjoint: a function of its number of snapshots (``None``: keep all)."""
    import checkpoint_schedules
    import pyadjoint
    from pyadjoint.overloaded_type import OverloadedType

    class Field(OverloadedType):
        """An array, new in every step as with pyadjoint's own NumPy type; never written into, so never copied."""

        def __init__(self, data):
            super().__init__()
            self.data = data

        def _ad_create_checkpoint(self):
            return self

        def _ad_restore_at_checkpoint(self, checkpoint):
            return checkpoint

        def _ad_convert_type(self, value, options=None):
            return value

        def _ad_init_zero(self, dual=False):
            return Field(np.zeros_like(self.data))

    class Step(pyadjoint.Block):
        """One step of the solver."""

        def __init__(self, u, k):
            super().__init__()
            self.add_dependency(u)
            self.add_dependency(k)

        def prepare_evaluate_adj(self, inputs, adj_inputs, relevant_dependencies):
            x = inputs[0].data, inputs[1].data
            y = self.get_outputs()[0].saved_output.data
            return diffusion.step.rules["vjp"](x, y, adj_inputs[0], rate=diffusion.RATE)

        def evaluate_adj_component(self, inputs, adj_inputs, block_variable, idx, prepared=None):
            return prepared[idx]

        def recompute_component(self, inputs, block_variable, idx, prepared):
            return Field(diffusion.step.function(inputs[0].data, inputs[1].data, rate=diffusion.RATE))

    class Misfit(pyadjoint.Block):
        """The misfit."""

        def __init__(self, u):
            super().__init__()
            self.add_dependency(u)

        def evaluate_adj_component(self, inputs, adj_inputs, block_variable, idx, prepared=None):
            return float(adj_inputs[0]) * (inputs[0].data - problem[2])

        def recompute_component(self, inputs, block_variable, idx, prepared):
            return diffusion.misfit.function(inputs[0].data, problem[2])

    def gradient(slots):
        with pyadjoint.tape.set_working_tape(pyadjoint.Tape()) as tape:
            if slots is not None:
                schedule = checkpoint_schedules.MultistageCheckpointSchedule(STEPS, slots, 0)
                tape.enable_checkpointing(schedule)
            pyadjoint.continue_annotation()
            u, k = Field(problem[0]), Field(problem[1])
            control = pyadjoint.Control(k)
            for _ in tape.timestepper(iter(range(STEPS))):
                block = Step(u, k)
                tape.add_block(block)
                u = Field(diffusion.step.function(u.data, k.data, rate=diffusion.RATE))
                block.add_output(u.create_block_variable())
            block = Misfit(u)
            tape.add_block(block)
            result = pyadjoint.AdjFloat(diffusion.misfit.function(u.data, problem[2]))
            block.add_output(result.create_block_variable())
            functional = pyadjoint.ReducedFunctional(result, control)
            pyadjoint.pause_annotation()
            return functional.derivative().data

    return gradient


def agreement(found, expected):
    """Whether two gradients are equal to the last bit, or how far they are apart."""
    if np.array_equal(found, expected):
        return "yes"
    return f"to {abs(found - expected).max() / abs(expected).max():.0e}"


def record_bytes():
    """What a step leaves on a tape, in bytes, and what recording it takes, in seconds."""
    scale = pb.op(lambda x, *, t: x * t)

    def record(steps):
        tape = pb.Tape(slots=4)
        u = tape.leaf(1.0)
        for _ in tape.loop(range(steps)):
            u = scale(u, t=1.0)
        return tape, u

    record(100)
    begun = time.process_time()
    record(10_000)
    taken = (time.process_time() - begun) / 10_000
    sizes = []
    for steps in (5000, 10_000):
        tracemalloc.start()
        kept = record(steps)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del kept
    return (sizes[1] - sizes[0]) / 5000, taken


def measured(points, repeats):
    """All rows of the table, each with a verdict."""
    problem = diffusion.problem(points)
    state = problem[0].nbytes
    direction = np.cos(np.arange(points))
    exact = diffusion.gradient(*problem, STEPS, schedule=pb.StoreAll(STEPS))[2]

    def forward():
        u, k, _ = problem
        for _ in range(STEPS):
            u = diffusion.step.function(u, k, rate=diffusion.RATE)

    cases = [("forward loop alone", forward, None, None)]
    budgets = [
        ("keeping everything", {"schedule": pb.StoreAll(STEPS)}),
        *((f"slots={c}", {"slots": c}) for c in LIMITS),
    ]
    for name, budget in [*budgets, ("memory of 20 states", {"memory": 20 * state})]:
        limit = LIMITS.get(budget.get("slots"), 20 if "memory" in budget else None)

        def gradient(budget=budget):
            return diffusion.gradient(*problem, STEPS, **budget)[2]

        cases.append((f"pebbling, gradient, {name}", gradient, exact, limit))
    product = diffusion.hessian_times(*problem, direction, STEPS, schedule=pb.StoreAll(STEPS))
    for name, budget in budgets:

        def times(budget=budget):
            return diffusion.hessian_times(*problem, direction, STEPS, **budget)

        cases.append((f"pebbling, Hessian times vector, {name}", times, product, None))
    if importlib.util.find_spec("pyadjoint"):
        theirs = peer(problem)
        for slots in (None, *LIMITS):
            name = "keeping everything" if slots is None else f"{slots} snapshots"
            cases.append((f"pyadjoint, gradient, {name}", lambda slots=slots: theirs(slots), exact, None))
    peaks = [peak(function, state) for _, function, _, _ in cases]
    times = seconds([function for _, function, _, _ in cases], repeats)
    for (name, function, expected, limit), states, taken in zip(cases, peaks, times):
        same = "–" if expected is None else agreement(function(), expected)
        verdict = "–" if limit is None else f"≤ {limit}: {'holds' if states <= limit else 'MISSED'}"
        yield name, f"{states:.1f}", verdict, f"{taken * 1e3:.0f} ms", f"{taken / times[0]:.1f}", same


def main():
    """Print the table, and save it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    rows = list(measured(arguments.points, arguments.repeats))
    size, taken = record_bytes()
    theirs = (
        f"pyadjoint {version('pyadjoint-ad')}" if importlib.util.find_spec("pyadjoint") else "pyadjoint not installed"
    )
    lines = [
        f"# The tape, {date.today()}",
        "",
        f"Nonlinear diffusion, {STEPS} steps of {arguments.points:,} points, a compiled step with its adjoint by hand. "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {theirs}, {platform.machine()}. States: peak "
        "above what was there before, in states. Time: CPU, best of "
        f"{arguments.repeats}; beside it, in forward loops. Same: bit for bit that of pebbling keeping everything.",
        "",
        "| what | states | limit | time | forward loops | same |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"A recorded step takes {size:.0f} bytes (limit 300: {'holds' if size <= 300 else 'MISSED'}) and "
        f"{taken * 1e6:.0f} µs. pyadjoint's variables hold their values for as long as its tape lives; its "
        "Hessian does not use its checkpoints, so it has no row.",
    ]
    print("\n".join(lines))
    if arguments.save:
        arguments.save.write_text("\n".join(lines) + "\n")
    wrong = any(row[0].startswith("pebbling") and row[-1] != "yes" for row in rows)
    sys.exit(wrong or any("MISSED" in line for line in lines))


if __name__ == "__main__":
    main()
