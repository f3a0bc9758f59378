"""Operations with their own derivative rules, recorded as they run and replayed on demand within a budget."""

from .handle import Handle
from .ops import Op, op
from .tape import Tape

__all__ = ["Handle", "Op", "Tape", "op"]
