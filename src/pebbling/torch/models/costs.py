"""What each operation of a captured graph takes, measured once for each operator and shape of its arguments.

A few dozen signatures stand for thousands of operations. Arguments are made anew from the captured
shapes, one operation at a time. What can't be measured (no device to run on, an operator that refuses
made-up arguments, more bytes than the budget allows) is estimated from the bytes and the multiplications,
and so are operators that are not torch's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from types import FunctionType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .kernels import OWN

NEVER_MISSED = 2**28
"""Bytes that measuring one operation may take whatever the budget is."""
_REPEATS = 5
_LONG_ENOUGH = 0.02
_TRUSTING = ("rnn", "lstm", "gru", "embedding_bag", "segment_reduce")
_measured: dict[Any, NodeCost] = {}


@dataclass(frozen=True)
class NodeCost:
    """Seconds of one run, bytes taken during it beyond the results, and bytes of each storage that it made."""

    time: float
    workspace: int = 0
    estimated: bool = False
    bytes: tuple[int, ...] = ()


def costs(nodes: Iterable[Any], most: int | None = None) -> dict[str, NodeCost]:
    """Cost of each operation, by name; ``most`` bounds the bytes that measuring one may take."""
    found: dict[str, NodeCost] = {}
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad(), SameRandomNumbers():
        for node in nodes:
            if isinstance(node.target, torch._ops.OpOverload) or _own(node.target):
                found[node.name] = _cost(node, most)
    return found


def _cost(node: Any, most: int | None) -> NodeCost:
    key = signature(node)
    if key not in _measured:
        cost = _measure(node, most)
        if cost.estimated:
            return cost
        _measured[key] = cost
    return _measured[key]


def signature(node: Any) -> Any:
    """What decides the cost of an operation: the operator, shapes, strides and types, and plain arguments."""

    def describe(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            value = value.meta.get("val")
        if isinstance(value, torch.Tensor):
            place = (value.storage_offset(), _storage(value).nbytes(), str(value.device))
            return (tuple(value.shape), tuple(value.stride()), str(value.dtype), *place)
        if isinstance(value, list | tuple):
            return tuple(describe(each) for each in value)
        return repr(value)

    return (
        node.target.__qualname__ if isinstance(node.target, FunctionType) else str(node.target),
        torch.get_num_threads(),
        describe(node.args),
        tuple((name, describe(value)) for name, value in sorted(node.kwargs.items())),
    )


def _measure(node: Any, most: int | None) -> NodeCost:
    values = [argument.meta.get("val") for argument in node.all_input_nodes]
    tensors = [leaf for leaf in tree_leaves([*values, node.meta.get("val")]) if isinstance(leaf, torch.Tensor)]
    devices = {tensor.device.type for tensor in tensors}
    moved = sum(_storage(tensor).nbytes() for tensor in tensors)
    runnable = devices and devices <= {"cpu", "cuda"} and (most is None or moved <= most)
    if runnable and _harmless(node.target):
        try:
            args, kwargs = tree_map(_made_up, (node.args, node.kwargs))
            run = partial(node.target, *args, **kwargs)
            made = _made(run(), (args, kwargs))
            cost = on_cuda(run) if "cuda" in devices else _on_cpu(run)
            return replace(cost, bytes=made)
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            pass
    return NodeCost(estimate(node), estimated=True)


def _harmless(target: Any) -> bool:
    """Whether an operator may be run with made-up arguments.

    Not those of others, which may do anything, and not recurrent kernels, which trust what they stored
    themselves in the forward pass and take the process down if it is not that.
    """
    return _own(target) or (target.namespace == "aten" and not any(word in str(target) for word in _TRUSTING))


def _own(target: Any) -> bool:
    return target in OWN or hasattr(target, "in_parts")


def _made(result: Any, given: Any) -> tuple[int, ...]:
    """Sizes of the storages that a result brought with it: now and then not those that the tracer expects."""
    known = {_storage(leaf)._cdata for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)}
    found: dict[int, int] = {}
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and _storage(leaf)._cdata not in known:
            found[_storage(leaf)._cdata] = _storage(leaf).nbytes()
    return tuple(found.values())


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()


def _on_cpu(run: Callable[[], Any]) -> NodeCost:
    best, spent = math.inf, 0.0
    for _ in range(_REPEATS):
        begun = perf_counter()
        run()
        seconds = perf_counter() - begun
        best, spent = min(best, seconds), spent + seconds
        if spent > _LONG_ENOUGH and best < math.inf:
            break
    return NodeCost(best)


def on_cuda(run: Callable[[], Any]) -> NodeCost:
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    workspace = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    del result
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    # The device is kept busy while the runs are queued, so that what is measured is theirs and not the host's.
    torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
    begun.record()
    for _ in range(_REPEATS):
        run()
    ended.record()
    ended.synchronize()
    return NodeCost(begun.elapsed_time(ended) / 1e3 / _REPEATS, workspace)


def estimate(node: Any) -> float:
    """Seconds by a rule of thumb: bytes at 10 GB/s on a host and 2 TB/s on a device, or multiplications if slower."""
    values = [node.meta.get("val"), *(argument.meta.get("val") for argument in node.all_input_nodes)]
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    slow = any(tensor.device.type == "cpu" for tensor in tensors)
    bandwidth, arithmetic = (1e10, 5e10) if slow else (2e12, 2e14)
    moved = sum(_bytes(tensor) for tensor in tensors) / bandwidth
    return moved + _multiplications(node, tensors) / arithmetic


def _multiplications(node: Any, tensors: list[torch.Tensor]) -> float:
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0.0
    args, kwargs = tree_map(_faked, (node.args, node.kwargs))
    try:
        return float(count(*args, **kwargs, out_val=node.meta.get("val"))) / 2
    except (TypeError, ValueError, AttributeError, AssertionError):
        return 0.0


def _faked(value: Any) -> Any:
    return value.meta.get("val") if isinstance(value, torch.fx.Node) else value


def _made_up(value: Any) -> Any:
    value = _faked(value)
    if isinstance(value, list | tuple):
        return type(value)(_made_up(each) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    # Some operators copy all of the storage that a view looks into.
    size = _storage(value).nbytes() // value.element_size()
    # Integers are positions as a rule, and 0 is one that is always there.
    flat = torch.zeros(size, dtype=value.dtype, device=value.device)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        flat.normal_()
    return flat.as_strided(value.shape, value.stride(), value.storage_offset())


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class SameRandomNumbers:
    """Leaves the generators as they were."""

    def __enter__(self) -> None:
        self.host = torch.default_generator.get_state()
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self.device = torch.cuda.get_rng_state_all() if used else None

    def __exit__(self, *_: object) -> None:
        torch.default_generator.set_state(self.host)
        if self.device is not None:
            torch.cuda.set_rng_state_all(self.device)
