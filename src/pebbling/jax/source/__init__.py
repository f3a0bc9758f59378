"""Plain Python loops on values that JAX traces: what ``@pebbling.checkpoint`` makes of them."""

from .forecast import explore
from .run import run

__all__ = ["explore", "run"]
