"""What would lower a peak, by how much, and what would not.

Each piece of advice is a change of the story: some lives are absent for a while, something else may be there instead.
The new peak is the largest top after the change, so that a change at another time than the peak is seen to be worth
nothing, and so is what lies beside a second peak of the same height.

Running a block again (``torch.utils.checkpoint``): what it saved is absent from its end to the beginning of its
backward pass; its arguments stay until then; and when it runs again there, it takes what it took in the forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .story import Life, ModuleCall, Story

_SHARE = 0.05  # of the peak: what is smaller than this is not worth a line


@dataclass(frozen=True, slots=True)
class Advice:
    """One change, the bytes that it moves or saves while they are absent, and the peak that is left."""

    change: str
    bytes: int
    peak: int
    lowers: int
    """By how much the peak is lower; 0 says that this would not help."""
    alive: int = 0
    """How many of the bytes are there at the peak as it is."""


def advices(story: Story) -> tuple[Advice, ...]:
    """The changes that are worth a look, the most useful first, those of no use last."""
    found = [*_checkpoints(story), *_offloads(story), *_smaller(story)]
    best: dict[str, Advice] = {}
    for each in found:
        if each.bytes >= _SHARE * story.peak:
            best.setdefault(each.change, each)
    return tuple(sorted(best.values(), key=lambda each: (-each.lowers, -each.bytes)))


def checkpointed(story: Story, blocks: Sequence[ModuleCall]) -> tuple[int, list[Life]]:
    """The peak if blocks ran again in the backward pass, and what they would not keep."""
    tops = story.tops.copy()
    runs_again = []
    absent: list[Life] = []
    for block in blocks:
        if block.back is None:
            continue
        inner = [life for life in story.lives if _only_saved_in(life, block)]
        absent += inner
        tops -= story.levels(_between(life, block.stop, block.back) for life in inner)
        for number in block.reads:
            argument = story.lives[number]
            if argument.end is not None and argument.end < block.back:
                tops += story.levels([_between(argument, argument.end, block.back)])
        rise = int(story.tops[block.start : block.stop].max(initial=0)) - story.moments[block.start].level
        runs_again.append((block.back, sum(life.bytes for life in inner), rise))
    after = int(tops.max(initial=0))
    for back, kept, rise in runs_again:
        level = story.moments[back].level + int(tops[back] - story.tops[back])
        after = max(after, level - kept + rise)
    return after, absent


def _checkpoints(story: Story) -> Iterable[Advice]:
    for name, blocks in _families(story):
        peak, absent = checkpointed(story, blocks)
        yield _advice(story, f"run {name} again in the backward pass (checkpoint)", absent, peak)


def _families(story: Story) -> Iterable[tuple[str, list[ModuleCall]]]:
    """Modules whose paths differ in numbers alone, as those of layers do, run again one by one."""
    groups: dict[str, list[ModuleCall]] = defaultdict(list)
    for block in story.blocks:
        if block.module:
            groups[family(block.module)].append(block)
    for name, blocks in groups.items():
        yield name if name == blocks[0].module else f"each {blocks[0].name} {name}", blocks


def _offloads(story: Story) -> Iterable[Advice]:
    """Saved values that leave the device between the two passes, by the part of the model that made them."""
    turn = next((i for i, moment in enumerate(story.moments) if moment.phase == "backward"), None)
    if turn is None:
        return
    parts: dict[str, list[Life]] = defaultdict(list)
    for life in story.lives:
        if life.kind == "saved" and life.end is not None:
            parts[_part(life.module)].append(life)
    parts["all of the model"] = [life for lives in parts.values() for life in lives]
    for name, lives in parts.items():
        gone = [(life, life.start + 2, _first_back(story, life)) for life in lives]
        tops = story.tops - story.levels(_between(life, a, b) for life, a, b in gone if a < b)
        yield _advice(
            story,
            f"move what {name or 'the model itself'} saves to the host (offload)",
            lives,
            int(tops.max(initial=0)),
        )


def _smaller(story: Story) -> Iterable[Advice]:
    """Kinds that could be absent, and losses over many classes, of which a quarter is there at a time."""
    changes = {
        "gradient": "apply and release each gradient as it comes (optimizer=)",
        "output": "return only the loss",
        "optimizer": "move the optimizer's state to the host",
    }
    for kind, change in changes.items():
        lives = [life for life in story.lives if life.kind == kind]
        tops = story.tops - story.levels(lives)
        yield _advice(story, change, lives, int(tops.max(initial=0)))
    by_op: dict[str, list[Life]] = defaultdict(list)
    for life in story.lives:
        if "cross_entropy" in life.op or "softmax" in life.op or "nll_loss" in life.op:
            by_op[life.line or life.op].append(life)
    for line, lives in by_op.items():
        tops = story.tops - (story.levels(lives) * 0.75).astype(np.int64)
        yield _advice(story, f"run {line} in four parts (chunks)", lives, int(tops.max(initial=0)))


def family(module: str) -> str:
    """The path with a star for every number.

    >>> family("layers.3.attention")
    'layers.*.attention'
    """
    return ".".join("*" if name.isdigit() else name for name in module.split("."))


def _advice(story: Story, change: str, lives: Sequence[Life], peak: int) -> Advice:
    there = sum(life.bytes for life in lives if life.at(story.when))
    return Advice(change, sum(life.bytes for life in lives), peak, max(0, story.peak - peak), there)


def _only_saved_in(life: Life, block: ModuleCall) -> bool:
    """Whether nobody but the block itself keeps it when the block is over."""
    made_there = block.start <= life.start < block.stop
    outlives = life.end is None or life.end > block.stop
    return made_there and outlives and life.kind == "saved" and life.saved is not None and life.saved < block.stop


def _between(life: Life, start: int, stop: int) -> Life:
    end = stop if life.end is None else min(stop, life.end)
    start = max(start, life.start)
    return Life(life.bytes, start, max(start, end), life.kind)


def _part(module: str) -> str:
    """The first names of a path, up to the number of a layer: ``encoder.layer.3.attention`` is ``encoder.layer``."""
    names = []
    for name in module.split("."):
        if name.isdigit():
            break
        names.append(name)
    return ".".join(names[:2])


def _first_back(story: Story, life: Life) -> int:
    """Where a saved value has to be there again: at its last reader, which is as far as its life tells."""
    return max(life.start, (life.end or len(story.moments)) - 1)
