"""One operation of a step, with what it takes to run it again: arguments as views into values, generators, the mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from .operators import OperatorFacts, plain, tensors
from .values import Outside, Shape, Value, Window, address

Find = Callable[[Value], Any]


_Parameter = torch.nn.Parameter
_NONE: list[Any] = []
_NAMED: dict[str, Any] = {}
_is_plain, _grads = torch.strided, torch.is_grad_enabled


class Recipe:
    """An operation bound to the arguments of one step."""

    __slots__ = (
        "again", "args", "function", "gradients", "kwargs", "number", "outside", "places", "random", "reads",
        "results", "scratch", "steals", "told", "writes",
    )  # fmt: skip

    def __init__(self, number: int, function: Any, again: bool, told: str) -> None:
        self.number, self.function, self.again, self.told = number, function, again, told
        self.args: list[Any] = _NONE
        self.kwargs: dict[str, Any] = _NAMED
        self.reads: list[Value] = []
        self.outside: list[Outside] = []
        self.places: list[int] = []
        """Storages that the operation was given."""
        self.results: list[tuple[int, Any]] = []
        """Positions of what it made, with values held weakly: who needs one holds it."""
        self.writes: list[tuple[Any, Value, Any]] = []
        self.random: tuple[tuple[Any, Tensor], ...] = ()
        self.scratch: tuple[int, ...] = ()
        self.steals: tuple[int, ...] = ()
        self.gradients = _grads()

    def made(self, position: int, value: Value) -> None:
        """Note a result."""
        self.results.append((position, weakref.ref(value)))

    def run(self, find: Find, found: dict[Value, Any], spare: Callable[[Value], Any] | None = None) -> Any:
        """Run again on storages that ``find`` gives; what it makes goes to ``found`` where somebody needs it.

        ``spare`` gives the storage of a value that nobody needs any more, to be written over; others are copied.
        """
        own: dict[Value, Any] = {}
        for _, old, _ in self.writes:
            storage = spare(old) if spare is not None and old.number in self.steals else None
            own[old] = find(old).clone() if storage is None else storage
        args = [
            each.over(find(each.value)) if type(each) is Window and not own else self._tensor(each, find, own)
            for each in self.args
        ]
        kwargs = {name: self._tensor(each, find, own) for name, each in self.kwargs.items()} if self.kwargs else _NAMED
        for place in self.scratch:
            args[place] = args[place].clone(memory_format=torch.preserve_format)
        result = self._call(args, kwargs)
        for position, reference in self.results:
            value = reference()
            if value is not None:
                made = result if type(result) is Tensor else tensors(result)[position]
                found[value] = made.untyped_storage()
        for _, old, reference in self.writes:
            value = reference()
            if value is not None:
                found[value] = own[old]
        return result

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = getattr(self.function, "_op", self.function)
        if torch.is_grad_enabled() != self.gradients:
            torch._C._set_grad_enabled(self.gradients)
        if not self.random:
            return function(*args, **kwargs)
        now = [(generator, generator.get_state()) for generator, _ in self.random]
        try:
            for generator, state in self.random:
                generator.set_state(state)
            return function(*args, **kwargs)
        finally:
            for generator, state in now:
                generator.set_state(state)

    def _tensor(self, given: Any, find: Find, own: dict[Value, Any]) -> Any:
        kind = type(given)
        if kind is Window:
            storage = own.get(given.value)
            return given.over(find(given.value) if storage is None else storage)
        if kind is Outside:
            return given.tensor(self.told)
        if kind is Shape:
            return given.tensor()
        if kind is list or kind is tuple:
            return kind(self._tensor(each, find, own) for each in given)
        return given


class Bound:
    """The values and the tensors from outside that one forward pass knows, by the place of their storages."""

    def __init__(self) -> None:
        self.values: dict[int, Value] = {}
        self.outside: dict[int, list[tuple[Any, Outside]]] = {}
        self._weak: list[Any] = []
        self._guarded: list[Any] = []

    def __del__(self) -> None:
        for pointer in getattr(self, "_weak", ()):
            torch.UntypedStorage._free_weak_ref(pointer)  # type: ignore[no-untyped-call]

    def put(self, value: Value, storage: Any) -> None:
        """Know a storage by a value from now on, and let no other storage take its place."""
        self.values[storage._cdata] = value
        self._weak.append(storage._weak_ref())

    def scan(self, given: Any, recipe: Recipe, facts: OperatorFacts) -> Any:
        """An argument as an recipe keeps it."""
        kind = type(given)
        if kind is float or kind is int or kind is bool or given is None:
            return given
        if kind is Tensor or kind is _Parameter:
            if given.layout is not _is_plain:
                recipe.again = False
                return given
            place = address(given)
            recipe.places.append(place)
            if facts.only_shapes:
                return Shape(given)
            value = self.values.get(place)
            if value is None:
                return self._from_outside(given, place, recipe)
            recipe.reads.append(value)
            if given.is_conj() or given.is_neg():
                recipe.again = False
            return Window(value, given)
        if kind is list or kind is tuple:
            return kind([self.scan(each, recipe, facts) for each in given])
        if isinstance(given, Tensor | torch.Generator):
            recipe.again = False
        return given

    def _from_outside(self, tensor: Tensor, place: int, recipe: Recipe) -> Outside:
        known = self.outside.setdefault(place, [])
        found = next((one for each, one in known if each() is tensor), None)
        if found is None:
            found = Outside(tensor)
            self._guarded.append(found)
            known.append((weakref.ref(tensor), found))
            self._weak.append(tensor.untyped_storage()._weak_ref())
        recipe.outside.append(found)
        return found

    def before_write(self, tensor: Any) -> None:
        """Copy what is needed later of a storage that is about to be written."""
        if not plain(tensor):
            return
        place = address(tensor)
        for _, one in self.outside.pop(place, ()):
            one.copy()
        value = self.values.get(place)
        if value is not None and value.away is not None:
            value.leave()
        if value is not None and value.storage is not None and value.guard is not None:
            copied = value.guard[0].untyped_storage().clone()  # type: ignore[no-untyped-call]
            alias = torch.empty(0, dtype=torch.uint8, device=copied.device).set_(copied)
            value.guard, value.storage = (alias, -1), copied

    def hold(self, value: Value, tensor: Tensor) -> None:
        """Keep the storage of a value for others to be made from."""
        value.hold(tensor)
        self._guarded.append(value)

    def settle(self) -> None:
        """The forward pass is over: from here on, who needs a value holds it."""
        for each in self._guarded:
            each.settle()
        self._guarded.clear()
        self.values.clear()
        self.outside.clear()

    def forget(self, tensor: Any) -> None:
        """Know a storage no longer."""
        if plain(tensor):
            self.values.pop(address(tensor), None)


class Below(ExitStack):
    """Where operations run again: below autograd, without autocast, and with gradients as they are outside after it."""

    def __enter__(self) -> Below:
        super().__enter__()
        self.enter_context(torch.set_grad_enabled(torch.is_grad_enabled()))
        self.enter_context(torch._C._AutoDispatchBelowAutograd())
        self.enter_context(torch._C._DisableAutocast())
        return self
