"""What goes wrong between values and their form as data."""

from __future__ import annotations


class NotData(Exception):
    """A value that has no form as data; the text says what it is."""


class Unreadable(ValueError):
    """Bytes that no writer of this version wrote."""
