"""Calls the rules of an op: what they get, what they must give, and what stands in for one that is missing.

A missing ``jvp`` is the derivative of the function and a missing ``vjp_dot`` that of the ``vjp``, along
the tangents, by whatever differentiates the arrays that come: pebbling's engine for NumPy, ``torch.func``
or jax. That needs code which is written in the framework; for compiled code it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import PebblingError
from .convert import differentiable, framework, like, shape, to
from .foreign import as_list
from .ops import DIFFERENCES, Op

Statics = dict[str, Any]


def vjp(op: Op, single: bool, x: Sequence[Any], y: Sequence[Any], g: Sequence[Any], statics: Statics) -> list[Any]:
    """One cotangent an input."""
    found = _vjp_rule(op)(tuple(x), _form(single, y), _form(single, _zeros(op, g, y)), **statics)
    return _one_an_input(op, "vjp", found, x)


def jvp(op: Op, single: bool, x: Sequence[Any], y: Sequence[Any], dx: Sequence[Any], statics: Statics) -> list[Any]:
    """One tangent an output."""
    rule = op.rules.get("jvp")
    if callable(rule):
        found = as_list(rule(tuple(x), _form(single, y), tuple(_zeros(op, dx, x)), **statics), len(y))
    elif rule == DIFFERENCES:
        size = _size(x, dx)
        ahead, behind = (_outputs(op, _moved(x, dx, sign * size), statics) for sign in (1, -1))
        found = [_slope(one, two, size) for one, two in zip(ahead, behind)]
    else:
        found = _built(op, "jvp", lambda inputs: _outputs(op, inputs, statics), x, dx)
    if len(found) != len(y):
        raise PebblingError(f"the jvp of {op!r} gave {len(found)} tangents for {len(y)} outputs")
    _check_shapes(op, "jvp", "output", found, y)
    return found


def vjp_dot(
    op: Op,
    single: bool,
    x: Sequence[Any],
    dx: Sequence[Any],
    y: Sequence[Any],
    dy: Sequence[Any],
    g: Sequence[Any],
    dg: Sequence[Any],
    statics: Statics,
) -> list[Any]:
    """How the cotangents of the inputs change along the tangents."""
    rule = op.rules.get("vjp_dot")
    if callable(rule):
        parts = tuple(_zeros(op, dx, x)), _form(single, y), _form(single, _zeros(op, dy, y))
        seeds = _form(single, _zeros(op, g, y)), _form(single, _zeros(op, dg, y))
        return _one_an_input(op, "vjp_dot", rule(tuple(x), *parts, *seeds, **statics), x)
    seeds_now = [like(out, 0.0) if seed is None else seed for seed, out in zip(g, y)]
    if rule == DIFFERENCES:
        size = _size([*x, *seeds_now], [*dx, *dg])
        ahead, behind = (
            _vjp_at(op, single, _moved(x, dx, sign * size), _moved(seeds_now, dg, sign * size), statics)
            for sign in (1, -1)
        )
        return [_slope(one, two, size) for one, two in zip(ahead, behind)]
    count, results = len(x), len(x) + len(y)

    def pulled(parts: list[Any]) -> list[Any]:
        # traced values are for the rule alone: nothing here looks at them
        x, y, g = parts[:count], parts[count:results], parts[results:]
        return as_list(_vjp_rule(op)(tuple(x), _form(single, y), _form(single, g), **statics), count)

    found = _built(op, "vjp_dot", pulled, [*x, *y, *seeds_now], [*dx, *dy, *dg])
    return _one_an_input(op, "vjp_dot", tuple(found), x)


def _vjp_rule(op: Op) -> Callable[..., Any]:
    rule = op.rules.get("vjp")
    if not callable(rule):
        raise PebblingError(
            f"{op!r} is on the way from the result to a leaf and has no vjp: give it one with @{op.name}.vjp"
        )
    return rule


def _vjp_at(op: Op, single: bool, x: Sequence[Any], g: Sequence[Any], statics: Statics) -> list[Any]:
    return vjp(op, single, x, _outputs(op, x, statics), g, statics)


def _outputs(op: Op, inputs: Sequence[Any], statics: Statics) -> list[Any]:
    return as_list(op.function(*inputs, **statics))


def _built(
    op: Op, name: str, function: Callable[[list[Any]], list[Any]], x: Sequence[Any], dx: Sequence[Any]
) -> list[Any]:
    """The derivative of a function along tangents by the engine of its arrays."""
    found = {framework(value) for value, tangent in zip(x, dx) if tangent is not None}
    engine = "torch" if "torch" in found else "jax" if "jax" in found else "numpy"
    what = "its function" if name == "jvp" else "its vjp"
    empty: list[int] = []

    def whole(inputs: list[Any]) -> list[Any]:
        outputs = function(inputs)
        empty[:] = [i for i, value in enumerate(outputs) if value is None]
        return [value for value in outputs if value is not None]

    try:
        tangents = list(import_module(f".{engine}_rules", __package__).jvp(whole, x, dx))
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise PebblingError(
            f"{op!r} has no {name}, and one can't be built because {what} is not a plain {engine} function "
            f"({type(error).__name__}: {reason}): give it one with @{op.name}.{name}, or ask for finite differences "
            f'with @pb.op({name}="{DIFFERENCES}")'
        ) from error
    for i in empty:
        tangents.insert(i, None)
    return tangents


def _zeros(op: Op, tangents: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    if not op.zeros:
        return list(tangents)
    return [
        like(value, 0.0) if tangent is None and differentiable(value) else tangent
        for tangent, value in zip(tangents, values)
    ]


def _form(single: bool, values: Sequence[Any]) -> Any:
    return values[0] if single else tuple(values)


def _one_an_input(op: Op, name: str, found: Any, x: Sequence[Any]) -> list[Any]:
    if found is None:
        return [None] * len(x)
    parts = list(found) if isinstance(found, tuple | list) else [found]
    if len(parts) != len(x):
        raise PebblingError(f"the {name} of {op!r} gave {len(parts)} cotangents for {len(x)} inputs: one each, or None")
    _check_shapes(op, name, "input", parts, x)
    return parts


def _check_shapes(op: Op, name: str, what: str, parts: Sequence[Any], values: Sequence[Any]) -> None:
    for i, (part, value) in enumerate(zip(parts, values)):
        if part is None:
            continue
        if shape(part) != shape(value):
            raise PebblingError(
                f"the {name} of {op!r} gave an array of shape {shape(part)} for {what} {i}, which has shape "
                f"{shape(value)}"
            )
        if framework(value) != framework(part) and framework(value) is not None and framework(part) is not None:
            raise PebblingError(
                f"the {name} of {op!r} gave a {framework(part)} array for {what} {i}, which is a {framework(value)} "
                "array"
            )


def _size(x: Sequence[Any], dx: Sequence[Any]) -> float:
    """The step of a central difference that balances truncation and rounding."""
    moved = [(value, tangent) for value, tangent in zip(x, dx) if tangent is not None]
    length = max(_largest(tangent) for _, tangent in moved)
    scale = max(max(_largest(value) for value, _ in moved), 1e-3)
    return float(np.finfo(float).eps ** (1 / 3) * scale / length) if length else 1.0


def _largest(value: Any) -> float:
    array = np.abs(np.asarray(to("numpy", value)))
    return float(array.max()) if array.size else 0.0


def _moved(x: Sequence[Any], dx: Sequence[Any], size: float) -> list[Any]:
    return [value if tangent is None else value + size * tangent for value, tangent in zip(x, dx)]


def _slope(ahead: Any, behind: Any, size: float) -> Any:
    return None if ahead is None or behind is None or not differentiable(ahead) else (ahead - behind) / (2 * size)
