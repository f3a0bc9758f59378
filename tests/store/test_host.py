"""The Host store, as far as it goes without a GPU: the contract, the limit, and a store behind it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pebbling.errors import StoreFull
from pebbling.store import Disk, Host, conformance


def test_it_keeps_the_contract():
    conformance(Host)


def test_tensors_come_back_as_they_were():
    with Host() as store:
        x = torch.randn(3, 4).t()
        store.put(0, {"x": x, "n": 3})
        x.zero_()
        found = store.get(0)
        assert found["n"] == 3
        assert found["x"].stride() == x.stride()
        assert not torch.equal(found["x"], x)


def test_a_limit_is_kept():
    with Host(limit=2000) as store:
        store.put(0, np.zeros(200))
        with pytest.raises(StoreFull, match="give a higher limit"):
            store.put(1, np.zeros(200))


def test_what_does_not_fit_goes_behind_oldest_first(tmp_path):
    with Host(limit=3500, behind=Disk(tmp_path)) as store:
        for step in range(6):
            store.put(step, {"u": torch.full((200,), float(step)), "step": step})
        assert store.keys() == list(range(6))
        store.flush()
        assert store.nbytes >= 6 * 800
        assert store.prefetch(0)
        for step in reversed(range(6)):
            found = store.get(step)
            assert found["step"] == step
            assert torch.equal(found["u"], torch.full((200,), float(step)))
            store.drop(step)
    assert not list(tmp_path.iterdir())


def test_options_that_make_no_sense():
    with pytest.raises(ValueError, match="give limit="):
        Host(behind=Host())
    with pytest.raises(ValueError, match="pending"):
        Host(pending=0)
