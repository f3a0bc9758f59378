"""The schedule of a run in its journal: its family by name, and what it was made with.

What is read is given to the family's own constructor, which refuses what makes no sense. A schedule of a class of
the user's own is not written: the call that resumes gives it again.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..chain import (
    Hierarchical,
    Mixed,
    Online,
    Periodic,
    Revolve,
    Runs,
    Schedule,
    Staged,
    StoreAll,
    Tier,
    Uneven,
)

_FAMILIES: dict[str, type[Schedule] | type[Online]] = {
    family.__name__: family
    for family in (StoreAll, Revolve, Periodic, Mixed, Staged, Hierarchical, Runs, Uneven, Online)
}


def as_written(schedule: Schedule | Online) -> tuple[str, dict[str, Any]] | None:
    """A schedule as data; ``None`` if it is of no family of ours."""
    name = type(schedule).__name__
    if _FAMILIES.get(name) is not type(schedule):
        return None
    made_with = {field.name: getattr(schedule, field.name) for field in fields(schedule) if field.init}  # type: ignore[arg-type]
    if "tiers" in made_with:
        made_with["tiers"] = [[getattr(tier, field.name) for field in fields(Tier)] for tier in made_with["tiers"]]
    return name, made_with


def as_read(found: Any, number: int | None) -> Schedule | Online:
    """The schedule for so many steps, or for a loop of unknown length; a ``ValueError`` if that is none."""
    try:
        name, made_with = found
        family, made_with = _FAMILIES[name], dict(made_with)
        if made_with.get("steps") != (number if family is not Uneven else made_with.get("steps")):
            raise ValueError(f"it is for {made_with.get('steps')!r} steps")
        if "tiers" in made_with:
            made_with["tiers"] = tuple(Tier(*tier) for tier in made_with["tiers"])
        schedule = family(**made_with)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the schedule in the journal is none: {error}") from error
    if isinstance(schedule, Online) != (number is None) or (
        isinstance(schedule, Schedule) and schedule.steps != number
    ):
        raise ValueError("the schedule in the journal is for another loop")
    return schedule
