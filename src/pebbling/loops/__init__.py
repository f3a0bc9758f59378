"""Loops whose derivatives fit a budget."""

from ..engine.framework import Framework
from .loop import loop
from .node import Outcome
from .runtime import Options

__all__ = ["Framework", "Options", "Outcome", "loop"]
