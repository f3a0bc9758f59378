"""A jaxpr as a ``Graph``: one node for each equation, in the order in which they were traced.

Takes a ``ClosedJaxpr`` (or ``Jaxpr``) such as ``jax.make_jaxpr(jax.value_and_grad(f))(x)`` gives. jax
is reached through its objects alone and never imported here. Equations within calls, loops and
branches are not looked into: each such equation is one node. Arrays are functional, so that every
variable is a storage of its own; what the compiler fuses or reuses is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any

from .model import Graph, Node, Storage


def from_jaxpr(
    jaxpr: Any,
    *,
    time: Callable[[Any], float] | None = None,
    workspace: Callable[[Any], int] | None = None,
    forward: int | None = None,
    outputs: Collection[int] | None = None,
    name: str = "",
) -> Graph:
    """The graph of a jaxpr.

    ``forward`` is the number of leading equations that belong to the forward pass; without it, that pass
    ends with the last equation that the first output needs, or with the last of all if there is one output.
    ``time`` (seconds) and ``workspace`` (bytes) price an equation; without ``time`` it costs its bytes
    read and written at 10 GB/s. ``outputs`` picks some of the outputs, by position. Equations that no
    output needs, and that have no effect, are left out.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    names: dict[Any, str] = {}
    inputs = []
    for kind, variables in (("const", jaxpr.constvars), ("in", jaxpr.invars)):
        for i, variable in enumerate(variables):
            names[variable] = f"{kind}{i}"
            inputs.append(Storage(f"{kind}{i}", _bytes(variable), held=True))
    equations = list(jaxpr.eqns)
    for i, equation in enumerate(equations):
        for j, variable in enumerate(equation.outvars):
            names[variable] = f"{equation.primitive.name}{i}" + (f".{j}" if len(equation.outvars) > 1 else "")
    wanted = [v for i, v in enumerate(jaxpr.outvars) if (outputs is None or i in outputs) and v in _Known(names)]
    acting = [v for equation in equations if getattr(equation, "effects", ()) for v in equation.invars]
    needed = _needed(equations, [*wanted, *acting])
    if forward is None:
        forward = 1 + max(_needed(equations, wanted[:1]), default=-1) if len(jaxpr.outvars) > 1 else len(equations)
    nodes = []
    effects: list[str] = []
    for i, equation in enumerate(equations):
        effect = bool(getattr(equation, "effects", ()))
        if i not in needed and not effect:
            continue
        own = f"{equation.primitive.name}{i}"
        nodes.append(
            Node(
                own,
                tuple(dict.fromkeys(names[v] for v in equation.invars if v in _Known(names))),
                tuple(Storage(names[v], _bytes(v)) for v in equation.outvars),
                float(time(equation)) if time is not None else _moved(equation) / 10e9,
                int(workspace(equation)) if workspace is not None else 0,
                backward=i >= forward,
                replayable=not effect,
                after=tuple(effects[-1:]) if effect else (),
                op=equation.primitive.name,
                members=(own,),
            )
        )
        if effect:
            effects.append(own)
    return Graph(nodes, inputs, [names[variable] for variable in wanted], name)


class _Known:
    """Membership that is false for literals, which have no hash."""

    def __init__(self, names: dict[Any, str]) -> None:
        self.names = names

    def __contains__(self, variable: Any) -> bool:
        return not hasattr(variable, "val") and variable in self.names


def _needed(equations: list[Any], results: list[Any]) -> set[int]:
    """Positions of the equations that the results are made from."""
    maker = {variable: i for i, equation in enumerate(equations) for variable in equation.outvars}
    found: set[int] = set()
    stack = [variable for variable in results if not hasattr(variable, "val")]
    while stack:
        i = maker.get(stack.pop())
        if i is not None and i not in found:
            found.add(i)
            stack += [variable for variable in equations[i].invars if not hasattr(variable, "val")]
    return found


def _bytes(variable: Any) -> int:
    shape = getattr(variable.aval, "shape", None)
    if shape is None:
        return 0
    return int(prod(shape)) * int(getattr(variable.aval.dtype, "itemsize", 0))


def _moved(equation: Any) -> int:
    return sum(_bytes(variable) for variable in (*equation.invars, *equation.outvars))
