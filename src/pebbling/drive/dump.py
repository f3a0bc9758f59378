"""States and adjoints written out on the way back, for inspection."""

from __future__ import annotations

import os
import pickle
from os import PathLike
from typing import Any

from ..chain.validate import whole


class Dump:
    """Writes the state before every ``every``-th step, and the adjoint of it, to a directory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     dump = Dump(path, every=5)
    ...     dump(state=1.0, adjoint=2.0, step=10)
    ...     dump(state=3.0, adjoint=4.0, step=11)
    ...     dump.steps(), dump.read(10)
    ([10], (1.0, 2.0))
    """

    def __init__(self, path: str | PathLike[str], every: int = 1) -> None:
        self.path, self.every = os.fspath(path), whole(every, "every", 1)
        os.makedirs(self.path, exist_ok=True)

    def __call__(self, state: Any, adjoint: Any, step: int) -> None:
        """Write one step, if it is one of those wanted."""
        if step % self.every == 0:
            with open(self._file(step), "wb") as file:
                pickle.dump((state, adjoint), file, 5)

    def steps(self) -> list[int]:
        """The steps that were written."""
        return sorted(int(name[5:-5]) for name in os.listdir(self.path) if name.endswith(".dump"))

    def read(self, step: int) -> tuple[Any, Any]:
        """The state before ``step`` and its adjoint. Open no directory that others can write to: it is unpickled."""
        with open(self._file(step), "rb") as file:
            state, adjoint = pickle.load(file)
        return state, adjoint

    def _file(self, step: int) -> str:
        return os.path.join(self.path, f"step-{step}.dump")
