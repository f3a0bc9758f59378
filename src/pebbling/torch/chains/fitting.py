"""The fastest schedule of a chain of modules whose true peak is within a budget.

Rotor's dynamic programme (``pebbling.Uneven``) counts the states and tapes that a schedule keeps, and what modules
take while they run, but not that a tensor may belong to two of them. So it is given a memory to plan with, the peak of
its plan is found by going through the actions with everything that is alive, and the memory is searched for that
makes the plan's true peak come as near to the budget as it can; once with what runs counted and once without, which
shares less and has more to give where modules are alike. Optimal among Rotor's plans for each such memory. Equal
segments, each taped whole, are tried as well, and taken where they are faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from ...chain import (
    Advance,
    EndForward,
    Free,
    Periodic,
    Record,
    Reverse,
    Schedule,
    Snapshot,
    StoreAll,
    Turn,
    Uneven,
    Working,
)
from ...errors import BudgetError
from ...units import format_bytes
from .costs import Costs

_TRIES = 12
_AROUND = range(94, 108, 2)
"""Per cent of the budget to plan with where what runs is counted."""
_LOSS = 4
_SEGMENTS = 64
_UNITS, _FINE = 500, 2000
"""How finely memory is divided for plans and for the bound."""


class Fit(NamedTuple):
    """A schedule, its true peak in bytes and the seconds it is expected to take.

    ``bound`` is the time below which no plan of whole modules within the budget can be, among those that keep a
    state until the modules after it are reversed; that of the modules run once each where there is no budget.
    """

    schedule: Schedule
    peak: int
    time: float
    bound: float


def fit(costs: Costs, budget: int, bookkeeping: int) -> Fit:
    """The fastest schedule that was found within the budget."""
    steps = len(costs.modules)
    everything = expect(costs, StoreAll(steps), bookkeeping)
    if everything.peak <= budget:
        return everything
    least = smallest(costs, bookkeeping)
    best: Fit | None = None
    low, high = 0, max(budget, 1)
    for _ in range(_TRIES):
        middle = (low + high) // 2
        found = _planned(costs, middle, None, bookkeeping)
        if found is not None and found.peak > budget:
            high = middle
            continue
        low = middle
        best = _faster(best, found)
    working = _working(costs, bookkeeping)
    for percent in _AROUND:
        found = _planned(costs, budget * percent // 100, working, bookkeeping)
        best = _faster(best, found if found is not None and found.peak <= budget else None)
    for segments in range(2, min(steps, _SEGMENTS) + 1):
        # Gradients of parameters grow as the way back goes on, which no constant memory plans for.
        found = expect(costs, Periodic(steps, segments), bookkeeping)
        best = _faster(best, found if found.peak <= budget else None)
    if best is None and least.peak <= budget:
        best = least
    if best is None:
        raise BudgetError(
            f"{budget} bytes ({format_bytes(budget)}) are too few for this chain of {steps} modules: the smallest "
            f"budget is {least.peak} bytes ({format_bytes(least.peak)})",
            minimum=least.peak,
        )
    return best._replace(bound=_bound(costs, budget))


def _faster(one: Fit | None, two: Fit | None) -> Fit | None:
    return two if one is None or (two is not None and two.time < one.time) else one


def smallest(costs: Costs, bookkeeping: int) -> Fit:
    """The schedule of the lowest peak: from the input alone, or with one state or more where that takes less."""
    steps = len(costs.modules)
    candidates = [Uneven([module.forward for module in costs.modules], slots=slots) for slots in (1, 2, 3)[:steps]]
    return min([expect(costs, schedule, bookkeeping) for schedule in candidates], key=lambda found: found.peak)


def expect(costs: Costs, schedule: Schedule, bookkeeping: int) -> Fit:
    """The peak and the time of a schedule."""
    machine = ByteMachine(costs, bookkeeping)
    machine.run(iter(schedule))
    return Fit(schedule, machine.peak, machine.time, sum([one.forward + one.backward for one in costs.modules]))


def _planned(costs: Costs, memory: int, working: Working | None, bookkeeping: int) -> Fit | None:
    try:
        return expect(costs, _rotor(costs, memory, 1, _UNITS, working), bookkeeping)
    except BudgetError:
        return None


def _bound(costs: Costs, budget: int) -> float:
    """Rotor's optimum for the whole budget, with nothing for what runs, and sizes rounded down."""
    unit = max(budget // _FINE, 1)
    return float(_rotor(costs, budget // unit, unit, budget // unit).cost.time)


def _rotor(costs: Costs, memory: int, unit: int, units: int, working: Working | None = None) -> Uneven:
    """The fastest plan for states and tapes in units of so many bytes."""
    state, tape = _sizes(costs)
    return Uneven(
        [module.forward for module in costs.modules],
        [module.backward for module in costs.modules],
        state=[size // unit for size in state],
        tape=[size // unit for size in tape],
        memory=memory,
        units=units,
        working=working,
    )


def _sizes(costs: Costs) -> tuple[list[int], list[int]]:
    modules = costs.modules
    # A tensor between two modules belongs to the tape of the first if either saves it; the input is the caller's.
    shared = [one.output if one.saves_output or two.saves_input else 0 for one, two in pairwise(modules)] + [
        modules[-1].output if modules[-1].saves_output else 0
    ]
    state = [0, *[module.output for module in modules[:-1]]]
    return state, [module.inside + one for module, one in zip(modules, shared)]


def _working(costs: Costs, bookkeeping: int) -> Working:
    """What modules take while they run, as ``ByteMachine`` counts it."""
    modules, (state, tape) = costs.modules, _sizes(costs)
    last = modules[-1]
    after = [max([one.output for one in modules[place + 1 :]], default=0) for place in range(len(modules))]
    turn, back = [], []
    for place, one in enumerate(modules):
        turn.append(state[place] + one.extra_turn + one.cotangents + one.gradients)
        output = 0 if tape[place] > one.inside else one.output
        back.append(state[place] + output + one.extra_back + one.cotangents + after[place] + one.gradients)
    loss = state[-1] + (1 + _LOSS) * last.output
    turn[-1], back[-1] = max(turn[-1], loss + last.inside), max(back[-1], loss)
    return Working(
        ahead=[one.output + one.extra_forward + bookkeeping for one in modules],
        turn=[one + bookkeeping for one in turn],
        back=[one + bookkeeping for one in back],
        left=[one.gradients for one in modules],
    )


@dataclass
class ByteMachine:
    """Goes through a schedule with sizes in place of tensors; ``peak`` is the most that is alive at a time."""

    costs: Costs
    bookkeeping: int
    peak: int = 0
    time: float = 0.0
    states: dict[int, int] = field(default_factory=dict)
    tapes: list[int] = field(default_factory=list)
    gradients: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)
    """Runs of steps whose tapes were made together; the state before each is held until it is reversed."""

    def run(self, actions: Iterator[Any]) -> None:
        modules, steps = self.costs.modules, len(self.costs.modules)
        sizes = [0, *[module.output for module in modules]]
        last: Any = None
        for action in actions:
            kind = type(action)
            if kind is Record or kind is Turn:
                joined = last is Record and self.blocks and self.blocks[-1][1] == action[0]
                self.blocks[-1:] = (
                    [(self.blocks[-1][0], action[0] + 1)]
                    if joined
                    else [
                        *self.blocks[-1:],
                        (action[0], action[0] + 1),
                    ]
                )
            last = kind
            if kind is EndForward:
                # The last module is taped by now, and the caller's loss makes a few tensors as large as the output.
                self._see(steps - 1, steps, modules[-1].inside + _LOSS * modules[-1].output)
            elif kind is Snapshot:
                self.states[action[1]] = action[0]
            elif kind is Free:
                del self.states[action[1]]
            elif kind is Advance:
                for step in range(*action):
                    self._see(step, step + 1, modules[step].extra_forward)
                    self.time += modules[step].forward
            elif kind is Record:
                self._see(action[0], action[0] + 1, modules[action[0]].extra_forward)
                self.tapes.append(action[0])
                self.time += modules[action[0]].forward
            elif kind is Turn or kind is Reverse:
                step = action[0]
                module = modules[step]
                block = self.blocks[-1][1]
                if kind is Turn:
                    self.time += module.forward
                    extra = module.extra_turn
                else:
                    extra = module.extra_back
                self.time += module.backward
                # The cotangents of the end of a block are held until the engine has gone through all of it.
                held = module.cotangents + (sizes[block] if block != step + 1 else 0)
                self._see(step, step if kind is Turn else step + 1, extra + held + module.gradients)
                self.gradients += module.gradients
                if kind is Reverse:
                    self.tapes.remove(step)
                if step == self.blocks[-1][0]:
                    self.blocks.pop()

    def _see(self, first: int, last: int, extra: int) -> None:
        """Note what is alive while a module runs, with the states around it and ``extra`` bytes."""
        modules = self.costs.modules
        begun = [start for start, _ in self.blocks]
        alive = {step for step in (*self.states.values(), *begun, first, last, len(modules)) if step}
        inside = 0
        for step in self.tapes:
            module = modules[step]
            inside += module.inside
            if module.saves_input and step:
                alive.add(step)
            if module.saves_output:
                alive.add(step + 1)
        total = sum([modules[step - 1].output for step in alive]) + inside + extra + self.gradients
        self.peak = max(self.peak, total + self.bookkeeping)
