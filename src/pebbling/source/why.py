"""``pb.why``: why the gradient of a NumPy function takes the memory that it takes, by line of the program.

The function runs once under a derivative, as by ``pb.grad``, with Python's own meter of memory (tracemalloc) on. Each
line of the program is a moment: what was allocated when it began, and the most until the next line began. What is still
there when the forward pass is over is what the backward pass needs; each of these bytes is told by the line that
allocated it. The backward pass runs in pebbling's code, so it is one moment.

    def f(u):
        for i in range(1000):
            u = u + 0.01 * np.sin(u)      # 16 MB: two arrays a step, kept for the backward pass
        return np.sum(u**2)

    print(pb.why(f, np.ones(1000)))

Lines are looked at one by one, so the run takes longer than the gradient itself.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import textwrap
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from ..drive.tracing import Alone
from ..engine.numpy import transform
from ..peaks import Advice, Life, Moment, Story, Why
from .explain import Loop, explain

_FRAMES = 16
_MOST_MOMENTS = 2000
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def why(f: Callable[..., Any], *args: Any, argnums: int | tuple[int, ...] = 0) -> Why:
    """Why the gradient of ``f`` at these arguments takes the memory that it takes, and what would lower it.

    ``f`` is a function as ``pb.grad`` takes it. ``.peak`` is the most that was allocated above what was there before
    the call, as tracemalloc counts it. Prints as a table; ``save`` writes a page.

    >>> import numpy as np
    >>> from pebbling.source.demo import decay
    >>> found = why(decay, np.ones(1000))
    >>> found.moment.phase, found.advice[0].change.startswith("checkpoint the loop")
    ('backward', True)
    """
    loops = [loop for loop in explain(f, *args).loops if loop.peak is not None and not loop.depth]
    with Alone():
        seen = _Seen(f)
        peak = seen.run(args, argnums)
    story = seen.story(peak)
    file = getattr(getattr(f, "__code__", None), "co_filename", "")
    ends = _last_lines(f) if loops else {}
    told = tuple(_of_loop(loop, file, ends.get(loop.line, loop.line), story) for loop in loops)
    return Why(story, getattr(f, "__qualname__", type(f).__name__), told=told)


class _Seen:
    """One run, line by line.

    What is noted lies in an array that was there before the run, so that the notes are no part of the peak.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.kept: list[tuple[str, int, int]] = []
        """File, line and bytes of what is there when the forward pass is over."""
        self._places: dict[tuple[str, int], int] = {}
        self._notes = np.zeros((2 * _MOST_MOMENTS, 3), np.int64)
        """For each moment its line, the bytes when it begins, and the most until the next line begins."""
        self._noted = 0
        self._base = 0
        self._every, self._count = 1, 0

    @property
    def moments(self) -> list[tuple[str, int, int, int]]:
        """File, line, bytes at the beginning, and the most."""
        places = list(self._places)
        return [(*places[place], level, top) for place, level, top in self._notes[: self._noted].tolist()]

    def run(self, args: tuple[Any, ...], argnums: int | tuple[int, ...]) -> int:
        """Run forward and backward; the most that was allocated above what was there."""
        started = not tracemalloc.is_tracing()
        if started:
            tracemalloc.start(_FRAMES)
        before = sys.gettrace()
        try:
            self._base = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            result = transform.value_and_grad(self._forward, argnums)(*args)
            highest = tracemalloc.get_traced_memory()[1] - self._base
            del result
            return max(highest, int(self._notes[:, 2].max()))
        finally:
            sys.settrace(before)
            if started:
                tracemalloc.stop()

    def _forward(self, *args: Any) -> Any:
        sys.settrace(self._enter)
        try:
            result = self.f(*args)
        finally:
            sys.settrace(None)
        self._close()
        self._look(tracemalloc.take_snapshot())
        tracemalloc.reset_peak()
        return result

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        return None if _is_library(file) else self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._count += 1
            if self._count % self._every == 0:
                self._close()
                now = tracemalloc.get_traced_memory()[0] - self._base
                place = self._places.setdefault((frame.f_code.co_filename, frame.f_lineno), len(self._places))
                self._notes[self._noted] = place, now, now
                self._noted += 1
                tracemalloc.reset_peak()
                if self._noted == len(self._notes):
                    self._thin()
        return self._line

    def _close(self) -> None:
        """The most since the last line began belongs to it."""
        if self._noted:
            top = tracemalloc.get_traced_memory()[1] - self._base
            self._notes[self._noted - 1, 2] = max(top, self._notes[self._noted - 1, 2])

    def _thin(self) -> None:
        """Of two moments the higher stays: programs of any length have a story of some thousands."""
        first, second = self._notes[::2], self._notes[1::2]
        higher = np.where((first[:, 2] >= second[:, 2])[:, None], first, second)
        self._noted = len(higher)
        self._notes[: self._noted] = higher
        self._notes[self._noted :] = 0
        self._every *= 2

    def _look(self, snapshot: tracemalloc.Snapshot) -> None:
        """What each line of the program has allocated that is still there."""
        own = __file__
        found: dict[tuple[str, int], int] = defaultdict(int)
        for trace in snapshot.traces:
            frames = [(frame.filename, frame.lineno) for frame in trace.traceback]
            if any(file == own for file, _ in frames):
                frames = frames[max(at for at, (file, _) in enumerate(frames) if file == own) :]
            place = next((frame for frame in reversed(frames) if not _is_library(frame[0])), None)
            if place is not None:
                found[place] += trace.size
        self.kept = [(file, line, size) for (file, line), size in found.items()]

    def story(self, peak: int) -> Story:
        """Lines as moments, the backward pass as the last; what is kept lives from its line to the end."""
        noted = self.moments
        moments = [
            Moment(_text(file, line), "", _place(file, line), "forward", level, max(level, top))
            for file, line, level, top in noted
        ]
        level = sum(size for *_, size in self.kept)
        moments.append(Moment("the backward pass", "", "", "backward", level, peak))
        first: dict[tuple[str, int], int] = {}
        for at, (file, line, *_) in enumerate(noted):
            first.setdefault((file, line), at)
        lives = [
            Life(size, first.get((file, line), 0), None, "saved", _text(file, line), "", _place(file, line))
            for file, line, size in sorted(self.kept, key=lambda kept: -kept[2])
        ]
        return Story(tuple(moments), tuple(lives))


def _of_loop(loop: Loop, file: str, last: int, story: Story) -> Advice:
    """What a checkpointed loop would take less: what its lines keep, but for its own peak."""
    text = f"line {loop.line}: {loop.text}"
    inside = {_place(file, line) for line in range(loop.line, last + 1)}
    kept = sum(life.bytes for life in story.lives if life.line in inside)
    peak = min(story.peak, max(story.peak - kept, 0) + (loop.peak or 0))
    how = "" if loop.slots is None else f" with {loop.slots} slots"
    return Advice(f"checkpoint the loop at {text}{how}", kept, peak, story.peak - peak, kept)


def _last_lines(f: Callable[..., Any]) -> dict[int, int]:
    """For each loop of a function, by the line where it begins, the line where it ends."""
    lines, first = inspect.getsourcelines(inspect.unwrap(f))
    nodes = ast.walk(ast.parse(textwrap.dedent("".join(lines))))
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    return {node.lineno + first - 1: (node.end_lineno or node.lineno) + first - 1 for node in loops}


def _is_library(file: str) -> bool:
    if file.startswith((_OURS, _STDLIB)) or f"{os.sep}site-packages{os.sep}" in file:
        return True
    # Cells of a notebook are in no file, but their lines are known.
    return file not in linecache.cache and not os.path.isfile(file)


_STDLIB = os.path.dirname(os.__file__)


def _text(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()


def _place(file: str, line: int) -> str:
    return f"{os.path.basename(file)}:{line}"
