"""The examples of the pages: Python blocks, each with what it prints, if the page shows that.

A page shows an output in a block of its own, right after the code:

    ```python
    print(1 + 1)
    ```
    ```output
    2
    ```

Where a number changes from run to run, the page says ``...`` in its place, as doctests do. An empty output
block is filled in by ``python tests/doc_examples.py docs/page.md``, which writes what the code printed.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?^```output\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Example:
    """A block of code at ``line`` of its page, and the output that the page shows (``None``: it shows none)."""

    line: int
    code: str
    output: str | None
    span: tuple[int, int]

    def agrees(self, printed: str) -> bool:
        return self.output is None or doctest.OutputChecker().check_output(self.output, printed, SAME)


def examples(text: str) -> Iterator[Example]:
    for match in BLOCK.finditer(text):
        yield Example(text[: match.start()].count("\n") + 1, match["code"], match["output"], match.span("output"))


def run(page: Path, example: Example, scope: dict[str, object]) -> str:
    """Runs the code as if it stood in the page's file, and gives back what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * example.line + example.code, str(page), "exec"), scope)
    return printed.getvalue()


def fill(page: Path) -> None:
    """Writes what is printed into the output blocks that are empty."""
    text, scope, edits = page.read_text(), {"__name__": "__main__"}, []
    for example in examples(text):
        printed = run(page, example, scope)
        if example.output == "":
            edits.append((example.span, printed if printed.endswith("\n") else printed + "\n"))
        elif not example.agrees(printed):
            print(f"{page}:{example.line}: printed\n{printed}\nbut the page shows\n{example.output}")
    for (start, end), printed in reversed(edits):
        text = text[:start] + printed + text[end:]
    page.write_text(text)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in pages:
            fill(page)
