"""The way back: a planned step's backward pass, in which dropped values are made again as the plan says.

Each dropped value knows the operation that makes it, and that its arguments, so it can be made from whatever is kept,
plan or no plan. The plan says when: before and after each node of the backward pass. Where the program takes its
backward pass in another order, or a second time, values are made when they are asked for.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from ....errors import ReplayError
from .bits import digest
from .host import Slab
from .saved import Probe
from .table import Action, Table
from .values import Value, Window

_Quiet: Any = torch._C._DisableTorchDispatch
_Below: Any = torch._C._AutoDispatchBelowAutograd
_Plain: Any = torch._C._DisableAutocast


class Ticket:
    """What autograd saves in place of a dropped value."""

    __slots__ = ("__weakref__", "digest", "position", "probe", "way", "window")

    def __init__(self, way: Way, position: int, window: Window, probe: Probe, digest: Tensor | None) -> None:
        self.way, self.position, self.window, self.probe, self.digest = way, position, window, probe, digest

    def unpack(self) -> Tensor:
        """The tensor, made again."""
        self.probe.check()
        gradients = torch.is_grad_enabled()
        try:
            with _Quiet(), _Below(), _Plain():
                return self.way.unpack(self)
        finally:
            torch._C._set_grad_enabled(gradients)


class Way:
    """Where a backward pass is."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.values: dict[int, Any] = {}
        self.broken = False
        self.replayed = 0
        self._at = -1
        self._left = 0
        self._earlier: Any = None
        """The first ticket of the last node: autograd lets it go after the node, unless the graph is retained."""
        self._retained = False
        self._slab: Any = None
        self._slabs: list[tuple[Table, Slab]] = []

    def unpack(self, ticket: Ticket) -> Tensor:
        """A dropped value, and what the plan does around the node that asks for it."""
        value: Value = ticket.window.value
        if self.broken:
            storage = self.get(value)
        else:
            storage = self._planned(ticket, value)
        if ticket.digest is not None and not torch.equal(ticket.digest, digest(storage)):
            told = "a value on the host" if value.maker is None else value.maker.told
            raise ReplayError(
                f"{told} gave other bits when it ran again than in the forward pass; something that it "
                "reads was changed unseen, or it is not deterministic"
            )
        return ticket.window.over(storage)

    def _planned(self, ticket: Ticket, value: Value) -> Any:
        table = self.table
        turn = table.turn_of.get(ticket.position, -1)
        if turn < self._at or (turn == self._at and not self._left):
            self._break()
            return self.get(value)
        if turn > self._at:
            if self._left or any(table.tickets[self._at + 1 : turn]):
                # Nodes were passed over that may come yet: nothing that they need may go.
                self._break()
                return self.get(value)
            self._retained = self._retained or (self._earlier is not None and self._earlier() is not None)
            self._earlier = weakref.ref(ticket)
            if self._at >= 0:
                self._act(table.after[self._at])
            for between in range(self._at + 1, turn):
                self._act(table.before[between])
                self._act(table.after[between])
            self._at, self._left = turn, table.tickets[turn]
            self._act(table.before[turn])
        self._left -= 1
        storage = self.get(value)
        if not self._left:
            self._hand_over(table.after[turn])
        return storage

    def _hand_over(self, actions: list[Action]) -> None:
        """All that a node asked for is autograd's now: what can be there again is not held beside it."""
        for action in actions:
            reference = self.values.get(action.number) if action.what == "free" else None
            value = reference() if reference is not None else None
            if value is not None and (value.guard is None or value.away is not None):
                value.give_back()

    def reaches(self, value: Value) -> bool:
        """Whether a value can be made again of what is held: what ran by another plan was held for that one."""
        seen: set[Value] = set()
        stack = [value]
        while stack:
            one = stack.pop()
            if one in seen or one.away is not None or (one is not value and one.storage is not None):
                continue
            seen.add(one)
            if one.maker is None or not one.maker.again:
                return False
            stack += one.maker.reads
        return True

    def _break(self) -> None:
        """Another order than planned: drop what was made ahead, and go on by demand."""
        self.broken = True
        for reference in self.values.values():
            value = reference()
            if value is not None and value.guard is None:
                value.storage = value.arriving = None

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            reference = self.values.get(action.number)
            value = reference() if reference is not None else None
            if value is None:
                continue
            if action.what == "fetch":
                if value.away is not None:
                    value.fetch()
            elif action.what == "leave":
                self._leave(value)
            elif action.what == "free":
                # What was kept is let go only where nobody can ask for it again.
                if value.guard is None or value.away is not None or not self._retained:
                    value.give_back()
            elif value.storage is None and value.maker is not None and value.maker.again:
                self._make(value)

    # Values on the host ------------------------------------------------------------------------------------------

    def move(self, value: Value) -> bool:
        """Begin to copy a value to the host; whether it is there to be copied."""
        if value.storage is None:
            return False
        table = self.table
        if self._slab is None or self._slab[0] is not table:
            slab = table.slabs.pop() if table.slabs else Slab(table.moved, value.storage.device)
            self._slab = table, slab
            self._slabs.append(self._slab)
        value.move(self._slab[1])
        return True

    def leave(self, numbers: tuple[int, ...]) -> None:
        """The bytes of values that were copied are wanted."""
        for number in numbers:
            reference = self.values.get(number)
            value = reference() if reference is not None else None
            if value is not None:
                self._leave(value)

    def _leave(self, value: Value) -> None:
        if value.number in self.table.moved and (value.away is not None or self.move(value)):
            value.leave()

    def __del__(self) -> None:
        for table, slab in getattr(self, "_slabs", ()):
            # One for the next step; two where steps overlap, and no more.
            table.slabs[1:] = []
            table.slabs.append(slab)

    def _here(self, value: Value) -> Any:
        """The storage, brought back from the host if it is there alone."""
        storage = value.there()
        if storage is not None or value.away is None:
            return storage
        storage, arriving = value.away.get(value.number)
        if arriving is not None:
            arriving.wait()
        return storage

    def _make(self, value: Value) -> None:
        made: dict[Value, Any] = {}
        for needed in value.maker.reads:
            if needed.storage is None:
                made[needed] = self.get(needed)
        self.replayed += 1

        def find(one: Value) -> Any:
            storage = one.there()
            return made[one] if storage is None else storage

        found: dict[Value, Any] = {}
        value.maker.run(find, found, _spare)
        for one, storage in found.items():
            if one.storage is None:
                one.storage = storage

    def get(self, value: Value) -> Any:
        """The storage of a value, made again from whatever is there if need be."""
        storage = self._here(value)
        if storage is not None:
            return storage
        made: dict[Value, Any] = {}

        def find(one: Value) -> Any:
            storage = self._here(one)
            return made.get(one) if storage is None else storage

        stack = [value]
        while stack:
            one = stack[-1]
            if find(one) is not None:
                stack.pop()
                continue
            recipe = one.maker
            if recipe is None or not recipe.again:
                told = "a value" if recipe is None else f"the result of {recipe.told}"
                raise ReplayError(f"{told} is needed to make another again, and was not kept")
            missing = [each for each in recipe.reads if find(each) is None]
            if missing:
                stack.extend(missing)
                continue
            self.replayed += 1
            recipe.run(find, made, lambda each: made.pop(each, None))
            stack.pop()
        return made[value]


def _spare(value: Value) -> Any:
    """The storage of a value that was made for this alone."""
    if value.guard is not None:
        return None
    storage, value.storage = value.storage, None
    return storage
