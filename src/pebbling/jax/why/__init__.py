"""Why a compiled program takes the memory it takes: read off the program that XLA made."""

from .front import why

__all__ = ["why"]
