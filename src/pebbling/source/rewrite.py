"""Turns every loop of a function into a function of its own and a call that runs it.

The loop stays a loop: its function takes the items of some of its steps and runs them in plain Python,
so that a replay of many steps costs nothing more than the steps. ``break``, ``return`` and exceptions
leave it with a flag. Names that may be unbound go in and out as ``UNBOUND`` and are deleted again, so
that reading one raises what plain Python raises.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from .facts import Facts
from .live import Loop
from .names import Uses
from .parse import RUNTIME

ENDED, BROKEN, RETURNED, FAILED_TEST, RAISED = range(5)
"""How a loop ended: with its items, by ``break``, by ``return``, by the test of ``while``, by an exception."""
_VIEWS = frozenset({"zip", "enumerate", "reversed"})


class Rewrite:
    """Rewrites the body of one function."""

    def __init__(self, loops: dict[Loop, Facts], known: set[str]) -> None:
        self.loops, self.known = loops, known

    def function(self, tree: ast.FunctionDef, parameters: set[str]) -> None:
        """Change a definition in place."""
        own = Uses(tree.body).stores & (self.known - parameters)
        tree.body = [*_own(own, tree), *self._block(tree.body, None, set(parameters))]

    def _block(self, body: Sequence[ast.stmt], loop: Facts | None, bound: set[str]) -> list[Any]:
        """The statements of a block inside ``loop``; ``bound`` are names known to be bound, and grows."""
        new: list[Any] = []
        for node in body:
            new += self._statement(node, loop, bound)
        return new

    def _statement(self, node: Any, loop: Facts | None, bound: set[str]) -> list[Any]:
        if isinstance(node, ast.For | ast.While):
            return self._loop(node, loop, bound)
        if loop is not None:
            _Prints(self.known).visit(node)
            if isinstance(node, ast.Return):
                return _return(loop, node.value or ast.Constant(None), node)
            if isinstance(node, ast.Break):
                return [*_code(f"{_name('flag', loop)} = {BROKEN}", node), node]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
            return [node]
        self._compound(node, loop, bound)
        return [node]

    def _compound(self, node: Any, loop: Facts | None, bound: set[str]) -> None:
        if isinstance(node, ast.If):
            first, second = set(bound), set(bound)
            node.body = self._block(node.body, loop, first)
            node.orelse = self._block(node.orelse, loop, second)
            bound &= first & second
            bound |= first & second
            return
        deleted = Uses([node]).deletes
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            part = getattr(node, field, None)
            if not isinstance(part, list) or not part:
                continue
            if isinstance(part[0], ast.stmt):
                setattr(node, field, self._block(part, loop, set(bound) - deleted))
            else:
                for one in part:
                    one.body = self._block(one.body, loop, set(bound) - deleted)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Import | ast.ImportFrom):
            uses = Uses([node])
            if not isinstance(node, ast.AnnAssign) or node.value is not None:
                bound |= uses.stores - uses.walrus
        bound -= deleted

    def _loop(self, node: Loop, outer: Facts | None, bound: set[str]) -> list[Any]:
        facts = self.loops[node]
        inside: list[Any] = [node.target, *node.body] if isinstance(node, ast.For) else [node.test, *node.body]
        deleted = Uses(inside).deletes
        returns = any(isinstance(part, ast.Return) for part in ast.walk(ast.Module(list(node.body), [])))
        passed = [*facts.state, *facts.consts, *facts.emits]
        unbound = [name for name in passed if name not in bound]
        within = (set(passed) & bound) - deleted
        loose = [name for name in facts.state if name not in within] + list(facts.outs)
        own = _own((Uses(inside).stores & self.known) - set(passed), node)
        body = self._body(node, facts, set(within))
        new: list[Any] = _code(f"def {_name('loop', facts)}({', '.join([_name('items', facts), *passed])}): pass", node)
        new[0].body = [
            *own,
            *_delete(dict.fromkeys([*unbound, *[name for name in facts.state if name in deleted]]), node),
            *_code(f"{_name('flag', facts)} = {ENDED}\n{_name('value', facts)} = None", node),
            *_guarded(facts, body, node),
            *_fill(loose, node),
            *_code(
                f"return {_name('flag', facts)}, {_name('value', facts)}, {_tuple(facts.state)}, {_tuple(facts.outs)}",
                node,
            ),
        ]
        new += _fill([*unbound, *[name for name in facts.outs if name not in bound]], node)
        call = _code(
            f"{_name('flag', facts)}, {_name('value', facts)}, {_tuple([*facts.state, *facts.outs])} = "
            f"{RUNTIME}.run({facts.number}, {_name('loop', facts)}, None, {_tuple(facts.state)}, {_tuple(facts.outs)}, "
            f"{_tuple(facts.consts)}, {_tuple(facts.emits)})",
            node,
        )
        if isinstance(node, ast.For):
            iterable = _Views(self.known).visit(node.iter)
            if outer is not None:
                iterable = _Prints(self.known).visit(iterable)
            call[0].value.args[2] = iterable
        new += call
        new += _delete(dict.fromkeys([*unbound, *[name for name in facts.state if name in deleted], *facts.outs]), node)
        new += _code(f"if {_name('flag', facts)} == {RAISED}:\n    raise {_name('value', facts)}", node)
        if returns:
            gone = _code(f"if {_name('flag', facts)} == {RETURNED}: pass", node)
            value = _code(_name("value", facts), node)[0].value
            gone[0].body = _return(outer, value, node) if outer else [ast.copy_location(ast.Return(value), node)]
            new += gone
        bound -= deleted | set(unbound)
        if node.orelse:
            otherwise = _code(f"if {_name('flag', facts)} != {BROKEN}: pass", node)
            otherwise[0].body = self._block(node.orelse, outer, set(bound))
            new += otherwise
        return new

    def _body(self, node: Loop, facts: Facts, bound: set[str]) -> list[Any]:
        """The loop itself, over the items that its function is given."""
        items = ast.Name(_name("items", facts), ast.Load())
        if isinstance(node, ast.For):
            entered = bound | (Uses([node.target]).stores - Uses(node.body).deletes)
            new = ast.For(node.target, items, self._block(node.body, facts, entered), [])
            return [ast.copy_location(new, node)]
        test = _Prints(self.known).visit(node.test)
        first: list[Any] = []
        if not (isinstance(test, ast.Constant) and test.value):
            first = _code("if not None:\n    break", node)
            first[0].test.operand = test
        counter = ast.Name(_name("step", facts), ast.Store())
        new = ast.For(counter, items, [*first, *self._block(node.body, facts, bound)], [])
        ended = _code(f"{_name('flag', facts)} = {FAILED_TEST}", node)
        if first:
            first[0].body[:0] = ended
        return [ast.copy_location(new, node)]


def _return(loop: Facts, value: Any, like: ast.AST) -> list[Any]:
    new = _code(f"{_name('value', loop)} = None\n{_name('flag', loop)} = {RETURNED}", like)
    new[0].value = value
    return [*new, ast.copy_location(ast.Break(), like)]


def _guarded(facts: Facts, body: list[Any], like: ast.AST) -> list[Any]:
    new = _code(
        f"try:\n    pass\nexcept Exception as {_name('error', facts)}:\n"
        f"    {_name('flag', facts)} = {RAISED}\n    {_name('value', facts)} = {_name('error', facts)}",
        like,
    )
    new[0].body = body
    return new


def _own(names: Iterable[str], like: ast.AST) -> list[Any]:
    """Make names local to a function, although it may not bind them any more: to read one must not find a global."""
    return [part for name in sorted(names) for part in _code(f"if 0:\n    {name} = None", like)]


def _fill(names: Iterable[str], like: ast.AST) -> list[Any]:
    return [
        part
        for name in names
        for part in _code(f"try:\n    {name}\nexcept NameError:\n    {name} = {RUNTIME}.UNBOUND", like)
    ]


def _delete(names: Iterable[str], like: ast.AST) -> list[Any]:
    return [part for name in names for part in _code(f"if {name} is {RUNTIME}.UNBOUND:\n    del {name}", like)]


def _name(what: str, facts: Facts) -> str:
    return f"{RUNTIME}_{what}_{facts.number}"


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _code(text: str, like: ast.AST) -> list[Any]:
    """Statements from text, all of them on the line of ``like``."""
    body = ast.parse(text).body
    for statement in body:
        for node in ast.walk(statement):
            if "lineno" in node._attributes:
                ast.copy_location(node, like)
                node.end_lineno, node.end_col_offset = like.lineno, like.col_offset  # type: ignore[attr-defined]
    return list(body)


class _Views(ast.NodeTransformer):
    """``zip``, ``enumerate`` and ``reversed`` at the head of a loop, so that their items can be found by number."""

    def __init__(self, known: set[str]) -> None:
        self.known = known

    def visit(self, node: Any) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _VIEWS - self.known:
            node.args = [node.func, *[self.visit(arg) for arg in node.args]]
            node.func = _code(f"{RUNTIME}.view", node)[0].value
        return node


class _Prints(ast.NodeTransformer):
    """``print`` in a loop, so that what is printed is printed once."""

    def __init__(self, known: set[str]) -> None:
        self.known = known

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "print" and "print" not in self.known:
            node.args = [node.func, *node.args]
            node.func = _code(f"{RUNTIME}.print", node)[0].value
        return node

    def _leave(self, node: Any) -> Any:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_For = visit_While = _leave
