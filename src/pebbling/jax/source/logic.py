"""Conditions of plain Python loops as conditions of JAX: the head of ``while``, and ``if …: break``.

A step that may be left by ``break`` is traced to its end; where it could be left, the variables are
noted. What comes after such an exit is then put into a branch that runs only if the exit is not taken, so that
neither its cost nor its derivative is there when it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import lax

from ...errors import SourceError
from ..compat import aval_of, bind_equation, is_concrete, is_variable, trace

Exit: TypeAlias = tuple[Any, list[Any]]
"""The condition under which a step is left, and the values that it is left with."""


class Constant(Exception):
    """The condition is true, or false, whatever the values are."""

    def __init__(self, value: bool) -> None:
        super().__init__(value)
        self.value = value


class Logic:
    """What a condition asks; operands are functions, since Python evaluates no more of them than it needs."""

    def __init__(self, where: str) -> None:
        self._where = where

    def every(self, *operands: Callable[[], Any]) -> Any:
        """``and``."""
        found: list[Any] = []
        for operand in operands:
            value = operand()
            if not is_concrete(value):
                found.append(self.truth(value))
            elif not value:
                return False
        return True if not found else _all(found)

    def some(self, *operands: Callable[[], Any]) -> Any:
        """``or``."""
        found: list[Any] = []
        for operand in operands:
            value = operand()
            if not is_concrete(value):
                found.append(self.truth(value))
            elif value:
                return True
        return False if not found else ~_all([~one for one in found])

    def none(self, operand: Callable[[], Any]) -> Any:
        """``not``."""
        value = operand()
        return not value if is_concrete(value) else ~self.truth(value)

    def truth(self, value: Any) -> Any:
        """The condition itself; ``Constant`` if it is none."""
        if is_concrete(value):
            raise Constant(bool(value))
        if value.size != 1:
            raise SourceError(
                f"{self._where}: the condition of the loop is an array of {value.size} truth values: use jnp.all or "
                "jnp.any of it"
            )
        return value.reshape(()) if value.dtype == bool else value.reshape(()) != 0


class Exits(Logic):
    """The exits of one step, in the order in which it comes to them; an iterator over its item alone."""

    def __init__(
        self, where: str, item: Any, note: Callable[[dict[str, Any]], list[Any]], contents: Callable[[], list[Any]]
    ) -> None:
        """``note`` takes the variables at an exit; ``contents`` are the contents of objects that can change."""
        super().__init__(where)
        self._item, self._note, self._contents = [item], note, contents
        self._before: list[Any] = []
        self.found: list[Exit] = []
        self.answer = False
        self._flag: Any = None

    @property
    def exits(self) -> Exits:
        """Who decides when the loop is left."""
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self._item)

    def asks(self, value: Any) -> bool:
        """Whether it is traced if the loop is left here; if not, ``answer`` says so."""
        self.answer = bool(value) if is_concrete(value) else False
        if is_concrete(value):
            return False
        self._flag, self._before = self.truth(value), self._contents()
        return True

    def note(self) -> None:
        """Note the variables of the caller, with which the loop would be left."""
        now = self._contents()
        if len(now) != len(self._before) or any(one is not two for one, two in zip(now, self._before)):
            raise SourceError(
                f"{self._where}: what comes before a traced break changes an object: bind new values to names there, "
                "and change it after the loop"
            )
        self.found.append((self._flag, self._note(dict(sys._getframe(1).f_locals))))


def first_exit(step: Callable[..., tuple[list[Exit], list[Any]]], args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Whether a step is left before its end, as 0 or 1, and its values at the exit that is taken, or at the end."""
    sizes: list[int] = []

    def flat(*inner: Any) -> list[Any]:
        exits, end = step(*inner)
        sizes[:] = [len(exits)]
        return [jnp.asarray(one) for flag, values in exits for one in (flag, *values)] + [
            jnp.asarray(one) for one in end
        ]

    jaxpr = trace(flat, [aval_of(arg) for arg in args])
    inner, width = jaxpr.jaxpr, len(jaxpr.jaxpr.outvars)
    exits = sizes[0]
    size = (width - exits) // (exits + 1)
    groups = [inner.outvars[k * (size + 1) : (k + 1) * (size + 1)] for k in range(exits)]
    known = {**dict(zip(inner.constvars, jaxpr.consts)), **dict(zip(inner.invars, args))}
    return _branch(inner.eqns, groups, inner.outvars[width - size :], known)


def _branch(eqns: Sequence[Any], groups: Sequence[Any], end: Sequence[Any], known: dict[Any, Any]) -> Any:
    values = dict(known)
    if not groups:
        _run(eqns, values)
        return jnp.int32(0), _read(end, values)
    flag, *kept = groups[0]
    count = 1 + max([place for place, eqn in enumerate(eqns) if any(one is flag for one in eqn.outvars)], default=-1)
    _run(eqns[:count], values)
    later = eqns[count:]
    (taken,) = _read([flag], values)

    def leave() -> tuple[Any, list[Any]]:
        inside, needed = dict(values), _needed(later, kept)
        _run([eqn for eqn in later if id(eqn) in needed], inside)
        return jnp.int32(1), _read(kept, inside)

    return lax.cond(taken, leave, lambda: _branch(later, groups[1:], end, values))


def _needed(eqns: Sequence[Any], outputs: Sequence[Any]) -> set[int]:
    """The equations among some that outputs depend on."""
    wanted, found = {one for one in outputs if is_variable(one)}, set()
    for eqn in reversed(eqns):
        if any(one in wanted for one in eqn.outvars):
            found.add(id(eqn))
            wanted |= {one for one in eqn.invars if is_variable(one)}
    return found


def _run(eqns: Sequence[Any], values: dict[Any, Any]) -> None:
    for eqn in eqns:
        values.update(zip(eqn.outvars, bind_equation(eqn, _read(eqn.invars, values))))


def _read(atoms: Sequence[Any], values: dict[Any, Any]) -> list[Any]:
    return [values[one] if is_variable(one) else one.val for one in atoms]


def _all(flags: list[Any]) -> Any:
    found = flags[0]
    for flag in flags[1:]:
        found = jnp.logical_and(found, flag)
    return found
