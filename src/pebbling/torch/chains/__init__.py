"""Chains of modules: each module one step, planned within a budget."""

from .chain import Chain, chain

__all__ = ["Chain", "chain"]
