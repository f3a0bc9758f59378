"""Several steps on one tape of autograd, and back over them.

Sums are made in autograd's own order, so that they round as they would on a tape of the whole loop:
the running sum of a constant goes in as the first part of its next sum, because the constant is an
output of the block as well as an input. The engine reverses steps strictly from last to first, so
block after block is the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..loops.program import Leaves, Program
from .reached import now, reached
from .sources import Source, WithoutHooks
from .tapes import Block, Key, Sums, Unknown


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
        self.reach: Callable[[int, int], Sequence[int]] = lambda start, stop: range(len(self.constants))
        """Which constants a block may use, by place."""
        self._edges: dict[int, GradientEdge] = {}

    def add(self, constant: torch.Tensor) -> None:
        """One more constant that is differentiated."""
        self.constants.append(constant)

    def _edge(self, place: int) -> GradientEdge:
        """Where the gradient of a constant arrives."""
        if place not in self._edges:
            self._edges[place] = get_gradient_edge(self.constants[place])
        return self._edges[place]

    def untaped(self) -> AbstractContextManager[Any]:
        """Where steps run that nobody will reverse."""
        return torch.no_grad()

    def cut(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves without the graph they came from."""
        return [leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf for leaf in leaves]

    def tape(self, state: Leaves, start: int, stop: int, live: Sequence[bool], leaf: Sequence[bool] = ()) -> Block:
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
        block = Block(start, stop, roots, list(map(_end, flat)), flat, len(outs), counts, flag, {})
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
                if self.casts and not (leaf and leaf[place]):
                    # Autocast remembers its copies of leaves, and a state is none in the middle of a loop.
                    with torch.enable_grad():
                        root = root.view_as(root)
                made[id(old)] = root
            roots.append(root)
        return roots

    def _source(self, old: torch.Tensor) -> torch.Tensor:
        apply: Any = Source.apply
        with torch.enable_grad():
            return apply(torch.zeros((), requires_grad=True), old.detach())

    def _account(self, block: Block, since: int) -> None:
        """See that every tensor that a block has reached is known."""
        roots = [get_gradient_edge(root) for root in block.roots if root is not None]
        found = reached(
            filter(None, block.ends), since, [*map(self._edge, range(len(self.constants))), *roots], self.casts
        )
        if found.leaves or found.hidden:
            raise Unknown(block, found.leaves, len(found.hidden), self.program.where())
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
        self, block: Block, cotangents: Sequence[torch.Tensor | None], sums: Sums, wanted: Sequence[bool]
    ) -> list[Any]:
        """Cotangents of the leaves of the state before a block, from those of its outputs; ``sums`` go on.

        ``wanted`` marks the constants that are asked for.
        """
        ends: list[Any] = []
        seeds: list[torch.Tensor] = []
        for end, seed in zip(block.ends, cotangents):
            if end is not None and seed is not None:
                ends.append(end)
                seeds.append(seed)
        roots = {id(root): root for root in block.roots if root is not None}
        if not ends:
            return [None] * len(block.roots)
        places = [place for place in self.reach(block.start, block.stop) if wanted[place]]
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
            *[self.constants[place] for place in places],
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
        first: set[int] = set()
        result: list[torch.Tensor | None] = []
        for root in block.roots:
            result.append(None if root is None or id(root) in first else by_root[id(root)])
            first.add(id(root))
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
    return get_gradient_edge(value) if isinstance(value, torch.Tensor) and value.requires_grad else None
