"""Plain Python functions whose loops are checkpointed: the source of a loop becomes a step that can be replayed."""

from .checkpoint import checkpoint
from .explain import Explanation, explain

__all__ = ["Explanation", "checkpoint", "explain"]
