"""Eager mode's kernels while a model is traced.

For its tracers torch keeps a second implementation of some operators, in Python: interpolation, recurrent
layers, a few activations and losses. It rounds differently from the compiled one that eager mode runs, and
takes more memory and time. While a model is traced these are set aside, so that what is traced is what
would have run. So is torch's answer that multi-head attention is being traced, which would keep it from the
kernel that it evaluates with.

What tracers expect of results is not always what the host's kernels give: a batch norm of transposed values has
dense ones. Views would fail, and later operators take other ways, so that expectations are put right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
# Whose layout the first result of an operator has on the host, by position; None where it is dense.
_LAYOUTS: dict[Any, int | None] = {
    aten._native_batch_norm_legit_functional.default: 0,
    aten._native_batch_norm_legit.no_stats: 0,
    aten._native_batch_norm_legit_no_training.default: 0,
    aten.native_batch_norm_backward.default: 1,
    aten.native_layer_norm_backward.default: None,
}
_DROPPED = aten.native_dropout_backward.default
_OWN_DERIVATIVE = torch._C.DispatchKey.Autograd
_KEYS = (_OWN_DERIVATIVE, torch._C.DispatchKey.CompositeImplicitAutograd)
# A dropout draws the same numbers in Python and has a smaller mask, see ``host_dropout``; batch norms change
# statistics, which only Python's say.
_LEFT = ("aten::dropout", "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")


def switches() -> tuple[bool, ...]:
    """The switches of torch by which operators choose their kernels when they are traced, and nobody looks later."""
    get: Any = torch._C
    attention = (get._get_flash_sdp_enabled(), get._get_mem_efficient_sdp_enabled(), get._get_math_sdp_enabled())
    return (*attention, get._get_cudnn_sdp_enabled(), get._get_cudnn_enabled(), get._get_mkldnn_enabled())


@contextmanager
def untraced() -> Iterator[None]:
    """Let multi-head attention take the path that it takes in eager mode."""
    from torch._dynamo.variables.torch import tracing_state_functions

    answers: dict[Any, Any] = tracing_state_functions()
    asked = getattr(torch.nn.modules.activation, "_is_make_fx_tracing", None)
    known = {asked: answers[asked]} if asked in answers else {}
    answers.update(dict.fromkeys(known, False))
    try:
        yield
    finally:
        answers.update(known)


@contextmanager
def eager_kernels() -> Iterator[None]:
    """Let the tracer see the operators that eager mode runs."""
    taken: list[tuple[Any, Any, Any]] = []
    try:
        for operator in _written_twice():
            for key in _KEYS:
                if key in operator.py_kernels:
                    taken.append((operator, key, operator.py_kernels.pop(key)))
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, key, kernel in taken:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()


@cache
def _written_twice() -> tuple[Any, ...]:
    """Operators whose derivative tracers write in Python too; those without one are composed of the same kernels."""
    import torch._decomp

    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    operators = (getattr(each, name) for each in packets if hasattr(each, "overloads") for name in each.overloads())
    return tuple(each for each in operators if _OWN_DERIVATIVE in each.py_kernels and each._schema.name not in _LEFT)


@contextmanager
def host_layouts() -> Iterator[None]:
    """Let the tracer expect results as the host's kernels lay them out."""
    from torch._decomp import decomposition_table
    from torch._subclasses.fake_tensor import FakeTensorMode

    before = {each: decomposition_table[each] for each in (*_LAYOUTS, _DROPPED) if each in decomposition_table}
    for each, traced in before.items():
        decomposition_table[each] = _dropped(traced) if each is _DROPPED else _expected(traced, _LAYOUTS[each])
    # What was expected before is kept there.
    FakeTensorMode.cache_clear()
    try:
        yield
    finally:
        decomposition_table.update(before)
        FakeTensorMode.cache_clear()


def _expected(traced: Callable[..., Any], place: int | None) -> Callable[..., Any]:
    @wraps(traced)
    def results(*args: Any, **kwargs: Any) -> Any:
        first, *rest = traced(*args, **kwargs)
        if first is not None and first.device.type == "cpu":
            layout = torch.contiguous_format if place is None else suggest_memory_format(args[place])
            first = torch.empty_like(first, memory_format=layout)
        return first, *rest

    return results


def _dropped(traced: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(traced)
    def result(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
        return gradient * mask if gradient.device.type == "cpu" else traced(gradient, mask, scale)

    return result
