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
    Snapshot,
    Turn,
    decode,
    encode,
    old_name,
)
from .check import check
from .cost import Cost, Model, Room, Tier
from .hierarchical import Hierarchical
from .mixed import Mixed
from .online import Online
from .periodic import Periodic
from .plan import Plan, plan
from .position import Position
from .revolve import Revolve
from .runs import Runs
from .schedule import Schedule
from .staged import Staged
from .storeall import StoreAll
from .uneven import Uneven
from .working import Working

__all__ = [
    "ROW",
    "Action",
    "Advance",
    "Cost",
    "EndForward",
    "Free",
    "Hierarchical",
    "Mixed",
    "Model",
    "Online",
    "Periodic",
    "Plan",
    "Position",
    "Record",
    "Restore",
    "Reverse",
    "Revolve",
    "Room",
    "Runs",
    "Schedule",
    "Snapshot",
    "Staged",
    "StoreAll",
    "Tier",
    "Turn",
    "Uneven",
    "Working",
    "check",
    "decode",
    "encode",
    "plan",
]


def __getattr__(name: str) -> type[Snapshot]:
    return old_name(name, __name__)
