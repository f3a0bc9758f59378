"""The equations of a program grouped as XLA fuses them, as a ``Graph`` with costs.

XLA writes to memory what products of matrices, convolutions, reductions, loops and the like make; elementwise work
between them is fused into what reads it. An operation of the graph is such an equation, or a value made elementwise
that several operations read, together with the elementwise equations that only it needs. Views and changes of type
are made again by whoever reads them: that costs nothing worth planning. Costs are those of the arithmetic and of the
bytes moved, for the kind of device; they only weigh operations against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...graph import Graph, Node, Storage
from .. import compat
from .joint import Joint

_ELEMENTWISE = frozenset(
    ("abs", "add", "add_any", "and", "atan2", "cbrt", "ceil", "clamp", "conj", "copy", "cos", "cosh", "acos", "acosh",
     "asin", "asinh", "atan", "atanh", "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
     "floor", "ge", "gt", "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max",
     "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "real", "reduce_precision", "rem", "round", "rsqrt",
     "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt",
     "square", "sub", "tan", "tanh", "xor", "pad", "concatenate", "bitcast_convert_type", "population_count", "clz")
)  # fmt: skip
_VIEWS = frozenset(
    ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "convert_element_type", "transpose", "iota", "rev",
     "stop_gradient", "pvary", "pbroadcast", "pcast", "name")
)  # fmt: skip
_SLOW = frozenset(
    ("exp", "log", "sin", "cos", "tanh", "logistic", "pow", "erf", "erf_inv", "erfc", "log1p", "expm1", "exp2",
     "lgamma", "digamma", "tan")
)  # fmt: skip
_REDUCTIONS = ("reduce_", "arg", "cum")

_CHAIN = 32
"""So many elementwise equations in a row are made again by each reader, at most."""

RATES = {"cpu": (4e10, 2e9, 1e10), "gpu": (4e14, 4e13, 3e12), "tpu": (2e14, 1e13, 1e12)}
"""Operations a second of products, of elementwise work, and bytes a second; of each kind of device, about."""


@dataclass(frozen=True)
class Operation:
    """What a node of the graph runs: equations in order, the last of which makes its results."""

    name: str
    equations: tuple[int, ...]
    backward: bool

    @property
    def root(self) -> int:
        """The equation whose results it makes."""
        return self.equations[-1]


@dataclass
class Grouping:
    """The equations of a joint program, and which of them are made where they are read."""

    joint: Joint
    platform: str
    roots: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        equations = self.joint.equations
        readers: dict[Any, set[int]] = {}
        for k, eqn in enumerate(equations):
            for v in filter(compat.is_variable, eqn.invars):
                readers.setdefault(v, set()).add(k)
        wanted = set(filter(compat.is_variable, (*self.joint.results, *self.joint.gradients)))
        self.maker = {v: k for k, eqn in enumerate(equations) for v in eqn.outvars}
        self.roots = [True] * len(equations)
        for k, eqn in enumerate(equations):
            if _is_fused(eqn) and not wanted.intersection(eqn.outvars):
                by = readers.get(eqn.outvars[0], set())
                self.roots[k] = not (self._is_free(k, eqn) or (len(by) == 1 and self._is_joined(k, next(iter(by)))))

    def _is_free(self, k: int, eqn: Any) -> bool:
        """Whether a value is made by each of its readers."""
        size, large = compat.nbytes(eqn.outvars[0].aval), self._large(eqn.invars)
        if not large:
            return True
        if len(set(large)) == 1 and eqn.primitive.name in _VIEWS and size >= compat.nbytes(large[0].aval):
            return True
        if self.platform == "cpu":
            return False
        # Where arithmetic costs nothing beside memory, what one array is enough for is made of it again and again.
        members = self._members(k)
        leaves = self._large(self._leaves(k))
        return len(members) <= _CHAIN and len(leaves) == 1 and size >= compat.nbytes(leaves[0].aval)

    def _is_joined(self, k: int, reader: int) -> bool:
        """Whether a value that a single operation reads is made by it, and not kept for it."""
        if self.joint.backward[k] == self.joint.backward[reader]:
            return True
        return len(set(self._large(self._leaves(k)))) <= 1

    def _leaves(self, k: int) -> Iterable[Any]:
        """What an operation with this root reads."""
        found: dict[Any, None] = {}
        for member in self._members(k):
            for v in filter(compat.is_variable, self.joint.equations[member].invars):
                if self.maker.get(v) is None or self.roots[self.maker[v]]:
                    found[v] = None
        return found

    def _members(self, k: int) -> list[int]:
        found, stack = {k}, [k]
        while stack:
            for v in filter(compat.is_variable, self.joint.equations[stack.pop()].invars):
                made_by = self.maker.get(v)
                if made_by is not None and not self.roots[made_by] and made_by not in found:
                    found.add(made_by)
                    stack.append(made_by)
        return sorted(found)

    def _large(self, variables: Iterable[Any]) -> list[Any]:
        return [v for v in variables if compat.is_variable(v) and compat.nbytes(v.aval) > self._small]

    @cached_property
    def _small(self) -> int:
        """Values of so many bytes weigh nothing."""
        return max((compat.nbytes(v.aval) for e in self.joint.equations for v in e.outvars), default=0) >> 12

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """All of them, in the order of the program."""
        names = [f"{eqn.primitive.name}{k}" for k, eqn in enumerate(self.joint.equations)]
        return tuple(
            Operation(names[k], tuple(self._members(k)), self.joint.backward[k])
            for k, root in enumerate(self.roots)
            if root
        )

    @cached_property
    def names(self) -> dict[Any, str]:
        """The storage of each value that is kept for others to read."""
        found: dict[Any, str] = {}
        for kind, held in (("argument", self.joint.arguments), ("cotangent", self.joint.cotangents)):
            found |= {v: f"{kind}{k}" for k, v in enumerate(held)}
        found |= {v: f"constant{k}" for k, (v, _) in enumerate(self.joint.constants)}
        for operation in self.operations:
            outs = self.joint.equations[operation.root].outvars
            found |= {v: operation.name + (f".{j}" if len(outs) > 1 else "") for j, v in enumerate(outs)}
        return found

    @cached_property
    def graph(self) -> Graph:
        """The graph of the operations."""
        equations, names = self.joint.equations, self.names
        held = [v for v in names if v not in self.maker]
        nodes, effects = [], list[str]()
        for each in sorted(self.operations, key=lambda operation: operation.backward):
            eqn = equations[each.root]
            effect = compat.has_effects(eqn)
            nodes.append(
                Node(
                    each.name,
                    tuple(dict.fromkeys(names[v] for v in self._leaves(each.root))),
                    tuple(Storage(names[v], compat.nbytes(v.aval)) for v in eqn.outvars),
                    self._time(each),
                    self._workspace(each),
                    backward=each.backward,
                    replayable=not effect,
                    after=tuple(effects[-1:]) if effect else (),
                    op=eqn.primitive.name,
                )
            )
            effects += [each.name] if effect else []
        inputs = [Storage(names[v], compat.nbytes(v.aval), held=True) for v in held]
        wanted = filter(compat.is_variable, (*self.joint.results, *self.joint.gradients))
        return Graph(nodes, inputs, [names[v] for v in wanted])

    def _time(self, operation: Operation) -> float:
        products, elementwise, moved = RATES.get(self.platform, RATES["gpu"])
        root = self.joint.equations[operation.root]
        bytes_ = sum(compat.nbytes(v.aval) for v in (*self._leaves(operation.root), *root.outvars))
        work = sum(_work(self.joint.equations[k]) for k in operation.equations if not self._is_view(k))
        return _multiplied(root) / products + work / elementwise + bytes_ / moved

    def _is_view(self, k: int) -> bool:
        return self.joint.equations[k].primitive.name in _VIEWS

    def _workspace(self, operation: Operation) -> int:
        """What is made elementwise for a product is written to memory first."""
        root = self.joint.equations[operation.root]
        if root.primitive.name not in ("dot_general", "conv_general_dilated", "scan", "while", "sort", "gather"):
            return 0
        inside = {v for k in operation.equations[:-1] for v in self.joint.equations[k].outvars}
        return sum(
            compat.nbytes(v.aval)
            for v in set(filter(compat.is_variable, root.invars)) & inside
            if not (
                self._is_view(self.maker[v])
                and self.joint.equations[self.maker[v]].primitive.name != "convert_element_type"
            )
        )


def _is_fused(eqn: Any) -> bool:
    if len(eqn.outvars) != 1 or compat.has_effects(eqn):
        return False
    if eqn.primitive.name in ("custom_jvp_call", "jit", "pjit"):
        return all(_is_fused(inner) for jaxpr in compat.inner_jaxprs(eqn) for inner in compat.close(jaxpr).jaxpr.eqns)
    return eqn.primitive.name in _ELEMENTWISE or eqn.primitive.name in _VIEWS


def _work(eqn: Any) -> float:
    """Elementwise operations, those of inner programs included."""
    name, inner = eqn.primitive.name, compat.inner_jaxprs(eqn)
    if inner and not name.startswith(_REDUCTIONS):
        turns = eqn.params.get("length") or 1
        return turns * sum(_work(e) + _multiplied(e) / 10 for j in inner for e in compat.close(j).jaxpr.eqns)
    size = max((math.prod(v.aval.shape) for v in (*eqn.invars, *eqn.outvars)), default=0)
    if name in ("dot_general", "conv_general_dilated"):
        return 0.0
    if name in ("random_bits", "threefry2x32", "sort"):
        return 30.0 * size
    return float(size) * (10 if name in _SLOW else 1)


def _multiplied(eqn: Any) -> float:
    """Operations of products of matrices and of convolutions."""
    params = eqn.params
    if eqn.primitive.name == "dot_general":
        left = eqn.invars[0].aval.shape
        summed = math.prod(left[d] for d in params["dimension_numbers"][0][0])
        return 2.0 * summed * math.prod(eqn.outvars[0].aval.shape)
    if eqn.primitive.name == "conv_general_dilated":
        out, kernel = eqn.outvars[0].aval.shape, eqn.invars[1].aval.shape
        numbers = params["dimension_numbers"]
        return 2.0 * math.prod(out) * math.prod(kernel) / kernel[numbers.rhs_spec[0]]
    return 0.0
