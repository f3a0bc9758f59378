"""Loops whose step works on flat leaves, ends early, and gives outputs of its own, as those of a function's source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pebbling.loops import Options, Outcome
from pebbling.loops.program import Leaves, Stepped, describe, written_into_its_input
from pebbling.loops.runtime import execute
from pebbling.tree.reach import may_catch


def run(
    step: Callable[..., tuple[Any, Any, Sequence[Any], Sequence[Any]]],
    items: Iterable[Any],
    state: Sequence[Any],
    consts: Sequence[Any] = (),
    options: Options | None = None,
    *,
    more: Callable[[Leaves, int], bool] | None = None,
    stops: bool = False,
    written: Sequence[int] = (),
    where: str | None = None,
) -> Outcome:
    """Run ``step`` over ``items`` so that a derivative through the result replays it within the budget.

    ``step(item, state, consts)`` gets two lists of leaves and returns ``(flag, state, outs, emitted)``:

    - ``state``: the new state, as many leaves as the old one. Leaves are anything: arrays and numbers
      that are floating point are differentiated, the rest is carried along, random generators as copies.
    - ``flag``: true ends the loop after this step (say ``stops=True`` if it ever is); any value, returned.
    - ``outs``: values of which only those of the last step matter; they are not part of snapshots.
    - ``emitted``: values that every step adds to the outputs of the loop, such as what a list collects.

    On traced values ``step`` is called with traced leaves, otherwise with plain ones; it must give the same
    results for the same arguments, and must not use traced values that it is not given (``SourceError``).
    It writes into no leaf it gets, except those of the state at the positions ``written``: they are copied
    when the loop begins and whenever a snapshot is kept or brought back, so it may write into them.

    ``items`` has a length and can be indexed (a ``range``, a list), and then its length is the number of
    steps; or it is any other iterable, which is taken up one by one and remembered. Items are plain: for
    the rows of a traced array, iterate over a range and index the array among ``consts``. ``more(state,
    index)``, asked before every step of the sweep, ends the loop when it is false; use
    ``itertools.count()`` for ``items`` of a ``while`` loop. The length is known in advance only where
    neither ``more`` nor ``stops`` is given and ``items`` has a length; such loops follow an optimal plan,
    others keep snapshots as they go (``Online``).

    Returns an ``Outcome``: ``state``, ``outs`` (empty without a step), ``emitted`` (one list a step), the
    last ``flag`` (``None`` without a step) and the number of ``steps``. With nothing traced it is a plain
    loop, and nothing is kept. ``where`` is how messages name the loop, such as "file.py:12".
    """
    program = FlatSteps(step, items, more, stops, where)
    return execute(program, list(state), list(consts), options or Options(), written)


class FlatSteps:
    """``step(item, state, consts) -> (flag, state, outs, emitted)`` over items."""

    rich = True
    varies = False

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

    def written_into(self, error: ValueError, frame: Any) -> Exception:
        return written_into_its_input(self, error)
