"""What a caller allows: a number of slots, bytes or a schedule, where snapshots go, and what is verified."""

from .asked import UNKNOWN_LENGTH_SLOTS, Budget, told

__all__ = ["UNKNOWN_LENGTH_SLOTS", "Budget", "told"]
