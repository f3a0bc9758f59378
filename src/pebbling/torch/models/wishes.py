"""Modules whose results stay, or run once, as the user wishes: ``fit(…, keep=["*.attn"], never_replay=[…])``."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

Wishes = tuple[str, ...]


def named(path: str, wishes: Wishes) -> bool:
    """Whether a module, or one around it, is wished for by its whole path or by a pattern.

    >>> named("layers.0.attn.q", ("*.attn",)), named("layers.0.mlp", ("*.attn",))
    (True, False)
    """
    while path:
        if any(wish == path or fnmatchcase(path, wish) for wish in wishes):
            return True
        path = path.rpartition(".")[0]
    return False


def wishes_of(function: Any, given: Iterable[str], argument: str) -> Wishes:
    """What the user gave, each of which names a module of the model; a ``ValueError`` for one that names none."""
    if isinstance(given, str):
        raise ValueError(f"{argument}={given!r} is one text: give a list of paths or patterns, {argument}=[{given!r}]")
    wishes = tuple(given)
    wrong = next((wish for wish in wishes if not isinstance(wish, str)), None)
    if wrong is not None:
        raise ValueError(f"{argument} has {wrong!r}: expected paths of modules or patterns, as text")
    if not wishes:
        return wishes
    if not isinstance(function, nn.Module):
        raise ValueError(f"{argument}= names modules, and a function has none: give fit the module that it calls")
    modules = [(name, each) for name, each in function.named_modules(remove_duplicate=False) if name]
    first = {id(each): name for name, each in function.named_modules()}
    found: list[str] = []
    for wish in wishes:
        some = [first[id(each)] for name, each in modules if wish == name or fnmatchcase(name, wish)]
        if not some:
            known = ", ".join(repr(name) for name, _ in modules[:4]) or "none"
            raise ValueError(
                f"{argument} has {wish!r}, which matches no module of {type(function).__name__}: its modules are "
                f"{known}{' and others' if len(modules) > 4 else ''}"
            )
        # A module in two places runs under the first of its paths.
        found += some
    return tuple(dict.fromkeys([*wishes, *found]))
