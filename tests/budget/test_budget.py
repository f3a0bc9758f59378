"""A budget as one value: the same bits and plans as the keywords, and refusals where it does not fit the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pebbling as pb
from pebbling.store import Disk, Memory

X = np.linspace(0.1, 1.0, 5)


def by_loop(**said: Any) -> Any:
    return pb.grad(lambda x: np.sum(pb.loop(lambda i, s: np.sin(s) + 0.1 * i, x, 30, **said)))(X)


def by_checkpoint(**said: Any) -> Any:
    @pb.checkpoint(**said)
    def total(x):
        for i in range(30):
            x = np.sin(x) + 0.1 * i
        return np.sum(x)

    return pb.grad(total)(X)


def by_grad(**said: Any) -> Any:
    def total(x):
        for i in range(30):
            x = np.sin(x) + 0.1 * i
        return np.sum(x)

    return pb.grad(total, checkpoint=said.get("budget", said))(X)


def by_tape(**said: Any) -> Any:
    step = pb.op.from_numpy(lambda u, i: np.sin(u) + 0.1 * i)
    tape = pb.Tape(**said)
    u = leaf = tape.leaf(X)
    for i in tape.loop(range(30)):
        u = step(u, i)
    return tape.pullback(u, seed=np.ones(5))[leaf]


def by_adjoint(**said: Any) -> Any:
    def reverse(x, adjoint, i):
        return np.cos(x) * adjoint

    return pb.adjoint(lambda x, i: np.sin(x) + 0.1 * i, reverse, X, 30, np.ones(5), **said).adjoint


FRONTS = [by_loop, by_checkpoint, by_grad, by_tape, by_adjoint]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("said", [{"slots": 3}, {"memory": "1MB"}, {"slots": 3, "verify": False}])
def test_the_value_and_the_keywords_mean_the_same(front: Any, said: dict[str, Any]) -> None:
    assert front(budget=pb.Budget(**said)).tobytes() == front(**said).tobytes()


@pytest.mark.parametrize("front", [by_loop, by_checkpoint, by_adjoint])
def test_a_plan_is_a_schedule(front: Any) -> None:
    plan = pb.plan(30, 40, tape=40, memory=400)
    assert front(budget=pb.Budget(schedule=plan)).tobytes() == front(schedule=plan.schedule).tobytes()


def test_the_number_of_slots_reaches_the_run() -> None:
    def run(**said: Any) -> int:
        done = pb.adjoint(lambda x, i: x, lambda x, a, i: a, X, 30, np.ones(5), **said)
        return done.report.advances

    few, many = run(budget=pb.Budget(slots=2)), run(budget=pb.Budget(slots=10))
    assert (few, many) == (run(slots=2), run(slots=10))
    assert few > many


def test_snapshots_go_to_the_store_of_the_budget(tmp_path: Path) -> None:
    store = Disk(tmp_path)
    put: list[Any] = []
    keep, store.put = store.put, lambda *given, **more: (put.append(given[0]), keep(*given, **more))[1]  # type: ignore[method-assign]
    by_adjoint(budget=pb.Budget(slots=3, store=store))
    assert put


@pytest.mark.parametrize("front", FRONTS[:2] + FRONTS[3:])
def test_both_forms_at_once_are_refused(front: Any) -> None:
    with pytest.raises(ValueError, match=r"budget= and slots=: put all into the Budget"):
        front(budget=pb.Budget(slots=3), slots=3)
    with pytest.raises(TypeError, match=r"budget is a pb.Budget"):
        front(budget="1GB")


@pytest.mark.parametrize("front", [by_checkpoint, by_grad])
def test_what_a_call_does_not_take_is_refused_by_name(front: Any) -> None:
    with pytest.raises(ValueError, match=r"takes no store=, which its Budget has"):
        front(budget=pb.Budget(slots=3, store=Memory()))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"slots": 3, "memory": 10}, "at most one of slots, memory and schedule, not slots and memory"),
        ({"slots": 0}, "slots"),
        ({"memory": "lots"}, "lots"),
        ({"schedule": 3}, "schedule is a plan or a schedule"),
        ({"verify": True}, "verify must be"),
        ({"verify": "most"}, "verify must be"),
    ],
)
def test_budgets_that_mean_nothing_are_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        pb.Budget(**said)
