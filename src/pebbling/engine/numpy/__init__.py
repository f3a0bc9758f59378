"""Derivatives of plain NumPy programs, reverse and forward, of any order by nesting.

The module is an engine in the sense of ``pebbling.engine.protocol``.
"""

from . import foreign as foreign
from . import lists as lists
from . import makers as makers
from .construct import array, asarray
from .dual import Dual
from .node import custom
from .rules import python as python
from .step import active, differentiable, step_jvp, step_vjp, step_vjp_dot
from .table import composed, elementwise, flat, rule
from .transform import grad, hvp, jvp, stop_gradient, value_and_grad, vjp
from .var import Var

__all__ = [
    "Dual",
    "Var",
    "active",
    "array",
    "asarray",
    "composed",
    "custom",
    "differentiable",
    "elementwise",
    "flat",
    "grad",
    "hvp",
    "jvp",
    "rule",
    "step_jvp",
    "step_vjp",
    "step_vjp_dot",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]
