"""What the live engine costs on the host: microseconds an operation, on tensors so small that nothing else counts.

    python benchmarks/live_host.py [--write FILE]

Programs of a few hundred operations run plainly and by a plan, on one thread of the CPU; the best of many runs, of
the processor time, counts. An operation that no replay needs passes the mode and, where autograd saves of it, the
hook. One that a replay needs is bound to its arguments besides. A replay runs it again in the backward pass; what the
operation itself takes is measured apart and taken off.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from pebbling.errors import BudgetError
from pebbling.torch import fit
from pebbling.torch.models.live.mode import LiveMode
from pebbling.torch.models.live.way import Way

COUNT, REPEATS = 300, 40
LIMITS = {"an operation that no replay needs": 3.0, "one that a replay needs": 8.0}


class Idle(LiveMode):
    """Sees every operation, and does nothing."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function._op(*args, **kwargs) if kwargs else function._op(*args)


def chain(x: Tensor, count: int = COUNT) -> Tensor:
    for _ in range(count):
        x = torch.tanh(x)
    return x


def with_something_large(small: Tensor, large: Tensor, count: int = COUNT) -> tuple[Tensor, Tensor]:
    """Operations on small values, which a plan keeps, and some on a large value, which it drops."""
    kept = torch.sin(large)
    for _ in range(12):
        kept = torch.sin(torch.exp(kept * 0.1))
    return chain(small, count), kept


def best(run: Callable[[], Any]) -> float:
    """Microseconds."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time()
        left = run()
        found.append(time.process_time() - begun)
        del left
    return min(found) * 1e6


def both(run: Callable[[], Any]) -> tuple[float, float]:
    """Microseconds of the forward and the backward pass."""
    forward, backward = [], []
    for _ in range(REPEATS):
        begun = time.process_time()
        out = run()
        middle = time.process_time()
        torch.autograd.backward(out, [torch.ones_like(each) for each in out])
        backward.append(time.process_time() - middle)
        forward.append(middle - begun)
    return min(forward) * 1e6, min(backward) * 1e6


def in_budget(program: Callable[..., Any], *args: Tensor, above: float = 1.0) -> Any:
    """The program by a plan that replays, at so many times the smallest budget."""

    def step(run: Any) -> None:
        out = run(*args)
        out = out if isinstance(out, tuple) else (out,)
        torch.autograd.backward(out, [torch.ones_like(each) for each in out])

    try:
        step(fit(program, memory=1, time_limit=2))
    except BudgetError as error:
        least = error.minimum
    fitted = fit(program, memory=int(least * above) + 1, time_limit=2)
    for _ in range(12):
        step(fitted)
    assert fitted.plan.replayed
    return fitted


def measured() -> dict[str, float]:
    small = torch.ones(16, requires_grad=True)
    found: dict[str, float] = {}
    plain, _ = both(lambda: (chain(small),))
    found["plain"] = plain / COUNT

    def idle() -> Any:
        with Idle():
            return chain(small)

    def hooks() -> Any:
        with saved_tensors_hooks(lambda saved: saved.detach(), lambda saved: saved):
            return chain(small)

    # Without hooks, torch takes another handle of each result that it saves, which is an operation too.
    def idle_hooks() -> Any:
        with Idle(), saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
            return chain(small)

    found["a mode alone"] = (best(idle) - plain) / (2 * COUNT)
    found["hooks alone"] = (best(hooks) - plain) / COUNT
    large = torch.ones(2**14, requires_grad=True)
    ours, theirs = [], []
    for count in (0, COUNT):

        def program(small: Tensor, large: Tensor, count: int = count) -> tuple[Tensor, Tensor]:
            return with_something_large(small, large, count)

        fitted = in_budget(program, small, large)
        ours.append(both(lambda fitted=fitted: fitted(small, large)))  # type: ignore[misc]
        theirs.append(both(lambda program=program: program(small, large)))  # type: ignore[misc]
    forward, _ = ((ours[1][way] - ours[0][way] - theirs[1][way] + theirs[0][way]) / COUNT for way in (0, 1))
    found["an operation that no replay needs"] = forward
    found["hooks and a mode that do nothing"] = (best(idle_hooks) - plain) / COUNT
    few = torch.ones(2**11, requires_grad=True)
    plain, plain_back = both(lambda: (chain(few),))
    fitted = in_budget(chain, few)
    table = next(iter(fitted._runner._kinds.values())).tables[0]
    bound = sum(getattr(spec, "bind", False) for spec in table.specs)
    planned, back = both(lambda: (fitted(few),))
    passed = len(table.functions) - bound
    found["one that a replay needs"] = (planned - plain - passed * found["an operation that no replay needs"]) / bound
    replays = count_replays(lambda: torch.autograd.backward(fitted(few), torch.ones_like(few)))
    found["a replay beyond its operation"] = (back - plain_back) / replays - plain_op(few)
    found["replays for each operation"] = replays / COUNT
    return found


def plain_op(x: Tensor) -> float:
    with torch.no_grad():
        return best(lambda: [torch.tanh(x) for _ in range(COUNT)]) / COUNT


def count_replays(step: Callable[[], Any]) -> int:
    ways: list[Way] = []
    made = Way.__init__

    def noted(self: Way, *args: Any) -> None:
        made(self, *args)
        ways.append(self)

    Way.__init__ = noted  # type: ignore[method-assign]
    try:
        step()
    finally:
        Way.__init__ = made  # type: ignore[method-assign]
    return sum(way.replayed for way in ways)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    gc.disable()
    found = measured()
    lines = ["| what | µs | limit |", "|---|---|---|"]
    lines += [f"| {what} | {value:.2f} | {LIMITS.get(what, '')} |" for what, value in found.items()]
    print("\n".join(lines))
    if options.write:
        told = f"`python benchmarks/live_host.py`, torch {torch.__version__}, {platform.machine()}, one thread"
        title = f"# Host costs of the live engine, {time.strftime('%Y-%m-%d')}"
        about = " ".join((__doc__ or "").split("[--write FILE]")[1].split())
        options.write.write_text("\n".join([title, "", told, "", about, "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
