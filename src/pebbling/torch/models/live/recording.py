"""The recording step: the program runs, and everything that it does is written down, within the budget.

Nothing is planned yet. What autograd saves is kept, and moved away where the budget asks for it (see ``away``). An
operation whose result could be dropped later is run a second time at once, see ``proof``; so that nobody else wrote
into a value since, its digest is compared whenever it is read.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .away import SMALL, Away, Package
from .bits import digest
from .ledger import Ledger, Lifetime
from .mode import LiveMode
from .modules import Modules
from .operators import OperatorFacts, operator, plain, tensors
from .proof import prove
from .recipe import Bound, Recipe
from .recorded import FOREIGN, PLACES, WRITTEN, RecordedOp
from .room import StepRoom
from .saved import Probe, kept, taken
from .signature import signature
from .values import Value, Window, address

_POISON = 0x5A
Storages = dict[Value, Any]


class Deposit:
    """What autograd saves in the recording step."""

    __slots__ = ("__weakref__", "owner", "package", "position", "probe", "window")

    def __init__(self, owner: Recording, package: Package, position: int, tensor: Tensor) -> None:
        self.owner, self.package, self.position = owner, package, position
        self.window, self.probe = Window(None, tensor), Probe(tensor)


class Updated:
    """A saved tensor that looks into a parameter which an optimizer updates in the backward pass."""

    __slots__ = ("place", "recording", "saved")

    def __init__(self, recording: Recording, tensor: Tensor) -> None:
        self.recording, self.place, self.saved = recording, address(tensor), kept(tensor)

    def unpack(self) -> Tensor:
        """The tensor, if it is what it was."""
        tensor = taken(self.saved)
        if self.place in self.recording.applied:
            raise RuntimeError(
                f"a parameter of shape {tuple(tensor.shape)} is read in the backward pass after its gradient came, and "
                "has been updated by then: leave out optimizer=, or read a copy of it"
            )
        return tensor


class Recording(LiveMode):
    """Records the forward pass as a mode, and what is saved of it as a hook."""

    def __init__(self, known: set[int], modules: Modules, memory: int | None, updated: set[int] | None = None) -> None:
        super().__init__()
        self.known, self.modules = known, modules
        self.bound, self.ledger, self.away = Bound(), Ledger(), Away()
        self.room = StepRoom(self.ledger, self.away, memory)
        self.proves = memory is not None
        self.updated = updated or set()
        """Storages that an optimizer updates as their gradients come."""
        self.applied: dict[int, int] = {}
        """Those of them that it has, with the turn of the backward pass."""
        self.fresh = False
        """Whether the optimizer has made its state in this step."""
        self.functions: list[Any] = []
        self.seen: dict[int, RecordedOp] = {}
        self.sizes: dict[int, int] = {}
        self.stays: dict[int, Lifetime] = {}
        self.packs: list[int | None] = []
        self.died: dict[int, int] = {}
        self.reads: list[tuple[int, int]] | None = None
        """What the running node of the backward pass unpacks."""
        self._packages: dict[int, Any] = {}
        self._held: dict[int, Any] = {}
        """Packages of values that somebody else held when last looked at."""
        self._digests: dict[int, Tensor] = {}
        self._readers: dict[int, list[RecordedOp]] = {}
        self._unfilled: set[int] = set()
        self._generators: list[Any] = [torch.default_generator]
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self._generators.append(torch.cuda.default_generators[torch.cuda.current_device()])

    # What the program does ---------------------------------------------------------------------------------------

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and write it down."""
        kwargs = kwargs or {}
        number = self.ledger.clock = len(self.functions)
        self.functions.append(function)
        self.look_who_holds()
        facts = operator(function)
        module = self.modules.running()
        recipe = Recipe(number, function, facts.again and self.proves, f"{facts.name} in {module or 'the model'}")
        storages = self._meet(args, kwargs)
        recipe.args = [self.bound.scan(each, recipe, facts) for each in args]
        recipe.kwargs = {name: self.bound.scan(each, recipe, facts) for name, each in kwargs.items()}
        self.bound.outside.clear()
        seen = RecordedOp(function, facts.name, module, tuple(dict.fromkeys(each.number for each in recipe.reads)))
        if self.updated:
            seen.outside = tuple(each.place for each in recipe.outside if each.place in self.updated)
        for value, storage in storages.items():
            self._foreign_write(value.number, storage)
            self._readers.setdefault(value.number, []).append(seen)
        new, before = self._before_writes(recipe, facts, args, kwargs, storages)
        states = [generator.get_state() for generator in self._generators] if self.proves else []
        result, seen.seconds = self.room.run(function, args, kwargs)
        pairs = zip(self._generators, states, strict=False)
        recipe.random = tuple(each for each in pairs if not torch.equal(each[1], each[0].get_state()))
        seen.random, seen.unfilled = bool(recipe.random), facts.unfilled
        values = self._results(recipe, result, seen)
        seen.written = tuple((old.number, value.number) for (_, old, _), value in zip(recipe.writes, new, strict=True))
        big = any(self.sizes[each] > SMALL for each in seen.values)
        if seen.values:
            costs = signature(function, args, kwargs)
            seen.signature = costs if big or costs.bytes > SMALL else None
        if big and self.proves:
            self._prove(recipe, facts, args, result, storages, before, seen)
        before.clear()
        self.room.beside = 0
        for position, made in seen.made:
            self._note_digest(made, tensors(result)[position].untyped_storage())
        for (_, old, _), value in zip(recipe.writes, new, strict=True):
            self._note_digest(value.number, storages[old])
        if seen.values or facts.written:
            self.seen[number] = seen
        # Until here, since the recipe holds them weakly.
        values.clear()
        return result

    def _meet(self, args: Any, kwargs: Any) -> Storages:
        """The storages among the arguments that are of this step, those that came from nowhere included."""
        found: Storages = {}
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor) and plain(tensor):
                value = self._value(tensor)
                if value is not None:
                    found[value] = tensor.untyped_storage()
        return found

    def _value(self, tensor: Tensor) -> Value | None:
        """The value that a tensor looks into; None for those from before the step."""
        place = address(tensor)
        if not place or place in self.known:
            return None
        value = self.bound.values.get(place)
        if value is None and tensor.is_leaf and tensor.requires_grad:
            self.known.add(place)
            return None
        if value is None:
            storage = tensor.untyped_storage()
            value = Value(-1 - sum(1 for number in self.sizes if number < 0), None)
            self.bound.put(value, storage)
            self.sizes[value.number] = storage.nbytes()
            self.stays[value.number] = self.ledger.add(storage, value.number)
        return value

    def _before_writes(
        self, recipe: Recipe, facts: OperatorFacts, args: Any, kwargs: Any, storages: Storages
    ) -> tuple[list[Value], Storages]:
        """The next values of what is about to be written, and copies of it as it is, for the proof."""
        new: list[Value] = []
        before: Storages = {}
        self.room.beside = 0
        for written in facts.written:
            tensor = written.of(args, kwargs)
            if isinstance(tensor, list | tuple):
                recipe.again = False
                for each in tensor:
                    self.bound.forget(each)
                continue
            old = self._value(tensor) if isinstance(tensor, Tensor) and plain(tensor) else None
            if tensor is None or old is None:
                recipe.again = recipe.again and tensor is None
                continue
            self.died.setdefault(old.number, recipe.number)
            self._held.pop(old.number, None)
            self._packages.pop(old.number, None)
            if recipe.again:
                storage = storages[old]
                recipe.again = self.room.make(storage.nbytes(), may=True)
                if recipe.again:
                    before[old] = storage.clone()
                    self.room.beside += storage.nbytes()
                    if old.number in self._unfilled:
                        _poison(before[old])
            value = Value(recipe.number * PLACES + WRITTEN + len(new), None)
            new.append(value)
            recipe.writes.append((written.name, old, weakref.ref(value)))
            self.sizes[value.number] = self.sizes[old.number]
            self.stays[value.number] = self.stays[old.number]
            self.bound.put(value, tensor.untyped_storage())
        return new, before

    def _results(self, recipe: Recipe, result: Any, seen: RecordedOp) -> list[Value]:
        """Values for the storages that an operation made."""
        values: list[Value] = []
        made: list[tuple[int, int]] = []
        for position, tensor in enumerate(tensors(result)):
            if not isinstance(tensor, Tensor) or not plain(tensor):
                continue
            place = address(tensor)
            if not place or place in recipe.places or place in self.known or self.ledger.knows(place):
                continue
            storage = tensor.untyped_storage()
            value = Value(recipe.number * PLACES + len(values), None)
            values.append(value)
            recipe.made(position, value)
            made.append((position, value.number))
            self.bound.put(value, storage)
            self.sizes[value.number] = storage.nbytes()
            self.stays[value.number] = self.ledger.add(storage, value.number)
            if seen.unfilled:
                self._unfilled.add(value.number)
        seen.made = tuple(made)
        return values

    # What may be dropped -----------------------------------------------------------------------------------------

    def _prove(
        self,
        recipe: Recipe,
        facts: OperatorFacts,
        args: Any,
        result: Any,
        storages: Storages,
        before: Storages,
        seen: RecordedOp,
    ) -> None:
        device = next((each.device.type for each in tensors(result) if isinstance(each, Tensor)), "cpu")
        made = sum(self.sizes[number] for _, number in seen.made)
        if not recipe.again:
            seen.why = "writes what it can't write again" if facts.written and facts.again else "may have effects"
        elif facts.atomic and device != "cpu":
            seen.why = "adds in another order each time"
        elif not self.room.make(made + self.room.inside(recipe.function, args, made), may=True):
            seen.why = "no room for a second run"
        else:
            seen.why = prove(recipe, facts, result, storages, before)
        seen.again, seen.scratch = not seen.why, recipe.scratch

    def _note_digest(self, number: int, storage: Any) -> None:
        if self.proves and self.sizes[number] > SMALL:
            self._digests[number] = digest(storage)

    def _foreign_write(self, number: int, storage: Any) -> None:
        """What somebody wrote into unseen can't be made again, nor what read it before."""
        then = self._digests.get(number)
        if then is None or number in self._unfilled:
            return
        now = digest(storage)
        if not torch.equal(then, now):
            self._digests[number] = now
            maker = self.seen.get(number // PLACES)
            for seen in (*self._readers.get(number, ()), *([maker] if maker is not None else ())):
                seen.again, seen.why = False, FOREIGN

    # Who holds what ----------------------------------------------------------------------------------------------

    def look_who_holds(self) -> None:
        """Note which saved values nobody else holds any more."""
        for number, reference in list(self._held.items()):
            package = reference()
            if package is None:
                del self._held[number]
            elif package.storage is None or not package.held:
                self.died.setdefault(number, self.ledger.clock - 1)
                del self._held[number]

    def update(self, parameter: Tensor, state: list[Tensor], fresh: bool) -> None:
        """An optimizer has updated a parameter; its state stays from step to step."""
        self.applied.setdefault(address(parameter), self.ledger.clock - len(self.functions))
        self.fresh |= fresh and bool(state)
        for each in state:
            if plain(each):
                self.ledger.outlive(address(each))
                self.known.add(address(each))

    def end(self) -> None:
        """The forward pass is over."""
        self.ledger.clock = len(self.functions)
        self.look_who_holds()
        self.bound.values.clear()

    def pack(self, tensor: Tensor) -> Any:
        """Take what autograd saves."""
        position = len(self.packs)
        self.packs.append(None)
        with torch._C._DisableTorchDispatch():
            value = None
            if plain(tensor) and not tensor.is_conj() and not tensor.is_neg():
                value = self._value(tensor)
            if value is None and plain(tensor) and address(tensor) in self.updated:
                return Updated(self, tensor)
            if value is None or self.sizes[value.number] <= SMALL:
                return kept(tensor)
            number = value.number
            self._foreign_write(number, tensor.untyped_storage())
            self.packs[position] = number
            package = self._packages[number]() if number in self._packages else None
            if package is None:
                package = self.away.keep(tensor.untyped_storage(), number)
                self._packages[number] = self._held[number] = weakref.ref(package)
            return Deposit(self, package, position, tensor)

    def unpack(self, noted: Deposit) -> Tensor:
        """Give it back."""
        noted.probe.check()
        package = noted.package
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
            if self.reads is not None and package.number is not None:
                self.reads.append((noted.position, package.number))
            if package.storage is None:
                self.room.make(package.bytes)
                self.ledger.add(package.get(), copied=True)
            return noted.window.over(package.storage)


def _poison(storage: Any) -> None:
    torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).fill_(_POISON)
