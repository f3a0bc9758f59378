"""The live engine: the program runs every step, the first ones recorded, the others by plan.

A call is recorded if no plan is known for its kind, or if the last one of its kind did what no plan knew. Once the
backward pass of a recorded step is over, the next call plans. Where everything fits, the program runs as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ....errors import BudgetError
from ..module import name_of, set_aside
from .kind import kind
from .modules import Modules
from .operators import plain
from .planning import LivePlanner
from .recorded import Recorded
from .recording import Deposit, Recording, Updated
from .running import Running
from .saved import Parked, taken
from .table import Table
from .turns import BackwardWatch, found
from .values import address
from .way import Ticket

_KINDS, _VARIANTS = 64, 8
"""Kinds of calls whose plans are remembered, and plans of one kind."""
_IN_VAIN = 8
"""Recordings without a backward pass, after which a kind of call is no longer proven."""


@dataclass
class Kindred:
    """What is known of one kind of call."""

    tables: list[Table] = field(default_factory=list)
    """The one that ran last comes first."""
    record: bool = True
    """Whether the next call is to be recorded."""
    tried: int = 0
    """Recordings that no backward pass has followed yet."""


class LiveRunner:
    """A callable that runs within a budget, and its plans."""

    def __init__(self, original: Callable[..., Any], options: Any) -> None:
        self.original, self.options, self.name = original, options, name_of(original)
        self.planner = LivePlanner(
            options.memory,
            options.time_limit,
            self.name,
            options.host,
            options.group,
            options.keep,
            options.never_replay,
        )
        self._kinds: OrderedDict[Any, Kindred] = OrderedDict()
        self._learned: list[tuple[Any, Recorded]] = []
        self._lock = threading.RLock()
        self._steps = 0
        self._refused: BudgetError | None = None

    @property
    def made(self) -> list[Any]:
        """The plans, with that of a step that was recorded since; a refusal is for the next step to raise."""
        try:
            self._settle()
        except BudgetError as error:
            self._refused = error
        return self.planner.made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, within the budget."""
        with set_aside(self.original):
            return self._run(args, kwargs)

    def _run(self, args: Any, kwargs: Any) -> Any:
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused
        self._settle()
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return self.original(*args, **kwargs)
        key = kind(self.original, args, kwargs)
        known = self._known(key)
        if self.planner.memory is None and self.planner.made:
            return self.original(*args, **kwargs)
        if known.record:
            return self._recorded(key, known, args, kwargs)
        if len(known.tables) == 1 and known.tables[0].drops_nothing:
            return self.original(*args, **kwargs)
        return self._planned(known, args, kwargs)

    def _known(self, key: Any) -> Kindred:
        with self._lock:
            known = self._kinds.setdefault(key, Kindred())
            self._kinds.move_to_end(key)
            while len(self._kinds) > _KINDS:
                self._kinds.popitem(last=False)
            return known

    def _recorded(self, key: Any, known: Kindred, args: Any, kwargs: Any) -> Any:
        memory = self.planner.memory
        release = self.options.release
        updated = {address(each) for each in release.parameters() if plain(each)} if release is not None else None
        recording = Recording(self._places(args, kwargs), Modules(self.original), memory, updated)
        if release is not None:
            release.watch(recording.update)
        recording.proves = memory is not None and known.tried < _IN_VAIN
        with saved_tensors_hooks(recording.pack, unpack), recording:
            out = self.original(*args, **kwargs)
        recording.end()
        known.tried += 1
        if recording.proves or memory is None:
            BackwardWatch(recording, lambda recorded: self._learn(key, recorded, recording.fresh)).watch(out)
        else:
            BackwardWatch(recording, lambda _: setattr(known, "tried", 0)).watch(out)
        return out

    def _planned(self, known: Kindred, args: Any, kwargs: Any) -> Any:
        table = known.tables[0]
        self._steps += 1
        memory = self.planner.memory
        assert memory is not None
        running = Running(known.tables, memory, self._verify(table))
        with saved_tensors_hooks(running.pack, unpack), running:
            out = self.original(*args, **kwargs)
        running.end()
        table.trusted = True
        if running.deviated:
            known.record = len(known.tables) < _VARIANTS
        elif running.table is not table:
            known.tables.remove(running.table)
            known.tables.insert(0, running.table)
        return out

    def _verify(self, table: Table) -> bool:
        every = self.options.verify
        return not table.trusted or every == "all" or (isinstance(every, int) and self._steps % every == 0)

    def _learn(self, key: Any, recorded: Recorded, fresh: bool) -> None:
        if fresh:
            # The optimizer has made its state, which no other step does: the next one is recorded.
            return
        recorded.only_before()
        with self._lock:
            self._learned.append((key, recorded))
        if self.planner.group is None and recorded.memory is not None and recorded.peak > recorded.memory:
            # Over the budget, in spite of all that was moved away: say so at once if no plan can mend it.
            self._settle()

    def _settle(self) -> None:
        """Plan what was recorded."""
        while self._learned:
            with self._lock:
                if not self._learned:
                    return
                key, recorded = self._learned.pop(0)
                known = self._known(key)
                known.tried = 0
                if any(table.functions == recorded.functions for table in known.tables):
                    known.record = False
                    continue
                table = self.planner.plan(recorded)
                known.tables.insert(0, table)
                known.record = False

    def _places(self, args: Any, kwargs: Any) -> set[int]:
        """Storages that were there before the step: parameters, buffers, arguments, gradients."""
        model = self.original
        tensors: list[Tensor] = found((args, kwargs))
        if isinstance(model, nn.Module):
            tensors += [*model.parameters(), *model.buffers()]
        tensors += [each.grad for each in tensors if each.is_leaf and each.grad is not None]
        return {address(each) for each in tensors if each.layout is torch.strided and not _hides(each)}


def _hides(tensor: Tensor) -> bool:
    return type(tensor) is not Tensor and type(tensor) is not nn.Parameter and not isinstance(tensor, nn.Buffer)


def unpack(saved: Any) -> Tensor:
    """What autograd saved, as it was packed."""
    if type(saved) is tuple:
        return taken(saved)
    if isinstance(saved, Deposit):
        return saved.owner.unpack(saved)
    assert isinstance(saved, Ticket | Parked | Updated)
    return saved.unpack()
