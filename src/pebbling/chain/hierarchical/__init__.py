"""Snapshots in a hierarchy of tiers, each slower than the one before it.

``schedule`` is the family that users meet. The other files find its plan, and are read in this order:

    problem        costs as whole numbers, and the recurrence for the least time
    prices         a lower bound: the recurrence with a price a step in place of a number of steps
    price_search   the right price for a number of steps
    descent        a plan from those prices
    excess         by how much the best plan must exceed the bound, by length (``lengths``), or by length
                   modulo a period (``remainders``)
    fastest        all of these in turn, until plan and bound meet
    count          what a plan stores, restores and advances
"""

from .schedule import Hierarchical

__all__ = ["Hierarchical"]
