"""Proof that a step gives, when it is run again, what it gave the first time.

States at the borders of blocks are seen twice: where the later block starts and where the earlier one
ends, computed in between from another snapshot. ``"last"`` compares the first border that the way back
comes to, ``"all"`` every one. What is compared is the sum of all words of each tensor, made on its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...drive.verify import came_out_differently
from ...loops.program import Program

_CAUSES = (
    "random numbers of NumPy or Python (torch's own are restored), hidden state such as counters or caches, operations "
    "that are not deterministic (see torch.use_deterministic_algorithms)"
)
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ReplaySums:
    """Sums of states by step, remembered the first time and compared the second."""

    def __init__(self, verify: str | bool) -> None:
        self._on, self._all = verify is not False, verify == "all"
        self._seen: dict[int, list[torch.Tensor | None]] = {}
        self._compared = False

    def wants(self, step: int) -> bool:
        """Whether the state before this step is worth looking at."""
        if not self._on or (self._compared and not self._all):
            return False
        return self._all or not self._seen or step in self._seen

    def see(self, step: int, state: Sequence[Any], program: Program) -> None:
        """Look at the state before ``step``."""
        sums = [_sum(leaf) for leaf in state]
        known = self._seen.pop(step, None)
        if known is None:
            self._seen[step] = sums
            return
        self._compared = True
        names = program.names(len(state))
        differing = [
            name for name, one, two in zip(names, known, sums) if one is not None and not torch.equal(one, two)
        ]
        if differing:
            raise came_out_differently(program.where(), step, differing, _CAUSES)


def _sum(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or type(leaf) is not torch.Tensor or leaf.layout is not torch.strided:
        return None
    values = leaf.detach()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    return values.view(_WORDS[values.element_size()]).sum(dtype=torch.int64)
