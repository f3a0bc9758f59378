"""The compiler options that loops of a run-time length want on GPUs.

XLA reads the condition of such a loop back to the host after every step, unless whole loops are
recorded as command buffers, which it does not do by default.

In command buffers XLA (seen in jax 0.11.2 on an H200) may read the condition of a ``while_loop``
before it is written if the condition is nothing but a carried boolean, ``lambda c: c[0]``: some calls
then run no step. The loops of this package compute theirs; compute yours as well
(``lambda c: c[0] > 0`` with a number), or leave ``WHILE`` out of the options.
"""

from __future__ import annotations

from typing import Any

import jax

GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUSTOM_CALL,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
}
"""For ``jax.jit(…, compiler_options=…)``, where ``pebbling.jax.jit`` can't be used."""


def with_gpu_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of ``jax.jit`` with ``GPU_OPTIONS`` among them where the default device is a GPU."""
    if jax.default_backend() != "gpu":
        return options
    given = options.get("compiler_options") or {}
    return {**options, "compiler_options": {**GPU_OPTIONS, **given}}
