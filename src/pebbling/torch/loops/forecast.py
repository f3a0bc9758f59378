"""What a loop will take, for a user who asks before it is differentiated."""

from __future__ import annotations

import sys
from typing import Any

from ...chain import Online
from .blocked import Blocked, forwards
from .measured_budget import measured_for
from .problem import LoopProblem


def forecast(problem: LoopProblem, course: Blocked) -> tuple[int | None, int, int, int | None, int]:
    """Steps and forwards (``None`` while the length is unknown), bytes of a state, slots, and bytes at the peak."""
    program, schedule = problem.program, course.schedule
    if program.length == 0 or (program.length is None and not program.goes_on(list(problem.state), 0)):
        return 0, 0, 0, 0, 0
    measured = measured_for(problem, sys.maxsize)
    if isinstance(schedule, Online):
        return None, measured.state, schedule.slots, None, measured.working + schedule.slots * measured.state
    cost: Any = schedule.cost
    room = cost.tapes * measured.tape if cost.tapes else cost.peak * measured.state
    room += (course.block - 1) * measured.tape
    return course.steps, measured.state, int(cost.peak), forwards(course), int(measured.working + room)
