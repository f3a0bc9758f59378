"""States of every shape: containers, arrays of every framework, own classes, and random generators inside."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
import torch
from drive_problems import STORES, every_store, same, schedules_of, staged_of, start, store_everything

from pebbling import Dump, adjoint, tree
from pebbling.chain import Mixed, Periodic, Revolve, Staged, StoreAll

Pair = namedtuple("Pair", "u v")


@dataclass(frozen=True)
class Fields:
    u: np.ndarray
    v: np.ndarray
    time: int = 0


class Own:
    """A class of which the library knows nothing until it is told."""

    def __init__(self, u, v):
        self.u, self.v = u, v


tree.register(Own, lambda own: ((own.u, own.v), None), lambda rest, children: Own(*children))


def forward(u, v):
    return 3.7 * u * (1 - u) * 0.9 + 0.1 * v, 0.9 * v + 0.1 * u * u


def backward(u, v, a, b):
    return 3.7 * (1 - 2 * u) * 0.9 * a + 0.2 * u * b, 0.1 * a + 0.9 * b


def dict_step(s, i):
    u, v = forward(s["u"], s["v"])
    return {"u": u, "v": v, "count": s["count"] + 1, "name": "wave"}


def dict_back(s, a, i):
    assert s["count"] == i
    return dict(zip("uv", backward(s["u"], s["v"], a["u"], a["v"])))


TREES = {
    "dict": ({"u": start(5), "v": start(5, 1), "count": 0, "name": "wave"}, dict_step, dict_back),
    "tuple": (
        (start(5), (start(5, 1),)),
        lambda s, i: (lambda u, v: (u, (v,)))(*forward(s[0], s[1][0])),
        lambda s, a, i: dict(zip("uv", backward(s[0], s[1][0], a["u"], a["v"]))),
    ),
    "named tuple": (
        Pair(start(5), start(5, 1)),
        lambda s, i: Pair(*forward(*s)),
        lambda s, a, i: dict(zip("uv", backward(s.u, s.v, a["u"], a["v"]))),
    ),
    "dataclass": (
        Fields(start(5), start(5, 1)),
        lambda s, i: Fields(*forward(s.u, s.v), s.time + 1),
        lambda s, a, i: dict(zip("uv", backward(s.u, s.v, a["u"], a["v"]))),
    ),
    "registered class": (
        Own(start(5), start(5, 1)),
        lambda s, i: Own(*forward(s.u, s.v)),
        lambda s, a, i: dict(zip("uv", backward(s.u, s.v, a["u"], a["v"]))),
    ),
    "list of numbers": (
        [0.3, 0.4],
        lambda s, i: list(forward(*s)),
        lambda s, a, i: dict(zip("uv", backward(*s, a["u"], a["v"]))),
    ),
}
SEED = {"u": 1.0, "v": -0.5}


@pytest.mark.parametrize("name", TREES)
def test_every_container(name):
    state, step, back = TREES[name]
    want = store_everything(step, back, state, range(13), SEED)
    before = tree.copy(state)
    for schedule in schedules_of(13, 3).values():
        result = adjoint(step, back, state, 13, SEED, schedule=schedule, verify="all")
        assert same((result.state, result.adjoint), want)
    result = adjoint(step, back, state, lambda s, i: i < 13, SEED, slots=3)
    assert same((result.state, result.adjoint), want)
    assert same(state, before)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", ["dict", "dataclass", "named tuple"])
def test_every_container_in_every_store(kind, name, tmp_path):
    state, step, back = TREES[name]
    want = store_everything(step, back, state, range(9), SEED)
    with every_store(kind, tmp_path) as store:
        for schedule in (Revolve(9, 2), Staged(9, 3, 1)):
            result = adjoint(step, back, state, 9, SEED, schedule=schedule, store=store)
            assert same((result.state, result.adjoint), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_tensors(dtype, tmp_path):
    state = {"u": torch.tensor(start(5), dtype=dtype), "v": torch.tensor(start(5, 1), dtype=dtype)}
    seed = {"u": torch.ones(5, dtype=dtype), "v": torch.ones(5, dtype=dtype)}

    def step(s, i):
        return dict(zip("uv", forward(s["u"], s["v"])))

    def back(s, a, i):
        assert not s["u"].requires_grad
        return dict(zip("uv", backward(s["u"], s["v"], a["u"], a["v"])))

    want = store_everything(step, back, state, range(13), seed)
    for schedule in schedules_of(13, 3).values():
        result = adjoint(step, back, state, 13, seed, schedule=schedule, verify="all")
        assert same((result.state, result.adjoint), want)
    with every_store("Disk", tmp_path) as store:
        result = adjoint(step, back, state, 13, seed, slots=3, store=store)
        assert same((result.state, result.adjoint), want)
    with torch.inference_mode():
        result = adjoint(step, back, state, 13, seed, slots=3)
        assert same((result.state, result.adjoint), want)
    state["u"].requires_grad_()
    with torch.no_grad():
        result = adjoint(step, back, state, 13, seed, slots=3)
    assert same((result.state, result.adjoint), want)


def test_jax_arrays(tmp_path):
    state = {"u": jax.numpy.asarray(start(5), "f4"), "v": jax.numpy.asarray(start(5, 1), "f4")}
    seed = {"u": jax.numpy.ones(5), "v": jax.numpy.ones(5)}
    step = jax.jit(lambda s, i: dict(zip("uv", forward(s["u"], s["v"]))))

    def back(s, a, i):
        (gradient,) = jax.vjp(lambda s: step(s, i), s)[1](a)
        return gradient

    want = store_everything(step, back, state, range(13), seed)
    for schedule in schedules_of(13, 3).values():
        result = adjoint(step, back, state, 13, seed, schedule=schedule)
        assert same((result.state, result.adjoint), want)
    with every_store("Disk", tmp_path) as store:
        result = adjoint(step, back, state, 13, seed, slots=3, store=store)
        assert same((result.state, result.adjoint), want)


# A step that draws from the generator in its state, which it advances in place, as generators are.


def noisy(s, i):
    rng = s["rng"]
    noise = rng.standard_normal(5)
    return {"u": 3.6 * s["u"] * (1 - s["u"]) + 1e-3 * noise, "rng": rng, "drawn": s["drawn"] + rng.integers(9)}


def noisy_back(s, a, i):
    # Draws as well, as reversals do that run the step again: what it leaves behind must not matter.
    noise = s["rng"].standard_normal(5)
    s["rng"].integers(9)
    return 3.6 * (1 - 2 * s["u"]) * a * (1 + 1e-3 * noise)


def noisy_start():
    return {"u": start(5), "rng": np.random.default_rng(7), "drawn": 0}


def noisy_reference(n):
    return store_everything(noisy, noisy_back, noisy_start(), range(n), np.ones(5))


@pytest.mark.parametrize("n", [0, 1, 2, 13])
@pytest.mark.parametrize("verify", ["last", "all"])
def test_a_generator_in_the_state_replays_what_it_drew(n, verify):
    state = noisy_start()
    want = noisy_reference(n)
    for schedule in schedules_of(n, 3).values():
        result = adjoint(noisy, noisy_back, state, n, np.ones(5), schedule=schedule, verify=verify)
        assert same((result.state, result.adjoint), want)
    for slots in (1, 3, 20):
        result = adjoint(noisy, noisy_back, state, lambda s, i: i < n, np.ones(5), slots=slots, verify=verify)
        assert same((result.state, result.adjoint), want)
    result = adjoint(noisy, noisy_back, state, n, np.ones(5), memory="10MB", verify=verify)
    assert same((result.state, result.adjoint), want)
    assert same(state, noisy_start())


@pytest.mark.parametrize("kind", STORES)
def test_a_generator_in_every_store(kind, tmp_path):
    with every_store(kind, tmp_path) as store:
        for schedule in (schedules_of(13, 3) | staged_of(13, 3)).values():
            result = adjoint(noisy, noisy_back, noisy_start(), 13, np.ones(5), schedule=schedule, store=store)
            assert same((result.state, result.adjoint), noisy_reference(13))


def test_a_generator_is_dumped_as_it_was_before_the_reversal(tmp_path):
    for schedule in (Revolve(6, 2), StoreAll(6), Periodic(6, 2), Mixed(6, 2)):
        dump = Dump(tmp_path / type(schedule).__name__)
        adjoint(noisy, noisy_back, noisy_start(), 6, np.ones(5), schedule=schedule, dump=dump)
        state = noisy_start()
        for i in range(6):
            assert same(dump.read(i)[0], state)
            state = noisy(state, i)


def test_a_state_or_seed_that_holds_itself_is_refused():
    knot = [1.0]
    knot.append(knot)
    for state, seed in ((knot, 1.0), (1.0, knot)):
        with pytest.raises(ValueError, match="holds itself"):
            adjoint(lambda x, i: x, lambda x, a, i: a, state, 5, seed, slots=2)


def test_a_step_that_changes_its_container_and_returns_it():
    """The containers of a snapshot are its own, whatever the step does with those it was given."""

    def step(s, i):
        s["u"] = 3.6 * s["u"] * (1 - s["u"])
        s["log"].append(i)
        return s

    def back(s, a, i):
        assert s["log"] == list(range(i))
        return 3.6 * (1 - 2 * s["u"]) * a

    state = {"u": start(5), "log": []}
    want = store_everything(step, back, state, range(13), np.ones(5))
    for schedule in schedules_of(13, 3).values():
        result = adjoint(step, back, state, 13, np.ones(5), schedule=schedule, verify="all")
        assert same((result.state, result.adjoint), want)
    result = adjoint(step, back, state, lambda s, i: i < 13, np.ones(5), slots=3)
    assert same((result.state, result.adjoint), want)
    assert same(state, {"u": start(5), "log": []})


def test_a_state_that_grows():
    def step(s, i):
        return replace(s, u=np.append(s.u, 0.5) * 0.9, time=s.time + 1)

    def back(s, a, i):
        return a[: s.u.size] * 0.9

    state = Fields(start(2), start(2))
    want = store_everything(step, back, state, range(11), np.ones(13))
    for schedule in schedules_of(11, 3).values():
        result = adjoint(step, back, state, 11, np.ones(13), schedule=schedule)
        assert same((result.state, result.adjoint), want)


def test_a_large_part_that_no_step_changes_is_held_once():
    constants = np.ones(10_000)

    def step(s, i):
        return (s[0] * 1.1, s[1])

    result = adjoint(step, lambda s, a, i: 1.1 * a, (start(5), constants), 40, np.ones(5), slots=9)
    assert result.report.peak["memory"] == constants.nbytes + 9 * 40
