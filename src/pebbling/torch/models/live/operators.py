"""What is known of an operator before it runs: what it writes, and whether it may run again at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

# Operators of others may have effects that no schema tells of.
_SPACES = ("aten", "prims", "torchvision")
_NEVER = {"record_stream", "set_", "resize_", "resize_as_", "_local_scalar_dense", "item", "copy_data_ptr"}
# Sums in whatever order the threads of a device arrive: two equal runs prove nothing.
_ATOMIC = {
    "scatter_add", "scatter_reduce", "index_add", "index_put", "_index_put_impl", "put", "bincount", "histc", "cumsum",
    "_embedding_bag", "kthvalue", "median", "nanmedian", "max_unpool2d", "max_unpool3d", "index_reduce", "scatter",
}  # fmt: skip
_SHAPES = {
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_empty", "new_ones", "new_full", "new_empty_strided",
}  # fmt: skip
_UNFILLED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


class Written(NamedTuple):
    """An argument that an operator writes in place."""

    position: int
    name: str
    by_name: bool

    def of(self, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> Any:
        """What the operator was given for it."""
        if self.by_name or self.position >= len(args):
            return kwargs.get(self.name)
        return args[self.position]


class OperatorFacts:
    """Facts of one operator, looked up once."""

    __slots__ = ("again", "atomic", "name", "only_shapes", "unfilled", "views", "written")

    def __init__(self, function: Any) -> None:
        schema = getattr(function, "_schema", None)
        space, _, name = (schema.name if schema is not None else f"?::{function}").partition("::")
        self.name: str = f"{space}.{name}"
        arguments = schema.arguments if schema is not None else ()
        self.written = tuple(
            Written(position, each.name, each.kwarg_only)
            for position, each in enumerate(arguments)
            if each.alias_info is not None and each.alias_info.is_write
        )
        bare = name.rstrip("_")
        self.again: bool = schema is not None and space in _SPACES and name not in _NEVER
        self.atomic: bool = bare in _ATOMIC
        self.only_shapes: bool = name in _SHAPES
        self.unfilled: bool = name in _UNFILLED
        returns = schema.returns if schema is not None else ()
        self.views: bool = bool(returns) and all(
            each.alias_info is not None and not each.alias_info.is_write for each in returns
        )


_known: dict[Any, OperatorFacts] = {}


def operator(function: Any) -> OperatorFacts:
    """The facts of an operator."""
    found = _known.get(function)
    if found is None:
        found = _known[function] = OperatorFacts(function)
    return found


def plain(value: Any) -> bool:
    """Whether something is a tensor with a storage of its own kind, and no subclass that hides others."""
    return (type(value) is Tensor or type(value) is torch.nn.Parameter) and value.layout is torch.strided


def tensors(result: Any) -> tuple[Any, ...]:
    """The results of an operation, as a tuple."""
    if isinstance(result, Tensor):
        return (result,)
    if isinstance(result, tuple | list):
        return tuple(each for part in result for each in (part if isinstance(part, list | tuple) else (part,)))
    return ()
