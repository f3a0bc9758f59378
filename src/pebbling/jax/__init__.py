"""Checkpointed loops inside one compiled JAX program."""

from .loops import fori_loop, loop, scan
from .online import while_loop
from .rewrite import checkpoint_loops

__all__ = ["checkpoint_loops", "fori_loop", "loop", "scan", "while_loop"]
