"""Plans and reports as text and pictures; read by the command line and by nothing else."""

from .chart import tradeoff
from .compare import Comparison, Curve, compare
from .pebbles import pebbles
from .text import table

__all__ = ["Comparison", "Curve", "compare", "pebbles", "table", "tradeoff"]
