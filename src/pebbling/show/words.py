"""Schedules and numbers in words, for titles and tables."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..chain.schedule import Schedule

_PHRASES = {
    "slots": "{} slots",
    "segments": "{} segments",
    "memory": "room for {} states",
    "tape": "tape/state {}",
}


def describe(schedule: Schedule) -> str:
    """A schedule in words.

    >>> from pebbling import Revolve
    >>> describe(Revolve(1000, 10))
    'Revolve: 1,000 steps, 10 slots'
    """
    name = "Online" if type(schedule).__name__ == "Ended" else type(schedule).__name__
    parts = [f"{schedule.steps:,} steps"]
    for field in fields(schedule):  # type: ignore[arg-type]
        value = getattr(schedule, field.name)
        if field.name in _PHRASES and value is not None and not isinstance(value, tuple):
            parts.append(_PHRASES[field.name].format(say_number(value)))
        elif field.name == "tiers":
            parts.append(" + ".join(_slots(tier) for tier in value) + " slots")
    return f"{name}: {', '.join(parts)}"


def say_number(value: float) -> str:
    """A number with as many digits as it needs, and not too many.

    >>> say_number(100000.0), say_number(2.125), say_number(1 / 3)
    ('100,000', '2.125', '0.3333')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def tier_names(number: int) -> list[str]:
    """What the tiers are called: memory and disk, or by number where there are more."""
    return ["memory", "disk"][:number] if number <= 2 else [f"tier {tier}" for tier in range(number)]


def where(name: str) -> str:
    """In or on a tier.

    >>> where("disk"), where("memory")
    ('on disk', 'in memory')
    """
    return f"{'on' if name == 'disk' else 'in'} {name}"


def _slots(tier: Any) -> str:
    return "unbounded" if tier.slots is None else f"{tier.slots:,}"
