"""``jit`` with the compiler options that loops of a run-time length want on GPUs.

XLA reads the condition of such a loop back to the host after every step, unless whole loops are
recorded as command buffers, which it does not do by default.

In command buffers XLA (seen in jax 0.11.2 on an H200) may read the condition of a ``while_loop``
before it is written if the condition is nothing but a carried boolean, ``lambda c: c[0]``: some calls
then run no step. The loops of this package compute theirs; compute yours as well
(``lambda c: c[0] > 0`` with a number), or leave ``WHILE`` out of the options.
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
