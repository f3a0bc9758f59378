"""Checkpointed loops inside one compiled JAX program."""

try:
    import jax  # noqa: F401, for the message alone
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError("pebbling.jax needs JAX: pip install 'pebbling[jax]'", name=error.name) from None

from .accelerator import GPU_OPTIONS
from .compiled import grad, jit, value_and_grad
from .loops import fori_loop, loop, scan
from .models import Deviation, FunctionPlan, PlannedFunction, fit
from .nested import nested_checkpoint_scan
from .offload import offload_loop
from .online import while_loop
from .rewrite import Entry, Report, checkpoint_loops
from .why import why

__all__ = [
    "GPU_OPTIONS",
    "Deviation",
    "Entry",
    "FunctionPlan",
    "PlannedFunction",
    "Report",
    "checkpoint_loops",
    "fit",
    "fori_loop",
    "grad",
    "jit",
    "loop",
    "nested_checkpoint_scan",
    "offload_loop",
    "scan",
    "value_and_grad",
    "while_loop",
    "why",
]
