"""Libraries that only some stores need: brought in when such a store is made, never before."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, extra: str, what: str) -> Any:
    """The module, or an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{what} needs {module}: pip install 'pebbling[{extra}]'", name=error.name, path=error.path
        ) from error
