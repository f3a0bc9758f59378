"""Which names a piece of code binds, reads, changes in place and lets inner functions capture."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str, ...]
"""A name, and the attribute or key through which an array is reached from it, where that is written out."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
PURE_METHODS = frozenset({"items", "keys", "values", "get", "copy", "index", "count"})
PURE_CALLS = frozenset({"len", "isinstance", "type", "id", "print", "repr", "range", "enumerate", "zip", "reversed"})


class Uses(ast.NodeVisitor):
    """The names of one scope; nested functions count by the names that they capture."""

    def __init__(self, nodes: Iterable[ast.AST] = ()) -> None:
        self.loads: set[str] = set()
        self.stores: set[str] = set()
        self.walrus: set[str] = set()
        self.deletes: set[str] = set()
        self.captured: set[str] = set()
        """Read by functions and generators, which may run later."""
        self.rebound: set[str] = set()
        """Declared nonlocal by an inner function."""
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.written: set[Path] = set()
        """Where arrays are written into."""
        self.changed: set[str] = set()
        """Bases of assigned attributes and elements."""
        for node in nodes:
            self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.loads.add(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.stores.add(node.id)
        else:
            self.stores.add(node.id)
            self.deletes.add(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.walrus.add(node.target.id)
        self.stores.add(node.target.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.loads.add(node.target.id)
        self._note_written(node.target)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._note_written(node.value)
            self._note_changed(node)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._note_changed(node)
        self.generic_visit(node)

    def _note_changed(self, node: ast.AST) -> None:
        root = root_of(node)
        if root is not None:
            self.changed.add(root)

    def _note_written(self, node: ast.AST) -> None:
        path = path_of(node)
        if path is not None:
            self.written.add(path)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.nonlocals |= set(node.names)

    def visit_FunctionDef(self, node: Any) -> None:
        self.stores.add(node.name)
        for part in [*node.decorator_list, node.args, node.returns]:
            if part is not None:
                self._visit_signature(part)
        self._visit_inner(node.body, _parameters(node.args))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_signature(node.args)
        self._visit_inner([node.body], _parameters(node.args))

    def _visit_signature(self, part: ast.AST) -> None:
        if isinstance(part, ast.arguments):
            for default in [*part.defaults, *part.kw_defaults]:
                if default is not None:
                    self.visit(default)
        else:
            self.visit(part)

    def _visit_inner(self, body: Iterable[ast.AST], own: set[str]) -> None:
        inner = Uses(body)
        own = (own | inner.stores) - inner.nonlocals - inner.globals
        free = ((inner.loads | inner.captured) - own - inner.globals) | inner.nonlocals | (inner.rebound - own)
        self.captured |= free
        self.loads |= free
        self.rebound |= (inner.nonlocals | inner.rebound) - own

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.stores.add(node.name)
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        self._visit_inner(node.body, set())

    def _visit_comprehension(self, node: Any) -> None:
        first, *rest = node.generators
        self.visit(first.iter)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner = Uses([first.target, *first.ifs, *rest, *parts])
        own = inner.stores - inner.walrus
        free = inner.loads - own
        self.loads |= free
        self.stores |= inner.walrus
        self.walrus |= inner.walrus
        self.captured |= free if isinstance(node, ast.GeneratorExp) else inner.captured - own
        self.written |= {path for path in inner.written if path[0] not in own}
        self.changed |= inner.changed - own

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self.stores.add(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name is not None:
            self.stores.add(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest is not None:
            self.stores.add(node.rest)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self.stores.add(node.name)
            self.deletes.add(node.name)
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.stores.add(node.asname or node.name.partition(".")[0])


def _parameters(args: ast.arguments) -> set[str]:
    more = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return {arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, *more]}


def parameters_of(code: CodeType) -> set[str]:
    """The names of a function's arguments."""
    count = code.co_argcount + code.co_kwonlyargcount
    return set(code.co_varnames[: count + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)])


def variables_of(code: CodeType, tree: ast.FunctionDef) -> set[str]:
    """The names that are variables of a function, or of one that it is made in, wherever it uses them."""
    listed = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    # From Python 3.12 on, those of comprehensions are listed too; outside of them such a name may be a global.
    return listed & (Uses(tree.body).stores | parameters_of(code) | set(code.co_freevars))


def root_of(node: ast.AST) -> str | None:
    """The name at the beginning of ``a.b[c].d``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def path_of(node: ast.AST) -> Path | None:
    """The name at the beginning of ``a.b[c]`` and the first step from it, if it is an attribute or a literal key."""
    steps: list[ast.AST] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        steps.append(node)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    first = steps[-1] if steps else None
    if isinstance(first, ast.Attribute):
        return node.id, first.attr
    return (node.id,)


def exposed(nodes: Iterable[ast.AST]) -> set[str]:
    """Names whose objects code could change, or hand on to others who might: all uses but plain reads."""
    found: set[str] = set()

    def visit(node: ast.AST, parent: ast.AST | None, grand: ast.AST | None) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not _harmless(node, parent, grand):
            found.add(node.id)
        for child in ast.iter_child_nodes(node):
            visit(child, node, parent)

    for node in nodes:
        visit(node, None, None)
    return found


def _harmless(node: ast.Name, parent: ast.AST | None, grand: ast.AST | None) -> bool:
    if isinstance(parent, ast.Attribute):
        called = isinstance(grand, ast.Call) and grand.func is parent
        return isinstance(parent.ctx, ast.Load) and (not called or parent.attr in PURE_METHODS)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load) or parent.slice is node
    if isinstance(parent, ast.For):
        return parent.iter is node
    if isinstance(parent, ast.Call):
        return parent.func is node or (isinstance(parent.func, ast.Name) and parent.func.id in PURE_CALLS)
    return isinstance(parent, ast.Compare | ast.Expr)


def appended_only(nodes: Iterable[ast.AST], names: set[str]) -> set[str]:
    """Those names of which the code uses nothing but ``name.append(value)`` as a statement."""
    every: dict[str, int] = {}
    appends: dict[str, int] = {}
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                every[part.id] = every.get(part.id, 0) + 1
            elif isinstance(part, ast.Expr) and (name := _appended(part.value)) is not None:
                appends[name] = appends.get(name, 0) + 1
    return {name for name in names if appends.get(name, 0) == every.get(name, 0) > 0}


def _appended(call: ast.AST) -> str | None:
    if not isinstance(call, ast.Call) or call.keywords or len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
        return None
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "append" and isinstance(func.value, ast.Name):
        return func.value.id
    return None
