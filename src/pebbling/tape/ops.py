"""Operations: any function of arrays, with derivative rules of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..errors import PebblingError
from ..tree import flatten
from .handle import Handle

if TYPE_CHECKING:
    from .check import Check

Rule = TypeVar("Rule", bound=Callable[..., Any])
DIFFERENCES = "differences"
RETAIN, REPLAY = "retain", "replay"
_COSTS = (None, "cheap", "expensive")


class Op:
    """A function of arrays and static keywords; called with handles, it is recorded on their tape.

    Several results are returned as a tuple. ``x`` is the tuple of the inputs, ``y`` what the function
    returned, ``g`` a cotangent in the form of ``y``; ``dx``, ``dy``, ``dg`` are tangents in the form of
    ``x``, ``y``, ``g``. Rules return a tuple with one entry an input (``vjp``, ``vjp_dot``) or in the
    form of ``y`` (``jvp``); where there is one input, its cotangent alone will do, and ``None`` is zero.
    All of them get the static keywords too.
    """

    def __init__(self, function: Callable[..., Any], cost: str | None, zeros: bool, name: str | None = None) -> None:
        if cost not in _COSTS:
            raise ValueError(f"cost is 'cheap' or 'expensive' (to compute again), not {cost!r}")
        self.function, self.cost, self.zeros = function, cost, zeros
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.__doc__ = function.__doc__
        self.rules: dict[str, Callable[..., Any] | str] = {}

    def __repr__(self) -> str:
        return f"op {self.name}"

    def __call__(self, *inputs: Any, **statics: Any) -> Any:
        return self._call(None, inputs, statics)

    def vjp(self, rule: Rule) -> Rule:
        """Give the rule ``(x, y, g, **statics)`` for the cotangents of the inputs."""
        self.rules["vjp"] = rule
        return rule

    def jvp(self, rule: Rule) -> Rule:
        """Give the rule ``(x, y, dx, **statics)`` for the tangent of the output."""
        self.rules["jvp"] = rule
        return rule

    def vjp_dot(self, rule: Rule) -> Rule:
        """Give the rule ``(x, dx, y, dy, g, dg, **statics)``: how the cotangents of the inputs change."""
        self.rules["vjp_dot"] = rule
        return rule

    def retain(self) -> Hinted:
        """The same op, whose result is kept by the tape whatever its policy: ``y = step.retain()(x)``."""
        return Hinted(self, RETAIN)

    def replay(self) -> Hinted:
        """The same op, whose result is computed again when it is needed: ``y = step.replay()(x)``."""
        return Hinted(self, REPLAY)

    def check(self, *inputs: Any, wrt: Sequence[int] | None = None, seed: int = 0, **statics: Any) -> Check:
        """Test the rules at a point: against each other, against the function, and for hidden state.

        ``wrt`` are the places of the inputs to vary, all by default; ``seed`` is that of the random directions.

        >>> from pebbling.tape import op
        >>> @op
        ... def square(x):
        ...     return x**2
        >>> @square.vjp
        ... def _(x, y, g):
        ...     return 2 * x[0] * g
        >>> square.check(3.0).passed
        True
        """
        from .check import check

        return check(self, inputs, statics, wrt, seed)

    def _call(self, hint: str | None, inputs: tuple[Any, ...], statics: dict[str, Any]) -> Any:
        tapes = [value._tape for value in inputs if type(value) is Handle]
        self._refuse_hidden(inputs, statics)
        if not tapes:
            return self.function(*inputs, **statics)
        return tapes[0]._record(self, hint, inputs, statics)

    def _refuse_hidden(self, inputs: tuple[Any, ...], statics: dict[str, Any]) -> None:
        for name, value in statics.items():
            if _holds_handle(value):
                raise PebblingError(
                    f"{self!r} got a handle as the keyword {name}, and keywords are static: pass it by position"
                )
        for place, value in enumerate(inputs):
            if type(value) in (list, tuple, dict) and _holds_handle(value):
                raise PebblingError(
                    f"{self!r} got a handle inside a {type(value).__name__} (input {place}): pass each handle as an "
                    "input of its own"
                )


class Hinted:
    """An op together with what the tape is to do with its result."""

    __slots__ = ("hint", "op")

    def __init__(self, op: Op, hint: str) -> None:
        self.op, self.hint = op, hint

    def __repr__(self) -> str:
        return f"{self.op!r}.{self.hint}()"

    def __call__(self, *inputs: Any, **statics: Any) -> Any:
        return self.op._call(self.hint, inputs, statics)


class Maker:
    """``op``: makes an operation of a function, or of one written for a framework."""

    @overload
    def __call__(self, function: Callable[..., Any], /) -> Op: ...

    @overload
    def __call__(
        self,
        *,
        cost: str | None = None,
        zeros: bool = True,
        jvp: str | None = None,
        vjp_dot: str | None = None,
    ) -> Callable[[Callable[..., Any]], Op]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        cost: str | None = None,
        zeros: bool = True,
        jvp: str | None = None,
        vjp_dot: str | None = None,
    ) -> Any:
        """Make a function an operation, with rules to be given with ``.vjp``, ``.jvp`` and ``.vjp_dot``.

        ``cost`` says whether it is ``"cheap"`` or ``"expensive"`` to compute again, for tapes with
        ``keep="cheap"``. Tangents and cotangents that are zero come to the rules as arrays of zeros, or as
        ``None`` with ``zeros=False``. A missing ``jvp`` or ``vjp_dot`` is built from what differentiates the
        arrays that come; ``"differences"`` asks for central differences of the function or of its vjp instead.

        >>> from pebbling.tape import Tape, op
        >>> @op
        ... def square(x):
        ...     return x**2
        >>> @square.vjp
        ... def _(x, y, g):
        ...     return 2 * x[0] * g
        >>> tape = Tape()
        >>> x = tape.leaf(3.0)
        >>> tape.pullback(square(x))[x]
        6.0
        """
        for name, given in (("jvp", jvp), ("vjp_dot", vjp_dot)):
            if given not in (None, DIFFERENCES):
                raise ValueError(f"{name} is {DIFFERENCES!r} or left out, not {given!r}: give a rule with .{name}")

        def make(function: Callable[..., Any]) -> Op:
            made = Op(function, cost, zeros)
            made.rules.update({name: given for name, given in (("jvp", jvp), ("vjp_dot", vjp_dot)) if given})
            return made

        return make if function is None else make(function)

    def from_numpy(self, function: Callable[..., Any], *, cost: str | None = None) -> Op:
        """An operation from a function written in NumPy, with all its derivatives."""
        return self._from("numpy", function, cost)

    def from_torch(self, function: Callable[..., Any], *, cost: str | None = None) -> Op:
        """An operation from a function of torch tensors, such as a module, with all its derivatives.

        Arrays of another framework are handed to it as tensors, and its results handed back as they came.
        """
        return self._from("torch", function, cost)

    def from_jax(self, function: Callable[..., Any], *, cost: str | None = None) -> Op:
        """An operation from a function of jax arrays, with all its derivatives.

        Arrays of another framework are handed to it as jax arrays, and its results handed back as they came.
        """
        return self._from("jax", function, cost)

    def _from(self, framework: str, function: Callable[..., Any], cost: str | None) -> Op:
        from .foreign import Foreign

        foreign = Foreign(framework, function)
        made = Op(foreign.run, cost, zeros=False, name=getattr(function, "__name__", type(function).__name__))
        made.__doc__ = function.__doc__
        made.vjp(foreign.vjp)
        made.jvp(foreign.jvp)
        made.vjp_dot(foreign.vjp_dot)
        return made


op = Maker()


def _holds_handle(value: Any) -> bool:
    if type(value) is Handle:
        return True
    return type(value) in (list, tuple, dict) and any(type(leaf) is Handle for leaf in flatten(value)[0])
