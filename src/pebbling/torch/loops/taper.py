"""Several steps on one tape of autograd, and back over them.

Sums are made in autograd's own order, so that they round as they would on a tape of the whole loop:
the running sum of a constant goes in as the first part of its next sum, because the constant is an
output of the block as well as an input. The engine reverses steps strictly from last to first, so
block after block is the same order.

An example: ``s = sin(a * s)``, three times, with the gradient of the last ``s``, in blocks of one step.

    tape(s2, 2, 3)    a root r2 = s2 cut off from its past; the step runs on it: s3 = sin(a * r2)
    pull              autograd.grad([s3], [r2, a], [ds3])            gives ds2, and a sum over step 2
    tape(s1, 1, 2)    r1, s2' = sin(a * r1)
    pull              autograd.grad([s2', a], [r1, a], [ds2, sum])   the sum goes in with ``a``: step 1 is added to it
    …                 as one tape would: ((step 2) + step 1) + step 0, which rounds as it does there

``constants`` is ``[a]``, ``block.roots`` is ``[r1]`` and ``block.ends`` the edge to ``s2'``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ...loops.program import Leaves, Program
from .graph_ends import Edge, graph_ends, now, place_of
from .sources import Source, WithoutHooks
from .tapes import Key, Sums, TapedBlock, Unknown


class Taper:
    """Makes tapes of the steps of one loop, and takes them back.

    ``given`` are the constants as the body gets them; ``constants`` are those that are differentiated, some
    of them among ``given`` and others that the body finds for itself. ``live`` marks the leaves of the
    state that are differentiated. A tape that ``lets_go`` does not hold the state that it starts from, unless
    an operator saves it.
    """

    def __init__(
        self,
        program: Program,
        width: int,
        given: Leaves,
        constants: Sequence[torch.Tensor],
        written: frozenset[int],
        casts: bool,
    ) -> None:
        self.program, self.width, self.given, self.written = program, width, given, written
        self.constants = list(constants)
        self.casts, self.looks, self.lets_go = casts, True, False
        self.apart = casts
        """Whether only tensors that are leaves outside may be leaves here: autocast remembers its copies of leaves."""
        self.reach: Callable[[int, int], Sequence[int]] = lambda start, stop: range(len(self.constants))
        """Which constants a block may use, by place."""
        self.learn: Callable[[torch.Tensor], None] | None = None
        """Takes leaves that steps reach and nobody knew of; without it they are refused."""
        self._edges: dict[int, GradientEdge] = {}
        self._places: dict[Edge, int] = {}
        """Where each of the constants is, by the edge that leads to it."""

    def add(self, constant: torch.Tensor) -> None:
        """One more constant that is differentiated."""
        self.constants.append(constant)

    def _edge(self, place: int) -> GradientEdge:
        """Where the gradient of a constant arrives."""
        if place not in self._edges:
            edge = self._edges[place] = get_gradient_edge(self.constants[place])
            self._places[place_of(edge)] = place
        return self._edges[place]

    def untaped(self) -> AbstractContextManager[Any]:
        """Where steps run that nobody will reverse."""
        return torch.no_grad()

    def cut(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves without the graph they came from; one that occurs twice is one afterwards, too."""
        made: dict[int, Any] = {}
        return [
            made.setdefault(id(leaf), leaf.detach()) if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf
            for leaf in leaves
        ]

    def tape(self, state: Leaves, start: int, stop: int, live: Sequence[bool], leaf: Sequence[bool] = ()) -> TapedBlock:
        """Run steps with a tape; ``state`` comes back empty. ``leaf`` marks leaves of the state that stay leaves."""
        program = self.program
        roots = self._roots(state, live, leaf)
        values = [old if root is None else root for root, old in zip(roots, state)]
        state.clear()
        outs: Sequence[Any] = ()
        emitted: list[Any] = []
        counts: list[int] = []
        flag = None
        with torch.enable_grad():
            since = now() if self.looks else 0
            for place in self.written:
                if isinstance(values[place], torch.Tensor):
                    values[place] = values[place].clone()
            if program.rich:
                for step in range(start, stop):
                    flag, values, outs, part = program.full(values, self.given, step)
                    emitted += part
                    counts.append(len(part))
            else:
                values = program.advance(values, self.given, start, stop)
        flat = [*values, *outs, *emitted]
        block = TapedBlock(start, stop, roots, list(map(_end, flat)), flat, len(outs), counts, flag, {})
        if self.apart:
            into = {id(root): get_gradient_edge(root) for root in roots if root is not None}
            block.into = [None if root is None else into[id(root)] for root in roots]
        if self.looks:
            self._account(block, since)
        if self.lets_go:
            edges = {id(root): get_gradient_edge(root) for root in roots if root is not None}
            block.roots = [None if root is None else edges[id(root)] for root in roots]
        return block

    def _roots(self, state: Leaves, live: Sequence[bool], leaf: Sequence[bool]) -> list[torch.Tensor | None]:
        """The leaves that are differentiated, cut off from where they come from; one that occurs twice, once."""
        made: dict[int, torch.Tensor] = {}
        roots: list[torch.Tensor | None] = []
        for place, (old, alive) in enumerate(zip(state, live)):
            if not alive:
                roots.append(None)
                continue
            root = made.get(id(old))
            if root is None:
                root = self._source(old) if self.lets_go else old.detach().requires_grad_()
                if self.apart and not (leaf and leaf[place]):
                    with torch.enable_grad():
                        root = root.view_as(root)
                made[id(old)] = root
            roots.append(root)
        return roots

    def _source(self, old: torch.Tensor) -> torch.Tensor:
        apply: Any = Source.apply
        with torch.enable_grad():
            return apply(torch.zeros((), requires_grad=True), old.detach())

    def _account(self, block: TapedBlock, since: int) -> None:
        """See that every tensor that a block has reached is known."""
        for place in range(len(self._edges), len(self.constants)):
            self._edge(place)
        ends = {place_of(get_gradient_edge(root)) for root in block.roots if root is not None}
        found = graph_ends(filter(None, block.ends), since, ChainMap(dict.fromkeys(ends, -1), self._places), self.casts)
        block.places = sorted({self._places[edge] for edge in found.known if edge in self._places})
        if self.learn is not None:
            for leaf in found.leaves:
                block.places.append(len(self.constants))
                self.learn(leaf)
            found.leaves.clear()
        if found.leaves or found.hidden:
            raise Unknown(block, found.leaves, len(found.hidden), self.program.where())
        if not found.casts:
            return
        copies: dict[Key, list[GradientEdge]] = {}
        places = {id(constant): place for place, constant in enumerate(self.constants)}
        own = {id(root) for root in block.roots}
        for (node, number), leaf in found.casts.items():
            if id(leaf) in own:
                continue
            if id(leaf) not in places:
                raise Unknown(block, [leaf], 0, self.program.where())
            key = places[id(leaf)], node._input_metadata[number].dtype
            copies.setdefault(key, []).append(GradientEdge(node, number))
        block.copies = {key: edges[0] for key, edges in copies.items() if len(edges) == 1}

    def pull(
        self,
        block: TapedBlock,
        cotangents: Sequence[torch.Tensor | None],
        sums: Sums,
        wanted: Sequence[bool],
        before: Sequence[tuple[int, torch.Tensor]] = (),
    ) -> list[Any]:
        """Cotangents of the leaves of the state before a block, from those of its outputs; ``sums`` go on.

        ``wanted`` marks the constants that are asked for; ``before`` are cotangents that leaves of that state have
        been given already, by place.
        """
        ends: list[Any] = []
        seeds: list[torch.Tensor] = []
        arrivals: list[Any] = block.roots if block.into is None or self.lets_go else block.into
        for place, first in before:
            ends.append(arrivals[place])
            seeds.append(first)
        for end, seed in zip(block.ends, cotangents):
            if end is not None and seed is not None:
                ends.append(end)
                seeds.append(seed)
        roots = {id(root): root for root in arrivals if root is not None}
        if not ends:
            return [None] * len(block.roots)
        reach = self.reach(block.start, block.stop) if block.places is None else block.places
        places = [place for place in reach if wanted[place]]
        copies = [key for key in block.copies if wanted[key[0]]]
        for place in places:
            running = sums.constants[place]
            if running is not None:
                ends.append(self._edge(place))
                seeds.append(running)
        for key in copies:
            if key in sums.copies:
                ends.append(block.copies[key])
                seeds.append(sums.copies[key])
        inputs: Any = [
            *roots.values(),
            *[one if (one := self.constants[place]).is_leaf else self._edge(place) for place in places],
            *[block.copies[key] for key in copies],
        ]
        if not inputs:
            return [None] * len(block.roots)
        # The sum of a copy stays with the copy until the last block, as it does on a tape of the whole loop.
        stops = [block.copies[key].node.register_prehook(_nothing) for key in copies]
        with WithoutHooks([self.constants[place] for place in places]), torch.no_grad():
            found = list(torch.autograd.grad(ends, inputs, seeds, allow_unused=True))
        for stop in stops:
            stop.remove()
        at = len(roots)
        for place, part in zip(places, found[at:]):
            sums.constants[place] = part
        for key, part in zip(copies, found[at + len(places) :]):
            if part is not None:
                sums.copies[key], sums.edges[key] = part, block.copies[key]
        by_root = dict(zip(roots, found))
        done: set[int] = set()
        result: list[torch.Tensor | None] = []
        for root in arrivals:
            result.append(None if root is None or id(root) in done else by_root[id(root)])
            done.add(id(root))
        return result

    def finish(self, sums: Sums) -> None:
        """Take the sums of autocast's copies to the constants that they are copies of."""
        for key, edge in sums.edges.items():
            place = key[0]
            constant, running = self.constants[place], sums.constants[place]
            ends, seeds = [edge], [sums.copies[key]]
            if running is not None:
                ends.append(self._edge(place))
                seeds.append(running)
            with WithoutHooks([constant]):
                (sums.constants[place],) = torch.autograd.grad(ends, [constant], seeds, retain_graph=True)
        sums.copies.clear()
        sums.edges.clear()


def _nothing(cotangents: tuple[torch.Tensor, ...]) -> tuple[None, ...]:
    return (None,) * len(cotangents)


def _end(value: Any) -> GradientEdge | None:
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return None
    if value.grad_fn is None and value._base is not None:
        return None  # a view that was made without gradients says that it requires them, and leads nowhere
    return get_gradient_edge(value)
