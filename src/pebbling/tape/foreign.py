"""A function of one framework on arrays of any: converted on the way in and on the way out.

Results come back as arrays of the framework of the first array among the inputs, and cotangents as
arrays of that of their input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from .convert import framework, to


class Foreign:
    """The function and its three rules, as an op wants them."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function

    def run(self, *inputs: Any, **statics: Any) -> Any:
        home = _home(inputs, self.name)
        found = self.function(*[to(self.name, value) for value in inputs], **statics)
        several = isinstance(found, tuple)
        results = tuple(_back(home, _detached(value)) for value in (found if several else (found,)))
        return results if several else results[0]

    def vjp(self, x: Sequence[Any], y: Any, g: Any, **statics: Any) -> tuple[Any, ...]:
        found = self._rules().vjp(self._flat(statics), self._all(x), self._all(as_list(g)))
        return tuple(map(_like, found, x))

    def jvp(self, x: Sequence[Any], y: Any, dx: Sequence[Any], **statics: Any) -> Any:
        home = _home(x, self.name)
        found = self._rules().jvp(self._flat(statics), self._all(x), self._all(dx))
        results = tuple(None if value is None else _back(home, value) for value in found)
        return results if isinstance(y, tuple) else results[0]

    def vjp_dot(
        self, x: Sequence[Any], dx: Sequence[Any], y: Any, dy: Any, g: Any, dg: Any, **statics: Any
    ) -> tuple[Any, ...]:
        count = len(as_list(y))
        parts = self._all(x), self._all(dx), self._all(as_list(g, count)), self._all(as_list(dg, count))
        return tuple(map(_like, self._rules().vjp_dot(self._flat(statics), *parts), x))

    def _rules(self) -> Any:
        return import_module(f".{self.name}_rules", __package__)

    def _flat(self, statics: dict[str, Any]) -> Callable[[list[Any]], list[Any]]:
        return lambda inputs: as_list(self.function(*inputs, **statics))

    def _all(self, values: Sequence[Any]) -> list[Any]:
        return [None if value is None else to(self.name, value) for value in values]


def as_list(value: Any, count: int = 1) -> list[Any]:
    """One result or several, as a list; ``None`` stands for ``count`` of them."""
    if value is None:
        return [None] * count
    return list(value) if isinstance(value, tuple) else [value]


def _home(inputs: Sequence[Any], default: str) -> str:
    return next((name for name in map(framework, inputs) if name is not None), default)


def _back(home: str, value: Any) -> Any:
    made = to(home, value)
    return made[()] if home == "numpy" and isinstance(made, np.ndarray) and made.ndim == 0 else made


def _detached(value: Any) -> Any:
    return value.detach() if getattr(value, "requires_grad", False) else value


def _like(cotangent: Any, value: Any) -> Any:
    home = framework(value)
    if cotangent is None or home is None:
        return None
    return _back(home, cotangent)
