"""All hypothesis strategies of the test suite."""

from __future__ import annotations

from hypothesis import strategies as st

from pebbling.chain import (
    Hierarchical,
    Mixed,
    Online,
    Periodic,
    Revolve,
    Runs,
    Schedule,
    Staged,
    StoreAll,
    Tier,
    Uneven,
)

lengths = st.integers(0, 60)
slots = st.integers(1, 12)
costs = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 7.5, 20.0])
ratios = st.sampled_from([0.25, 0.5, 1, 1.5, 2, 2.5, 3, 5, 11])


@st.composite
def revolves(draw: st.DrawFn) -> Revolve:
    return Revolve(draw(lengths), draw(slots), draw(st.sampled_from(["writes", "runs"])))


@st.composite
def mixeds(draw: st.DrawFn) -> Mixed:
    return Mixed(draw(lengths), draw(st.sampled_from([1, 1.5, 2, 3, 4.5, 7, 12])), draw(ratios))


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchical:
    count = draw(st.integers(1, 3))
    tiers = [Tier(draw(st.integers(1 if i == 0 else 0, 4)), draw(costs), draw(costs)) for i in range(count)]
    unbounded = draw(st.booleans()) and count > 1
    if unbounded:
        tiers[-1] = Tier(None, tiers[-1].write, tiers[-1].read)
    return Hierarchical(draw(st.integers(0, 40)), tiers, draw(st.sampled_from([0.5, 1.0, 2.0])), draw(costs))


@st.composite
def uneven_by_cost(draw: st.DrawFn) -> Uneven:
    return Uneven(draw(st.lists(st.integers(0, 9), max_size=30)), slots=draw(st.integers(1, 6)))


@st.composite
def uneven_by_size(draw: st.DrawFn) -> Uneven:
    n = draw(st.integers(0, 14))
    numbers = st.lists(st.integers(1, 5), min_size=n, max_size=n)
    sizes = draw(numbers)
    memory = draw(st.integers(max(sizes, default=1), 30))
    return Uneven(draw(numbers), draw(numbers), sizes, draw(numbers), memory=memory)


@st.composite
def staged(draw: st.DrawFn) -> Staged:
    return Staged(draw(st.integers(1, 60)), draw(st.integers(1, 8)), draw(st.integers(1, 5)), draw(ratios), 2.0, 1.0)


ended = st.builds(lambda c, n: Online(c).ended(n), slots, lengths)
runs = st.builds(Runs, lengths, slots, ratios)
periodics = st.builds(Periodic, lengths, slots)
storealls = st.builds(StoreAll, lengths)

schedules: st.SearchStrategy[Schedule] = st.one_of(
    revolves(), mixeds(), hierarchies(), uneven_by_cost(), uneven_by_size(), staged(), ended, runs, periodics, storealls
)
