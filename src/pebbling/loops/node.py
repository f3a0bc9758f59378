"""A loop as one node: what an engine needs to differentiate it from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..budget import store_at
from ..chain import Online, Schedule
from .checkpointed import SweptLoop
from .emitted_aliases import identity
from .frameworks import Framework
from .program import Leaves, Program
from .undeclared import refuse_traced


class Outcome(NamedTuple):
    """What a loop gave: its final state, and what the last step and every step gave besides."""

    state: Leaves
    outs: Leaves
    emitted: list[Leaves]
    flag: Any
    steps: int

    def flat(self) -> Leaves:
        """All outputs one after the other: the state, the last step's, those of every step."""
        return [*self.state, *self.outs, *[leaf for part in self.emitted for leaf in part]]

    def like(self, flat: Leaves) -> Outcome:
        """The same outcome with other outputs, given as ``flat`` gives them."""
        width = len(self.state)
        emitted, at = [], width + len(self.outs)
        for part in self.emitted:
            emitted.append(flat[at : at + len(part)])
            at += len(part)
        return self._replace(state=flat[:width], outs=flat[width : width + len(self.outs)], emitted=emitted)


class CustomLoop:
    """One loop with its own derivatives, on the leaves that are differentiated; the others it knows."""

    def __init__(
        self,
        framework: Framework,
        program: Program,
        state: Leaves,
        consts: Leaves,
        settle: Any,
        verify: str | bool,
        written: Sequence[int],
    ) -> None:
        self.framework, self.program, self.settle = framework, program, settle
        self.verify, self.written = verify, written
        self.width, self.leaves = len(state), [*state, *consts]
        assert framework.engine is not None
        self.engine = framework.engine
        levels = [framework.level(leaf) for leaf in self.leaves]
        self.level = max(levels)
        traced = [place for place, level in enumerate(levels) if level == self.level]
        self.ties = _ties(self.leaves, traced, self.width)
        self.places = [place for place in traced if place not in self.ties]
        self.outcome: Outcome | None = None
        self.traced: list[int] = []
        self.same: dict[int, int] = {}
        """Outputs that are the same value as another one, and which."""

    def __repr__(self) -> str:
        return f"the loop over {self.program.where()}"

    def call(self) -> Outcome:
        """Run the loop in the middle of whatever differentiates it."""
        inputs = [self.leaves[place] for place in self.places]
        for place in (*self.places, *self.ties):
            self.leaves[place] = None
        results = self.engine.custom(self, inputs)
        outcome, self.outcome = self.outcome, None
        assert outcome is not None
        flat = outcome.flat()
        for place, result in zip(self.traced, results):
            flat[place] = result
        for place, keeper in self.same.items():
            flat[place] = flat[keeper]
        return outcome.like(flat)

    def run(self, inputs: list[Any]) -> tuple[list[Any], SweptLoop]:
        leaves, live = self._filled(inputs)
        state, consts = leaves[: self.width], leaves[self.width :]
        differentiable = self.engine.differentiable
        reached = [one or not differentiable(leaf) for one, leaf in zip(live, state)]
        schedule: Schedule | Online = self.settle(self, state, consts, reached, live[self.width :])
        passage = SweptLoop(
            self.framework,
            self.program,
            schedule,
            self.level,
            state,
            consts,
            reached,
            live[self.width :],
            self.verify,
            self.written,
            self.ties,
            store_at(self.settle.budget.store),
            self.settle.budget.memory is not None,
        )
        passage.check = self.settle.check
        passage.sweep()
        final = passage.live if passage.watching else [True] * self.width
        outcome = Outcome(
            passage.state, list(passage.outs), [list(part) for part in passage.emitted], passage.flag, passage.steps
        )
        passage.let_go()
        return self._give(outcome, final), passage

    def vjp(self, passage: SweptLoop, cotangents: list[Any], into: list[Any]) -> None:
        seeds: list[Any] = [None] * passage.outputs
        for place in reversed(self.traced):
            seeds[place] = cotangents.pop()
        sums: list[Any] = [None] * len(self.leaves)
        for place in reversed(self.places):
            sums[place] = into.pop()
        passage.back(seeds, sums)
        for place, keeper in self.ties.items():
            if sums[place] is not None:  # without a step, the cotangent of the result is that of the initial state
                sums[keeper] = sums[place] if sums[keeper] is None else sums[keeper] + sums[place]
        for place in self.places:
            into.append(sums[place])
            sums[place] = None

    def jvp(self, inputs: list[Any], tangents: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        leaves, _ = self._filled(inputs)
        # A state that does not move yet may be an array that the loop writes into.
        moving = [(place, t) for place, t in zip(self.places, tangents) if t is not None or place < self.width]

        def whole(given: list[Any]) -> list[Any]:
            for (place, _), leaf in zip(moving, given):
                leaves[place] = leaf
            for place, keeper in self.ties.items():
                leaf = leaves[keeper]
                leaves[place] = self.framework.share(leaf) if self.framework.level(leaf) else leaf
            state, consts = leaves[: self.width], leaves[self.width :]
            leaves.clear()
            return self._give(straight(self.program, state, consts), [True] * self.width)

        values = [leaves[place] for place, _ in moving]
        outputs, pushed = self.engine.step_jvp(whole, values, [t for _, t in moving])
        names = self.program.names(self.width)
        refuse_traced(self.framework, self.program, outputs, lambda place: names[self.traced[place]], self.level)
        return outputs, pushed

    def _filled(self, inputs: list[Any]) -> tuple[Leaves, list[bool]]:
        leaves = list(self.leaves)
        live = [False] * len(leaves)
        for place, leaf in zip(self.places, inputs):
            leaves[place], live[place] = leaf, True
        for place, keeper in self.ties.items():
            leaves[place], live[place] = leaves[keeper], True
        return leaves, live

    def _give(self, outcome: Outcome, final: list[bool]) -> list[Any]:
        """The outputs that carry a derivative; the rest is kept aside."""
        differentiable = self.engine.differentiable
        flat = outcome.flat()
        carrying = [
            place for place, leaf in enumerate(flat) if (place >= self.width or final[place]) and differentiable(leaf)
        ]
        self.same = same_values(flat, carrying, self.width + len(outcome.outs))
        self.traced = [place for place in carrying if place not in self.same]
        results = [flat[place] for place in self.traced]
        for place in carrying:
            flat[place] = None
        self.outcome = outcome.like(flat)
        return results


def _ties(leaves: Leaves, places: list[int], width: int) -> dict[int, int]:
    """Which places hold the same traced value as another one, an argument if there is one, and which that is."""
    keepers: dict[int, int] = {}
    for place in sorted(places, key=lambda place: (place < width, place)):
        keepers.setdefault(id(leaves[place]), place)
    return {place: keepers[id(leaves[place])] for place in places if keepers[id(leaves[place])] != place}


def same_values(flat: Leaves, places: list[int], emitted: int) -> dict[int, int]:
    """Which outputs are the same value as another one: of the final state if it is there, else the one emitted last."""
    keepers: dict[int, int] = {}
    found: dict[int, int] = {}
    for place in sorted(places, key=lambda place: place if place < emitted else 2 * len(flat) - place):
        key = identity(flat[place])
        if key is not None and keepers.setdefault(key, place) != place:
            found[place] = keepers[key]
    return found


def straight(program: Program, state: Leaves, consts: Leaves) -> Outcome:
    """The loop, step after step, with nothing kept."""
    if program.length is not None and not program.rich:
        return Outcome(program.advance(state, consts, 0, program.length), [], [], None, program.length)
    flag: Any = None
    outs: Sequence[Any] = ()
    emitted: list[Leaves] = []
    step = 0
    while not flag and (step < program.length if program.length is not None else program.goes_on(state, step)):
        flag, state, outs, part = program.full(state, consts, step)
        if program.rich:
            emitted.append(list(part))
        step += 1
    return Outcome(state, list(outs), emitted, flag, step)
