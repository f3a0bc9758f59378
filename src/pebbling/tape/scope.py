"""Records one chain while it runs: a loop, or what is called outside of loops, where each op is a step.

The cut before a step is found from the handles that are alive: a value is in it if the step reads it, or
if its handle still lives when the step ends. A value that has not been read for ``WINDOW`` steps leaves
the cut although its handle lives (a list that collects results, say); if it is read after all it gets a
box, for the user's program has held it all along too. Outside of loops, what a loop gave gets a box when
it is read: to replay it would be to replay the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any, NamedTuple

from .handle import Box, ValueNode
from .marks import is_array, mark
from .ops import Op
from .record import CUT, EXTRA, NEW, OUTER, OpCall, RecordedChain, StepTemplate, same
from .recorder import Recorder

WINDOW = 16
_RECORDED = 64  # bytes of the references that a step takes


class EndedStep(NamedTuple):
    """A step that has ended, and waits for the next one to end to know what outlives it."""

    step: int
    calls: tuple[OpCall, ...]
    extras: tuple[Any, ...]
    given: tuple[int, ...]
    marks: list[int]
    made: int
    places: dict[ValueNode, int]


class Scope:
    """A chain that is being recorded."""

    def __init__(
        self,
        chain: RecordedChain,
        parent: Scope | None,
        templates: dict[Any, StepTemplate],
        verify: bool,
        recorder: Recorder | None,
    ) -> None:
        self.chain, self.parent, self._templates, self._verify = chain, parent, templates, verify
        self.recorder = recorder
        self.step = 0
        self.outer: dict[ValueNode, int] = {}
        self.outer_sources: list[tuple[int, Any]] = []
        self._cut: list[ValueNode] = []
        self._ended: EndedStep | None = None
        self._begin()

    def _begin(self) -> None:
        self._calls: list[OpCall] = []
        self._made: list[ValueNode] = []
        self._extras: list[Any] = []
        self._given: list[int] = []
        self._marks: list[int] = []
        self._taping = self.recorder is not None and self.recorder.taping(self.step)

    def source(self, node: ValueNode) -> tuple[int, Any]:
        """Where a value is for the step at hand; one of the cut by its node, until its place is known."""
        home = self._home(node)
        if home is None or (node.box is not None and node.made != home.step):
            return EXTRA, self.extra(node.box or retain(node))
        if home is not self:
            return self._from_outside(node)
        if node.made == self.step:
            return NEW, node.index
        if node.pinned and not (self.parent is None and node.from_loop):
            node.touched = self.step
            return CUT, node
        return EXTRA, self.extra(retain(node))

    def _home(self, node: ValueNode) -> Scope | None:
        """The recording that the value belongs to, if it is this one or one around it."""
        scope: Scope | None = self
        while scope is not None and scope.chain is not node.chain:
            scope = scope.parent
        return scope

    def _from_outside(self, node: ValueNode) -> tuple[int, Any]:
        if node not in self.outer:
            assert self.parent is not None
            source = self.parent.source(node)
            if source[0] == EXTRA:
                return EXTRA, self.extra(node.box)
            self.outer_sources.append(source)
            self.outer[node] = len(self.outer)
        return OUTER, self.outer[node]

    def extra(self, value: Any) -> int:
        """The place of an extra: a box, a chain, a static argument or a value from outside the tape."""
        if isinstance(value, Box):
            for place, known in enumerate(self._extras):
                if known is value:
                    return place
        elif is_array(value):
            self._given.append(len(self._extras))
            self._marks.append(mark(value) if self._verify else 0)
        self._extras.append(value)
        return len(self._extras) - 1

    def call(
        self, op: Op, single: bool, sources: Sequence[tuple[int, Any]], statics: dict[str, Any], outputs: Sequence[Any]
    ) -> list[ValueNode]:
        """Record an op that has run; the nodes of its outputs."""
        named = tuple((name, self.extra(value)) for name, value in statics.items())
        start = len(self._made)
        self._calls.append(OpCall(op, single, tuple(sources), named, -1, start, len(outputs)))
        nodes = [ValueNode(value, self.chain, self.step, start + i) for i, value in enumerate(outputs)]
        for node in nodes:
            node.pinned = self._taping
        self._made += nodes
        return nodes

    def loop(self, inner: Scope, outputs: Sequence[ValueNode]) -> None:
        """Record a loop that has ended; its outputs become values made in this step."""
        start = len(self._made)
        place = self.extra(inner.chain)
        self._calls.append(OpCall(None, False, tuple(inner.outer_sources), (), place, start, len(outputs)))
        for i, node in enumerate(outputs):
            node.chain, node.made, node.index, node.touched = self.chain, self.step, start + i, self.step
            node.pinned = self._taping
            node.held, node.from_loop = None, True
        self._made += outputs

    def boundary(self) -> None:
        """A step has ended."""
        step = self.step
        stays: list[ValueNode] = []
        leaves: list[ValueNode] = []
        for node in self._cut:
            read = node.touched == step or (node.alive and step - node.touched < WINDOW)
            (stays if read else leaves).append(node)
        places = {node: place for place, node in enumerate(stays)}
        self._seal(places)
        if self.recorder is not None:
            self.recorder.reach(step, stays, [node.value for node in self._made] if self._taping else [])
        calls = tuple(call._replace(sources=_placed(call.sources, places)) for call in self._calls)
        self._ended = EndedStep(
            step, calls, tuple(self._extras), tuple(self._given), self._marks, len(self._made), places
        )
        for node in leaves:
            for snapshot, place in node.held or ():
                if snapshot.step > node.touched:
                    snapshot.forget(place)
            node.held = None
            node.let_go()
        fresh = []
        for node in self._made:
            if node.alive and node.box is None:
                node.pinned, node.touched = True, step
                if self._verify and node.mark is None:
                    node.mark = mark(node.value)
                fresh.append(node)
            else:
                node.let_go()
        for node in stays:
            if not node.alive:
                node.let_go()
        self._cut = [node for node in stays if node.alive] + fresh
        self.step += 1
        self._begin()

    def close(self) -> list[ValueNode]:
        """The loop has ended after a step: the values that outlive it."""
        outputs = [node for node in self._cut if node.alive]
        for node in self._cut:
            node.let_go()
        self._seal({node: place for place, node in enumerate(outputs)})
        self._ended, self._cut = None, []
        return outputs

    def seal_for_now(self) -> bool:
        """Complete the chain as if it ended here; whether ``chain.remove()`` will take that back."""
        ended = self._ended
        self._seal({node: place for place, node in enumerate(self._cut)})
        self._ended = ended
        return ended is not None

    def recorded_bytes(self) -> int:
        """About what the step at hand adds to the record, given that it is like the one before."""
        own = [extra for extra in self._extras if not isinstance(extra, Box)]
        before = [extra for extra in self.chain.extras[-1] if not isinstance(extra, Box)]
        size = _RECORDED + 8 * (len(self._marks) + len(self._made))
        if same(own, before):
            return size
        chains = [extra for extra in own if isinstance(extra, RecordedChain)]
        return size + sum(map(getsizeof, [self._extras, *own])) + sum(_RECORDED * (10 + len(chain)) for chain in chains)

    def _seal(self, places: dict[ValueNode, int]) -> None:
        """Write down the step before this one: the cut after it is known."""
        ended = self._ended
        if ended is None:
            return
        new = [node for node in places if node.made == ended.step]
        ends = tuple((NEW, node.index) if node.made == ended.step else (CUT, ended.places[node]) for node in places)
        key = ended.calls, ended.made, ends, ended.given
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = StepTemplate(*key)
        self.chain.add(template, ended.extras, [*ended.marks, *[node.mark or 0 for node in new]])


def retain(node: ValueNode) -> Box:
    """Give a value a box, so that it is never replayed."""
    box = node.box = Box(node.value)
    assert node.chain is not None
    node.chain.tap(node.made, node.index, box)
    return box


def _placed(sources: Sequence[tuple[int, Any]], places: dict[ValueNode, int]) -> tuple[tuple[int, int], ...]:
    return tuple((kind, places[index]) if kind == CUT else (kind, index) for kind, index in sources)
