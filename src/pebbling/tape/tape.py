"""The tape: records ops as they run, and takes their derivatives within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from os import PathLike
from types import TracebackType
from typing import Any, Self
from weakref import ref

from ..budget import Budget, store_at, told
from ..chain import Online, Schedule
from ..errors import PebblingError, ReplayError
from ..store import Store
from .convert import framework, like, shape
from .derivative_order import DualValue, FirstOrder, SecondOrder
from .foreign import as_list
from .handle import Box, Handle, ValueNode
from .loop import TapeLoop
from .marks import UNKNOWN, mark
from .ops import RETAIN, Op
from .planner import LoopPlanner
from .record import EXTRA, RecordedChain, StepTemplate
from .results import gradients
from .root import way_back
from .scope import Scope, retain
from .snapshots import TapeSnapshots

KEEP = ("all", "cheap", "none")


class Tape:
    """Records operations on handles, and gives gradients and Hessian-vector products of what they compute.

    At most one of ``slots`` (snapshots of a loop, that of its beginning included), ``memory`` (bytes of
    the measured peak above what was allocated before) and ``schedule``; with none, the fewest slots for
    which no step is advanced more than twice (32 where the length of a loop is unknown). Loops inside
    loops have as many slots of their own. ``store`` is where snapshots are kept if not in memory.

    Outside of loops, ``keep`` says which results stay: ``"all"``, or all but those of ops that are cheap
    to compute again (``"cheap"``), or ``"none"``, which is the default with ``memory``; hints of single
    calls come first. Results that do not stay are replayed, with snapshots as in a loop.
    ``verify=False`` leaves out the proof that replayed values are what they were; "last" and "all" both compare every
    value that comes again. ``budget`` is a ``pb.Budget`` in place of all but ``keep``.

    >>> import numpy as np
    >>> from pebbling.tape import Tape, op
    >>> step = op.from_numpy(lambda u, a: np.sin(a * u))
    >>> total = op.from_numpy(lambda u: np.sum(u))
    >>> tape = Tape(slots=4)
    >>> u, a = tape.leaf(np.array([0.5, 1.0])), tape.leaf(1.1)
    >>> for i in tape.loop(range(1000)):
    ...     u = step(u, a)
    >>> tape.pullback(total(u))[a].round(6)
    np.float64(5.130852)
    """

    def __init__(
        self,
        slots: int | None = None,
        *,
        memory: float | str | None = None,
        schedule: Schedule | Online | None = None,
        store: Store | str | PathLike[str] | None = None,
        keep: str | None = None,
        verify: str | bool = "last",
        budget: Budget | None = None,
    ) -> None:
        # What 0.1 called True; every value that comes again is compared either way.
        verify = "last" if verify is True else verify
        said = told(budget, "pb.Tape", slots=slots, memory=memory, schedule=schedule, store=store, verify=verify)
        if keep is not None and keep not in KEEP:
            raise ValueError(f"keep is one of {', '.join(map(repr, KEEP))}, not {keep!r}")
        self._budget = Budget(said.slots, said.memory, said.schedule)
        self._store, self._verify = store_at(said.store), bool(said.verify)
        self._keep = keep or ("all" if said.memory is None else "none")
        self._time = 0
        self._shelf = TapeSnapshots(self._store)
        self._begin()

    def _begin(self) -> None:
        self._failed: Exception | None = None
        self._templates: dict[Any, StepTemplate] = {}
        self._leaves: list[tuple[Box, ref[Handle]]] = []
        self._loops: list[RecordedChain] = []
        budget = Budget(self._budget.slots, self._budget.memory)
        planner = LoopPlanner(budget, self._store, "what is outside of loops")
        root = RecordedChain(planner.name)
        root.plan, root.slow = planner, planner.slow
        recorder = planner.outside(self._shelf)
        self._root = Scope(root, None, self._templates, self._verify, recorder)
        self._scopes = [self._root]

    def leaf(self, value: Any) -> Handle:
        """A handle of a value to differentiate with respect to."""
        if isinstance(value, Handle):
            raise PebblingError("a leaf is made of a value, and this is a handle: use it as it is, or take its .value")
        box = Box(value, mark(value) if self._verify else 0)
        handle = Handle(self, ValueNode(value, None, 0, 0, box), self._time)
        self._leaves.append((box, ref(handle)))
        return handle

    def loop(
        self, items: Iterable[Any] | None = None, *, slots: int | None = None, schedule: Schedule | Online | None = None
    ) -> TapeLoop:
        """Iterate over ``items`` (without them 0, 1, 2, … until ``break``); each turn is a step with snapshots.

        ``slots`` or ``schedule`` are for this loop in place of what the tape was told. Leaving the loop
        early, by ``break`` or by an exception, ends it there.
        """
        items = count() if items is None else items
        try:
            length: int | None = len(items)  # type: ignore[arg-type]
        except TypeError:
            length = None
        given = slots is not None or schedule is not None
        budget = Budget(slots, None, schedule) if given else self._budget
        inside = len(self._scopes) > 1
        name = f"a loop in {self._scopes[-1].chain.name}" if inside else f"loop {len(self._loops)} of the tape"
        return TapeLoop(self, items, length, LoopPlanner(budget, self._store, name))

    def pullback(self, y: Handle, seed: Any = None) -> dict[Handle, Any]:
        """The gradient of ``y`` with respect to every leaf, by leaf; ``seed`` is the cotangent of ``y``.

        A result that is not a single number needs a seed of its shape. Can be called any number of times.
        """
        order = FirstOrder()
        with self._going_back(y) as box:
            found = way_back(self, order, box, self._seed(y, seed))
        return gradients(self._leaves, found, [seed])

    def hvp(
        self, y: Handle, tangents: Mapping[Handle, Any], seed: Any = None
    ) -> tuple[dict[Handle, Any], dict[Handle, Any]]:
        """The gradient of ``y`` and its derivative along ``tangents`` (by leaf; those left out are zero)."""
        order = SecondOrder()
        for leaf, tangent in tangents.items():
            box = self._leaf_box(leaf)
            order.along[box] = _fitting(tangent, box.value, "the tangent of a leaf")
        with self._going_back(y) as result:
            for chain in self._loops:
                if chain.held is not None:
                    chain.held.drop()
                    chain.held = None
            found = way_back(self, order, result, DualValue(self._seed(y, seed), None))
        given = [seed, *tangents.values()]
        values = {box: part.value for box, part in found.items() if part is not None}
        changes = {box: part.tangent for box, part in found.items() if part is not None}
        return gradients(self._leaves, values, given), gradients(self._leaves, changes, given)

    def free(self) -> None:
        """Let go of all that was recorded. Handles made before are of no use; new leaves begin anew."""
        for scope in self._scopes:
            if scope.recorder is not None:
                scope.recorder.drop()
            scope.chain.clear()
        self._time += 1
        self._shelf.clear()
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def _record(self, op: Op, hint: str | None, inputs: tuple[Any, ...], statics: dict[str, Any]) -> Any:
        for value in inputs:
            if type(value) is Handle:
                self._check(value, f"an input of {op!r}")
        values = [value._node.value if type(value) is Handle else value for value in inputs]
        found = op.function(*values, **statics)
        del values
        single, scope = not isinstance(found, tuple), self._scopes[-1]
        sources = [
            scope.source(value._node) if type(value) is Handle else (EXTRA, scope.extra(value)) for value in inputs
        ]
        nodes = scope.call(op, single, sources, statics, as_list(found))
        if hint == RETAIN or (hint is None and scope is self._root and self._stays(op)):
            for node in nodes:
                retain(node)
        handles = tuple(Handle(self, node, self._time) for node in nodes)
        if scope is self._root:
            try:
                scope.boundary()
            except BaseException:
                self.free()
                raise
        return handles[0] if single else handles

    def _stays(self, op: Op) -> bool:
        return self._keep == "all" or (self._keep == "cheap" and op.cost != "cheap")

    def _enter(self, planner: LoopPlanner, length: int | None) -> Scope:
        chain, outermost = RecordedChain(planner.name), len(self._scopes) == 1
        chain.plan, chain.slow = planner, planner.slow
        recorder = None
        if outermost:
            self._make_room(planner, length)
            recorder = planner.recorder(self._shelf, length, lambda: scope)
            self._loops.append(chain)
        scope = Scope(chain, self._scopes[-1], self._templates, self._verify, recorder)
        self._scopes.append(scope)
        return scope

    def _make_room(self, planner: LoopPlanner, length: int | None) -> None:
        """Snapshots of a loop that is over make way for those of the next one, so that both share the slots."""
        budget = planner.budget
        if budget.slots is None and budget.memory is None:
            return
        left = 0
        if budget.memory is not None and self._root.chain.plan.thinned is not None:
            self._root.chain.plan.thinned.held.thin(0)
        if budget.slots is not None and length is not None:
            left = max(0, budget.slots - length)
        for chain in reversed(self._loops):
            if chain.held is not None:
                chain.held.thin(left)
                left = max(0, left - len(chain.held.slots))

    def _is_open(self, scope: Scope) -> bool:
        return any(scope is other for other in self._scopes)

    def _leave_inside(self, scope: Scope) -> None:
        """End the loops inside ``scope`` that the program left without a word."""
        while self._is_open(scope) and self._scopes[-1] is not scope:
            self._leave(self._scopes[-1], mid_step=True)

    def _leave(self, scope: Scope, mid_step: bool) -> None:
        self._leave_inside(scope)
        if mid_step:
            scope.boundary()
        self._scopes.pop()
        outputs, parent = scope.close(), self._scopes[-1]
        if not len(scope.chain):
            if scope.recorder is not None:
                scope.recorder.drop()
            return
        if scope.recorder is not None:
            scope.chain.held = scope.recorder.finish(len(scope.chain))
            scope.recorder = None  # it may know the scope, and a circle of the two would outlive the tape
        parent.loop(scope, outputs)
        if parent is self._root:
            thinned, measured = self._root.chain.plan.thinned, scope.chain.plan.measured
            if thinned is not None and measured is not None:
                thinned.left = measured.state
            parent.boundary()

    @contextmanager
    def _going_back(self, y: Handle) -> Iterator[Box]:
        """Close the recording for as long as a derivative is taken; the box is that of the result."""
        self._check(y, "the result")
        if len(self._scopes) > 1:
            raise PebblingError(
                f"{self._scopes[-1].chain.name} is still going on: leave the loop (and let go of its iterator) before "
                "taking a derivative"
            )
        for place, (box, _) in enumerate(self._leaves):
            if self._verify and box.mark != UNKNOWN and mark(box.value) != box.mark:
                raise ReplayError(
                    f"the value of leaf {place} was changed after it was given to the tape: give it a copy"
                )
        node = y._node
        box = node.box or Box()
        sealed = self._root.seal_for_now()
        if node.box is None:
            assert node.chain is not None
            node.chain.tap(node.made, node.index, box)
        try:
            yield box
        except BaseException:
            for chain in self._loops:
                if chain.held is not None:
                    chain.held.drop()
                    chain.held = None
            self._shelf.clear()
            raise
        finally:
            if node.box is None and node.chain is not None:
                node.chain.untap(node.made, node.index)
            if sealed:
                self._root.chain.remove()

    def _seed(self, y: Handle, seed: Any) -> Any:
        value = y._node.value
        if seed is not None:
            return _fitting(seed, value, "the seed")
        size = shape(value)
        if size is None or framework(value) is None:
            raise PebblingError(f"the result is a {type(value).__name__}, which has no derivative")
        if any(length != 1 for length in size):
            raise PebblingError(
                f"the result has shape {size}, and only a single number has a gradient: give seed=, an array of that "
                "shape, for the gradient of its inner product with the result"
            )
        return like(value, 1.0)

    def _leaf_box(self, leaf: Any) -> Box:
        if not isinstance(leaf, Handle):
            raise PebblingError(f"tangents are given by leaf, and {leaf!r} is not a handle")
        self._check(leaf, "a key of the tangents")
        box = leaf._node.box
        if box is None or leaf._node.chain is not None:
            raise PebblingError("tangents are given for leaves, and this handle is the result of an op")
        return box

    def _check(self, handle: Any, what: str) -> None:
        if not isinstance(handle, Handle):
            raise PebblingError(f"{what} is {type(handle).__name__}, not a handle: make one with tape.leaf")
        if handle._tape is not self:
            raise PebblingError(f"{what} is a handle of another tape: handles of two tapes don't mix")
        if handle._time != self._time and self._failed is not None:
            raise self._failed
        if handle._time != self._time:
            raise PebblingError(f"{what} is a handle of what was freed: make a new leaf, and compute it again")


def _fitting(tangent: Any, value: Any, what: str) -> Any:
    if shape(tangent) != shape(value):
        raise PebblingError(f"{what} has shape {shape(tangent)}, its value {shape(value)}")
    return tangent
