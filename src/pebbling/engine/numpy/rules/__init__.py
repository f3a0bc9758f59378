"""The rules, grouped by theme; importing this fills the table."""

from . import arithmetic, create, elementary, fft, flat, join, linalg, methods, product, reduce, select, shape, signal

__all__ = [
    "arithmetic",
    "create",
    "elementary",
    "fft",
    "flat",
    "join",
    "linalg",
    "methods",
    "product",
    "reduce",
    "select",
    "shape",
    "signal",
]
