"""PyTorch: loops and chains of modules whose gradients fit a budget."""

from .chains import Chain, chain
from .loops import loop
from .models import fit, plan
from .tracked import Tracked

__all__ = ["Chain", "Tracked", "chain", "fit", "loop", "plan"]
