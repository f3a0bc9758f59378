"""Checkpointed loops inside one compiled JAX program."""

from .accelerator import GPU_OPTIONS, jit
from .loops import fori_loop, loop, scan
from .offload import offload_loop
from .online import while_loop
from .rewrite import Entry, Report, checkpoint_loops
from .why import why

__all__ = [
    "GPU_OPTIONS",
    "Entry",
    "Report",
    "checkpoint_loops",
    "fori_loop",
    "jit",
    "loop",
    "offload_loop",
    "scan",
    "while_loop",
    "why",
]
