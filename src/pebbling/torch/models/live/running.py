"""A planned step: the program runs, each operation is compared with the plan, and what the plan drops is let go."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from .away import SMALL, Away
from .bits import digest
from .mode import LiveMode
from .operators import operator, plain, tensors
from .recipe import Bound, Recipe
from .recorded import PLACES, WRITTEN
from .saved import Parked, Probe, kept
from .table import Spec, Table
from .values import Value, Window, address
from .way import Ticket, Way

_Quiet: Any = torch._C._DisableTorchDispatch
_Below: Any = torch._C._AutoDispatchBelowAutograd
_ref, _strided = weakref.ref, torch.strided
_DETACH = torch.ops.aten.detach.default


class Running(LiveMode):  # type: ignore[no-untyped-call]
    """Runs one forward pass by a table, and saves for its backward pass what that asks for."""

    def __init__(self, tables: list[Table], memory: int, verify: bool) -> None:
        super().__init__()
        self.tables, self.table, self.memory, self.verify = tables, tables[0], memory, verify
        self.specs: Any = self.table.specs
        self.drops, self.moved = self.table.drops, self.table.moved
        self.bound, self.way = Bound(), Way(self.table)
        self.position = self.packed = 0
        self.switched = False
        """Whether some of it ran by another table of the same beginning."""
        self.deviated = ""
        """The first operation that no plan knows."""
        self._away: Away | None = None
        self._parked: dict[int, Any] = {}
        self._since = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and bind it where the plan may run it again."""
        position = self.position
        self.position = position + 1
        spec = self.specs[position]
        if spec is function:
            return function._op(*args, **kwargs) if kwargs else function._op(*args)
        if type(spec) is Spec and spec.function is function:
            if spec.leaves:
                self.way.leave(spec.leaves)
            if spec.bind:
                return self._bind(position, spec, args, kwargs or {})
            if spec.written:
                self._written(spec.written, args, kwargs or {})
            result = function(*args, **kwargs) if kwargs else function(*args)
            if spec.holds:
                self._keep(position, spec, None, result, args, kwargs or {})
            return result
        return self._other(position, function, args, kwargs or {})

    def _bind(self, position: int, spec: Spec, args: Any, kwargs: Any) -> Any:
        """Run an operation that may have to run again."""
        function, bound = spec.function, self.bound
        recipe = Recipe(position, function, True, spec.told)
        recipe.scratch, recipe.steals = spec.scratch, spec.steals
        facts = spec.facts
        olds = []
        for written in spec.written:
            tensor = written.of(args, kwargs)
            if isinstance(tensor, Tensor):
                bound.before_write(tensor)
                olds.append(bound.values.get(address(tensor)) if plain(tensor) else None)
        scan = bound.scan
        recipe.args = [scan(each, recipe, facts) for each in args]
        if kwargs:
            recipe.kwargs = {name: scan(each, recipe, facts) for name, each in kwargs.items()}
        if spec.random:
            recipe.random = tuple((each, each.get_state()) for each in generators())
        result = function._op(*args, **kwargs) if kwargs else function._op(*args)
        made = spec.made
        if type(result) is Tensor and len(made) == 1 and not spec.written and not spec.holds:
            # The common case of what follows, in fewer words.
            storage = result.untyped_storage()
            place = storage._cdata
            if place not in bound.values and storage.nbytes() > SMALL and result.layout is _strided:
                number = made[0][1]
                value = Value(number, recipe)
                bound.put(value, storage)
                self.way.values[number] = noted = _ref(value)
                recipe.results.append((0, noted))
                return result
        if None in olds:
            recipe.again = False
        self._keep(position, spec, recipe, result, args, kwargs, olds)
        return result

    def _keep(
        self, position: int, spec: Spec, recipe: Recipe | None, result: Any, args: Any, kwargs: Any, olds: Any = ()
    ) -> None:
        """Know what an operation made and wrote, and hold what the plan says."""
        bound, holds = self.bound, spec.holds
        if spec.made:
            parts = (result,) if type(result) is Tensor else tensors(result)
            for place, number in spec.made:
                tensor = parts[place]
                if not plain(tensor):
                    continue
                storage = tensor.untyped_storage()
                if storage._cdata in bound.values:
                    continue
                value = Value(number, recipe)
                bound.put(value, storage)
                self.way.values[number] = noted = _ref(value)
                if recipe is not None:
                    recipe.results.append((place, noted))
                small = storage.nbytes() <= SMALL
                if number in holds or (recipe is not None and small):
                    # Torch asks whether a fresh tensor is nobody else's, and copies it if not: another operation.
                    fresh = small and not (args and any(isinstance(each, Tensor | list | tuple) for each in args))
                    bound.hold(value, tensor.clone() if fresh else tensor)
        for place, written in enumerate(spec.written) if spec.written else ():
            tensor = written.of(args, kwargs)
            number = position * PLACES + WRITTEN + place
            if not isinstance(tensor, Tensor) or (recipe is None and number not in holds):
                continue
            value = Value(number, recipe)
            if recipe is not None and place < len(olds) and olds[place] is not None:
                recipe.writes.append((written.name, olds[place], weakref.ref(value)))
            bound.put(value, tensor.untyped_storage())
            self.way.values[number] = weakref.ref(value)
            if number in holds or (recipe is not None and tensor.untyped_storage().nbytes() <= SMALL):
                bound.hold(value, tensor)

    def _written(self, written: Any, args: Any, kwargs: Any) -> None:
        """Somebody writes in place what the plan does not bind: who needs it is given a copy."""
        for each in written:
            given = each.of(args, kwargs)
            for tensor in given if isinstance(given, list | tuple) else (given,):
                if isinstance(tensor, Tensor) and plain(tensor):
                    place = address(tensor)
                    if place in self.bound.values or place in self.bound.outside:
                        self.bound.before_write(tensor)
                        self.bound.forget(tensor)

    # A step that is like no other ---------------------------------------------------------------------------------

    def _other(self, position: int, function: Any, args: Any, kwargs: Any) -> Any:
        """Go on with the plan that agrees the longest, or without one."""
        if function is _DETACH and not self.deviated:
            # Torch takes another handle of a tensor where a plan keeps it, too; no value comes of that.
            self.position = position
            return function(*args, **kwargs)
        for table in self.tables if not self.deviated else ():
            mine = table.functions
            if table is self.table or position >= len(mine) or mine[position] is not function:
                continue
            if mine[:position] == self.table.functions[:position]:
                self.table = self.way.table = table
                self.switched = self.switched or position > 0
                self.specs, self.drops, self.moved = table.specs, table.drops, table.moved
                self.position = position
                return self.__torch_dispatch__(function, (), args, kwargs)
        if not self.deviated:
            self.deviated = operator(function).name
            self.way.broken = True
            self.specs = _Unknown()
            self._away = Away()
        facts = operator(function)
        if facts.written:
            self._written(facts.written, args, kwargs)
        return function(*args, **kwargs)

    def pack(self, tensor: Tensor) -> Any:
        """Take what autograd saves."""
        place = self.packed
        self.packed = place + 1
        if self._away is not None:
            return self._park(tensor)
        number = self.drops[place] if place < len(self.drops) else -1
        if number >= 0:
            value = self.bound.values.get(address(tensor)) if plain(tensor) else None
            if value is None or value.number != number or not (value.again or number in self.moved):
                value = None
            if value is not None and (not self.switched or self.way.reaches(value)):
                with _Quiet():
                    if value.away is None and number in self.moved and not self.way.move(value):
                        return kept(tensor)
                    made = digest(tensor.untyped_storage()) if self.verify else None
                    return Ticket(self.way, place, Window(value, tensor), Probe(tensor), made)
        if tensor.is_leaf:
            return tensor, tensor._version
        with _Quiet():
            tensor = tensor.detach()
        return tensor, tensor._version

    def _park(self, tensor: Tensor) -> Any:
        """Without a plan: keep what fits beside what the plan had in mind, and move the rest away."""
        with _Quiet():
            parameter = tensor.is_leaf and tensor.requires_grad
            if not plain(tensor) or parameter or tensor.untyped_storage().nbytes() <= SMALL:
                return kept(tensor)
            assert self._away is not None
            place = address(tensor)
            reference = self._parked.get(place)
            package = reference() if reference is not None else None
            if package is None or package.storage is None:
                package = self._away.keep(tensor.untyped_storage())
                self._parked[place] = weakref.ref(package)
                self._since += package.bytes
            room = self.memory - (self.table.everything - self.table.saved)
            if self._since > max(0, room) // 2:
                self._since -= self._away.free(package.bytes)
            return Parked(package, tensor)

    def end(self) -> None:
        """The forward pass is over."""
        if not self.deviated and self.position < len(self.table.functions):
            self.deviated = "the end of the forward pass"
        if not self.deviated:
            self.way.leave(self.table.left)
        elif self.moved:
            self.way.leave(tuple(self.moved))
        self.bound.settle()


class _Unknown:
    def __getitem__(self, position: int) -> None:
        return None


def generators() -> list[Any]:
    """The generators that operations draw from unless they are given one."""
    found: list[Any] = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return found
