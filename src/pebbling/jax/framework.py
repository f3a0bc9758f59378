"""JAX as loops see it: a loop on its arrays is compiled as a whole, as one of ``pebbling.jax``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ..budget import Budget
from ..engine.framework import Unwritten
from ..engine.protocol import Leaf
from ..errors import PebblingError
from ..source.runtime import Call
from .loops import loop
from .source import explore, run


class JaxFramework(Unwritten):
    """What loops ask of JAX's arrays."""

    engine = None

    def execute(self, *args: Any) -> Any:
        raise PebblingError(
            "a value that jax traces was given to a loop of NumPy arrays: use pebbling.jax.fori_loop, scan or "
            "while_loop"
        )

    def compiled(self, call: Call) -> tuple[Any, ...]:
        return run(call)

    def loop(self, body: Callable[..., Any], state: Any, steps: Any, args: tuple[Any, ...], told: Budget) -> Any:
        """``pb.loop`` on its arrays."""
        if told.verify == "all":
            raise ValueError('verify="all" compares replayed states, which a compiled JAX program does not hand out')
        if told.store is not None:
            raise ValueError(
                "store= keeps snapshots outside of the program, and a loop on JAX arrays is one compiled program: "
                "leave it out, or use pebbling.jax.offload_loop, which keeps them in host memory"
            )
        said: dict[str, Any] = {"slots": told.slots, "memory": told.memory, "schedule": told.schedule}
        if not isinstance(steps, range):
            return loop(body, state, steps, *args, **said)
        first, stride = steps.start, steps.step
        return loop(lambda i, s, *a: body(first + stride * i, s, *a), state, len(steps), *args, **said)

    def explore(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run a function as a derivative would, for ``pb.explain``."""
        explore(function, args, kwargs)

    def level(self, leaf: Leaf) -> int:
        return int(isinstance(leaf, jax.core.Tracer))

    def plain(self, leaf: Leaf) -> Any:
        return leaf

    def share(self, leaf: Leaf) -> Leaf:
        return leaf

    def enter(self, leaf: Leaf, of_state: bool) -> Leaf:
        return leaf

    def idle(self) -> bool:
        return False
