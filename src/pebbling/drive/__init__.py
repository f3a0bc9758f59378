"""Runs a chain plan with real steps: driver, journal, replay checks, progress."""

from .adjoint import Result, adjoint
from .dump import Dump
from .report import Report
from .taylor import Taylor, taylor_test

__all__ = ["Dump", "Report", "Result", "Taylor", "adjoint", "taylor_test"]
