"""``pebbling demo``: a simulation in plain NumPy, its gradient in 1 % of the memory, and a picture of both."""

from .run import demo

__all__ = ["demo"]
