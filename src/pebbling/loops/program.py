"""What a loop runs, on flat lists of leaves.

``Trees`` is the program of ``pb.loop``: a body that takes and gives a tree. Between two snapshots its state stays a
tree, so a step costs one call. The programs of loops in a function's source (``source/program.py``) work on flat lists
themselves; their steps give more than a state, and may end the loop early.

``advance`` uses up the list it is given, so that a state lives no longer than it is needed. For
``body(i, state, a) -> {"u": …, "v": …}``:

    state = [u, v]                                the leaves, in the order of the tree
    state = program.advance(state, [a], 0, 3)     three calls of the body; the list that was given is empty now
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    varies: bool
    """Whether a state may hold other things than the one before it: another array in a name, a longer list."""

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
    varies = False

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
