"""Loops whose derivatives fit a budget, and the gradients of functions that contain them."""

from .frameworks import Framework, register
from .gradients import grad, hvp, value_and_grad
from .loop import loop
from .node import Outcome
from .runtime import Options, run

__all__ = ["Framework", "Options", "Outcome", "grad", "hvp", "loop", "register", "run", "value_and_grad"]
