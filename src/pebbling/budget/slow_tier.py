"""A store beside memory: the plan that is expected to take the least time.

Snapshots go to the store and back while steps are computed, as measured times suggest. The tape of own adjoint code,
and of recorded operations, is a state that was stored anyway: a tape too large for the memory keeps it out of the plan.
"""

from __future__ import annotations

from typing import Protocol

from ..chain import Plan


class Times(Protocol):
    """Seconds that one snapshot takes to the store and back."""

    @property
    def write(self) -> float: ...
    @property
    def read(self) -> float: ...


def quickest(
    steps: int,
    state: int,
    room: int,
    stored: int,
    times: Times,
    *,
    forward: float,
    backward: float | None = None,
    tape: int | None = None,
) -> Plan:
    """The plan with ``room`` bytes for snapshots in memory, and room for ``stored`` of them in the store.

    ``state`` and ``tape`` are the bytes of one state and of what a taped step keeps, ``forward`` and ``backward`` the
    seconds of a step and of its reversal.
    """
    from ..chain.plan import plan

    tape = state * (steps + 1) if tape is None else tape
    return plan(
        steps,
        state,
        tape=tape,
        forward=forward,
        backward=backward,
        memory=room + 2 * state + tape,
        disk=stored * state,
        disk_write=state / times.write,
        disk_read=state / times.read,
    )
