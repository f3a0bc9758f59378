"""Bytes and seconds as people write them: "64MiB", "2GB", "1.5 s", "3GB/s"."""

from __future__ import annotations

import math
import os
import re
from numbers import Integral, Real

_BYTES = {
    "": 1, "b": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50,
}  # fmt: skip
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_SHARE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*")
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9]*)\s*")


def parse_bytes(amount: float | str) -> int:
    """A number of bytes from a number or a text such as ``"64MiB"``.

    >>> parse_bytes("64MiB"), parse_bytes("2GB"), parse_bytes(4096)
    (67108864, 2000000000, 4096)
    """
    number = _parse(amount, _BYTES, 'bytes such as 4096, "64MiB" or "2GB"')
    if 0 < number < 1:
        raise ValueError(f"{amount!r} is less than a byte: sizes and budgets are in bytes, not shares of something")
    return math.floor(number)


def parse_budget(amount: float | str) -> int:
    """The same for what a program may allocate on the host: also a share of the memory that is free there.

    >>> parse_budget("16M"), parse_budget("50%") > 0
    (16000000, True)
    """
    match = _SHARE.fullmatch(amount) if isinstance(amount, str) else None
    if match is None:
        return parse_bytes(amount)
    share = float(match[1])
    if not 0 < share <= 100:
        raise ValueError(f"{amount!r} is not a share of the free memory: expected something from 0% to 100%")
    return math.floor(share / 100 * free_memory())


def free_memory() -> int:
    """The bytes of memory that this process can still take without swapping."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, used in _LIMITS:
        try:
            with open(limit, encoding="ascii") as one, open(used, encoding="ascii") as two:
                free = min(free, max(0, int(one.read()) - int(two.read())))
        except (OSError, ValueError):  # No container, or one without a limit.
            continue
    return free


def parse_seconds(amount: float | str) -> float:
    """A number of seconds from a number or a text such as ``"5ms"``.

    >>> parse_seconds("5ms"), parse_seconds(2)
    (0.005, 2.0)
    """
    return _parse(amount, _SECONDS, 'seconds such as 0.5, "5ms" or "2h"')


def parse_bandwidth(amount: float | str) -> float:
    """Bytes per second from a number or a text such as ``"2GB/s"``.

    >>> parse_bandwidth("2GB/s")
    2000000000.0
    """
    if isinstance(amount, str):
        amount = amount.strip().removesuffix("/s")
    return _parse(amount, _BYTES, 'bytes per second such as 2e9 or "2GB/s"')


def format_bytes(amount: float) -> str:
    """A text with three digits and a binary unit.

    >>> format_bytes(67108864), format_bytes(1500), format_bytes(12)
    ('64 MiB', '1.46 KiB', '12 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 999.5 or unit == "TiB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:,.0f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def format_seconds(amount: float) -> str:
    """A text with three digits and the unit that suits it.

    >>> format_seconds(0.0021), format_seconds(75), format_seconds(200000)
    ('2.1 ms', '1.25 min', '2.31 d')
    """
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(amount) >= size:
            return f"{amount / size:.3g} {unit}"
    return "0 s" if amount == 0 else f"{amount / 1e-9:.3g} ns"


def _parse(amount: float | str, units: dict[str, float] | dict[str, int], accepted: str) -> float:
    number, unit = amount, ""
    if isinstance(amount, str):
        match = _NUMBER.fullmatch(amount)
        if match is None:
            raise ValueError(f"{amount!r} is not a size: expected {accepted}")
        number, unit = float(match[1]), match[2].lower()
    if unit == "%":
        raise ValueError(f"{amount!r} is a share of something that is not known here: expected {accepted}")
    if unit not in units:
        raise ValueError(f"{amount!r} has the unknown unit {unit!r}: expected {accepted}")
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number) or number < 0:
        raise ValueError(f"{amount!r} is not a size: expected {accepted}")
    return (int(number) if isinstance(number, Integral) else float(number)) * units[unit]
