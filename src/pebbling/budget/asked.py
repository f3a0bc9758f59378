"""What a caller said about memory, as one value.

``pb.loop(body, u, 1000, memory="1GB")`` and ``pb.loop(body, u, 1000, budget=pb.Budget(memory="1GB"))`` mean the same.
The value is for programs that pass a budget on, from a configuration through several calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from os.path import abspath
from typing import Any
from weakref import WeakValueDictionary

from ..chain import Online, Plan, Schedule
from ..chain.validate import whole
from ..store import Disk, Remote, Store
from ..units import parse_budget

UNKNOWN_LENGTH_SLOTS = 32
"""Slots of a loop of unknown length when nothing is said."""

_CHOICES = ("last", "all")


@dataclass(frozen=True)
class Budget:
    """At most one of ``slots``, ``memory`` and ``schedule``; ``store`` for snapshots, and what is verified.

    ``slots`` is a number of snapshots, ``memory`` a number of bytes or a text such as "2GB", ``schedule`` a plan of
    ``pb.plan`` or a schedule such as ``pb.Revolve(1000, 8)``. ``store``, a store, a path or a URL, takes the snapshots
    of the slowest tier.
    ``verify`` compares replayed states with those of the first time: the last one, all ("all"), or none (False).

    >>> import numpy as np, pebbling as pb
    >>> small = pb.Budget(slots=4)
    >>> pb.grad(lambda x: np.sum(pb.loop(lambda i, s: np.sin(s), x, 100, budget=small)))(np.array([1.0])).round(6)
    array([0.003699])
    """

    slots: int | None = None
    memory: float | str | None = None
    schedule: Schedule | Online | None = None
    store: Store | str | PathLike[str] | None = None
    verify: str | bool = "last"

    def __post_init__(self) -> None:
        given = [name for name in ("slots", "memory", "schedule") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give at most one of slots, memory and schedule, not {' and '.join(given)}")
        if self.slots is not None:
            object.__setattr__(self, "slots", whole(self.slots, "slots", 1))
        if self.memory is not None:
            parse_budget(self.memory)
        if isinstance(self.schedule, Plan):
            object.__setattr__(self, "schedule", self.schedule.schedule)
        if self.schedule is not None and not isinstance(self.schedule, Schedule | Online):
            raise ValueError(f"schedule is a plan or a schedule such as pb.Revolve(100, 10), not {self.schedule!r}")
        if self.store is not None and not isinstance(self.store, Store | str | PathLike):
            given_class = isinstance(self.store, type) and issubclass(self.store, Store)
            if given_class:
                name = self.store.__name__
                raise TypeError(f"store={name} is the class: give a store, as in store={name}(…)")
            raise TypeError(f"store is a path or a store such as pebbling.store.Disk(path), not {self.store!r}")
        if self.verify is not False and (not isinstance(self.verify, str) or self.verify not in _CHOICES):
            raise ValueError(f"verify must be 'last', 'all' or False, not {self.verify!r}")


def store_from(place: str | PathLike[str]) -> Store:
    """A new store at a path, or at a URL such as "s3://bucket/folder"."""
    place = fspath(place)
    return Remote(place) if "://" in place else Disk(place)


def store_at(store: Store | str | PathLike[str] | None) -> Store | None:
    """The store that was given, or the one at the path or URL that was; it goes when nobody uses it any more."""
    if not isinstance(store, str | PathLike):
        return store
    place = fspath(store) if "://" in fspath(store) else abspath(fspath(store))
    found = _opened.get(place)
    if found is None:
        found = _opened[place] = store_from(place)
    return found


_opened: WeakValueDictionary[str, Store] = WeakValueDictionary()
"""Stores made from paths: two loops that name the same path share one."""


def told(budget: Budget | None, call: str, **keywords: Any) -> Budget:
    """The budget of a call that has the given keywords: the value it was given, or one made of them.

    >>> told(Budget(slots=4), "pb.loop", slots=None, verify="last").slots
    4
    """
    if budget is None:
        return Budget(**keywords)
    if not isinstance(budget, Budget):
        raise TypeError(f"budget is a pb.Budget such as pb.Budget(memory='1GB'), not {budget!r}")
    plain = Budget()
    both = [
        name for name, value in keywords.items() if value is not getattr(plain, name) and value != getattr(plain, name)
    ]
    if both:
        raise ValueError(
            f"{call} was given budget= and {', '.join(f'{name}=' for name in both)}: put all into the Budget"
        )
    for name in ("schedule", "store", "verify"):
        if name not in keywords and _differs(getattr(budget, name), getattr(plain, name)):
            raise ValueError(f"{call} takes no {name}=, which its Budget has: leave it out of the Budget")
    return budget


def _differs(value: Any, default: Any) -> bool:
    """Whether something was said; stores and schedules may compare as they like, so they are asked last."""
    return value is not default and (default is None or value != default)
