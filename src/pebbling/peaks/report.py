"""The answer to "why is my peak here", as a value that prints, and is saved as a page, as JSON or for other viewers."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..units import format_bytes, parse_bytes
from .advice import Advice, advices, family
from .story import Life, Moment, Story

_ROWS = 12
_NAMES = {
    "parameter": "parameters",
    "buffer": "buffers",
    "batch": "batch",
    "argument": "arguments",
    "gradient": "gradients",
    "optimizer": "optimizer state",
    "saved": "saved for the backward pass",
    "output": "outputs that you hold",
    "result": "results",
    "temporary": "temporaries",
    "other": "not the model's",
}


@dataclass(frozen=True)
class Why:
    """Why the peak is where it is.

    ``peak`` is in bytes and counts all that the step needs: parameters, gradients, optimizer state and batch too.
    ``above`` is the part of it that was not there before the step.
    """

    story: Story
    name: str = "model"
    standing: int = 0
    """Bytes that were there before the step."""
    reserved: int = 0
    """Bytes that the allocator of a GPU held at the end beyond what was in use at the peak: fragmentation, mostly."""
    measured: bool = True
    """Whether the allocator counted; otherwise tensors were, and what kernels take for themselves is missing."""
    told: tuple[Advice, ...] = ()
    """Advice that does not follow from the story alone."""

    @property
    def peak(self) -> int:
        """The most bytes at any time of the step."""
        return self.story.peak

    @property
    def above(self) -> int:
        """The peak above what was there before the step."""
        return self.peak - self.standing

    @property
    def moment(self) -> Moment:
        """The operation during which the peak is."""
        return self.story.moments[self.story.when]

    @cached_property
    def kinds(self) -> dict[str, int]:
        """Bytes at the peak by what they are; what no storage accounts for is the operation's own workspace."""
        found: dict[str, int] = defaultdict(int)
        for life in self.story.alive:
            found[_NAMES[life.kind]] += life.bytes
        if self.story.inside > 0:
            found["workspace of the operation"] = self.story.inside
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @cached_property
    def makers(self) -> tuple[tuple[Life, int], ...]:
        """What is alive at the peak by operation, line and module: a life, and the bytes of all that are like it.

        Modules whose paths differ in numbers alone count as one, with a star for the number: ``layers.*.attention``.
        """
        found: dict[tuple[str, ...], int] = defaultdict(int)
        alike: dict[tuple[str, ...], Life] = {}
        for life in self.story.alive:
            key = (life.kind, family(life.module), life.op, life.line, life.saver)
            found[key] += life.bytes
            first = alike.setdefault(key, life)
            if first.module != life.module:
                alike[key] = replace(first, module=family(life.module))
        return tuple((alike[key], size) for key, size in sorted(found.items(), key=lambda item: -item[1]))

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What would lower the peak and by how much, and what would not."""
        return tuple(sorted((*self.told, *advices(self.story)), key=lambda each: (-each.lowers, -each.bytes)))

    def fits(self, memory: float | str) -> bool:
        """Whether the step fits on a device with so many bytes, fragmentation left out.

        >>> Why(Story((Moment("mul", top=100),), ())).fits("1kB")
        True
        """
        return self.peak <= parse_bytes(memory)

    def __str__(self) -> str:
        if not self.story.moments:
            return f"{self.name} runs no tensor operation"
        moment = self.moment
        at = f"operation {self.story.when + 1:,} of {len(self.story.moments):,}"
        lines = [
            f"{self.name}: peak {format_bytes(self.peak)}, of which {format_bytes(self.standing)} were there before",
            f"when: {moment.phase}, {moment.op}{_of(moment.module)}{_by(moment.line)} ({at})",
            "",
            "at the peak",
            *(f"  {format_bytes(size):>10}  {size / self.peak:>4.0%}  {kind}" for kind, size in self.kinds.items()),
            "",
            "made by",
            *(f"  {format_bytes(size):>10}  {_described(life)}" for life, size in self.makers[:_ROWS]),
        ]
        if len(self.makers) > _ROWS:
            rest = self.makers[_ROWS:]
            lines.append(f"  {format_bytes(sum(size for _, size in rest)):>10}  {len(rest)} others")
        helps = [each for each in self.advice if each.lowers]
        useless = [each for each in self.advice if not each.lowers]
        if helps:
            lines += ["", "what would lower the peak"]
            lines += [
                f"  {format_bytes(each.lowers):>10}  {each.change}: {format_bytes(each.bytes)} less for a while"
                for each in helps[:_ROWS]
            ]
        if useless:
            lines += ["", "what would not"]
            lines += [f"         0 B  {each.change}: {_in_vain(each)}" for each in useless[:_ROWS]]
        if self.reserved:
            lines += ["", f"the allocator held {format_bytes(self.reserved)} more than was in use (fragmentation)"]
        if not self.measured:
            lines += ["", "tensors were counted, not allocations: what kernels take for themselves is missing"]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """The same as data.

        >>> Why(Story((Moment("mul", top=100),), ())).json()["peak"]
        100
        """
        return {
            "kind": "why",
            "name": self.name,
            "peak": self.peak,
            "above": self.above,
            "standing": self.standing,
            "reserved": self.reserved,
            "measured": self.measured,
            "moment": {"operation": self.story.when, **asdict(self.moment)} if self.story.moments else None,
            "kinds": self.kinds,
            "makers": [{**asdict(life), "bytes": size} for life, size in self.makers],
            "advice": [asdict(each) for each in self.advice],
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (``.html``), data (``.json``), a trace for Perfetto (``.perfetto.json``) or a snapshot for
        torch's memory_viz (``.pickle``)."""
        from . import export, page

        path = Path(path)
        name = path.name
        if name.endswith(".perfetto.json"):
            path.write_text(export.perfetto(self), encoding="utf-8")
        elif name.endswith(".json"):
            path.write_text(export.data(self), encoding="utf-8")
        elif name.endswith(".pickle"):
            path.write_bytes(export.memory_viz(self))
        elif name.endswith((".html", ".htm")):
            path.write_text(page.page(self), encoding="utf-8")
        else:
            raise ValueError(f"{name!r}: expected a name that ends in .html, .json, .perfetto.json or .pickle")
        return path

    def _repr_html_(self) -> str:
        from . import page

        return page.framed(self)


def _in_vain(advice: Advice) -> str:
    if not advice.alive:
        return f"these {format_bytes(advice.bytes)} are not alive at the peak"
    return f"of these {format_bytes(advice.bytes)}, {format_bytes(advice.alive)} are alive at it, and it stays as high"


def _of(module: str) -> str:
    return f" of {module}" if module else ""


def _by(line: str) -> str:
    return f", {line}" if line else ""


def _described(life: Life) -> str:
    what = f"{_NAMES[life.kind]}: {life.op or 'made before the step'}{_of(life.module)}{_by(life.line)}"
    return what + (f", kept by {life.saver}" if life.saver and life.saver != life.op else "")


def summary(content: dict[str, Any]) -> str:
    """What a saved ``.json`` says in short; a ``ValueError`` says what is missing or not right.

    >>> print(summary(Why(Story((Moment("mul", top=100),), ())).json()))
    model: peak 100 B
    when: forward, mul
           100 B  workspace of the operation
    """
    try:
        when = content["moment"]
        lines = [f"{content['name']}: peak {format_bytes(content['peak'])}"]
        lines += [f"when: {when['phase']}, {when['op']}{_of(when['module'])}{_by(when['line'])}"] if when else []
        lines += [f"  {format_bytes(size):>10}  {kind}" for kind, size in content["kinds"].items()]
        helps = [each for each in content["advice"] if each["lowers"]]
        lines += ["what would lower the peak"] if helps else []
        lines += [f"  {format_bytes(each['lowers']):>10}  {each['change']}" for each in helps[:_ROWS]]
        return "\n".join(lines)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not what `pebbling why --save` writes: {error!r}") from error
