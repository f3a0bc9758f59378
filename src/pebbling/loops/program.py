"""What a loop runs, on flat lists of leaves: one of the two shapes in which a loop is given.

``Trees`` is a body that takes and gives a tree; between two snapshots its state stays a tree, so a
step costs one call. ``Flat`` is a step that works on flat lists itself, as a source transform writes
it, with an early exit and outputs of its own.

``advance`` uses up the list it is given, so that a state lives no longer than it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Protocol, TypeAlias

from ..errors import PebblingError, ReplayError
from ..signature import check_call
from ..tree import Structure, flatten, paths, unflatten
from ..tree.reach import may_catch
from ..tree.structure import node_of

Leaves: TypeAlias = list[Any]
Stepped: TypeAlias = tuple[Any, Leaves, Sequence[Any], Sequence[Any]]
"""Flag, state, last outputs, emitted outputs."""


class Program(Protocol):
    """A loop on flat leaves; steps are counted from 0."""

    length: int | None
    """``None`` while nobody knows."""
    rich: bool
    """Whether steps give more than a state."""

    def goes_on(self, state: Leaves, step: int) -> bool:
        """Whether there is a step after ``step`` of them; asked only where the length is unknown."""

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        """The state after steps ``start … stop-1``; ``state`` comes back empty."""

    def full(self, state: Leaves, consts: Leaves, step: int) -> Stepped:
        """All that one step gives."""

    def where(self) -> str:
        """The loop as messages name it."""

    def functions(self) -> list[Callable[..., Any]]:
        """The user's functions, to look for names in."""

    def names(self, count: int) -> list[str]:
        """How messages call the leaves of the state."""

    def may_catch(self) -> bool:
        """Whether the code that it runs may catch errors, so that they could go unseen."""

    def written_into(self, error: ValueError, frame: FrameType) -> Exception:
        """What to raise when the code of a frame writes into an array that is needed as it is."""


def written_into_its_input(program: Program, error: ValueError) -> ReplayError:
    """The error for a step that writes into the state or the arguments."""
    return ReplayError(
        f"{program.where()} writes into its input ({error}): the state and the arguments are needed as they are on "
        "the way back, so a step must return its result in new arrays"
    )


class Trees:
    """``body(i, state, *args) -> state`` over the members of a range, or while a predicate holds."""

    rich = False

    def __init__(
        self,
        body: Callable[..., Any],
        steps: range | Callable[[Any, int], bool],
        structure: Structure,
        arguments: Structure,
    ) -> None:
        self.body, self.structure, self.arguments = body, structure, arguments
        self.more = None if isinstance(steps, range) else steps
        self.items = steps if isinstance(steps, range) else None
        self.length = len(steps) if isinstance(steps, range) else None
        assert arguments is not None
        check_call(body, "body", ("step", "state"), len(arguments[2]))
        if self.more is not None:
            check_call(self.more, "the predicate", ("state", "step"))
        self.simple = all(child is None for child in arguments[2])

    def goes_on(self, state: Leaves, step: int) -> bool:
        assert self.more is not None
        return bool(self.more(unflatten(self.structure, state), step))

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        body = self.body
        args = consts if self.simple else unflatten(self.arguments, consts)
        tree = state[0] if self.structure is None else unflatten(self.structure, state)
        none_given = tree is None
        state.clear()
        for item in range(start, stop) if self.items is None else self.items[start:stop]:
            tree = body(item, tree, *args)
        if tree is None and not none_given:
            raise PebblingError(
                f"the body {self.where()} returned None: body(i, state, *args) must return the next state"
            )
        if self.structure is None and node_of(type(tree)) is None:
            return [tree]
        leaves, structure = flatten(tree)
        if structure != self.structure and start < stop:
            raise PebblingError(
                f"{self.where()} returned {_shown(structure)} in place of the state it was given, "
                f"{_shown(self.structure)}: it must return a state of the same structure"
            )
        return leaves

    def full(self, state: Leaves, consts: Leaves, step: int) -> Stepped:
        return None, self.advance(list(state), consts, step, step + 1), (), ()

    def where(self) -> str:
        return describe(self.body)

    def functions(self) -> list[Callable[..., Any]]:
        return [self.body]

    def names(self, count: int) -> list[str]:
        return paths(self.structure)

    def may_catch(self) -> bool:
        return any(map(may_catch, self.functions()))

    def written_into(self, error: ValueError, frame: FrameType) -> Exception:
        return written_into_its_input(self, error)


class Flat:
    """``step(item, state, consts) -> (flag, state, outs, emitted)`` over items."""

    rich = True

    def __init__(self, step: Callable[..., Stepped], items: Any, more: Any, stops: bool, where: str | None) -> None:
        self.step, self.more, self._where = step, more, where
        self._rest: Iterator[Any] | None = None
        if hasattr(items, "__getitem__") and hasattr(items, "__len__"):
            self.items = items
            self._count: int | None = len(items)
        else:
            self.items, self._rest, self._count = [], iter(items), None
        self.length = None if stops or more is not None else self._count

    def goes_on(self, state: Leaves, step: int) -> bool:
        if self._count is not None:
            if step >= self._count:
                return False
        elif step >= len(self.items):
            assert self._rest is not None
            for item in self._rest:
                self.items.append(item)
                break
            else:
                return False
        return self.more is None or bool(self.more(state, step))

    def advance(self, state: Leaves, consts: Leaves, start: int, stop: int) -> Leaves:
        step, items = self.step, self.items
        now: Any = list(state)
        state.clear()
        for index in range(start, stop):
            now = step(items[index], now, consts)[1]
        return list(now)

    def full(self, state: Leaves, consts: Leaves, step: int) -> Stepped:
        flag, new, outs, emitted = self.step(self.items[step], state, consts)
        return flag, list(new), outs, emitted

    def where(self) -> str:
        return self._where or describe(self.step)

    def functions(self) -> list[Callable[..., Any]]:
        return [self.step]

    def names(self, count: int) -> list[str]:
        return [f"state[{index}]" for index in range(count)]

    def may_catch(self) -> bool:
        return any(map(may_catch, self.functions()))

    def written_into(self, error: ValueError, frame: FrameType) -> Exception:
        return written_into_its_input(self, error)


def describe(function: Any) -> str:
    """A function by its name, file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _shown(structure: Structure) -> str:
    if structure is None:
        return "one value"
    names = paths(structure, "")
    return f"a {structure[0].__name__} of {len(names)} ({', '.join(names[:6])}{', …' if len(names) > 6 else ''})"
