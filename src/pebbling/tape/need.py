"""What a way back needs of every step: which ops are reversed, which are replayed, which values are kept.

One pass over the chain from its end. A value is relevant if the result depends on it, and needed if a
rule or a replay will read it; dead branches are neither. Steps with the same template and the same
demands share one answer, so the pass costs a look-up a step, and its result a few entries a chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from .handle import ABSENT, Box
from .record import CUT, EXTRA, NEW, OUTER, Call, Chain, Source, Template

Places = frozenset[int]
NOTHING: Places = frozenset()


class Item(NamedTuple):
    """One call of a step: whether it is run again, whether it is reversed, and what it is the last to need."""

    call: Call
    study: Study | None
    run: bool
    reverse: bool
    done: tuple[int, ...] = ()


class Variant(NamedTuple):
    """What is to be done with a step."""

    advance: tuple[Item, ...]
    """To get the next cut."""
    turn: tuple[Item, ...]
    """To reverse it."""
    carry: tuple[tuple[int, Source], ...]
    """The places of the next cut that are needed, and where they come from."""
    relevant: Places
    """Places of the cut on which the result depends."""
    needed: Places
    """Places of the cut whose values are read."""
    outer_relevant: Places
    outer_needed: Places
    read: tuple[int, ...]
    """Extras that a reversed op reads."""


class Study:
    """The variants of all steps of a chain."""

    def __init__(self, starts: list[int], variants: list[Variant]) -> None:
        self._starts, self._variants = starts, variants
        self.outer_relevant = NOTHING.union(*[variant.outer_relevant for variant in variants])
        self.outer_needed = NOTHING.union(*[variant.outer_needed for variant in variants])

    @property
    def flat(self) -> bool:
        """Whether no step needs what another made, other than from boxes."""
        return not any(variant.needed for variant in self._variants)

    def at(self, step: int) -> Variant:
        """What is to be done with a step."""
        return self._variants[bisect_right(self._starts, step) - 1]


class Survey:
    """The demands of one pullback; ``tangents`` says that kept values have tangents, which are not kept."""

    def __init__(self, tangents: bool) -> None:
        self.tangents = tangents
        self.boxes: set[Box] = set()
        """Boxes on which the result depends."""
        self._known: dict[Any, Variant] = {}

    def study(self, chain: Chain, relevant: Places, needed: Places) -> Study:
        """What the steps of a chain have to do; the sets are places of the cut after its last step."""
        starts: list[int] = []
        variants: list[Variant] = []
        templates, extras = chain.templates, chain.extras
        last: Any = None
        before: Any = None
        for step in reversed(range(len(chain))):
            variant = self._variant(templates[step], extras[step], chain.taps.get(step), relevant, needed)
            if variant is not last or extras[step] is not before:
                self._note(extras[step], variant.read)
                last, before = variant, extras[step]
            if variants and variants[-1] is variant:
                starts[-1] = step
            else:
                starts.append(step)
                variants.append(variant)
            relevant, needed = variant.relevant, variant.needed
        return Study(starts[::-1], variants[::-1])

    def _note(self, extras: tuple[Any, ...], places: Iterable[int]) -> None:
        self.boxes.update(box for place in places if isinstance(box := extras[place], Box))

    def _variant(
        self, template: Template, extras: tuple[Any, ...], taps: dict[int, Box] | None, relevant: Places, needed: Places
    ) -> Variant:
        tapped = valued = NOTHING
        if taps is not None:
            tapped = frozenset(i for i, box in taps.items() if box in self.boxes)
            valued = NOTHING if self.tangents else frozenset(i for i, box in taps.items() if box.value is not ABSENT)
        shared = all(call.op is not None for call in template.calls)
        key = template, relevant, needed, tapped, valued
        if shared and key in self._known:
            return self._known[key]
        variant = self._make(template, extras, relevant, needed, tapped, valued)
        if shared:
            self._known[key] = variant
        return variant

    def _make(
        self,
        template: Template,
        extras: tuple[Any, ...],
        relevant: Places,
        needed: Places,
        tapped: Places,
        valued: Places,
    ) -> Variant:
        ends = template.ends
        turn = _Demand(relevant=[ends[place] for place in relevant])
        turn.relevant[NEW] |= tapped
        advance = _Demand(needed=[ends[place] for place in needed])
        if self.tangents:
            turn.needed[NEW] |= tapped
            advance.needed[NEW] |= tapped
        turning = self._walk(template, extras, turn, valued)
        advancing = self._walk(template, extras, advance, valued)
        carry = tuple((place, ends[place]) for place in sorted(needed))
        rules = {
            index
            for item in turning
            if item.reverse and item.study is None
            for index in [*item.call.outputs, *[i for kind, i in item.call.sources if kind == NEW]]
        }
        outer = {
            index
            for item in turning
            if item.reverse and item.study is not None
            for place in item.study.outer_needed
            for kind, index in [item.call.sources[place]]
            if kind == NEW
        }
        return Variant(
            advance=_last_uses(advancing, {index for _, (kind, index) in carry if kind == NEW}),
            turn=_last_uses(turning, rules | outer),
            carry=carry,
            relevant=frozenset(turn.relevant[CUT]),
            needed=frozenset(turn.needed[CUT] | advance.needed[CUT]),
            outer_relevant=frozenset(turn.relevant[OUTER]),
            outer_needed=frozenset(turn.needed[OUTER] | advance.needed[OUTER]),
            read=tuple(sorted(turn.relevant[EXTRA])),
        )

    def _walk(self, template: Template, extras: tuple[Any, ...], demand: _Demand, valued: Places) -> list[Item]:
        """The calls that a demand makes necessary, in the order in which they ran."""
        items = []
        for call in reversed(template.calls):
            outputs = frozenset(call.outputs)
            reverse = not demand.relevant[NEW].isdisjoint(outputs)
            if call.op is not None:
                if reverse:
                    demand.needed[NEW] |= outputs
                run = bool(outputs & demand.needed[NEW] - valued)
                if run or reverse:
                    demand.read(call.sources, range(len(call.sources)), reverse)
                    if reverse:
                        self._note(extras, [place for kind, place in call.sources if kind == EXTRA])
                    items.append(Item(call, None, run, reverse))
                continue
            wanted = frozenset(i - call.start for i in outputs & demand.needed[NEW] - valued)
            asked = frozenset(i - call.start for i in outputs & demand.relevant[NEW])
            inner: Chain = extras[call.place]
            study = self.study(inner, asked, wanted)
            reverse = reverse or bool(study.outer_relevant) or _reads_boxes(study)
            if wanted or reverse:
                demand.read(call.sources, study.outer_needed, False)
                demand.read(call.sources, study.outer_relevant, True, values=False)
                items.append(Item(call, study, bool(wanted), reverse))
        return items[::-1]


def _reads_boxes(study: Study) -> bool:
    return any(item.reverse for variant in study._variants for item in variant.turn)


class _Demand:
    """What is asked of a step so far, by where it comes from."""

    def __init__(self, relevant: Iterable[Source] = (), needed: Iterable[Source] = ()) -> None:
        self.relevant: list[set[int]] = [set() for _ in range(4)]
        self.needed: list[set[int]] = [set() for _ in range(4)]
        for kind, index in relevant:
            self.relevant[kind].add(index)
        for kind, index in needed:
            self.needed[kind].add(index)

    def read(self, sources: tuple[Source, ...], places: Iterable[int], relevant: bool, values: bool = True) -> None:
        """A call reads some of its sources."""
        for place in places:
            kind, index = sources[place]
            if values:
                self.needed[kind].add(index)
            if relevant:
                self.relevant[kind].add(index)


def _last_uses(items: list[Item], kept: set[int]) -> tuple[Item, ...]:
    """Each item with the values made in the step that are not needed after it, but for those to be kept."""
    seen, marked = set(kept), []
    for item in reversed(items):
        used = {index for kind, index in item.call.sources if kind == NEW} | set(item.call.outputs)
        marked.append(item._replace(done=tuple(used - seen)))
        seen |= used
    return tuple(marked[::-1])
