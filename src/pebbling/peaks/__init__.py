"""Why is my peak here: what was alive, when the most was, and what would lower it; framework-free."""

from .advice import Advice
from .report import Why
from .story import Life, ModuleCall, Moment, Story

__all__ = ["Advice", "Life", "ModuleCall", "Moment", "Story", "Why"]
