"""The host's memory beside the budget: which storages may be copied there, and what a copy there and back takes.

Copies block, as in ``check``: nothing runs meanwhile, so that the time of a plan is the sum of its steps,
and a bound on it holds for every plan of that kind. Who runs a plan with copies beside the computing can
only be faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..units import format_bytes, parse_bandwidth, parse_bytes
from .indexed import Indexed


@dataclass(frozen=True)
class Host:
    """Bytes that the host has, and bytes per second of the link to it."""

    bytes: int
    transfer: float


def parse_host(host: float | str | None, transfer: float | str | None) -> Host | None:
    """What ``solve`` is given, or a ``ValueError``."""
    if host is None and transfer is None:
        return None
    if host is None:
        raise ValueError(
            f"transfer is {transfer!r}, and host is not given: say how many bytes of the host's memory may be "
            "used, host=…, or leave both out"
        )
    room = parse_bytes(host)
    if transfer is None:
        raise ValueError(
            f"host is {format_bytes(room)}, and transfer is not given: say how fast the link to it is, "
            'transfer=… in bytes per second or as text such as "12GB/s"'
        )
    rate = parse_bandwidth(transfer)
    if not rate > 0:
        raise ValueError(f"transfer is {transfer!r}: expected bytes per second, more than 0")
    return Host(room, rate)


def with_host(graph: Indexed, host: Host | None) -> Indexed:
    """A graph whose storages may go to the host: those that are no outputs and have room there."""
    if host is None:
        return graph
    may = ~graph.fixed & (graph.size > 0) & (graph.size <= host.bytes)
    return replace(graph, trip=np.where(may, 2 * graph.size / host.transfer, math.inf), host=host.bytes)


def staying(graph: Indexed, names: frozenset[str]) -> Indexed:
    """The same graph, copies of the named storages barred."""
    barred = np.array([name in names for name in graph.names], np.bool_)
    return replace(graph, trip=np.where(barred, math.inf, graph.trip)) if names else graph


def without_host(graph: Indexed) -> Indexed:
    """The same graph, all copies barred."""
    return replace(graph, trip=np.full(len(graph.size), math.inf), host=0)


def worth_it(graph: Indexed, extra: float) -> Indexed:
    """The same graph with all copies barred that alone take as long as a known plan takes beyond one run of each."""
    return replace(graph, trip=np.where(graph.trip < extra, graph.trip, math.inf))


def copies(graph: Indexed) -> bool:
    """Whether anything may go to the host."""
    return graph.host > 0 and bool((graph.trip < math.inf).any())
