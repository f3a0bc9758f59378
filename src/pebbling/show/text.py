"""Tables for terminals: plain text, emphasised only where someone looks at it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TextIO

from .compare import Comparison


def table(comparison: Comparison) -> str:
    """The numbers of a comparison: forwards a step by memory and family, and what was left out.

    >>> from pebbling.show import compare
    >>> table(compare(20)).splitlines()[-1].split()
    ['19', '1.950', '2.050', '1.500', '1.000', '1.950']
    """
    return table_of(comparison.json())


def table_of(content: dict[str, Any]) -> str:
    """The same from what ``Comparison.json`` gave; a ``ValueError`` says what is missing or not right."""
    try:
        steps, at = content["steps"], {memory: i for i, memory in enumerate(content["memory"])}
        header = ["states", *(curve["name"] for curve in content["curves"])]
        rows = []
        for memory in content["rows"]:
            counts = [curve["forwards"][at[memory]] for curve in content["curves"]]
            rows.append([f"{memory:,}", *("-" if one is None else f"{one / steps:.3f}" for one in counts)])
        return "\n".join([columns(header, rows), *content["notes"]])
    except (LookupError, TypeError, ArithmeticError) as error:
        raise ValueError(f"not a comparison as `pebbling plan --compare --json` writes it: {error!r}") from error


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header of as many lines as it needs, right-aligned."""
    heads = [name.replace(", ", ",\n").split("\n") for name in header]
    depth = max(map(len, heads))
    lines = [[""] * (depth - len(head)) + head for head in heads]
    table = [*(list(line) for line in zip(*lines, strict=True)), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table)


def emphasised(lines: str, stream: TextIO) -> str:
    """Lines of "name  value" with the names in bold, if ``stream`` is a terminal that shows it."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return lines
    return "\n".join(f"\x1b[1m{line[:16]}\x1b[0m{line[16:]}" for line in lines.splitlines())
