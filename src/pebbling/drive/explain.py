"""What went wrong in the user's code, in the words of this library where that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import ReplayError


@contextmanager
def explained(where: Callable[[], str]) -> Iterator[None]:
    """Turn the error of an attempt to write into a locked array into one that says what it means."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "read-only" not in str(error):
            raise
        raise ReplayError(
            f"{where()} writes into a state that is stored ({error}): it must leave its input as it is, and return "
            "its result in new arrays. Compiled code that only reads, but asks for memory that it may write to, must "
            "say so (Cython: const double[:])"
        ) from error
