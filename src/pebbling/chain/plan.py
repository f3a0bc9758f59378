"""From bytes, seconds and bandwidths to the best schedule.

Everything if it fits; else states and tapes in memory (``Mixed``, optimal); else, with a slow tier,
the better of ``Staged`` (each segment written and read once, transfers overlapping the compute) and
``Hierarchical`` (optimal for transfers that block). A run holds two states and one tape besides
what the plan keeps, and the budget counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor, gcd

from ..errors import BudgetError
from ..units import format_bytes, format_seconds, parse_bandwidth, parse_bytes, parse_seconds
from .cost import Tier
from .hierarchical import Hierarchical
from .mixed import Mixed
from .mixed_hull import EqualSizes, hull
from .schedule import Schedule
from .staged import Staged
from .storeall import StoreAll
from .validate import whole

_LEVELS = 128  # tapes are measured in fractions of a state as fine as this many levels of memory allow


@dataclass(frozen=True)
class Plan:
    """The best schedule for a problem in bytes and seconds, and what it is expected to take.

    ``peak`` is in bytes by tier, the working states and tape included; ``bound`` is a lower bound
    on the time of any schedule within the budgets, and ``gap`` is ``time / bound - 1``.
    """

    schedule: Schedule
    peak: dict[str, int]
    forwards: int
    time: float
    bound: float
    no_replay: float
    timed: bool

    @property
    def gap(self) -> float:
        """How far the expected time is above the lower bound."""
        return self.time / self.bound - 1 if self.bound else 0.0

    @property
    def overhead(self) -> float:
        """How far the expected time is above that of storing everything."""
        return self.time / self.no_replay - 1 if self.no_replay else 0.0

    def __str__(self) -> str:
        steps = max(self.schedule.steps, 1)
        say = format_seconds if self.timed else (lambda forwards: f"{forwards:,.0f} forwards")
        rows = [
            ("schedule", _describe(self.schedule)),
            *((f"peak, {tier}", format_bytes(peak)) for tier, peak in self.peak.items()),
            ("forwards a step", f"{self.forwards / steps:.3f}  ({self.forwards:,} in all)"),
            ("expected time", f"{say(self.time)}  (+{self.overhead:.1%} over storing everything)"),
            ("lower bound", f"{say(self.bound)}  (gap {self.gap:.2%})"),
        ]
        return "\n".join(f"{name:<16} {value}" for name, value in rows)


@dataclass(frozen=True)
class _Problem:
    steps: int
    state: int
    tape: int
    forward: float
    backward: float
    disk_slots: int
    write: float
    read: float
    overlap: bool

    @property
    def working(self) -> int:
        """Bytes held by a run besides what its plan keeps."""
        return min(self.steps, 1) * (2 * self.state + self.tape)

    @property
    def no_replay(self) -> float:
        return self.steps * (self.forward + self.backward)

    @property
    def minimum(self) -> int:
        """The smallest memory in bytes that works."""
        if self.steps <= 1 or self.disk_slots:
            return self.working
        return self.working + min(self.state, self.tape * (self.steps - 1))


def plan(
    steps: int,
    state: float | str,
    *,
    tape: float | str | None = None,
    forward: float | str | None = None,
    backward: float | str | None = None,
    memory: float | str | None = None,
    disk: float | str | None = None,
    disk_write: float | str | None = None,
    disk_read: float | str | None = None,
    overlap: bool = True,
) -> Plan:
    """The best schedule for ``steps`` steps whose state and tape take so many bytes.

    Sizes are bytes or text ("4GB"), times seconds or text ("5ms"), bandwidths bytes per second or
    text ("2GB/s"). ``tape`` is by default as large as a state; ``forward`` is one step without a
    tape, by default the unit of time; ``backward`` the reversal of one taped step, by default two
    forwards. Without ``memory`` there is no limit. ``overlap`` says that transfers to and from disk
    run beside the compute.

    >>> print(plan(1000, "1MiB", memory="16MiB").forwards)
    3472
    """
    _refuse_lone_options(disk, disk_write, disk_read, forward)
    size = parse_bytes(state)
    seconds = 1.0 if forward is None else parse_seconds(forward)
    problem = _Problem(
        steps=whole(steps, "steps", 0),
        state=size,
        tape=size if tape is None else parse_bytes(tape),
        forward=seconds,
        backward=2 * seconds if backward is None else parse_seconds(backward),
        disk_slots=_slots(disk, size),
        write=0.0 if disk_write is None else size / _positive(parse_bandwidth(disk_write), "disk_write"),
        read=0.0 if disk_read is None else size / _positive(parse_bandwidth(disk_read), "disk_read"),
        overlap=overlap,
    )
    if size == 0:
        raise ValueError(f"state must be at least one byte, not {state!r}")
    budget = None if memory is None else parse_bytes(memory)
    timed = forward is not None
    everything = problem.working + problem.tape * max(problem.steps - 1, 0)
    if budget is None or budget >= everything:
        return Plan(
            StoreAll(problem.steps),
            {"memory": everything},
            problem.steps,
            problem.no_replay,
            problem.no_replay,
            problem.no_replay,
            timed,
        )
    if budget < problem.minimum:
        raise BudgetError(
            f"{problem.steps} steps with states of {format_bytes(problem.state)} and tapes of "
            f"{format_bytes(problem.tape)} need at least {problem.minimum} bytes of memory "
            f"({format_bytes(problem.minimum)}), not {budget}",
            minimum=problem.minimum,
        )
    units, ratio = _units(problem, budget)
    schedule, time = min(_candidates(problem, units, ratio), key=lambda found: found[1])
    return Plan(
        schedule,
        _peak(problem, schedule),
        schedule.cost.forwards,
        time,
        _bound(problem, units, ratio),
        problem.no_replay,
        timed,
    )


def _refuse_lone_options(disk: object, disk_write: object, disk_read: object, forward: object) -> None:
    given = {"disk": disk, "disk_write": disk_write, "disk_read": disk_read}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < 3:
        raise ValueError(f"a plan with a disk needs disk, disk_write and disk_read; missing: {', '.join(missing)}")
    if disk is not None and forward is None:
        raise ValueError("a plan with a disk weighs transfers against steps: give forward, the seconds of one step")


def _slots(disk: float | str | None, state: int) -> int:
    return 0 if disk is None or state == 0 else parse_bytes(disk) // state


def _positive(bandwidth: float, name: str) -> float:
    if bandwidth == 0:
        raise ValueError(f"{name} must be more than 0 bytes per second")
    return bandwidth


def _units(problem: _Problem, budget: int) -> tuple[Fraction, Fraction]:
    """Memory for states and tapes, and the size of a tape, in states: on a grid, rounded to the safe side."""
    free = Fraction(budget - problem.working, problem.state)
    grid = next((grid for grid in (8, 4, 2) if free * grid <= _LEVELS), 1)
    ratio = Fraction(problem.tape, problem.state)
    return Fraction(floor(free * grid), grid), Fraction(max(1, -floor(-ratio * grid)), grid)


def _candidates(problem: _Problem, units: Fraction, ratio: Fraction) -> Iterator[tuple[Schedule, float]]:
    """Schedules within the budgets, with the time that each is expected to take."""
    steps, forward, turn = problem.steps, problem.forward, problem.forward + problem.backward
    if units >= 1:
        mixed = Mixed(steps, float(units), float(ratio))
        yield mixed, forward * mixed.cost.forwards + steps * problem.backward
    if problem.disk_slots:
        tiers = [Tier(min(floor(units), steps)), Tier(min(problem.disk_slots, steps), problem.write, problem.read)]
        hierarchical = Hierarchical(steps, tiers, forward, turn)
        yield hierarchical, hierarchical.cost.time
        segments = _best_segments(problem, units, ratio)
        if segments is not None:
            staged = Staged(steps, segments, float(units), float(ratio), problem.write, problem.read, forward, turn)
            yield staged, _staged_time(problem, units, ratio, segments)


def _best_segments(problem: _Problem, units: Fraction, ratio: Fraction) -> int | None:
    """The number of segments that is expected to take the least time: each power of 1.1, and around the best."""
    most = min(problem.disk_slots + 1, problem.steps)
    least = 2 if units >= 1 else -(-problem.steps // (1 + floor(units / ratio)))
    if least > most:
        return None
    tried: dict[int, float] = {}
    segments = least
    while segments <= most:
        tried[segments] = _staged_time(problem, units, ratio, segments)
        segments = max(segments + 1, segments * 11 // 10)
    for near in sorted(tried, key=tried.__getitem__)[:3]:
        for other in range(max(least, near - 8), min(most, near + 8) + 1):
            tried[other] = _staged_time(problem, units, ratio, other)
    return min(tried, key=tried.__getitem__)


def _staged_time(problem: _Problem, units: Fraction, ratio: Fraction, segments: int) -> float:
    """Time of a staged schedule; a transfer either overlaps the compute of its segment or adds to it."""
    length = problem.steps / segments
    longest = -(-problem.steps // segments)
    unit = (units.denominator * ratio.denominator) // gcd(units.denominator, ratio.denominator)
    forwards = hull(int(units * unit), unit, int(ratio * unit)).rounded(longest) * length / longest
    sweep, back = length * problem.forward, forwards * problem.forward + length * problem.backward
    together = max if problem.overlap else _sum
    moved = together(sweep, problem.write) + together(back, problem.read)
    return (segments - 1) * moved + back


def _sum(one: float, two: float) -> float:
    return one + two


def _bound(problem: _Problem, units: Fraction, ratio: Fraction) -> float:
    """Time of the best schedule for an easier problem: the slow tier is memory, and a tape no larger than it is.

    Where the hull would have too many levels, states and tapes are both as small as the smaller of them.
    """
    grid = ratio.denominator
    tape = Fraction(floor(Fraction(problem.tape, problem.state) * grid), grid)
    room = units + problem.disk_slots + (0 if tape == ratio else Fraction(1, grid))
    if tape == 0 or room >= tape * (problem.steps - 1):
        return problem.no_replay
    if room * grid > _LEVELS:
        least = EqualSizes(floor(room / min(tape, Fraction(1))))
    else:
        least = hull(int(room * grid), grid, int(tape * grid))
    return least.rounded(problem.steps) * problem.forward + problem.steps * problem.backward


def _peak(problem: _Problem, schedule: Schedule) -> dict[str, int]:
    held = [peak * problem.state for peak in schedule.cost.peaks]
    return {"memory": problem.working + int(held[0])} | ({"disk": int(held[1])} if len(held) > 1 else {})


def _describe(schedule: Schedule) -> str:
    return repr(schedule) if len(repr(schedule)) <= 90 else f"{type(schedule).__name__} of {schedule.steps:,} steps"
