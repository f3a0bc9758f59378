"""A story for other viewers: JSON, a trace for Perfetto with a counter of bytes, a snapshot for torch's memory_viz."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Why


def data(why: Why) -> str:
    """All figures, and the bytes at every operation."""
    curve = [[moment.op, moment.module, moment.phase, moment.level, moment.top] for moment in why.story.moments]
    return json.dumps({**why.json(), "curve": curve})


def perfetto(why: Why) -> str:
    """One slice an operation, named by the operation so that slices add up, and one counter of bytes.

    A moment has no duration here: each takes one microsecond.
    """
    events: list[dict[str, Any]] = []
    for at, moment in enumerate(why.story.moments):
        arguments = {"module": moment.module, "line": moment.line, "bytes": moment.top}
        slot = {"pid": 1, "tid": 1, "ts": at, "cat": moment.phase}
        events.append({"name": moment.op, "ph": "X", "dur": 1, "args": arguments, **slot})
        for ts, value in ((at, moment.top), (at + 0.9, moment.level)):
            events.append({"name": "bytes", "ph": "C", "pid": 1, "ts": ts, "args": {"bytes": value}})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def memory_viz(why: Why) -> bytes:
    """A snapshot as ``torch.cuda.memory._snapshot()`` gives it, with made-up addresses: each life is a block."""
    story, address, entries = why.story, 0, []
    events: list[tuple[int, int, dict[str, Any]]] = []
    for life in story.lives:
        frames = [{"name": f"{life.kind} {life.op} {life.module}".strip(), "filename": life.line, "line": 0}]
        both = {"addr": address, "size": life.bytes, "frames": frames, "stream": 0}
        events.append((life.start, 1, {"action": "alloc", **both}))
        if life.end is not None:
            events.append((life.end, 0, {"action": "free_completed", **both}))
        address += max(life.bytes, 1)
    for at, _, event in sorted(events, key=lambda each: each[:2]):
        entries.append({**event, "time_us": at})
    return pickle.dumps({"segments": [], "device_traces": [entries], "allocator_settings": {}})
