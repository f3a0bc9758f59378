"""Plans and reports as text and pictures; read by the command line and by nothing else."""

from .board import board
from .chart import tradeoff
from .compare import Comparison, Curve, compare
from .live import live
from .pebbles import pebbles
from .sheet import Sheet, read_report, read_sheet
from .text import table, table_of

__all__ = [
    "Comparison",
    "Curve",
    "Sheet",
    "board",
    "compare",
    "live",
    "pebbles",
    "read_report",
    "read_sheet",
    "table",
    "table_of",
    "tradeoff",
]
