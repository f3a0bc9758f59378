"""For the tests of those who use pebbling: the peak of a training step as something to assert.

The same is a pytest plugin: mark a test with ``@pytest.mark.pebbling_peak`` and run pytest with ``--pebbling-peak``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from .peaks import Why

__all__ = ["assert_peak"]


def assert_peak(
    model: Callable[..., Any],
    batch: Any,
    memory: float | str,
    *,
    loss: Callable[[Any], Any] | None = None,
    optimizer: Any = None,
) -> Why:
    """Assert that a training step of a PyTorch model peaks within ``memory``, and return why it peaks where it does.

    ``batch`` is a tuple of arguments, a dictionary of them, or one tensor; ``loss`` and ``optimizer`` are those of
    ``pebbling.torch.why``. The peak counts everything that the step needs, the parameters included. The error says
    what makes the peak.

    >>> import torch
    >>> assert_peak(torch.nn.Linear(8, 8), torch.ones(4, 8), "64KiB").peak < 65536
    True
    """
    from .torch import why
    from .torch.why.largest import arguments

    budget = parse_bytes(memory)
    positional, keywords = arguments(batch)
    found = why(model, *positional, loss=loss, optimizer=optimizer, **keywords)
    if found.peak > budget:
        raise AssertionError(
            f"the peak is {format_bytes(found.peak)} ({found.peak} bytes), more than {memory} ({budget} bytes)"
            f"\n\n{found}"
        )
    return found
