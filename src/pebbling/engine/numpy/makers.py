"""The functions that make new arrays from plain values: under a derivative, the program gets blanks from them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .blank import handed_out, is_under
from .standins import current, of_a_library, stand_in

MAKERS = """
    zeros empty ones full eye identity arange linspace logspace geomspace array copy zeros_like ones_like empty_like
    full_like diag tri tile fromiter fromfunction hanning hamming blackman bartlett kaiser
"""


def _hands_out(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        return made if not is_under() or of_a_library(sys._getframe(1)) else handed_out(made)

    return call


for name in MAKERS.split():
    stand_in(np, name, _hands_out(current(np, name)))
