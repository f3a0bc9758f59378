"""Steps with an inverse: states computed backwards have the bits of the first sweep, are replayed, or are refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from drive_problems import same, store_everything

from pebbling import ReplayError, adjoint
from pebbling.chain import StoreAll
from pebbling.store import Disk

N = 60


def force(q):
    return (q * q >> 7) - (q >> 3)


def leap(s, i):
    """Leapfrog in integers, which lose nothing."""
    p = s["p"] + force(s["q"]) + i
    return {"q": s["q"] + p, "p": p}


def unleap(s, i):
    q = s["q"] - s["p"]
    return {"q": q, "p": s["p"] - force(q) - i}


def back(s, a, i):
    return a * (1 + 1e-3 * (s["q"] % 7)) + s["p"] % 3


def start(size=9):
    return {"q": np.arange(size), "p": np.ones(size, int)}


SEED = np.ones(9)
WANT = store_everything(leap, back, start(), range(N), SEED)


def rounded(s, i):
    """The same in floating point, whose inverse is one up to rounding."""
    p = s[1] - 0.01 * np.sin(s[0])
    return s[0] + 0.1 * p, p


def unrounded(s, i):
    q = s[0] - 0.1 * s[1]
    return q, s[1] + 0.01 * np.sin(q)


def rounded_back(s, a, i):
    ap = a[1] + 0.1 * a[0]
    return a[0] - 0.01 * np.cos(s[0]) * ap, ap


ROUNDED = (np.linspace(0, 3, 40), np.ones(40))
ROUNDED_SEED = (np.ones(40), np.zeros(40))


@pytest.mark.parametrize("slots", [1, 2, 7, N - 1, N, 100])
@pytest.mark.parametrize("steps", [N, lambda s, i: i < N, range(0, 2 * N, 2)], ids=["number", "predicate", "range"])
def test_no_step_is_replayed(steps, slots):
    want = WANT if not isinstance(steps, range) else store_everything(leap, back, start(), steps, SEED)
    result = adjoint(leap, back, start(), steps, SEED, inverse=unleap, slots=slots)
    report = result.report
    assert same((result.state, result.adjoint), want)
    assert report.forwards == 2 * N
    assert report.inverted == max(0, N - slots)
    assert report.drifted == 0


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_short_chains(steps):
    result = adjoint(leap, back, start(), steps, SEED, inverse=unleap, slots=1)
    assert same((result.state, result.adjoint), store_everything(leap, back, start(), range(steps), SEED))


def test_snapshots_go_to_a_store(tmp_path):
    with Disk(tmp_path) as store:
        result = adjoint(leap, back, start(), N, SEED, inverse=unleap, slots=4, store=store)
        assert not store.keys()
    assert same((result.state, result.adjoint), WANT)
    assert result.report.restores == 4


def test_an_inverse_up_to_rounding_costs_replays_and_never_a_bit():
    want = adjoint(rounded, rounded_back, ROUNDED, N, ROUNDED_SEED, schedule=StoreAll(N))
    for slots in (1, 2, 5, 20):
        with pytest.warns(UserWarning, match="other bits than the first sweep before step"):
            found = adjoint(rounded, rounded_back, ROUNDED, N, ROUNDED_SEED, inverse=unrounded, slots=slots)
        assert same((found.state, found.adjoint), (want.state, want.adjoint))
        assert 1 <= found.report.drifted <= 2
        assert "had other bits" in str(found.report)


def test_one_wrong_state_is_replayed_from_the_snapshot_below_it():
    def wrong_once(s, i):
        found = unleap(s, i)
        return {**found, "q": found["q"] + (i == 44)}

    with pytest.warns(UserWarning, match="before step 44,"):
        found = adjoint(leap, back, start(), N, SEED, inverse=wrong_once, slots=3)
    assert same((found.state, found.adjoint), WANT)
    # Steps 40 to 44 are reversed from the snapshot of step 40; below it the inverse goes on.
    assert found.report.drifted == 1
    assert found.report.inverted == (N - 45) + 1 + (40 - 2)


def test_drift_that_is_allowed_is_measured_and_told():
    want = adjoint(rounded, rounded_back, ROUNDED, N, ROUNDED_SEED, schedule=StoreAll(N))
    found = adjoint(rounded, rounded_back, ROUNDED, N, ROUNDED_SEED, inverse=unrounded, slots=3, drift=1e-12)
    assert np.allclose(found.adjoint[0], want.adjoint[0], rtol=1e-12, atol=0)
    assert 0 < found.report.drift <= 1e-12
    assert found.report.lossy
    assert found.report.forwards == 2 * N
    assert "the gradient is not exact" in str(found.report)


def test_drift_that_is_too_much_is_refused():
    def off(s, i):
        q, p = unrounded(s, i)
        return q + 1e-6, p

    with pytest.raises(
        ReplayError, match=r"state\[0\] before step 40, recomputed by inverse, is off by .* drift=1e-09"
    ):
        adjoint(rounded, rounded_back, ROUNDED, N, ROUNDED_SEED, inverse=off, slots=3, drift=1e-9)


def test_the_budget_in_bytes_holds():
    state = start(20_000)
    seed = np.ones(20_000)
    want = store_everything(leap, back, state, range(N), seed)
    for memory in (2_600_000, 6_000_000):
        tracemalloc.start()
        base = tracemalloc.get_traced_memory()[0]
        found = adjoint(leap, back, state, N, seed, inverse=unleap, memory=memory)
        peak = tracemalloc.get_traced_memory()[1] - base
        tracemalloc.stop()
        assert peak <= memory
        assert same((found.state, found.adjoint), want)


def test_an_inverse_that_costs_more_than_replays_is_not_taken():
    from pebbling.drive.inverse import Inverse

    inverse = Inverse(unleap, 0.0, None)
    assert inverse.is_worth_it(100, 1)
    inverse.cost = 5.0
    assert inverse.is_worth_it(100, 3)
    assert not inverse.is_worth_it(100, 10)


def test_an_inverse_that_writes_into_its_state_is_refused():
    def writes(s, i):
        s["q"] -= s["p"]
        return {"q": s["q"], "p": s["p"] - force(s["q"]) - i}

    with pytest.raises((ReplayError, ValueError), match=r"read-only|writes into"):
        adjoint(leap, back, start(), N, SEED, inverse=writes, slots=1)


class One:
    """A communicator of one rank."""

    def allgather(self, value):
        return [value]


REFUSED = {
    "inverse= with schedule=": {"schedule": StoreAll(N)},
    "inverse= with comm=": {"comm": One()},
    "leave out verify=False": {"verify": False},
    "give slots= in place of memory=": {"memory": "1MB", "steps": lambda s, i: i < N},
    "from 0 to less than 1": {"drift": -1.0},
    "inverse is called as inverse": {"inverse": lambda i, s: s},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_go_together(words, tmp_path):
    options = {"steps": N, "inverse": unleap} | REFUSED[words]
    with pytest.raises((ValueError, TypeError), match=words):
        adjoint(leap, back, start(), seed=SEED, **options)
    with pytest.raises(ValueError, match="inverse= with resume="):
        adjoint(leap, back, start(), N, SEED, inverse=unleap, resume=tmp_path)
    with pytest.raises(ValueError, match="give inverse= as well"):
        adjoint(leap, back, start(), N, SEED, drift=0.1)
