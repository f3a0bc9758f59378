"""torch tensors as leaves.

A snapshot is values: a tensor comes back detached from any graph, on the device it was on, with
the dtype and the order of axes in memory (channels last, for one) that it had.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from .arrays import Form, form, inverse, memory_order, parts
from .data import Unreadable
from .dtypes import checked

torch: Any = import_module("torch")

_SHARED = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip


class Torch:
    """``torch.Tensor``, dense; subclasses, sparse and quantised tensors are carried like other objects."""

    name = "torch"

    def plain(self, leaf: Any) -> bool:
        return leaf.layout is torch.strided and not leaf.is_quantized and leaf.device.type != "meta"

    def copy(self, leaf: Any) -> Any:
        tensor, order = _dense(leaf.detach())
        private = tensor.clone() if tensor.data_ptr() == leaf.data_ptr() else tensor
        return private if order is None else private.permute(inverse(order))

    def nbytes(self, leaf: Any) -> int:
        return leaf.numel() * leaf.element_size()

    def pack(self, leaf: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        tensor, order = _dense(leaf.detach().resolve_conj().resolve_neg())
        device = None if leaf.device.type == "cpu" else str(leaf.device)
        return (tensor.dtype, tuple(tensor.shape), order, device), _bytes(tensor.cpu())

    def make(self, spec: tuple[Any, ...]) -> tuple[np.ndarray, Callable[[], Any]]:
        dtype, shape, order, device = spec
        tensor = torch.empty(shape, dtype=dtype)

        def finish() -> Any:
            turned = tensor if order is None else tensor.permute(inverse(order))
            return turned if device is None else turned.to(device)

        return _bytes(tensor), finish

    def size(self, spec: tuple[Any, ...]) -> int:
        dtype, shape, order, device = parts(spec, 4)
        checked(shape, order)
        if not isinstance(dtype, torch.dtype) or not (device is None or _is_device(device)):
            raise Unreadable(f"{spec!r} describes no tensor")
        return int(dtype.itemsize * math.prod(shape))

    def form(self, spec: tuple[Any, ...]) -> Form:
        dtype, shape = spec[:2]
        name = str(dtype).removeprefix("torch.")
        if name in _SHARED:
            return form(np.dtype(name), shape)
        fraction = round(-math.log2(torch.finfo(dtype).eps)) if dtype.is_floating_point else None
        return Form(None, shape, dtype.itemsize, fraction)


def _dense(tensor: Any) -> tuple[Any, tuple[int, ...] | None]:
    if tensor.is_contiguous():
        return tensor, None
    order = memory_order(tensor.shape, tensor.stride())
    turned = tensor.permute(order).contiguous()
    back = turned.permute(inverse(order))
    return (back, None) if back.is_contiguous() else (turned, order)


def _is_device(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[a-z]{2,20}(:[0-9]{1,4})?", name) is not None and name != "meta"


def _bytes(tensor: Any) -> np.ndarray:
    if not tensor.numel():
        return np.empty(0, np.uint8)
    # Not reshape: of one element it keeps whatever stride there was, which view then refuses.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    array: np.ndarray = flat.view(torch.uint8).numpy()
    return array


KIND = Torch()
