"""Loops on tensors: one node of autograd's graph each, whose tape fits a budget."""

from .loop import loop

__all__ = ["loop"]
