"""Convolutions in the one order of axes for which XLA on CPUs has a fast kernel.

XLA seems to bring convolutions into that order (batch, space, channels) itself only in the outermost computation of a
program: that is concluded from times. In loops and branches the derivative by the kernel, whose batch is the channels
of the input, runs some fifty times slower than outside. So in branches the axes are brought into order here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from .. import compat


def run(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """What an equation makes; a convolution with its axes in order."""
    if eqn.primitive.name != "conv_general_dilated":
        return compat.bind_equation(eqn, values)
    numbers = eqn.params["dimension_numbers"]
    space = range(1, len(numbers.lhs_spec) - 1)
    last = len(numbers.lhs_spec) - 1
    # Specifications name the batch, the channels, then space; of kernels, channels out, channels in, then space.
    batch, channels, *rest = numbers.lhs_spec
    out, into, *window = numbers.rhs_spec
    left = lax.transpose(values[0], (batch, *rest, channels))
    right = lax.transpose(values[1], (*window, into, out))
    ordered = lax.ConvDimensionNumbers((0, last, *space), (last, last - 1, *range(last - 1)), (0, last, *space))
    params = {**eqn.params, "dimension_numbers": ordered}
    with eqn.ctx.manager:
        made = eqn.primitive.bind(left, right, **params)
    batch, channels, *rest = numbers.out_spec
    places = {axis: k for k, axis in enumerate((batch, *rest, channels))}
    return [lax.transpose(made, tuple(places[axis] for axis in range(last + 1)))]
