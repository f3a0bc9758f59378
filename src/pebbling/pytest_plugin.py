"""pytest prints the peak of each test that asks for it: ``--pebbling-peak`` and ``@pytest.mark.pebbling_peak``.

Two figures a test: what Python and NumPy allocate, by ``tracemalloc``; and, if the test has PyTorch, what its
allocators hand out, by their own count. Both are above what was there when the test began.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from .units import format_bytes

_PEAKS = pytest.StashKey[list[tuple[str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--pebbling-peak``."""
    parser.getgroup("pebbling").addoption(
        "--pebbling-peak", action="store_true", help="print the peak of each test marked with pebbling_peak"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, so that strict runs know it."""
    config.addinivalue_line("markers", "pebbling_peak: print the test's peak of memory, with --pebbling-peak")
    config.stash[_PEAKS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Measure one test that asks for it."""
    if not item.config.getoption("--pebbling-peak") or item.get_closest_marker("pebbling_peak") is None:
        return (yield)
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    torch = sys.modules.get("torch")
    profiler = None if torch is None else _started(torch)
    try:
        return (yield)
    finally:
        peaks = [f"Python and NumPy {format_bytes(tracemalloc.get_traced_memory()[1] - before)}"]
        if not tracing:
            tracemalloc.stop()
        if torch is not None:
            peaks += _ended(torch, profiler)
        item.config.stash[_PEAKS].append((item.nodeid, ", ".join(peaks)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print them at the end."""
    found = config.stash[_PEAKS]
    if found:
        terminalreporter.section("peaks of memory")
        for name, peaks in found:
            terminalreporter.write_line(f"{name}: {peaks}")


def _started(torch: Any) -> Any:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    )
    profiler.start()
    return profiler, torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def _ended(torch: Any, started: Any) -> list[str]:
    profiler, before = started
    profiler.stop()
    level = peak = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU:
            level += event.nbytes()
            peak = max(peak, level)
    found = [f"PyTorch on the CPU {format_bytes(peak)}"]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        found.append(f"on the GPU {format_bytes(torch.cuda.max_memory_allocated() - before)}")
    return found
