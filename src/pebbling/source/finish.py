"""What a loop leaves behind: the user's own objects with their new contents, and the new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy import ndarray

from ..errors import SourceError
from ..loops import Outcome
from ..loops.frameworks import Framework
from .containers import of_class
from .entry import copying, restorer
from .graph import NEW, UNBOUND, Builder, shared
from .opening import unchanged
from .program import SourceProgram
from .rewrite import ENDED, RAISED, RETURNED

SHARED = (
    "this array came out of a checkpointed loop together with another one that shares memory with it, and now one of "
    "them is written into"
)


class _Finish(Builder):
    """Objects after the loop; those with a token are the ones from before it."""

    def __init__(self, program: SourceProgram, leaves: Sequence[Any], consts: Sequence[Any]) -> None:
        super().__init__(leaves, consts)
        self._program = program
        self.new: list[Any] = []
        self.back: list[tuple[Any, Any]] = []
        """Leaves that stand for objects from before the loop, with those."""

    def leaf(self, value: Any, token: int) -> Any:
        if token == NEW:
            self.new.append(value)
            return value
        original = self._program.entry.originals[token]
        self.back.append((value, original))
        restore = restorer(type(original))
        if restore is not None:
            restore(original, value)
        elif token in self._program.guard.written:
            if value is not original and self._is_changed(original, token):
                original[...] = value
        elif self._program.framework.level(original):
            self._program.framework.follow(original, value)
        return original

    def _is_changed(self, original: Any, token: int) -> bool:
        return token in self._program.guard.touched or not self._program.framework.array(original)

    def begin(self, cls: type, token: int, rest: Any) -> Any:
        return super().begin(cls, token, rest) if token == NEW else of_class(self._program.entry.originals[token], cls)

    def made(self, value: Any, token: int) -> Any:
        if token == NEW:
            return value
        original = self._program.entry.originals[token]
        return unchanged(original, value) if isinstance(original, tuple) else original


def finish(program: SourceProgram, outcome: Outcome, outs: Sequence[Any], emits: Sequence[Any]) -> tuple[Any, ...]:
    """The flag, the value and the variables after a loop; ``outs`` are those from before it."""
    facts = program.facts
    shapes, lost = program.shapes[outcome.state[0]]
    size = sum(map(_leaves_of, shapes)) + sum(map(_leaves_of, lost))
    builder = _Finish(program, [*outcome.state[1 : 1 + size], *outcome.outs], program.entry.given.objects)
    roots = builder.roots([*shapes, *lost, *(program.out_shapes if outcome.steps else ())])
    values = roots[: program.count]
    first = len(shapes) - len(program.entry.spots)
    for spot, content in zip(program.entry.spots, roots[first : len(shapes)]):
        spot.put(content)
    after = roots[len(shapes) + len(lost) :] if outcome.steps else list(outs)
    flag = outcome.flag or ENDED
    # Nobody needs them after a return, and how far the last step came depends on where the one before it ended.
    kept = flag in (RETURNED, RAISED)
    after[: len(outs)] = [old if kept or one is UNBOUND else one for one, old in zip(after, outs)]
    value = after[len(facts.outs)] if flag in (RETURNED, RAISED) else None
    several = _collect(program, outcome, emits)
    if flag == ENDED:
        program.items.check_end()
    _bar(program, builder, several)
    return flag, value, [*values, *after[: len(facts.outs)]]


def _collect(program: SourceProgram, outcome: Outcome, emits: Sequence[Any]) -> list[Any]:
    """Extend the lists that the loop appends to; the traced values among them that share memory with others."""
    several: list[Any] = []
    if not emits:
        return several
    for leaves, shapes, places in zip(outcome.emitted, program.emit_shapes, program.aliased):
        builder = _Finish(program, leaves, program.entry.given.objects)
        flat = builder.roots([shape for one in shapes for shape in one])
        several += [leaves[place] for place in places]
        for one, collected in zip(shapes, emits):
            collected.extend(flat[: len(one)])
            del flat[: len(one)]
        for leaf in builder.new:
            if program.framework.array(leaf) or _base(program.framework, leaf) is not None:
                several.append(leaf)
    return several


def _bar(program: SourceProgram, builder: _Finish, several: list[Any]) -> None:
    """Refuse later writes into arrays that share memory: they are several traced values now."""
    framework, new = program.framework, builder.new
    if framework.execute is not None:
        _refuse_parted(program, builder, [*new, *several])
        _bar_arrays(framework, [*new, *several], [*program.entry.originals, *program.entry.given.objects])
        return
    for leaf in several:
        framework.bar(leaf, SHARED)
    if program.aliased and program.aliased[-1]:
        for leaf in new:
            framework.bar(leaf, SHARED)
    others = [(one, one) for one in (*new, *program.entry.originals, *program.entry.given.objects)]
    others += builder.back
    for leaf in (*new, *several):
        if framework.level(leaf) and _base(framework, leaf) is not None:
            for value, other in others:
                if shared(framework, leaf, value):
                    framework.bar(leaf, SHARED)
                    framework.bar(other, SHARED)


def _refuse_parted(program: SourceProgram, builder: _Finish, new: Sequence[Any]) -> None:
    """Refuse a view of an array of a framework that was copied for the loop and is back where it was before."""
    memory = program.framework.memory
    tokens = {id(one): token for token, one in enumerate(program.entry.originals)}
    for value, original in builder.back:
        here, there = memory(value), memory(original)
        if here is None or there is None or here[0] == there[0]:
            continue
        for leaf in new:
            if shared(program.framework, leaf, value):
                name = program.entry.owners[tokens[id(original)]]
                raise SourceError(
                    f"{program.facts.where}: an array of shape {tuple(leaf.shape)} that the loop leaves behind is a "
                    f"view of one that it may write into, {name}: make it a copy ({copying(program.framework)})"
                )


def _bar_arrays(framework: Framework, new: Sequence[Any], old: Sequence[Any]) -> None:
    """The same for arrays of a framework, of which one that came out under two names is one all the same."""
    by_memory: dict[int, list[Any]] = {}
    for leaf in {id(one): one for one in (*new, *old)}.values():
        memory = framework.memory(leaf)
        if memory is not None:
            by_memory.setdefault(memory[0], []).append(leaf)
    for leaf in {id(one): one for one in new}.values():
        memory = framework.memory(leaf)
        for other in by_memory[memory[0]] if memory is not None else ():
            if shared(framework, leaf, other):
                framework.bar(leaf, SHARED)
                framework.bar(other, SHARED)


def _base(framework: Framework, leaf: Any) -> Any:
    array = framework.plain(leaf)
    return array.base if isinstance(array, ndarray) else None


def _leaves_of(shape: Any) -> int:
    if type(shape) is not tuple:
        return 1
    return 0 if len(shape) == 2 else sum(map(_leaves_of, shape[3]))
