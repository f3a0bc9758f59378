"""Plans over graphs of operations: the model, bounds, solvers and checks; no framework."""

from .analyze import Analysis, analyze
from .check import GraphCost, Machine, check, simulate
from .files import load, save
from .fx import from_fx, unroll
from .jaxpr import from_jaxpr
from .least import smallest
from .model import Graph, Node, Storage
from .plan import Compute, Fetch, Free, GraphPlan, Offload, Step
from .solve import solve

__all__ = [
    "Analysis",
    "Compute",
    "Fetch",
    "Free",
    "Graph",
    "GraphCost",
    "GraphPlan",
    "Machine",
    "Node",
    "Offload",
    "Step",
    "Storage",
    "analyze",
    "check",
    "from_fx",
    "from_jaxpr",
    "load",
    "save",
    "simulate",
    "smallest",
    "solve",
    "unroll",
]
