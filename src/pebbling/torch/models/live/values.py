"""Tensors described so that they can be there again: views into storages, and what comes from outside of the step.

A value is one storage in one state: an operation that writes in place makes the next value of the same storage.
Views are rebuilt and never run again. Nothing here keeps a storage but who needs it: what autograd saved points at
values, values at the operation that made them, and that at its arguments, so that all goes with the graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....errors import ReplayError

address: Any = torch._C._storage_address  # type: ignore[attr-defined]
"""Where a tensor's storage is: one number for all tensors that look into it."""


_Guard: Any = torch._C._SetExcludeDispatchKeyGuard
_COUNTS = torch._C.DispatchKey.ADInplaceOrView


def alias_of(tensor: Tensor) -> Tensor:
    """The tensor without its graph, on the same storage and with the same counter of versions.

    Below autograd, where modes run, only this key lets the two share the counter.
    """
    with _Guard(_COUNTS, False):
        return tensor.detach()


class Value:
    """What one operation of this step left in a storage.

    Torch counts a write after the operation that makes it, so versions are taken when the forward pass is over; until
    then every write is seen as it comes.
    """

    __slots__ = ("__weakref__", "arriving", "away", "guard", "leaving", "maker", "number", "storage")

    def __init__(self, number: int, maker: Any) -> None:
        self.number, self.maker = number, maker
        self.storage: Any = None
        self.guard: tuple[Tensor, int] | None = None
        self.away: Any = None
        """The slab that holds a copy of it."""
        self.leaving: Any = None
        """What to wait for before its bytes may go, and before it is read again."""
        self.arriving: Any = None

    def hold(self, tensor: Tensor) -> None:
        """Keep the storage, and see if somebody writes into it."""
        alias = alias_of(tensor)
        self.guard, self.storage = (alias, -1), alias.untyped_storage()

    def settle(self) -> None:
        """The forward pass is over: from now on nobody may write into it."""
        if self.guard is not None:
            self.guard = (self.guard[0], self.guard[0]._version)

    def give_back(self) -> None:
        """Keep it no longer."""
        self.storage = self.guard = self.arriving = None

    @property
    def again(self) -> bool:
        """Whether it can be there again once it was let go."""
        return self.away is not None or (self.maker is not None and self.maker.again)

    def move(self, slab: Any) -> None:
        """Begin to copy it to the host."""
        self.away, self.leaving = slab, slab.put(self.number, self.storage)

    def leave(self) -> None:
        """Keep the copy on the host alone."""
        if self.leaving is not None:
            self.leaving.wait()
            self.leaving = None
        self.give_back()

    def fetch(self) -> None:
        """Begin to bring it back."""
        if self.storage is None:
            self.storage, self.arriving = self.away.get(self.number)

    def there(self) -> Any:
        """The storage, or None; refused if it is no longer what it was."""
        if self.arriving is not None:
            self.arriving.wait()
            self.arriving = None
        if self.guard is not None and self.guard[1] >= 0 and self.guard[0]._version != self.guard[1]:
            name = "" if self.maker is None else f" of {self.maker.told}"
            raise ReplayError(
                f"a result{name} was kept to make other values again, and was then modified in place after the "
                "forward pass; modify a copy, or run the backward pass first"
            )
        return self.storage


_empty = torch.empty


class Window:
    """How a tensor looks into a value."""

    __slots__ = ("dtype", "offset", "size", "stride", "value")

    def __init__(self, value: Any, tensor: Tensor) -> None:
        self.value, self.dtype = value, tensor.dtype
        self.offset, self.size, self.stride = tensor.storage_offset(), tensor.size(), tensor.stride()

    def over(self, storage: Any) -> Tensor:
        """The tensor, over a storage."""
        return _empty(0, dtype=self.dtype, device=storage.device).set_(storage, self.offset, self.size, self.stride)


class Shape:
    """A tensor of which an operation reads only the shape."""

    __slots__ = ("facts",)

    def __init__(self, tensor: Tensor) -> None:
        self.facts = (tensor.size(), tensor.stride(), tensor.dtype, tensor.device)

    def tensor(self) -> Tensor:
        """Another of that shape, with no memory behind it."""
        found = _hollow.get(self.facts)
        if found is None:
            size, stride, dtype, device = self.facts
            found = torch.empty_strided(size, stride, dtype=dtype, device=device)
            found.untyped_storage().resize_(0)
            if len(_hollow) >= _SHAPES:
                _hollow.clear()
            _hollow[self.facts] = found
        return found


_SHAPES = 1024
_hollow: dict[Any, Tensor] = {}


class Outside:
    """A tensor that no operation of this step made: a parameter, an argument, a constant, anything unknown.

    Its own alias, so that a parameter that is given other ``data`` later is still the one that was read.
    """

    __slots__ = ("alias", "place", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.alias: Tensor = alias_of(tensor)
        self.place: int = address(tensor)
        self.version = -1

    def copy(self) -> None:
        """Keep what is there now, since it is about to be written."""
        self.alias = self.alias.clone(memory_format=torch.preserve_format)

    def settle(self) -> None:
        """The forward pass is over: from now on nobody may write into it."""
        self.version = self.alias._version

    def tensor(self, told: str = "") -> Tensor:
        """The tensor as it was; refused if it was written since."""
        if self.version >= 0 and self.alias._version != self.version:
            raise ReplayError(
                f"{told or 'an operation'} must run again, and a tensor of shape {tuple(self.alias.shape)} that it "
                "reads was modified in place after the forward pass; run the backward pass first"
            )
        return self.alias
