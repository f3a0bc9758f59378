"""What JAX's tracers tell of where a call is, from the inside of JAX: the line, and the transformations around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax._src import core, source_info_util
from jax._src.interpreters import ad, batching

_core: Any = core
_ad: Any = ad
_batching: Any = batching
_source: Any = source_info_util

_OURS = str(Path(__file__).parents[1])

Found = tuple[str, list[bool], list[Any], list[int | None], Any]


def line_of(traceback: Any) -> str:
    """The innermost line of the user's in a traceback of JAX."""
    for frame in _source.user_frames(traceback):
        if not frame.file_name.startswith(_OURS):
            return f"{frame.file_name}:{frame.start_line}"
    return "unknown"


def calling_line() -> str:
    """The line of the user's that is being run."""
    return line_of(_source.current().traceback)


def transformations(values: Sequence[Any]) -> Iterator[Found]:
    """The transformations that are being traced, from the inside, up to the next ``jit``.

    For each its kind, which values it is about, those values outside of it, the axes of a batch and its size.
    """
    trace, at = _core.trace_ctx.trace, list(values)
    while kind := _kind(trace):
        tag = trace.tag
        mask = [_is_of(v, tag) for v in at]
        dims = [v.batch_dim if m and kind == "batch" else None for v, m in zip(at, mask)]
        at = [(v.val if kind == "batch" else v.primal) if m else v for v, m in zip(at, mask)]
        yield kind, mask, list(at), dims, trace.axis_data if kind == "batch" else None
        trace = trace.parent_trace


def _kind(trace: Any) -> str:
    kinds = ((_ad.LinearizeTrace, "reverse"), (_ad.JVPTrace, "forward"), (_batching.BatchTrace, "batch"))
    return next((name for kind, name in kinds if isinstance(trace, kind)), "")


def _is_of(value: Any, tag: Any) -> bool:
    tracers = (_ad.LinearizeTracer, _ad.JVPTracer, _batching.BatchTracer)
    return isinstance(value, tracers) and value._trace.tag is tag


def is_traced(value: Any) -> bool:
    """Whether a value is inside of a transformation or a ``jit`` that is being traced."""
    return isinstance(value, _core.Tracer)


def zero_cotangent(value: Any) -> Any:
    """The cotangent of a value that is not of floating point."""
    return np.zeros(value.shape, _core.primal_dtype_to_tangent_dtype(value.dtype))
