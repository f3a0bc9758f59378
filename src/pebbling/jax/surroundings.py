"""Which derivatives and batches are being taken around a call, as far as they can be seen from it.

A loop whose budget is in bytes must know the program that it becomes part of. From inside of a function, JAX shows
the transformations between it and the next ``jit`` around: they are applied once more, to the flat function of the
call, and the program that this makes is what is planned. Where no derivative is seen, one with respect to all that
is of floating point is assumed. What happens outside of that ``jit`` can't be seen; if it makes snapshots larger,
``Plan.most`` refuses them when the program is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from . import compat, tracers
from .division import floating
from .masks import drop, merge, pick

Flat = Callable[..., list[Any]]


@dataclass(frozen=True)
class _Layer:
    """One transformation: "batch", "reverse" or "forward"; which values it is about; the batch."""

    kind: str
    mask: tuple[bool, ...]
    dims: tuple[int | None, ...] = ()
    axis: Any = None


@dataclass(frozen=True)
class Surroundings:
    """The transformations around a call, from the inside, and the types of its values outside of them."""

    layers: tuple[_Layer, ...]
    avals: tuple[Any, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells one from another."""
        layers = tuple((each.kind, each.mask, each.dims, str(each.axis)) for each in self.layers)
        return layers, tuple(str(aval) for aval in self.avals)

    def program(self, flat: Flat) -> Flat:
        """The flat function of the call with all transformations applied."""
        for layer in self.layers:
            flat = _APPLY[layer.kind](flat, layer)
        return flat


def seen(values: Sequence[Any]) -> Surroundings:
    """What is seen around a call with these values, and a derivative at least."""
    found = around(values)
    layers = list(found.layers)
    if sum(layer.kind == "reverse" for layer in layers) > 1:
        raise ValueError(
            "memory= was given to a loop, or to checkpoint_loops, inside two reverse derivatives: what lives between "
            "them can't be seen from here, so it can't be bounded; give the budget to the whole program, "
            "pebbling.jax.jit(f, memory=…), or differentiate forward over reverse"
        )
    if not any(layer.kind == "reverse" for layer in layers):
        layers.insert(0, _Layer("reverse", tuple(floating([compat.aval_of(v) for v in values]))))
    return Surroundings(tuple(layers), found.avals)


def around(values: Sequence[Any]) -> Surroundings:
    """What is seen around a call with these values."""
    layers, at = [], list(values)
    for kind, mask, values_at, dims, axis in tracers.transformations(at):
        at = values_at
        if any(mask):
            layers.append(_Layer(kind, tuple(mask), tuple(dims), axis))
    return Surroundings(tuple(layers), tuple(compat.aval_of(v) for v in at))


def _batch(flat: Flat, layer: _Layer) -> Flat:
    axis = layer.axis
    named = axis.name if isinstance(axis.name, str) else None
    return jax.vmap(flat, in_axes=layer.dims, axis_size=axis.size, axis_name=named)


def _reverse(flat: Flat, layer: _Layer) -> Flat:
    """The derivative of a scalar; of anything else, of its square, so that there is a cotangent."""

    def program(*values: Any) -> list[Any]:
        mask = [m and f for m, f in zip(layer.mask, floating([compat.aval_of(v) for v in values]))]
        fixed = drop(mask, values)

        def moving(*moved: Any) -> list[Any]:
            return flat(*merge(mask, fixed, moved))

        outs, pull = jax.vjp(moving, *pick(mask, values))
        scalar = len(outs) == 1 and outs[0].shape == ()
        gradients = pull([_cotangent(o, scalar) for o in outs])
        return [*gradients, *(outs if scalar else _taken_in(outs))]

    return program


def _taken_in(values: Sequence[Any]) -> list[Any]:
    """What a part of a program hands to the rest of it is temporary there, and not a result."""
    return [jnp.sum(jnp.abs(v)) for v in values if _smooth(v)]


def _smooth(value: Any) -> bool:
    return floating([compat.aval_of(value)])[0]


def _cotangent(value: Any, scalar: bool) -> Any:
    if not _smooth(value):
        return tracers.zero_cotangent(value)
    return jnp.ones_like(value) if scalar else 2 * value


def _forward(flat: Flat, layer: _Layer) -> Flat:
    def program(*values: Any) -> list[Any]:
        mask = [m and _smooth(v) for m, v in zip(layer.mask, values)]
        fixed, moved = drop(mask, values), pick(mask, values)
        outs, dots = jax.jvp(lambda *m: flat(*merge(mask, fixed, m)), tuple(moved), tuple(moved))
        return _taken_in([*outs, *dots])

    return program


_APPLY = {"batch": _batch, "reverse": _reverse, "forward": _forward}
