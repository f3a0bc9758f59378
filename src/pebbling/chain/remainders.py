"""The least excess of a part of a plan for each remainder of its length modulo some number.

Used by ``excess``, which says what excess is, in place of ``lengths``: plans of n steps are among
those whose length leaves the same remainder as n, so the least excess of those is a lower bound
(Gomory's group relaxation, Linear Algebra and its Applications 2, 1969). A curve also knows the
shortest and the longest parts that have the least excess; in between every length with that
remainder is taken to have it too, which a plan made from it proves or disproves.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from .lengths import Exhausted, upward_bends


class Curve(NamedTuple):
    """By remainder: the least excess, and the shortest and the longest parts that have it."""

    excess: np.ndarray
    shortest: np.ndarray
    longest: np.ndarray


_DENSE = 64


class Remainders:
    """Curves for lengths modulo ``modulus`` and plans of ``steps`` steps; stops after so much ``effort``."""

    def __init__(self, modulus: int, steps: int, slack: float, effort: float = inf) -> None:
        self.modulus, self.slack, self.effort = modulus, slack, effort
        self._all = np.arange(modulus)
        self._beyond = steps + 1 + (self._all - steps - 1) % modulus  # stands for all that is too long
        self._others = (self._all - self._all[:, None]) % modulus if modulus <= _DENSE else self._all[None]

    def leaf(self, shorter: np.ndarray, least: int, most: int, longer: np.ndarray) -> Curve:
        """No excess for ``least`` to ``most`` steps; the excess for 1, 2, … steps fewer or more is given."""
        limit = int(self._beyond[-1]) + 2 * self.modulus
        least, most = min(least, limit - (limit - least) % self.modulus), min(most, limit - (limit - most) % self.modulus)
