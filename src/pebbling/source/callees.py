"""Loops of the functions that a checkpointed function calls.

    def simulate(u):                        # the user's own, without a decorator
        for i in range(1000):
            u = step(u)
        return u

    pb.grad(lambda u: np.sum(simulate(u)), checkpoint=8)

In a transformed function each call asks for what to call (``Runtime.call``). In place of a function of the user's own
that reaches a loop, it gets that function with its loops checkpointed, whose calls ask again, and so on. Methods,
objects that can be called and ``partial`` count as the function behind them.

Not reached are the code of libraries, generators, functions that a library calls (``map``, ``solve_ivp``), and loops
whose source can't be changed. Loops that are too short to be worth it run as they are, and so do loops over iterators
and, inside of a step of another loop, those of unknown length. ``explain`` says which.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
from collections import deque
from collections.abc import Callable
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from numpy import ndarray

from ..errors import SourceError
from ..loops.runtime import Options
from ..tree.reach import Reach, is_library
from .facts import Facts, find_loops
from .items import Spanned, view_of
from .names import parameters_of, root_of, variables_of
from .parse import RUNTIME, bind, compiled, parse
from .rewrite import Rewrite

LEAST = 16
"""Loops of fewer steps are not worth it in functions that nobody has decorated."""
_OF_ARRAYS = frozenset({*dir(ndarray), *dir(list), *dir(dict), *dir(set), *dir(str)})
"""Methods of arrays and containers, which are hardly the user's own."""
_SUSPENDED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class Template(NamedTuple):
    """A transformed function without the variables that it captures."""

    code: CodeType
    runtime: Any
    name: str


class Callees:
    """The functions that one checkpointed function calls, directly or through others."""

    def __init__(self, options: Options, runtime: Callable[[list[Facts], Callees], Any]) -> None:
        """``runtime`` makes what runs the loops of one of them."""
        self.options, self._runtime = options, runtime
        self.templates: dict[CodeType, Template | None] = {}
        """By code; ``None`` for what is called as it is."""
        self._bound: WeakKeyDictionary[FunctionType, FunctionType] = WeakKeyDictionary()
        self.reached = False
        """Whether there was a loop in one of them."""
        self.listeners: list[Callable[[Template], None]] = []
        """Told of every function that is transformed; for ``explain``."""

    def __deepcopy__(self, memo: Any) -> Callees:
        return self

    def of(self, called: Any) -> Any:
        """What to call in place of something."""
        cls: Any = type(called)
        if cls is FunctionType:
            return self._function(called)
        if cls is MethodType:
            method = called.__func__
            new = self._function(method) if type(method) is FunctionType else method
            return called if new is method else MethodType(new, called.__self__)
        if cls is functools.partial:
            new = self.of(called.func)
            return called if new is called.func else functools.partial(new, *called.args, **called.keywords)
        method = None if issubclass(cls, type) else _call_of(cls)
        if type(method) is FunctionType:
            new = self._function(method)
            return called if new is method else MethodType(new, called)
        return called

    def _function(self, function: FunctionType) -> FunctionType:
        code = function.__code__
        try:
            template = self.templates[code]
        except KeyError:
            template = self.templates[code] = self._template(function)
            if template is not None:
                for tell in self.listeners:
                    tell(template)
        if template is None:
            return function
        new = self._bound.get(function)
        if new is None:
            new = self._bound[function] = bind(function, template.code, template.runtime)
            setattr(new, RUNTIME, template.runtime)
        return new

    def _template(self, function: FunctionType) -> Template | None:
        if hasattr(function, RUNTIME) or not is_own(function):
            return None
        try:
            tree = parse(function)
            loops = find_loops(function, tree) if may_reach_loop(function, tree) else None
        except SourceError:
            return None
        if loops is None:
            return None
        runtime = self._runtime(list(loops.values()), self)
        rewrite(function, tree, loops, calls=True)
        return Template(compiled(function, tree), runtime, function.__qualname__)


@functools.lru_cache(4096)
def _call_of(cls: Any) -> Any:
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


def rewrite(function: FunctionType, tree: ast.FunctionDef, loops: dict[Any, Facts], calls: bool) -> None:
    """Change the definition of a function: its loops, and with ``calls`` what it calls."""
    code = function.__code__
    known = variables_of(code, tree)
    Rewrite(loops, known).function(tree, {*parameters_of(code), *code.co_freevars})
    if calls:
        asked = _Calls(function, known)
        tree.body = [asked.visit(statement) for statement in tree.body]


def is_own(function: FunctionType) -> bool:
    """Whether a function is the user's own, and runs from its beginning to its end."""
    return not is_library(function.__code__.co_filename) and not function.__code__.co_flags & _SUSPENDED


def may_reach_loop(function: FunctionType, tree: ast.FunctionDef) -> bool:
    """Whether a function has a loop, or can reach code that has one, or calls what only its arguments know."""
    asked = _Calls(function, variables_of(function.__code__, tree))
    if has_loop(function.__code__) or any(map(asked.is_unknown, ast.walk(tree))):
        return True
    reach = Reach([function])
    deque(reach, 0)
    return any(map(has_loop, reach.codes))


def has_loop(code: CodeType) -> bool:
    """Whether code has a loop that is no comprehension."""
    if any(one.opname.startswith(("FOR_ITER", "JUMP_BACKWARD")) for one in dis.get_instructions(code)):
        return True
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return any(has_loop(one) for one in inner if not one.co_name.startswith("<") or one.co_name == "<lambda>")


def why_plainly(facts: Facts, iterable: Any, inside: bool) -> str:
    """Why a loop of a function that nobody has decorated runs as it is; empty if it is to be checkpointed."""
    view = view_of(iterable) if facts.is_for else None
    if facts.is_for and (view is None or isinstance(view, Spanned)):
        return "it runs over an iterator, in a function without the decorator"
    if view is not None and view.length < LEAST:
        return f"it has fewer than {LEAST} steps, in a function without the decorator"
    if view is None and inside:
        return "its length is unknown, and it runs inside of a step of another loop"
    return ""


class _Calls(ast.NodeTransformer):
    """Every call of what could be the user's own asks what to call."""

    def __init__(self, function: FunctionType, known: set[str]) -> None:
        self._globals, self._known = function.__globals__, known

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if self._is_asked(node.func):
            asks = ast.Attribute(ast.Name(RUNTIME, ast.Load()), "call", ast.Load())
            node.func = ast.Call(asks, [node.func], [])
            for part in ast.walk(node.func):
                if "lineno" in part._attributes and not hasattr(part, "lineno"):
                    ast.copy_location(part, node)
        return node

    def is_unknown(self, node: ast.AST) -> bool:
        """Whether a call is one of something that is not known before the function runs."""
        if not isinstance(node, ast.Call) or not self._is_asked(node.func):
            return False
        root = root_of(node.func)
        return (root is None or root in self._known) and getattr(node.func, "attr", None) not in _OF_ARRAYS

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return node  # its methods are transformed when they are called

    def _is_asked(self, func: Any) -> bool:
        root = root_of(func)
        if root is None or root == "super":
            return root is None
        if root.startswith(RUNTIME) or (isinstance(func, ast.Attribute) and func.attr == "append"):
            return False
        if root in self._known:
            return True
        value = self._globals.get(root, self)
        if value is self:
            return not hasattr(builtins, root)
        return not isinstance(value, ModuleType) or not is_library(getattr(value, "__file__", None))
