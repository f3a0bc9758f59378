"""The way back over one loop: the rest of its schedule, with cotangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...chain import Advance, Free, Record, Restore, Snapshot, Turn
from ...loops.play import parted
from ...loops.program import Leaves
from .tapes import Sums, TapedBlock

if TYPE_CHECKING:
    from .checkpointed import CheckpointedLoop


class WayBack:
    """Takes the cotangents of a loop's outputs to its inputs; nothing of a block outlives it."""

    def __init__(self, loop: CheckpointedLoop, seeds: list[Any], sums: Sums, wanted: Sequence[bool]) -> None:
        self.loop, self.sums, self.wanted = loop, sums, wanted
        self.cotangents, self.outs, self.emitted = parted(seeds, loop.width, *loop.counts)

    def go(self) -> list[Any]:
        """Take the rest of the actions one by one; the cotangents of the initial state."""
        loop, bound = self.loop, self.loop.course.bound
        state: Leaves = []
        pending: int | None = None
        end, at = loop.steps, 0
        if loop.tapes and loop.tapes[-1].stop == end:
            end = self._pull(loop.tapes.pop())
        action: Any
        for action in loop.actions:
            kind = type(action)
            if kind is Record:
                pending = bound(action[0]) if pending is None else pending
                at = bound(action[0] + 1)
                continue
            if kind is Turn:
                start, stop = bound(action[0]), bound(action[0] + 1)
                if stop <= end:
                    end = self._pull(loop.tape(state, start if pending is None else pending, stop))
                pending = None
                continue
            if pending is not None:
                block = loop.tape(state, pending, at)
                state = loop.given_out(block)[1]
                loop.tapes.append(block)
                pending = None
            if kind is Restore:
                kept = loop.restore(action[1], action[2])
                state = kept.leaves
                loop.ambient.set(kept.draws)
                loop.buffers.write(kept.buffers)
            elif kind is Advance:
                state = loop.advance(state, bound(action[0]), bound(action[1]))
            elif kind is Snapshot:
                draws, buffers = loop.ambient.draws(), loop.held_buffers()
                loop.tiers[action[2]].put(action[1], bound(action[0]), state, draws, buffers)
            elif kind is Free:
                loop.tiers[action[2]].free(action[1])
            elif loop.tapes and loop.tapes[-1].stop == bound(action[0] + 1) == end:
                end = self._pull(loop.tapes.pop())
        return self.cotangents

    def _pull(self, block: TapedBlock) -> int:
        cotangents, self.cotangents = self.cotangents, []
        before: list[tuple[int, Any]] = []
        if self.loop.program.rich:
            before = self.loop.arrived(block, self.emitted)
            cotangents += self.outs if block.stop == self.loop.steps else [None] * block.outs
            for parts in self.emitted[block.start : block.stop]:
                cotangents += parts
            del self.emitted[block.start :]
            self.outs = []
        block.values = []
        offload, tapes = self.loop.offload, self.loop.tapes
        if offload is not None and tapes:
            offload.expect(tapes[-1].moved)
        self.cotangents = self.loop.taper.pull(block, cotangents, self.sums, self.wanted, before)
        if offload is not None:
            offload.release(block.moved)
        return block.start
