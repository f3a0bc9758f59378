"""The API page documents every public name, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MODULES = [
    "pebbling",
    "pebbling.store",
    "pebbling.numpy",
    "pebbling.torch",
    "pebbling.jax",
    "pebbling.jax.diffrax",
    "pebbling.jax.equinox",
    "pebbling.graph",
    "pebbling.show",
    "pebbling.testing",
    "pebbling.adapters.checkpoint_schedules",
    "pebbling.adapters.pyadjoint",
    "pebbling.adapters.dask",
    "pebbling.adapters.torchdiffeq",
]


def documented() -> set[str]:
    """Full names in the page's directives; a name without a module belongs to the last ``currentmodule``."""
    module, found = "", set()
    for line in PAGE.read_text().splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif match := re.match(r"\.\. (?:auto|py:)(?:class|function|data|exception):: (\S+)", line):
            name = match[1]
            found.add(name if name.startswith("pebbling.") else f"{module}.{name}")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    module = importlib.import_module(name)
    missing = {each for each in module.__all__ if f"{name}.{each}" not in documented()}
    assert not missing


def test_every_name_in_the_reference_exists() -> None:
    for full in documented():
        module, _, name = full.rpartition(".")
        assert hasattr(importlib.import_module(module), name), full


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_described(name: str) -> None:
    module = importlib.import_module(name)
    for each in module.__all__:
        found = getattr(module, each)
        if isinstance(found, type) or callable(found):
            assert (found.__doc__ or "").strip(), f"{name}.{each} has no description"
