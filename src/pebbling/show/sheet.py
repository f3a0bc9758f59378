"""A plan with the sizes and times it was made for: as text, as a picture, and as JSON to be read again."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from ..chain import Hierarchical, Mixed, Periodic, Plan, Revolve, Runs, Schedule, Staged, StoreAll, Tier, Uneven
from ..chain.online import Ended
from ..drive import Report
from .clock import durations
from .pebbles import pebbles
from .scale import scale_of
from .words import describe, tier_names

_FAMILIES: dict[str, type[Schedule]] = {
    family.__name__: family
    for family in (StoreAll, Revolve, Periodic, Mixed, Staged, Hierarchical, Ended, Runs, Uneven)
}

_MOST = 10**12


@dataclass(frozen=True)
class Sheet:
    """A schedule, the problem it is for (by the names of ``pebbling.plan``), and the plan if it was planned."""

    schedule: Schedule
    problem: dict[str, Any]
    plan: Plan | None = None

    def text(self) -> str:
        """The table that is printed."""
        cost, scale, plan = self.schedule.cost, scale_of(self.schedule, **self._units), self.plan
        rows = [
            ("schedule", describe(self.schedule)),
            *((f"peak, {tier}", scale.say_amount(peak)) for tier, peak in self.peak.items()),
            *([("kept tapes", f"{cost.tapes:,} at most")] if cost.tapes else []),
            ("forwards a step", f"{cost.forwards / max(self.schedule.steps, 1):.3f}  ({cost.forwards:,} in all)"),
            ("snapshots", f"{cost.stores:,} stored, {cost.restores:,} restored"),
        ]
        if plan is None:
            rows.append(("expected time", scale.say_time(self.time)))
        else:
            more = f"+{plan.overhead:.1%} over storing everything"
            rows += [
                ("expected time", f"{scale.say_time(plan.time)}  ({more})"),
                ("lower bound", f"{scale.say_time(plan.bound)}  (gap {plan.gap:.2%})"),
            ]
        return "\n".join(f"{name:<16} {value}" for name, value in rows)

    def picture(self, path: str | os.PathLike[str] | None = None) -> str:
        """The pebble picture, as SVG."""
        return pebbles(self.schedule, path, **self._units, overlap=self._overlaps)

    @property
    def peak(self) -> dict[str, float]:
        """The most held, by tier: in bytes if the size of a state is known, else in states."""
        if self.plan is not None:
            return dict(self.plan.peak)
        scale = scale_of(self.schedule, **self._units)
        highs = scale.counter.count(self.schedule.root).highs
        return {name: scale.amount(high, tier) for tier, (name, high) in enumerate(zip(tier_names(len(highs)), highs))}

    @property
    def time(self) -> float:
        """The time that is expected, in seconds if those of a step are known, else in forward steps."""
        if self.plan is not None:
            return self.plan.time
        return durations(self.schedule, scale_of(self.schedule, **self._units).clock)[self.schedule.root]

    def json(self) -> dict[str, Any]:
        """All of it, ready to be written as JSON and read by ``read_sheet``."""
        cost, plan = self.schedule.cost, self.plan
        in_bytes = self.problem.get("state") is not None
        return {
            "kind": "plan",
            "problem": self.problem,
            "schedule": schedule_json(self.schedule),
            "peak": self.peak if in_bytes else None,
            "peak_states": dict(zip(tier_names(len(cost.peaks)), cost.peaks, strict=True)),
            "forwards": cost.forwards,
            "stores": cost.stores,
            "restores": cost.restores,
            "time": self.time,
            "timed": self.problem.get("forward") is not None,
            "bound": plan and plan.bound,
            "gap": plan and plan.gap,
            "overhead": plan and plan.overhead,
            "no_replay": plan and plan.no_replay,
        }

    @property
    def _units(self) -> dict[str, Any]:
        return {name: self.problem.get(name) for name in ("state", "tape", "forward", "backward")}

    @property
    def _overlaps(self) -> bool:
        return isinstance(self.schedule, Staged) and bool(self.problem.get("overlap"))


def read_sheet(content: dict[str, Any]) -> Sheet:
    """A sheet from what ``Sheet.json`` gave; a ``ValueError`` says what is missing or not right."""
    try:
        schedule = _schedule(content["schedule"])
        plan = None
        if content["bound"] is not None:
            measures = (content[name] for name in ("time", "bound", "no_replay", "timed"))
            plan = Plan(schedule, content["peak"], content["forwards"], *measures)
        return Sheet(schedule, dict(content["problem"]), plan)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a plan as `pebbling plan --json` writes it: {error!r}") from error


def read_report(content: dict[str, Any]) -> Report:
    """The report of a run from what ``Report.json`` gave."""
    measures = {key: value for key, value in content.items() if key not in ("kind", "factor")}
    try:
        return Report(**measures)
    except TypeError as error:
        raise ValueError(f"not the report of a run as this version of pebbling writes it: {error}") from error


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule as its family and what it was made with."""
    made_with = {field.name: getattr(schedule, field.name) for field in fields(schedule) if field.init}  # type: ignore[arg-type]
    if "tiers" in made_with:
        made_with["tiers"] = [
            {field.name: getattr(tier, field.name) for field in fields(tier)} for tier in made_with["tiers"]
        ]
    return {"family": type(schedule).__name__, **made_with}


def _schedule(content: dict[str, Any]) -> Schedule:
    made_with = dict(content)
    family = made_with.pop("family")
    if family not in _FAMILIES:
        raise ValueError(f"there is no family of schedules {family!r}: one of {', '.join(_FAMILIES)} is expected")
    steps = made_with.get("steps", 0)
    if type(steps) is not int or steps > _MOST:
        raise ValueError(f"a plan for {steps!r} steps can't be shown: at most {_MOST:,} are")
    if "tiers" in made_with:
        made_with["tiers"] = tuple(Tier(**tier) for tier in made_with["tiers"])
    return _FAMILIES[family](**made_with)
