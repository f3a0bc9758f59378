"""The walks of ARCHITECTURE.md: the files of the library that a small call enters, in the order that is told."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pebbling as pb

ROOT = Path(pb.__file__).parent
TEXT = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")


def walk_by_adjoint() -> None:
    pb.adjoint(lambda x, i: 1.01 * x, lambda x, a, i: 1.01 * a, np.ones(300), 20, np.ones(300), memory="150kB")


def walk_by_loop() -> None:
    pb.grad(lambda u: np.sum(pb.loop(lambda i, u: u + 0.01 * np.sin(u), u, 20, slots=3)))(np.ones(3))


def walk_by_checkpoint() -> None:
    @pb.checkpoint(slots=3)
    def total(u: Any) -> Any:
        for _ in range(20):
            u = u + 0.01 * np.sin(u)
        return np.sum(u)

    pb.grad(total)(np.ones(3))


def walk_by_tape() -> None:
    @pb.op
    def cube(u: Any) -> Any:
        return u - 0.1 * u**3

    @cube.vjp
    def _(inputs: Any, result: Any, cotangent: Any) -> Any:
        return cotangent * (1 - 0.3 * inputs[0] ** 2)

    tape = pb.Tape(slots=3)
    handle = tape.leaf(np.full(3, 0.5))
    for _ in tape.loop(range(20)):
        handle = cube(handle)
    tape.pullback(handle, seed=np.ones(3))


def walk_by_torch_loop() -> None:
    import torch

    from pebbling.torch import loop

    u = torch.ones(3, requires_grad=True)
    loop(lambda i, u: u + 0.01 * torch.sin(u), u, 20, slots=3).sum().backward()


def walk_by_jax() -> None:
    import jax
    import jax.numpy as jnp

    import pebbling.jax as pj

    jax.grad(lambda u: jnp.sum(pj.fori_loop(0, 20, lambda i, u: u + 0.01 * jnp.sin(u), u, slots=3)))(jnp.ones(3))


def walk_by_fit() -> None:
    import torch

    from pebbling.torch import fit

    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    model = fit(torch.nn.Sequential(*layers), memory="52kB")
    for _ in range(2):
        model(torch.ones(64, 32)).sum().backward()
    assert model.plan.overhead > 0, "otherwise nothing is replayed"


WALKS: dict[str, Callable[[], None]] = {
    "pb.adjoint": walk_by_adjoint,
    "pb.loop": walk_by_loop,
    "pb.checkpoint": walk_by_checkpoint,
    "pb.Tape": walk_by_tape,
    "pebbling.torch.loop": walk_by_torch_loop,
    "pebbling.torch.fit": walk_by_fit,
    "pebbling.jax.fori_loop": walk_by_jax,
}


def told(name: str) -> list[str]:
    """The files that the walk of a front end names, in order."""
    section = TEXT.split("## Seven walks")[1].split("\n## ")[0]
    walks = dict(re.findall(r"\*\*`([^`]+)`\*\*(.*?)(?=\n\n\*\*`|\Z)", section, re.DOTALL))
    return re.findall(r"`([\w/]+\.py)`", walks[name])


def entered(call: Callable[[], None]) -> list[str]:
    """The files of the library whose functions the call runs, by their first entry."""
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}/") and path not in found and not _imports(frame):
            found[path] = None

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [path[len(str(ROOT)) + 1 :] for path in found]


def _imports(frame: FrameType | None) -> bool:
    """Whether a file is being imported: what runs then is no step of the walk."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(f"{ROOT}/"):
            return True
        frame = frame.f_back
    return False


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_what_a_call_enters(name: str) -> None:
    files, seen = told(name), entered(WALKS[name])
    assert len(files) >= 5
    assert sorted(files) == sorted(set(files)), "a file twice in one walk"
    assert [path for path in files if path not in seen] == []
    assert files == sorted(files, key=seen.index)


def test_every_front_end_has_a_walk() -> None:
    section = TEXT.split("## Seven walks")[1].split("\n## ")[0]
    assert set(re.findall(r"^\*\*`([^`]+)`\*\*", section, re.MULTILINE)) == set(WALKS)
