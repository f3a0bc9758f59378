"""PyTorch models in a byte budget: capture, plan, run."""

from .fit import fit, plan
from .measure import Measured
from .model_plan import ModelPlan

__all__ = ["Measured", "ModelPlan", "fit", "plan"]
