"""A linear programme as arrays: rows gathered term by term, and a lower bound from any multipliers of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .indexed import Flags, Floats, Ints


@dataclass(eq=False)
class Constraints:
    """Constraints ``Σ coefficient · variable ≤ limit``, gathered as arrays."""

    row: list[Ints] = field(default_factory=list)
    column: list[Ints] = field(default_factory=list)
    coefficient: list[Floats] = field(default_factory=list)
    limit: list[Floats] = field(default_factory=list)
    count: int = 0

    def add(self, limit: Floats, *terms: tuple[Floats | float, Ints]) -> None:
        """One row for each limit; in each term variables below 0 stand for nothing."""
        rows = np.arange(self.count, self.count + len(limit))
        for coefficient, column in terms:
            real = column >= 0
            self.row.append(rows[real])
            self.column.append(column[real])
            self.coefficient.append(np.broadcast_to(np.asarray(coefficient, np.float64), column.shape)[real])
        self.limit.append(np.asarray(limit, np.float64))
        self.count += len(limit)

    def one(self, limit: float, coefficient: Floats, column: Ints) -> None:
        """One row of many terms."""
        self.row.append(np.full(len(column), self.count))
        self.column.append(column)
        self.coefficient.append(coefficient)
        self.limit.append(np.array([limit], np.float64))
        self.count += 1

    def gathered(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Row, column and coefficient of every entry, row by row, and the limits.

        A variable that stands in several terms of a row has one entry there: HiGHS does not look for a second one, and
        writes past its memory, or never ends, if there is one.
        """
        row, column, terms = (np.concatenate(each) for each in (self.row, self.column, self.coefficient))
        width = int(column.max(initial=0)) + 1
        places, which = np.unique(row * width + column, return_inverse=True)
        coefficient = np.bincount(which, terms, len(places))
        real = coefficient != 0
        return places[real] // width, places[real] % width, coefficient[real], np.concatenate(self.limit)


@dataclass(frozen=True, eq=False)
class Programme:
    """The programme as arrays; ``alive[k]`` and ``away[k]`` are the variables of each storage, -1 for none."""

    price: Floats
    lower: Floats
    upper: Floats
    row: Ints
    column: Ints
    coefficient: Floats
    limit: Floats
    whole: Flags
    alive: Ints
    away: Ints
    points: tuple[int, ...]
    small: float = 1e-4
    """Share of the budget below which a storage does not matter in whole numbers."""

    def coarse(self) -> Programme:
        """The same without terms too small to matter, in which branch and cut can lose its way: a relaxation."""
        small = np.abs(self.coefficient) < self.small
        limit = self.limit.copy()
        np.subtract.at(limit, self.row[small], np.minimum(self.coefficient[small], 0.0))
        row, column, coefficient = self.row[~small], self.column[~small], self.coefficient[~small]
        return replace(self, row=row, column=column, coefficient=coefficient, limit=limit)

    def bound(self, dual: Floats) -> float:
        """A lower bound on the price from any multipliers of the rows; positive parts are cut off."""
        dual = np.minimum(dual, 0.0)
        reduced = self.price.copy()
        np.subtract.at(reduced, self.column, self.coefficient * dual[self.row])
        return float(dual @ self.limit + np.where(reduced > 0, reduced * self.lower, reduced * self.upper).sum())
