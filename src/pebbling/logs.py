"""What pebbling tells the program's log: plans, resumed runs, recoveries, under the name ``pebbling``.

    import logging
    logging.basicConfig(level=logging.INFO)     # INFO:pebbling:adjoint: Revolve(steps=1000, slots=20, …)

A program that has not imported ``logging`` has no log, so nothing is imported for it.
"""

from __future__ import annotations

import sys
from typing import Any


def note(message: str, *values: Any) -> None:
    """Tell the log what was planned or done."""
    _tell("info", message, values)


def alarm(message: str, *values: Any) -> None:
    """Tell the log what went wrong and was mended."""
    _tell("warning", message, values)


def _tell(level: str, message: str, values: tuple[Any, ...]) -> None:
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger("pebbling")
    if not logger.handlers:
        # Without any handler Python would print warnings of a library by itself.
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(message, *values)
