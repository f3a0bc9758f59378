"""What a way back needs of every step: which ops are reversed, which are replayed, which values are kept.

One pass over the chain from its end. A value is *relevant* if the result depends on it, and *needed* if a
rule or a replay will read it; dead branches are neither. Steps with the same template and the same
demands share one answer, so the pass costs a look-up a step, and its result a few entries a chain.

An example: ``for i in tape.loop(range(3)): u = sin(u); n = u * 0``, of which the user takes the gradient of
the last ``u``. After the last step ``u`` is relevant and nothing is needed. Reversing ``sin`` reads its input
and its output, so the step's plan is: *turn*: run ``sin``, reverse it; *advance*: nothing, since nobody reads
what comes after. Before that step, ``u`` is relevant and needed (``sin`` reads it). So each step before it
has the plan: *turn*: the same; *advance*: run ``sin``, because the next step needs its ``u``. The product
with 0 is in neither: nothing relevant or needed comes of it. Three steps, two plans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from .handle import ABSENT, Box
from .record import CUT, EXTRA, NEW, OUTER, OpCall, RecordedChain, Source, StepTemplate

Places = frozenset[int]
NOTHING: Places = frozenset()


class CallPlan(NamedTuple):
    """One call of a step: whether it is run again, whether it is reversed, and what it is the last to need."""

    call: OpCall
    chain_plan: ChainPlan | None
    run: bool
    reverse: bool
    done: tuple[int, ...] = ()


class StepPlan(NamedTuple):
    """What is to be done with a step."""

    advance: tuple[CallPlan, ...]
    """To get the next cut."""
    turn: tuple[CallPlan, ...]
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


class ChainPlan:
    """What is to be done with every step of a chain."""

    def __init__(self, starts: list[int], step_plans: list[StepPlan]) -> None:
        self._starts, self._step_plans = starts, step_plans
        self.outer_relevant = NOTHING.union(*[step_plan.outer_relevant for step_plan in step_plans])
        self.outer_needed = NOTHING.union(*[step_plan.outer_needed for step_plan in step_plans])

    @property
    def flat(self) -> bool:
        """Whether no step needs what another made, other than from boxes."""
        return not any(step_plan.needed for step_plan in self._step_plans)

    def at(self, step: int) -> StepPlan:
        """What is to be done with a step."""
        return self._step_plans[bisect_right(self._starts, step) - 1]


class ChainLiveness:
    """The demands of one pullback; ``tangents`` says that kept values have tangents, which are not kept."""

    def __init__(self, tangents: bool) -> None:
        self.tangents = tangents
        self.boxes: set[Box] = set()
        """Boxes on which the result depends."""
        self._known: dict[Any, StepPlan] = {}

    def plan_of(self, chain: RecordedChain, relevant: Places, needed: Places) -> ChainPlan:
        """What the steps of a chain have to do; the sets are places of the cut after its last step."""
        starts: list[int] = []
        step_plans: list[StepPlan] = []
        templates, extras = chain.templates, chain.extras
        last: Any = None
        before: Any = None
        for step in reversed(range(len(chain))):
            step_plan = self._step_plan(templates[step], extras[step], chain.taps.get(step), relevant, needed)
            if step_plan is not last or extras[step] is not before:
                self._note(extras[step], step_plan.read)
                last, before = step_plan, extras[step]
            if step_plans and step_plans[-1] is step_plan:
                starts[-1] = step
            else:
                starts.append(step)
                step_plans.append(step_plan)
            relevant, needed = step_plan.relevant, step_plan.needed
        return ChainPlan(starts[::-1], step_plans[::-1])

    def _note(self, extras: tuple[Any, ...], places: Iterable[int]) -> None:
        self.boxes.update(box for place in places if isinstance(box := extras[place], Box))

    def _step_plan(
        self,
        template: StepTemplate,
        extras: tuple[Any, ...],
        taps: dict[int, Box] | None,
        relevant: Places,
        needed: Places,
    ) -> StepPlan:
        tapped = valued = NOTHING
        if taps is not None:
            tapped = frozenset(i for i, box in taps.items() if box in self.boxes)
            valued = NOTHING if self.tangents else frozenset(i for i, box in taps.items() if box.value is not ABSENT)
        shared = all(call.op is not None for call in template.calls)
        key = template, relevant, needed, tapped, valued
        if shared and key in self._known:
            return self._known[key]
        step_plan = self._make(template, extras, relevant, needed, tapped, valued)
        if shared:
            self._known[key] = step_plan
        return step_plan

    def _make(
        self,
        template: StepTemplate,
        extras: tuple[Any, ...],
        relevant: Places,
        needed: Places,
        tapped: Places,
        valued: Places,
    ) -> StepPlan:
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
            for call_plan in turning
            if call_plan.reverse and call_plan.chain_plan is None
            for index in [*call_plan.call.outputs, *[i for kind, i in call_plan.call.sources if kind == NEW]]
        }
        outer = {
            index
            for call_plan in turning
            if call_plan.reverse and call_plan.chain_plan is not None
            for place in call_plan.chain_plan.outer_needed
            for kind, index in [call_plan.call.sources[place]]
            if kind == NEW
        }
        return StepPlan(
            advance=_last_uses(advancing, {index for _, (kind, index) in carry if kind == NEW}),
            turn=_last_uses(turning, rules | outer),
            carry=carry,
            relevant=frozenset(turn.relevant[CUT]),
            needed=frozenset(turn.needed[CUT] | advance.needed[CUT]),
            outer_relevant=frozenset(turn.relevant[OUTER]),
            outer_needed=frozenset(turn.needed[OUTER] | advance.needed[OUTER]),
            read=tuple(sorted(turn.relevant[EXTRA])),
        )

    def _walk(self, template: StepTemplate, extras: tuple[Any, ...], demand: _Demand, valued: Places) -> list[CallPlan]:
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
                    items.append(CallPlan(call, None, run, reverse))
                continue
            wanted = frozenset(i - call.start for i in outputs & demand.needed[NEW] - valued)
            asked = frozenset(i - call.start for i in outputs & demand.relevant[NEW])
            inner: RecordedChain = extras[call.place]
            chain_plan = self.plan_of(inner, asked, wanted)
            reverse = reverse or bool(chain_plan.outer_relevant) or _reads_boxes(chain_plan)
            if wanted or reverse:
                demand.read(call.sources, chain_plan.outer_needed, False)
                demand.read(call.sources, chain_plan.outer_relevant, True, values=False)
                items.append(CallPlan(call, chain_plan, bool(wanted), reverse))
        return items[::-1]


def _reads_boxes(chain_plan: ChainPlan) -> bool:
    return any(call_plan.reverse for step_plan in chain_plan._step_plans for call_plan in step_plan.turn)


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


def _last_uses(items: list[CallPlan], kept: set[int]) -> tuple[CallPlan, ...]:
    """The plan of each call with the values made in the step that are not needed after it, but for those to be kept."""
    seen, marked = set(kept), []
    for call_plan in reversed(items):
        used = {index for kind, index in call_plan.call.sources if kind == NEW} | set(call_plan.call.outputs)
        marked.append(call_plan._replace(done=tuple(used - seen)))
        seen |= used
    return tuple(marked[::-1])
