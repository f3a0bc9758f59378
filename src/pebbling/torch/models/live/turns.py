"""The backward pass of a recorded step, node by node: what each unpacks, makes and takes.

Every node of the graph gets a hook before it and one after it; from the first on, a mode sees its operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _python_dispatch as dispatch

from .mode import LiveMode
from .recorded import BackwardTurn, Recorded
from .recording import Recording
from .signature import signature

_DEEP = 6


class BackwardWatch(LiveMode):  # type: ignore[no-untyped-call]
    """Watches the backward pass of one recording, and hands over what was recorded when it is done."""

    def __init__(self, recording: Recording, done: Callable[[Recorded], None]) -> None:
        super().__init__()
        self.recording, self.done = recording, done
        self.turns: list[BackwardTurn] = []
        self._turn: BackwardTurn | None = None
        self._begin = len(recording.functions)
        self._first: set[int] = set()
        self._finished = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation of a node."""
        kwargs = kwargs or {}
        recording = self.recording
        result, seconds = recording.room.run(function, args, kwargs)
        recording.ledger.see(result, recording.known)
        turn = self.turns[-1]
        turn.seconds += seconds
        turn.signatures.append(signature(function, args, kwargs))
        return result

    def watch(self, out: Any) -> None:
        """Hook into all nodes that lead to what the forward pass returned."""
        stack = [tensor.grad_fn for tensor in found(out) if tensor.grad_fn is not None]
        known: set[Any] = set()
        while stack:
            node = stack.pop()
            if node is None or node in known:
                continue
            known.add(node)
            node.register_prehook(self._before(node.name()))
            node.register_hook(self._after)
            stack.extend(next for next, _ in node.next_functions if next is not None)

    def _before(self, name: str) -> Callable[[Any], None]:
        def hook(gradients: Any) -> None:
            if self._finished or self._turn is not None:
                return
            recording = self.recording
            ledger = recording.ledger
            if self.turns:
                self.turns[-1].peak = ledger.gradients_peak
            else:
                self._start()
            ledger.clock = self._begin + len(self.turns)
            recording.look_who_holds()
            ledger.see(gradients, recording.known)
            ledger.gradients_peak = ledger.gradients
            self._turn = BackwardTurn(name)
            self.turns.append(self._turn)
            recording.reads = self._turn.reads
            # Sums of gradients come after the node's own hooks. Nobody pops the mode: what the engine runs of one
            # node, these sums included, has a state of its own that goes with it.
            dispatch._push_mode(self)

        return hook

    def _after(self, inputs: Any, outputs: Any) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self.recording.reads = None
        turn.done = True

    def _start(self) -> None:
        """The backward pass begins: whatever is held now, is held until its end for all that can be known."""
        recording = self.recording
        recording.ledger.clock = self._begin
        recording.look_who_holds()
        gone = {number for number, stay in recording.stays.items() if stay.died is not None}
        self._first = set(recording.stays) - gone - set(recording.died)
        self._first -= {number for number in recording.packs if number is not None and number not in recording._held}
        torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _finish(self) -> None:
        """The backward pass is over."""
        if self._finished or not self.turns or not all(turn.done for turn in self.turns):
            return
        self._finished = True
        recording = self.recording
        ledger = recording.ledger
        self.turns[-1].peak = ledger.gradients_peak
        died = dict(recording.died)
        for number, stay in recording.stays.items():
            if stay.died is not None:
                died.setdefault(number, stay.died)
        lasting = {number for number, stay in recording.stays.items() if number < 0 and stay.died is None}
        gradients = [
            (stay.bytes, max(0, stay.born - self._begin), None if stay.died is None else stay.died - self._begin)
            for stay in ledger.stays
            if stay.number is None and not stay.copied
        ]
        self.done(
            Recorded(
                functions=recording.functions,
                seen=recording.seen,
                sizes={number: bytes for number, bytes in recording.sizes.items() if number not in lasting},
                packs=recording.packs,
                died={number: at for number, at in died.items() if at < self._begin},
                outputs=self._first - lasting,
                turns=self.turns,
                gradients=gradients,
                foreign={number: recording.stays[number].born for number in recording.sizes if number < 0},
                small=ledger.small_peak,
                peak=ledger.peak,
                moved=recording.away.moved,
                memory=recording.room.memory,
                applied=recording.applied,
            )
        )


def found(result: Any, depth: int = _DEEP, seen: set[int] | None = None) -> list[Tensor]:
    """The tensors in what a forward pass returned, in containers and in the attributes of objects."""
    seen = set() if seen is None else seen
    if isinstance(result, Tensor):
        return [result]
    if depth == 0 or id(result) in seen or isinstance(result, str | bytes | int | float | type | None):
        return []
    seen.add(id(result))
    parts: list[Any] = []
    if isinstance(result, dict):
        parts += result.values()
    elif isinstance(result, list | tuple | set | frozenset):
        parts += result
    parts += getattr(result, "__dict__", {}).values()
    return [tensor for part in parts for tensor in found(part, depth - 1, seen)]
