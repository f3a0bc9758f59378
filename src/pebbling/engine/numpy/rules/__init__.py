"""The rules, grouped by theme; importing this fills the table."""

from . import (
    arithmetic,
    create,
    decompose,
    elementary,
    fft,
    flat,
    join,
    linalg,
    methods,
    more,
    product,
    reduce,
    select,
    shape,
    signal,
)

__all__ = [
    "arithmetic",
    "create",
    "decompose",
    "elementary",
    "fft",
    "flat",
    "join",
    "linalg",
    "methods",
    "more",
    "product",
    "reduce",
    "select",
    "shape",
    "signal",
]
