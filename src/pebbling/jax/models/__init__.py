"""``fit``: a function whose gradient, compiled by XLA, stays within a budget of bytes."""

from .fit import PlannedFunction, fit
from .plan import Deviation, FunctionPlan

__all__ = ["Deviation", "FunctionPlan", "PlannedFunction", "fit"]
