"""PyTorch: loops and chains of modules whose gradients fit a budget."""

from .chains import Chain, chain
from .loops import loop
from .models import fit, plan
from .tracked import Tracked
from .why import Largest, largest, why

__all__ = ["Chain", "Largest", "Tracked", "chain", "fit", "largest", "loop", "plan", "why"]
