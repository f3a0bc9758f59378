"""What a dynamic programme over spans decides: for each span of the plan, to advance or to tape."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ..units import format_bytes

Choices: TypeAlias = dict[tuple[int, int, int], int]
"""By first step, length and room: how many steps to advance or, if negative, to tape and keep."""

_LARGEST = 1 << 33


class Solution(NamedTuple):
    """The choices, the room and the sizes that they count in, and the value of the whole plan."""

    room: int
    state: tuple[int, ...]
    tape: tuple[int, ...]
    choices: Choices
    value: float


def affordable(nbytes: int, problem: str) -> None:
    """Refuse a table that would take the machine down."""
    if nbytes > _LARGEST:
        raise ValueError(
            f"planning {problem} takes a table of {format_bytes(nbytes)}, and at most {format_bytes(_LARGEST)} are "
            "used: join neighbouring steps into one, and plan for those"
        )
