"""PyTorch: loops and chains of modules whose gradients fit a budget."""

from .chain import Chain, chain
from .loop import loop
from .models import fit, plan
from .tracked import Tracked

__all__ = ["Chain", "Tracked", "chain", "fit", "loop", "plan"]
