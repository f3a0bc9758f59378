"""Objects that real states hold, as data: random generators, dates, paths, exact numbers, small collections.

Each kind is written as a value of simpler ones and made from it by one function that refuses whatever the kind
could not have given. Only exact types count: what a subclass adds is known to its author alone.
"""

from __future__ import annotations

import array
import random
import sys
import uuid
import zoneinfo
from collections import Counter, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple

import numpy as np

from .data import NotData, Unreadable
from .encoding import hashable

_BITS: dict[str, Any] = {
    name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
}
_POOL = 1024
_HUGE = 1 << 20


class ObjectForm(NamedTuple):
    """How one type is written."""

    name: str
    data: Callable[[Any], Any]
    made: Callable[..., Any]
    """From the parts of what ``data`` gave."""


def as_data(value: Any) -> tuple[str, Any]:
    """The name of a kind of objects, and the value that stands for this one; ``NotData`` for any other."""
    form = _FORMS.get(type(value)) or _framework(value)
    if form is None:
        raise NotData(f"a {type(value).__module__}.{type(value).__qualname__}")
    return form.name, form.data(value)


def from_data(name: str, data: Any) -> Any:
    """The object of that kind; ``Unreadable`` if there is none of that value."""
    form = _BY_NAME.get(name) or _framework_named(name)
    if form is None or not isinstance(data, tuple):
        raise Unreadable(f"there are no objects of kind {name!r}")
    try:
        return form.made(*data)
    except (Unreadable, NotData):
        raise
    except Exception as error:
        # Whatever the constructor objects to, it is the value that is wrong.
        raise Unreadable(f"no {name} is made of what is written: {error}") from None


def _zone(value: zoneinfo.ZoneInfo) -> tuple[str]:
    if value.key is None:
        raise NotData("a time zone without a key")
    return (value.key,)


def _date_time(value: datetime) -> tuple[Any, ...]:
    return (
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond,
        value.tzinfo, value.fold,
    )  # fmt: skip


def _bit_generator(value: Any) -> tuple[Any, ...]:
    return (type(value).__name__, value.state, getattr(value, "seed_seq", None) or getattr(value, "_seed_seq", None))


def _made_bit_generator(name: str, state: dict[str, Any], seed: Any) -> Any:
    if seed is not None and type(seed) is not np.random.SeedSequence:
        raise Unreadable("a random generator whose seeds come from something else")
    made = _BITS[name](0 if seed is None else seed)
    made.state = state
    if seed is None:
        made.__setstate__((made.state, None))
    return made


def _seeds(value: Any) -> tuple[Any, ...]:
    entropy = value.entropy
    if isinstance(entropy, np.ndarray):
        entropy = entropy.copy()
    return (entropy, tuple(value.spawn_key), value.pool_size, value.n_children_spawned)


def _made_seeds(entropy: Any, spawn_key: tuple[int, ...], pool_size: int, spawned: int) -> Any:
    if type(pool_size) is not int or not 0 < pool_size <= _POOL or entropy is None:
        raise Unreadable("no sequence of seeds has such a pool")
    return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned)


def _legacy(value: Any) -> tuple[Any, ...]:
    state = value.get_state(legacy=False)
    return (value._bit_generator, state["has_gauss"], state["gauss"])


def _made_legacy(bits: Any, has_gauss: int, gauss: float) -> Any:
    made = np.random.RandomState(bits)
    made.set_state({**made.get_state(legacy=False), "has_gauss": int(has_gauss), "gauss": float(gauss)})
    return made


def _made_random(state: Any) -> random.Random:
    made = random.Random(0)
    made.setstate(state)
    return made


def _exact(value: Decimal) -> tuple[str]:
    return (str(value),)


def _made_exact(text: str) -> Decimal:
    if len(text) > _HUGE:
        raise Unreadable("a decimal of that many digits")
    return Decimal(text)


def _made_fraction(numerator: int, denominator: int) -> Fraction:
    if type(numerator) is not int or type(denominator) is not int:
        raise Unreadable("a fraction of what are no integers")
    return Fraction(numerator, denominator)


def _made_deque(items: list[Any], most: int | None) -> deque[Any]:
    return deque(items, most)


def _made_set(items: list[Any]) -> set[Any]:
    return {hashable(item) for item in items}


_MADE: dict[type, ObjectForm] = {
    datetime: ObjectForm("datetime", _date_time, lambda *parts: datetime(*parts[:8], fold=parts[8])),
    date: ObjectForm("date", lambda d: (d.year, d.month, d.day), date),
    time: ObjectForm(
        "time",
        lambda t: (t.hour, t.minute, t.second, t.microsecond, t.tzinfo, t.fold),
        lambda *parts: time(*parts[:5], fold=parts[5]),
    ),
    timedelta: ObjectForm("timedelta", lambda d: (d.days, d.seconds, d.microseconds), timedelta),
    timezone: ObjectForm("timezone", lambda zone: tuple(zone.__getinitargs__()), timezone),
    zoneinfo.ZoneInfo: ObjectForm("zone", _zone, zoneinfo.ZoneInfo),
    Fraction: ObjectForm("fraction", lambda f: (f.numerator, f.denominator), _made_fraction),
    Decimal: ObjectForm("decimal", _exact, _made_exact),
    uuid.UUID: ObjectForm(
        "uuid", lambda u: (u.bytes, u.is_safe.value), lambda b, s: uuid.UUID(bytes=b, is_safe=uuid.SafeUUID(s))
    ),
    set: ObjectForm("set", lambda items: (list(items),), _made_set),
    frozenset: ObjectForm("frozenset", lambda items: (list(items),), lambda items: frozenset(_made_set(items))),
    deque: ObjectForm("deque", lambda d: (list(d), d.maxlen), _made_deque),
    Counter: ObjectForm("counter", lambda c: (dict(c),), lambda counts: Counter(dict(counts))),
    bytearray: ObjectForm(
        "bytearray", lambda b: (bytes(b),), lambda b: bytearray(bytes(b) if isinstance(b, bytes) else b"")
    ),
    array.array: ObjectForm(
        "array", lambda a: (a.typecode, a.tobytes()), lambda code, content: array.array(code, content)
    ),
    random.Random: ObjectForm("random", lambda r: (r.getstate(),), _made_random),
    np.random.Generator: ObjectForm("generator", lambda g: (g.bit_generator,), np.random.Generator),
    np.random.RandomState: ObjectForm("legacy generator", _legacy, _made_legacy),
    np.random.SeedSequence: ObjectForm("seeds", _seeds, _made_seeds),
    **{
        cls: ObjectForm(cls.__name__, lambda path: (str(path),), cls)
        for cls in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)
    },
}
_FORMS: dict[type, ObjectForm] = _MADE | dict.fromkeys(
    _BITS.values(), ObjectForm("bits", _bit_generator, _made_bit_generator)
)
_BY_NAME = {form.name: form for form in _FORMS.values()}


def _framework(value: Any) -> ObjectForm | None:
    """The form of an object of a framework that is there."""
    for framework in ("torch", "jax"):
        if framework in sys.modules:
            form = _kinds_of(framework).form_of(value)
            if form is not None:
                return ObjectForm(*form)
    return None


def _framework_named(name: str) -> ObjectForm | None:
    """The form of that name; brings in its framework, since an object of it is about to be made."""
    framework, _, _ = name.partition(" ")
    if framework not in ("torch", "jax"):
        return None
    form = _kinds_of(framework).form_named(name)
    return None if form is None else ObjectForm(*form)


def _kinds_of(framework: str) -> Any:
    from importlib import import_module

    return import_module(f".objects_{framework}", __package__)
