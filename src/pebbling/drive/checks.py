"""What the caller gave, looked at before it is used, and at the first call of each function.

A step that gives another structure or dtype than it got makes a chain of something else: most often its parameters
are in another order, or it returns more than the state. Such a run often goes through, with a wrong gradient, so the
first result of each function is compared with what went in, and the last state as well. Arrays may grow, such as a grid
that adapts; the adjoint then has the shape of the state before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..signature import check_call
from ..tree.structure import flatten, node_of
from .steps import Adjoint, OwnAdjoint, State

_NUMBERS = (int, float, complex, np.generic)
_NUMBER = ((), None)


def check_functions(advance: Any, reverse: Any, steps: Any) -> None:
    """Refuse functions that can't be called as they will be, or whose parameters have another order by their names."""
    for function, name in ((advance, "advance"), (reverse, "reverse")):
        if not callable(function):
            raise TypeError(
                f"advance(state, i) and reverse(state, adjoint, i) are functions, and {name} is {function!r}"
            )
    check_call(advance, "advance", ("state", "step"))
    check_call(reverse, "reverse", ("state", "adjoint", "step"))
    if callable(steps):
        check_call(steps, "the predicate given as steps", ("state", "step"))


def seed_of(seed: Any, state: State) -> Any:
    """The seed; a tree of the state's own type is an adjoint even if it can be called, as modules of equinox can."""
    for tree in (state, seed):
        flatten(tree)  # refuses what holds itself
    if callable(seed) and type(seed) is type(state) and node_of(type(seed)) is not None:
        return lambda final: seed
    return seed


def check_seed(seed: Any, state: State) -> None:
    """Refuse a seed that can't be the adjoint of such a state."""
    if seed is None or (node_of(type(seed)) is None and isinstance(seed, str | bytes | bool)):
        raise TypeError(f"seed is the adjoint of the final state, or a function of that state, not {seed!r}")
    one, two = _form(seed), _form(state)
    if not isinstance(one, dict) and not isinstance(two, dict) and one is not None and two is not None:
        shape, of = one[0], two[0]
        # One adjoint may stand for several: then the shape of the state is a part of its own.
        # Axes of length 1 are left out as often as not: then the reversal shows whether it fits.
        if prod(shape) not in (1, prod(of)) and shape[: len(of)] != of and shape[len(shape) - len(of) :] != of:
            raise ValueError(
                f"seed has the shape {shape} and the state the shape {of}: the adjoint of a state has its shape"
            )
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for name in one.keys() - {"type"}:
            parts = one[name], two[name]
            if all(isinstance(part, tuple) for part in parts) and parts[0][0] not in ((), parts[1][0]):
                raise ValueError(
                    f"seed has the shape {parts[0][0]} at {name} and the state the shape {parts[1][0]}: the adjoint of "
                    "a state has its shape"
                )


def check_first_calls(own: OwnAdjoint) -> None:
    """Let the first results of both functions be compared with what they were given."""
    advance, turn = own.advance, own.turn
    awaited = {"advance", "reverse"}
    grown: list[str] = []

    def first_advance(state: State, step: int) -> State:
        if "advance" not in awaited:
            return advance(state, step)
        awaited.discard("advance")
        before = _form(state)
        try:
            result = advance(state, step)
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            if _swapped_fits(advance, state, step, before):
                raise _swapped(error) from error
            raise
        found = _changed(before, result)
        if found is not None:
            if _swapped_fits(advance, state, step, before):
                raise _swapped(None)
            raise _refusal(f"advance(state, i) must return a state like the one it gets, and {found}", result)
        grown.extend(filter(None, [_changed(before, result, lambda *_: False)]))
        return result

    def first_turn(state: State, adjoint: Adjoint, step: int) -> Adjoint:
        if "reverse" not in awaited:
            return turn(state, adjoint, step)
        awaited.discard("reverse")
        before, words = _form(adjoint), _words(_form(adjoint))
        try:
            result = turn(state, adjoint, step)
        except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
            if grown and isinstance(error, ValueError):
                raise ValueError(
                    f"advance(state, i) changes the shape of its state ({grown[0]}), and reverse(state, adjoint, i) "
                    f"fails with an adjoint that is {words}: {error}"
                ) from error
            if "read-only" not in str(error):
                error.add_note(
                    f"pebbling called reverse(state, adjoint, i) with i={step}, a state that is {_words(_form(state))} "
                    f"and an adjoint that is {words}, which began as the seed"
                )
            raise
        # The adjoint before a step has the shape of the state there, which the step may have changed.
        shapes = _shapes(_form(state))
        found = _changed(before, result, lambda _, shape: shape in shapes)
        if found is not None:
            raise _refusal(
                f"reverse(state, adjoint, i) must return an adjoint like the one it gets, which begins as the seed, "
                f"and {found}",
                result,
            )
        return result

    own.advance, own.turn = first_advance, first_turn  # type: ignore[method-assign]


def check_last(before: State, after: State) -> None:
    """Refuse a last state that is not like the first one."""
    found = _changed(_form(before), after)
    if found is not None:
        raise _refusal(f"advance(state, i) must return a state like the one it gets, and in the end {found}", after)


def _swapped_fits(advance: Callable[..., Any], state: State, step: int, before: Any) -> bool:
    """Whether the step gives a state when its arguments are swapped."""
    try:
        result = advance(step, state)
    except Exception:
        return False
    return result is not None and _changed(before, result) is None


def _swapped(error: Exception | None) -> TypeError:
    return TypeError(
        "advance is called as advance(state, i), and yours gives a state only if it is called as advance(i, state)"
        f"{'' if error is None else f' ({error})'}: swap its parameters"
    )


def _refusal(text: str, result: Any) -> Exception:
    if result is None:
        return TypeError(f"{text}: does it lack a return?")
    if isinstance(result, tuple):
        return TypeError(f"{text}: return one value, a tree such as a dict where there are several")
    return ValueError(text)


def _changed(
    before: Any, result: Any, may_be: Callable[[Any, Any], bool] = lambda before, after: _grown(before, after)
) -> str | None:
    if result is None and before is not None:
        return "it returned None"
    return difference(before, _form(result), "", _grown if may_be is None else may_be)


def difference(
    before: Any, after: Any, at: str, may_be: Callable[[tuple[int, ...], tuple[int, ...]], bool]
) -> str | None:
    """Where two forms differ, in words; ``may_be`` says which other shape an array may get.

    Lists may get longer, and what began as ``None`` or as a plain number may become anything.
    """
    if before is None or (before == _NUMBER and after is not None):
        return None
    differs = _Differs(before, after, at)
    if isinstance(before, dict) or isinstance(after, dict):
        if not (isinstance(before, dict) and isinstance(after, dict)) or before["type"] is not after["type"]:
            return str(differs)
        if before.keys() != after.keys() and before["type"] is not list:
            return str(differs)
        parts = (
            difference(part, after[name], at + name, may_be)
            for name, part in before.items()
            if name in after and name != "type"
        )
        return next((part for part in parts if part is not None), None)
    typed = before[1] is not None and after is not None and after[1] is not None
    if after is None or (typed and before[1] != after[1]):
        return str(differs)
    return None if before[0] == after[0] or may_be(before[0], after[0]) else str(differs)


class _Differs(NamedTuple):
    """What to say of two forms, once it is asked for."""

    before: Any
    after: Any
    at: str

    def __str__(self) -> str:
        return f"{_words(self.before)} became {_words(self.after)}{f' at {self.at}' if self.at else ''}"


def _grown(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether an array may have become larger or smaller: a grid that adapts, a list of results."""
    return len(before) == len(after) > 0


def _shapes(form: Any) -> set[tuple[int, ...]]:
    if isinstance(form, dict):
        return {shape for name, part in form.items() if name != "type" for shape in _shapes(part)}
    return set() if form is None else {form[0]}


def _form(tree: Any) -> Any:
    """What is compared: shape and dtype of arrays and numbers, containers by their parts, ``None`` for the rest."""
    node = node_of(type(tree))
    if node is not None:
        children, rest = node.parts(tree)
        children = list(children)
        return {"type": type(tree)} | dict(zip(node.names(rest, len(children)), map(_form, children)))
    if isinstance(tree, _NUMBERS):
        return (), getattr(tree, "dtype", None)
    shape, dtype = getattr(tree, "shape", None), getattr(tree, "dtype", None)
    return None if shape is None or dtype is None or callable(shape) else (tuple(shape), dtype)


def _words(form: Any) -> str:
    if form is None:
        return "an object without a shape"
    if isinstance(form, dict):
        names = [name for name in form if name != "type"]
        return f"a {form['type'].__name__} of {', '.join(names[:6])}{', …' * (len(names) > 6)}"
    shape, dtype = form
    return "a number" if not shape and dtype is None else f"an array of shape {shape} and dtype {dtype}"
