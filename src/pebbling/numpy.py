"""Plain NumPy programs: loops within a budget, derivatives, and rules for functions of one's own."""

from .engine.numpy import array, asarray, composed, elementwise, flat, jvp, rule, stop_gradient, vjp
from .loops import loop
from .source.gradients import grad, hvp, value_and_grad

__all__ = [
    "array",
    "asarray",
    "composed",
    "elementwise",
    "flat",
    "grad",
    "hvp",
    "jvp",
    "loop",
    "rule",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]
