"""What a caller allows: a number of slots, bytes or a schedule, where snapshots go, and what is verified."""

from .asked import UNKNOWN_LENGTH_SLOTS, Budget, store_at, store_from, told
from .choose import choose, in_store, most_stored, refuse_other, slots_of
from .refusals import JITTER, too_few
from .slow_tier import quickest

__all__ = [
    "JITTER",
    "UNKNOWN_LENGTH_SLOTS",
    "Budget",
    "choose",
    "in_store",
    "most_stored",
    "quickest",
    "refuse_other",
    "slots_of",
    "store_at",
    "store_from",
    "told",
    "too_few",
]
