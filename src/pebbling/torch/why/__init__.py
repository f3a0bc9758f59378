"""Why a model's peak is where it is, and the largest batch that fits: measured on one real step."""

from .front import why
from .largest import Largest, largest

__all__ = ["Largest", "largest", "why"]
