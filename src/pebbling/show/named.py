"""One family of schedules by its name, from the options of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..chain import Hierarchical, Mixed, Online, Periodic, Revolve, Schedule, StoreAll, Tier
from ..units import parse_bandwidth, parse_bytes, parse_seconds

FAMILIES = ("storeall", "revolve", "periodic", "mixed", "hierarchical", "online")

_PARSERS = {
    "state": parse_bytes, "tape": parse_bytes, "memory": parse_bytes, "disk": parse_bytes,
    "forward": parse_seconds, "backward": parse_seconds,
    "disk_write": parse_bandwidth, "disk_read": parse_bandwidth,
}  # fmt: skip
_DISK = ("state", "forward", "disk", "disk_write", "disk_read")


def in_numbers(problem: dict[str, Any]) -> dict[str, Any]:
    """A problem in bytes, seconds and bytes per second.

    >>> in_numbers({"steps": 10, "state": "4kB", "forward": "5ms", "disk": None})
    {'steps': 10, 'state': 4000, 'forward': 0.005, 'disk': None}
    """
    return {
        name: _PARSERS[name](value) if name in _PARSERS and value is not None else value
        for name, value in problem.items()
    }


def named(family: str, slots: int | None, problem: dict[str, Any]) -> Schedule:
    """The schedule of a family with so many slots in memory, for a problem in numbers.

    >>> named("revolve", 4, {"steps": 20})
    Revolve(steps=20, slots=4, prefer='writes')
    """
    given = [name for name, value in problem.items() if value is not None]
    _refuse({"memory"} & set(given), f"with --schedule {family}, memory is counted in --slots: leave out")
    if family != "hierarchical":
        unused = [name for name in ("disk", "disk_write", "disk_read") if name in given]
        _refuse(unused, f"--schedule {family} keeps nothing on disk: leave out")
    steps = problem["steps"]
    if family == "storeall":
        _refuse(["slots"] if slots is not None else [], "--schedule storeall keeps every tape: leave out")
        return StoreAll(steps)
    if slots is None:
        raise ValueError(f"--schedule {family} needs --slots, the number of states that fit in memory")
    match family:
        case "revolve":
            return Revolve(steps, slots)
        case "periodic":
            return Periodic(steps, slots)
        case "online":
            return Online(slots).ended(steps)
        case "mixed":
            return Mixed(steps, slots, tape_ratio(problem))
        case "hierarchical":
            disk = disk_tier(problem)
            return Hierarchical(steps, (Tier(slots), disk), problem["forward"], turn_time(problem))
        case _:
            raise ValueError(f"there is no schedule {family!r}: one of {', '.join(FAMILIES)} is expected")


def tape_ratio(problem: dict[str, Any]) -> float:
    """How many states a tape takes: 1 unless sizes are given."""
    state, tape = problem.get("state"), problem.get("tape")
    if tape is not None and state is None:
        raise ValueError("--tape says nothing without --state: give both")
    if state == 0 or tape == 0:
        raise ValueError("--state and --tape must be at least one byte")
    return 1.0 if state is None or tape is None else tape / state


def turn_time(problem: dict[str, Any]) -> float:
    """The time of a turn: a forward step, and a backward one of twice that time unless it is given."""
    forward, backward = problem["forward"], problem.get("backward")
    return float(forward + (2 * forward if backward is None else backward))


def disk_tier(problem: dict[str, Any]) -> Tier:
    """The disk as a tier of slots, with the times of its transfers."""
    missing = [name for name in _DISK if problem.get(name) is None]
    _refuse(missing, "a disk needs its size, its bandwidths, and the size and time of a step: missing")
    state = problem["state"]
    if 0 in (state, problem["disk_write"], problem["disk_read"]):
        raise ValueError("--state, --disk-write and --disk-read must be more than 0")
    return Tier(problem["disk"] // state, state / problem["disk_write"], state / problem["disk_read"])


def _refuse(names: Iterable[str], because: str) -> None:
    if listed := ", ".join(f"--{name.replace('_', '-')}" for name in names):
        raise ValueError(f"{because} {listed}")
