"""The loops of ``@pebbling.checkpoint`` on values that JAX traces: each becomes one loop of ``pebbling.jax``.

A step of the loop's own function is traced once (``step``), on stand-ins for its variables
(``objects``) and its item (``items``). A ``for`` loop is a ``scan``, or a ``fori_loop`` where its
bounds are traced; a ``while`` loop, and one that a traced ``break`` may end, is a ``while_loop`` (``logic``).
What depends on values before they are known is refused (``errors``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import jax.numpy as jnp
from jax import lax

from ...chain import Online, Schedule
from ...engine.numpy.hold import hold, release
from ...errors import SourceError
from ...source.items import Spanned, view_of
from ...source.rewrite import ENDED, FAILED_TEST, RAISED, TESTED
from ...source.runtime import Call
from ...source.watch import Watch
from ...units import parse_bytes
from ..compat import is_concrete, weakly_typed
from ..loops import fori_loop, scan
from ..online import while_loop
from .errors import explained
from .forecast import Traced, forecast
from .items import RowItems, rows_of
from .logic import Constant, Exit, first_exit
from .objects import TraceAnew
from .outputs import taken_apart
from .step import Left, Step

_MOST_ATTEMPTS = 64


def run(call: Call) -> tuple[Any, ...]:
    """Run a loop of which something is traced: how it ended, the value it returned, and its variables."""
    view = view_of(call.iterable) if call.facts.is_for else None
    if call.facts.is_for and view is None:
        raise SourceError(
            f"{call.facts.where}: the loop runs over a {type(call.iterable).__name__}, whose items come one by one, "
            "and JAX compiles one step for all: iterate over an array, a range or list(…)"
        )
    rows = None
    if view is not None and not isinstance(view, Spanned):
        if view.length == 0:
            return _plainly(call)
        rows = rows_of(view, call.facts.where)
    loop = _Loop(call, view, rows)
    try:
        with Watch(loop.net, loop):  # type: ignore[arg-type]
            for _ in range(_MOST_ATTEMPTS):
                with suppress(TraceAnew):
                    outcome = loop.attempt()
                    break
            else:
                raise SourceError(f"{call.facts.where}: what this loop changes is not to be found out")
    except Left:
        return _plainly(call)
    finally:
        release(loop.held)
    if call.options.observer is not None and loop.traced is not None:
        call.options.observer(*forecast(loop.traced, loop.budget))
    return loop.finish(*outcome)


def _plainly(call: Call) -> tuple[Any, ...]:
    """A loop that has no step, or one, whatever the values are."""
    flag, value, values = call.plainly()
    if flag == RAISED:
        raise explained(value, call.function, call.facts.where)
    return flag, value, values


class _Loop:
    """One loop, from one entry."""

    written: Sequence[int] = ()

    def __init__(self, call: Call, view: Any, rows: RowItems | None) -> None:
        self.call, self.facts, self.view, self.rows = call, call.facts, view, rows
        sources = [] if view is None else view.sources
        self.entry = call.entry(sources, set())
        self.net = call.net(sources, set())
        self.net.start(self.entry)
        self.budget = _budget(call)
        self.step = Step(call, self.entry, known=rows is not None or (view is None and call.test is None))
        self.traced: Traced | None = None
        """The step that was traced last, for a report."""
        self.held: dict[int, Any] = {}
        for one in [*self.entry.originals, *self.entry.given.objects]:
            self.hold(one)

    def hold(self, array: Any) -> None:
        """Lock a NumPy array while steps are traced."""
        hold(self.held, array)

    def attempt(self) -> tuple[list[Any], list[Any], list[Any]]:
        """What is carried after the loop, and what lists collect; ``TraceAnew`` if a step has shown that more moves."""
        begin = self.step.begin()
        if self.step.exits:
            return *self._until_left(begin), []
        if self.view is None:
            return *self._while(begin), []
        return self._for(begin) if self.rows is not None else (*self._counted(begin), [])

    def finish(self, values: list[Any], outs: list[Any], ys: list[Any]) -> tuple[Any, ...]:
        """How the loop ended, and its variables."""
        sources = [] if self.view is None else self.view.sources
        if self.step.variables.changes(taken_apart(sources)[1].objects):
            self.step.refuse(
                "the loop changes an object that it runs over", "run over a copy of it (for x in list(xs))"
            )
        if self.rows is not None:
            self.step.collected.finish(ys, self.call.emits, self.view.length)
        flag = FAILED_TEST if self.view is None else ENDED
        return flag, None, self.step.finish(values, outs)

    def _for(self, begin: Any) -> Any:
        rows, length = self.rows, self.view.length
        assert rows is not None

        def step(carry: Any, row: Sequence[Any]) -> tuple[Any, Any]:
            number, values, _ = carry
            _, new, outs, emitted = self.step.run(rows.item(number, row), values)
            return (number + 1, new, outs), emitted

        self.traced = lambda _, carry, row: step(carry, row), (0, *begin), rows.arrays, length
        (_, values, outs), ys = scan(step, (0, *begin), rows.arrays, length, **self.budget)
        return values, outs, ys

    def _counted(self, begin: Any) -> Any:
        """A range with traced bounds."""
        if self.facts.emits:
            self.step.refuse_collecting("bounds that are traced")
        count, item = self._span()

        def step(number: Any, carry: Any) -> Any:
            return self.step.run(item(number), carry[0])[1:3]

        self.traced = lambda number, carry, _: (step(number, carry), None), begin, [], None
        return fori_loop(0, count, step, begin, **self.budget)

    def _span(self) -> tuple[Any, Callable[[Any], Any]]:
        """The number of members of a range with traced bounds, and each by its number."""
        bounds = self.view.bounds
        start, stop, stride = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not is_concrete(stride) or int(stride) == 0:
            self.step.refuse("the stride of its range is traced or zero", "use a number, or pebbling.jax.fori_loop")
        stride = int(stride)
        count = (stop - start + stride - (1 if stride > 0 else -1)) // stride
        return jnp.maximum(count, 0), lambda number: weakly_typed(start + stride * number)

    def _while(self, begin: Any) -> Any:
        if self.facts.emits:
            self.step.refuse_collecting("a length that is known only when it ends")

        def goes_on(carry: Any) -> Any:
            return self.step.logic.truth(self.step.ask(carry[0])[0])

        def step(carry: Any) -> Any:
            _, new, outs, _ = self.step.run(TESTED, carry[0])
            if self.call.test is None:
                self._never_ends()
            return new, outs

        self.traced = lambda _, carry, __: (step(carry), None), begin, [], None
        try:
            return while_loop(goes_on, step, begin, **self.budget)
        except Constant as constant:
            if constant.value:
                self._never_ends()
            raise Left from None

    def _until_left(self, begin: Any) -> Any:
        """A loop that a traced ``break`` may end before its items or its head do."""
        count, item = self._numbered()
        size = len(begin[0])

        def whole(number: Any, *values: Any) -> tuple[list[Exit], list[Any]]:
            exits, new, outs, _ = self.step.run(item(number), values)
            return exits, [*new, *outs]

        def step(carry: Any) -> Any:
            _, number, values, _ = carry
            left, new = first_exit(whole, [number, *values])
            return left, number + 1, new[:size], new[size:]

        def goes_on(carry: Any) -> Any:
            left, number, values, _ = carry
            if count is not None:
                return (left == 0) & (number < count)
            more = True if self.call.test is None else self.step.ask(values)[0]
            return self.step.logic.every(lambda: left == 0, lambda: more)

        if isinstance(self.call.options.schedule, Schedule):
            raise ValueError(
                f"{self.facts.where}: a loop that break may end takes an Online schedule, not "
                f"{self.call.options.schedule!r}"
            )
        carry = jnp.int32(0), 0, *begin
        self.traced = lambda _, carry, __: (step(carry), None), carry, [], None
        return while_loop(goes_on, step, carry, **self.budget)[2:]

    def _numbered(self) -> tuple[Any, Callable[[Any], Any]]:
        """The number of items, and each by its number; ``None`` for those of ``while``."""
        if self.view is None:
            return None, lambda _: TESTED
        if self.rows is None:
            return self._span()
        rows = self.rows
        return self.view.length, lambda number: rows.item(
            number, [lax.dynamic_index_in_dim(one, number, keepdims=False) for one in rows.arrays]
        )

    def _never_ends(self) -> NoReturn:
        self.step.refuse(
            "nothing that the loop changes decides when it ends", "put the condition that ends it into its head (while)"
        )


def _budget(call: Call) -> dict[str, Any]:
    """The budget as the loops of ``pebbling.jax`` take it."""
    options, where = call.options, call.facts.where
    if options.verify == "all":
        raise ValueError(
            f'{where}: verify="all" compares replayed states, which a compiled JAX program does not hand out'
        )
    schedule, memory = options.schedule, options.memory
    if isinstance(schedule, Online):
        if call.facts.is_for and not isinstance(call.iterable, Spanned) and not call.facts.stops:
            raise ValueError(
                f"{where}: {schedule!r} is for loops of unknown length, and a for loop on JAX arrays has a known one: "
                "give slots, or a plan such as pebbling.Revolve(steps, slots)"
            )
        return {"slots": schedule.slots}
    if schedule is not None and (not call.facts.is_for or isinstance(call.iterable, Spanned)):
        raise ValueError(f"{where}: a loop of unknown length takes an Online schedule, not {schedule!r}")
    if memory is not None and call.inner:
        # Half of its part is for the loops inside; the gradient that XLA is asked about has them in it.
        memory = 2 * parse_bytes(memory)
    return {"slots": options.slots, "memory": memory, "schedule": schedule}
