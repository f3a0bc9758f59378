"""Plans over a sequence of steps: pure values, no framework, no input or output."""

from .actions import (
    ROW,
    Action,
    Advance,
    EndForward,
    Free,
    Record,
    Restore,
    Reverse,
    Store,
    Turn,
    decode,
    encode,
)
from .check import check
from .cost import Cost, Model, Room, Tier
from .periodic import Periodic
from .position import Position
from .revolve import Revolve
from .schedule import Schedule
from .storeall import StoreAll
