"""What a tape knows of one value: the handle that the user holds, and the node and the box behind it.

A handle owns the value, without a copy. The tape learns from the handle's death that nobody can use
the value any more; what it needs of it then is in a snapshot, or can be computed again.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NoReturn, Self

if TYPE_CHECKING:
    from .record import RecordedChain
    from .snapshots import TapeSnapshot
    from .tape import Tape


class Missing(enum.Enum):
    """Stands where a value is not at hand."""

    ABSENT = "absent"


ABSENT = Missing.ABSENT


class Box:
    """A value that is never replayed, or the place where a cotangent is collected, or both."""

    __slots__ = ("mark", "value")

    def __init__(self, value: Any = ABSENT, mark: int = 0) -> None:
        self.value, self.mark = value, mark


class ValueNode:
    """Where a value was made, and who needs it."""

    __slots__ = ("alive", "box", "chain", "from_loop", "held", "index", "made", "mark", "pinned", "touched", "value")

    def __init__(self, value: Any, chain: RecordedChain | None, made: int, index: int, box: Box | None = None) -> None:
        self.value, self.chain, self.made, self.index, self.box = value, chain, made, index, box
        self.touched = made
        """The last step that read it."""
        self.alive = True
        self.pinned = False
        """Whether the recording needs the value although its handle is gone."""
        self.from_loop = False
        self.mark: int | None = None
        self.held: list[tuple[TapeSnapshot, int]] | None = None

    def let_go(self) -> None:
        """The recording needs the value no longer."""
        self.pinned = False
        if not self.alive:
            self.value = ABSENT


class Handle:
    """A value on a tape; ``value`` is the value itself."""

    __slots__ = ("__weakref__", "_node", "_tape", "_time")

    def __init__(self, tape: Tape, node: ValueNode, time: int) -> None:
        self._tape, self._node, self._time = tape, node, time

    @property
    def value(self) -> Any:
        """The value, not a copy: read it, don't write into it."""
        return self._node.value

    def __repr__(self) -> str:
        return f"Handle({self._node.value!r})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a handle of a tape is not an array: call an op on it (@pb.op), or take its value with .value, "
            "which the tape does not follow"
        )

    def _no_operator(self, *_: Any) -> NoReturn:
        raise TypeError(
            "a handle of a tape has no operators: write an op that does it, and call that "
            "(@pb.op def add(a, b): return a + b)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_operator
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __getitem__ = __lt__ = __gt__ = _no_operator

    def __bool__(self) -> NoReturn:
        raise TypeError("a handle of a tape is neither true nor false: ask its .value")

    def __del__(self) -> None:
        node = self._node
        node.alive = False
        if not node.pinned:
            node.value = ABSENT
