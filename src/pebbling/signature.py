"""Are a user's functions called in the order in which they take their arguments?

A body that is written as ``body(state, i)`` and called as ``body(i, state)`` often runs: the number takes the
place of the state, and the gradient is silently wrong. So the names of its parameters are looked at before the
first call. Only a clear case is refused, where both places tell: ``i`` stands where the state comes, and ``u``
where the number of the step comes.

>>> check_call(lambda state, i: state, "body", ("step", "state"))
Traceback (most recent call last):
TypeError: body is called as body(i, state), and yours takes (state, i): swap the parameters

The number of parameters is looked at as well.

>>> check_call(lambda u: u, "advance", ("state", "step"))
Traceback (most recent call last):
TypeError: advance is called as advance(state, i), and yours takes (u): it must take 2 arguments
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

LIKE = {
    "step": frozenset({"i", "j", "k", "n", "it", "idx", "index", "step", "iteration", "timestep"}),
    "state": frozenset(
        {"state", "states", "s", "u", "x", "y", "z", "h", "carry", "value", "values", "field", "fields"}
    ),
    "adjoint": frozenset({"adjoint", "adj", "a", "cotangent", "cot", "ct", "g", "grad", "lam", "lamda", "bar", "ubar"}),
}
"""Names that people give to each kind of parameter."""

_PASSED: set[Any] = set()
"""What was looked at already, by code: a loop inside of a loop is called often."""

SHOWN = {"step": "i", "state": "state", "adjoint": "adjoint"}


def check_call(function: Callable[..., Any], what: str, kinds: tuple[str, ...], more: int = 0) -> None:
    """Refuse ``function`` if it can't be called with arguments of these kinds, and ``more`` others after them."""
    code = getattr(function, "__code__", None)
    known = (code, len(getattr(function, "__defaults__", None) or ()), what, kinds, more)
    if code is None or known not in _PASSED:
        _check(function, what, kinds, more)
        if code is not None and len(_PASSED) < 1000:
            _PASSED.add(known)


def _check(function: Callable[..., Any], what: str, kinds: tuple[str, ...], more: int) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # A builtin that does not say what it takes.
        return
    asked = f"{what} is called as {what}({', '.join(SHOWN[kind] for kind in kinds)}{', *args' if more else ''})"
    taken = f"yours takes ({', '.join(signature.parameters)})"
    count = len(kinds) + more
    try:
        signature.bind(*[None] * count)
    except TypeError:
        raise TypeError(f"{asked}, and {taken}: it must take {count} arguments") from None
    names = [
        each.name.lower()
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    for at, kind in enumerate(kinds):
        for other in range(at + 1, len(kinds)):
            if other < len(names) and names[at] in LIKE[kinds[other]] and names[other] in LIKE[kind]:
                raise TypeError(f"{asked}, and {taken}: swap the parameters")
