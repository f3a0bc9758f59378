"""Turns every loop of a function into a function of its own and a call that runs it.

The loop stays a loop: its function takes the items of some of its steps and runs them in plain Python,
so that a replay of many steps costs nothing more than the steps. ``break``, ``return`` and exceptions
leave it with a flag. Names that may be unbound go in and out as ``UNBOUND`` and are deleted again, so
that reading one raises what plain Python raises.

The head of a ``while`` is made a function besides, for a framework that compiles the loop: ``and``, ``or``, ``not``
and chained comparisons, which ask for a truth value at once, go through what that framework makes of them. So does
the condition of ``if …: break``.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence
from typing import Any

from ..tree.reach import HANDLERS
from .facts import Facts
from .live import Loop
from .names import Uses
from .parse import RUNTIME

ENDED, BROKEN, RETURNED, FAILED_TEST, RAISED = range(5)
"""How a loop ended: with its items, by ``break``, by ``return``, by the test of ``while``, by an exception."""
_VIEWS = frozenset({"zip", "enumerate", "reversed", "range"})
_LOGIC = f"{RUNTIME}_logic"
TESTED = -1
"""The number of a step of ``while`` whose test has been made elsewhere."""


class Rewrite:
    """Rewrites the body of one function."""

    def __init__(self, loops: dict[Loop, Facts], known: set[str]) -> None:
        self.loops, self.known = loops, known

    def function(self, tree: ast.FunctionDef, parameters: set[str]) -> None:
        """Change a definition in place."""
        own = Uses(tree.body).stores & (self.known - parameters)
        tree.body = [*_own(own, tree), *_handlers(tree), *self._block(tree.body, None, set(parameters))]

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
        before = _leaving(node, loop) if loop is not None and isinstance(node, ast.If) else []
        self._compound(node, loop, bound)
        return [*before, node]

    def _compound(self, node: Any, loop: Facts | None, bound: set[str]) -> None:
        if isinstance(node, ast.If):
            first, second = set(bound), set(bound)
            node.body = self._block(node.body, loop, first)
            node.orelse = self._block(node.orelse, loop, second)
            bound.clear()
            bound.update(first & second)
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
        new += self._head(node, facts, unbound)
        new[0].body = [
            *own,
            *_handlers(node),
            *_delete(dict.fromkeys([*unbound, *[name for name in facts.state if name in deleted]]), node),
            *_code(f"{_name('flag', facts)} = {ENDED}\n{_name('value', facts)} = None", node),
            *_code(f"{_name('exits', facts)} = {RUNTIME}.exits({_name('items', facts)})" if facts.stops else "", node),
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
            f"{_tuple(facts.consts)}, {_tuple(facts.emits)}, {_name('test', facts) if _test(node) else None})",
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
        first: list[Any] = []
        if _test(node) is not None:
            ended = f"{_name('flag', facts)} = {FAILED_TEST}"
            first = _code(f"if {_name('step', facts)} < 0:\n    pass\nelif not None:\n    {ended}\n    break", node)
            first[0].body += _bindings(node)
            first[0].orelse[0].test.operand = _Prints(self.known).visit(node.test)
        counter = ast.Name(_name("step", facts), ast.Store())
        new = ast.For(counter, items, [*first, *self._block(node.body, facts, bound)], [])
        return [ast.copy_location(new, node)]

    def _head(self, node: Loop, facts: Facts, unbound: Sequence[str]) -> list[Any]:
        """The test of ``while`` as a function: its answer, and the names that it binds, from the other variables."""
        test = _test(node)
        if test is None:
            return []
        given = [name for name in [*facts.state, *facts.consts] if name not in facts.head]
        bound = ", ".join(f"{name!r}: {name}" for name in facts.head)
        new = _code(f"def {_name('test', facts)}({', '.join([_LOGIC, *given])}): return None, {{{bound}}}", node)
        new[0].body[0].value.elts[0] = _Tests(_LOGIC).visit(_Bound().visit(copy.deepcopy(test)))
        new[0].body[:0] = [*_delete([name for name in unbound if name in given], node), *_bindings(node)]
        return new


def _test(node: Loop) -> Any:
    """What a loop asks before each step; ``None`` if nothing."""
    if isinstance(node, ast.For) or (isinstance(node.test, ast.Constant) and node.test.value):
        return None
    return node.test


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


def _handlers(like: ast.AST) -> list[Any]:
    """A mark, in code that has handlers of exceptions of the user's own: those of ours catch none of the user's."""
    handles = any(isinstance(node, ast.Try | ast.TryStar | ast.With) for node in ast.walk(like))
    return _own([HANDLERS], like) if handles else []


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


def _leaving(node: ast.If, facts: Facts) -> list[Any]:
    """Change the test of an ``if`` that binds names and leaves a loop: where that is compiled, its exits have the say.

    They are told beforehand what the names would be; the statements for that are returned.
    """
    *bindings, last = node.body
    if not isinstance(last, ast.Break) or not all(map(_binds_names, bindings)):
        return []
    exits, kept = _name("exits", facts), _name("kept", facts)
    binds = any(isinstance(one, ast.NamedExpr) for one in ast.walk(node.test))
    # What is bound inside of a function, as operands of logic are here, is bound there alone.
    asked = copy.deepcopy(node.test) if binds else _Tests(exits).visit(copy.deepcopy(node.test))
    new = _code(f"if {exits} is not None and {exits}.asks(None):\n    pass", node)
    new[0].test.values[1].args[0] = asked
    names = sorted(Uses(bindings).stores)
    new[0].body = [
        *_fill(names, node),
        *_code(f"{kept} = {_tuple(names)}", node),
        *_delete(names, node),
        *copy.deepcopy(bindings),
        *_code(f"{exits}.note()", node),
        *(_code(f"{_tuple(names)} = {kept}", node) if names else []),
        *_delete(names, node),
    ]
    test = _code(f"None if {exits} is None else {exits}.answer", node)[0].value
    test.body = node.test
    node.test = test
    return new


def _binds_names(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return isinstance(node, ast.Assign | ast.AugAssign) and all(isinstance(one, ast.Name) for one in names)


def _bindings(node: Any) -> list[Any]:
    """What the head of ``while`` binds, as statements."""
    found = [one for one in ast.walk(copy.deepcopy(node.test)) if isinstance(one, ast.NamedExpr)]
    return [ast.copy_location(ast.Assign([one.target], one.value), node) for one in reversed(found)]


class _Bound(ast.NodeTransformer):
    """Names in the place of the expressions that bind them."""

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        return ast.copy_location(ast.Name(node.target.id, ast.Load()), node)


class _Tests(ast.NodeTransformer):
    """Logic in the head of ``while``, or of an ``if`` that leaves a loop, without asking for truth values."""

    def __init__(self, logic: str) -> None:
        self._logic = logic

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return self._call("every" if isinstance(node.op, ast.And) else "some", node.values, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self._call("none", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1:
            return node
        terms = [node.left, *node.comparators]
        pairs: list[Any] = [
            ast.copy_location(ast.Compare(copy.deepcopy(left), [op], [right]), node)
            for left, op, right in zip(terms, node.ops, terms[1:])
        ]
        return self._call("every", pairs, node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node  # inside of other expressions, and and or give their operands

    def _call(self, name: str, parts: Sequence[Any], like: ast.AST) -> Any:
        new = _code(f"{self._logic}.{name}({', '.join(['lambda: None'] * len(parts))})", like)[0].value
        for argument, part in zip(new.args, parts):
            argument.body = self.visit(part)
        return new
