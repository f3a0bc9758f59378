"""``jit`` with the compiler options that loops of a run-time length want on GPUs.

XLA reads the condition of such a loop back to the host after every step, unless whole loops are
recorded as command buffers, which it does not do by default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUSTOM_CALL,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
}
"""For ``jax.jit(…, compiler_options=…)``, where ``pebbling.jax.jit`` can't be used."""


def jit(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``jax.jit`` with ``GPU_OPTIONS`` where the default device is a GPU; plain ``jax.jit`` elsewhere."""
    if jax.default_backend() != "gpu":
        return jax.jit(f, **options)
    given = options.pop("compiler_options", None) or {}
    return jax.jit(f, compiler_options={**GPU_OPTIONS, **given}, **options)
