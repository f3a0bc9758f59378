"""The live engine: the program itself runs every step, and what autograd saves of it is kept or made again by plan."""

from .engine import LiveRunner

__all__ = ["LiveRunner"]
