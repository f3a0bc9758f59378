"""Which names are still needed at each loop: backward liveness over a syntax tree.

The textbook analysis (Aho, Lam, Sethi, Ullman, section 9.2.5) on structured code, with a fixed point
at every loop. It errs on the side of "needed": an exception may jump from any statement of a ``try``
or ``with``, and names that inner functions capture are needed throughout.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .names import Uses

Names: TypeAlias = frozenset[str]
Loop: TypeAlias = ast.For | ast.While
_NONE: Names = frozenset()


@dataclass(frozen=True)
class Needed:
    """What is needed around one loop."""

    body: Names
    """At the beginning of an iteration: read in it, or in a later one, before it is bound again."""
    after: Names
    """Once the loop has ended, however it ended."""


@dataclass(frozen=True)
class _Exits:
    broken: Names = _NONE
    continued: Names = _NONE
    raised: Names = _NONE


class Liveness:
    """Finds what each loop of a function needs; ``loops`` has the answers."""

    def __init__(self, function: ast.FunctionDef, lasting: bool = True) -> None:
        """``lasting``: whether functions that are made in an iteration may run after it."""
        self.loops: dict[Loop, Needed] = {}
        self._always = frozenset(Uses(function.body).captured) if lasting else _NONE
        self._block(function.body, self._always, _Exits())

    def _block(self, body: Sequence[ast.stmt], out: Names, exits: _Exits) -> Names:
        for statement in reversed(body):
            out = self._statement(statement, out, exits) | exits.raised | self._always
        return out

    def _statement(self, node: ast.stmt, out: Names, exits: _Exits) -> Names:
        visit = getattr(self, f"_{type(node).__name__}", None)
        if visit is not None:
            result: Names = visit(node, out, exits)
            return result
        uses = Uses([node])
        # What is deleted has to be there.
        return (out - (uses.stores - uses.walrus)) | uses.loads | uses.deletes

    def _Return(self, node: ast.Return, out: Names, exits: _Exits) -> Names:
        return _loads(node.value)

    def _Raise(self, node: ast.Raise, out: Names, exits: _Exits) -> Names:
        return _loads(node.exc) | _loads(node.cause)

    def _Break(self, node: ast.Break, out: Names, exits: _Exits) -> Names:
        return exits.broken

    def _Continue(self, node: ast.Continue, out: Names, exits: _Exits) -> Names:
        return exits.continued

    def _If(self, node: ast.If, out: Names, exits: _Exits) -> Names:
        return _loads(node.test) | self._block(node.body, out, exits) | self._block(node.orelse, out, exits)

    def _Match(self, node: Any, out: Names, exits: _Exits) -> Names:
        found = _loads(node.subject) | out
        for case in node.cases:
            found |= _loads(case.pattern) | _loads(case.guard) | self._block(case.body, out, exits)
        return found

    def _With(self, node: ast.With, out: Names, exits: _Exits) -> Names:
        # The context manager may swallow an exception and go on after the block.
        inside = self._block(node.body, out, replace(exits, raised=exits.raised | out))
        found = inside
        for item in reversed(node.items):
            found |= _loads(item.context_expr) | (_loads(item.optional_vars) if item.optional_vars else _NONE)
        return found

    def _Try(self, node: Any, out: Names, exits: _Exits) -> Names:
        final = out
        if node.finalbody:
            every = out | exits.broken | exits.continued | exits.raised
            final = self._block(node.finalbody, every, exits)
            exits = _Exits(final, final, exits.raised | final)
        handlers = final if node.finalbody else _NONE
        for handler in node.handlers:
            handlers |= _loads(handler.type) | self._block(handler.body, final, exits)
        after = self._block(node.orelse, final, exits)
        return self._block(node.body, after, replace(exits, raised=exits.raised | handlers)) | handlers

    _TryStar = _Try

    def _For(self, node: ast.For, out: Names, exits: _Exits) -> Names:
        after = self._block(node.orelse, out, exits) if node.orelse else out
        target = Uses([node.target])
        head = after
        while True:
            body = self._block(node.body, head, _Exits(out, head, exits.raised))
            entered = (body - target.stores) | target.loads
            if head >= entered:
                break
            head |= entered
        self.loops[node] = Needed(entered | exits.raised | self._always, after | out | exits.raised | self._always)
        return head | _loads(node.iter)

    def _While(self, node: ast.While, out: Names, exits: _Exits) -> Names:
        after = self._block(node.orelse, out, exits) if node.orelse else out
        head = after | _loads(node.test)
        while True:
            body = self._block(node.body, head, _Exits(out, head, exits.raised))
            if head >= body:
                break
            head |= body
        self.loops[node] = Needed(head | exits.raised | self._always, after | out | exits.raised | self._always)
        return head


def _loads(node: ast.AST | None) -> Names:
    return _NONE if node is None else frozenset(Uses([node]).loads)
