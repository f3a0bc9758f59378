"""PyTorch: loops and chains of modules whose gradients fit a budget."""

try:
    import torch  # noqa: F401, for the message alone
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("pebbling.torch needs PyTorch: pip install 'pebbling[torch]'", name=error.name) from None

from .chains import Chain, chain
from .loops import loop
from .models import fit, plan
from .tracked import Tracked
from .why import Largest, largest, why

__all__ = ["Chain", "Largest", "Tracked", "chain", "fit", "largest", "loop", "plan", "why"]
