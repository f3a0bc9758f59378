"""What runs in this thread: whether a step does, whether it has run before, and what is known of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from .net import Net


class Quiet(threading.local):
    """Whether steps run that have run before, and so print nothing; and how many steps are running."""

    depth = 0
    steps = 0
    net: Net | None = None
    """What is known of the innermost step that is running."""


QUIET = Quiet()


def running() -> bool:
    """Whether a step of a loop under a derivative is running."""
    return QUIET.steps > 0


def nothing_runs() -> NoReturn:
    """Stands for the objects of a call while there is none."""
    raise RuntimeError("no step is running")
