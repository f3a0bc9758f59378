"""A function's syntax tree with the lines of its own file, and a new function compiled from a changed tree.

The tree keeps file name, lines and columns of the source, so tracebacks, debuggers and coverage show
the user's own lines. The new function shares globals, defaults and closure cells with the old one.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, NoReturn

from ..errors import SourceError
from ..tree.reach import GENERATED

RUNTIME = GENERATED
"""The name by which generated code reaches what runs its loops; generated names begin with it."""
_OUTER = f"{RUNTIME}_outer"
_SELF = f"{RUNTIME}_self"
"""The function itself, while it is compiled: by its own name it reaches what goes by that name where it is called."""


def parse(function: FunctionType) -> ast.FunctionDef:
    """The definition of a function as a tree."""
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError) as error:
        raise SourceError(
            f"{code.co_filename}:{code.co_firstlineno}: the source of {function.__qualname__} is not to be had, so its "
            "loops can't be checkpointed: put it into a file, or write the loop with pebbling.loop"
        ) from error
    indented = lines[0][:1].isspace()
    text = "".join(["if 1:\n", *lines] if indented else lines)
    try:
        body = ast.parse(text).body
    except SyntaxError:  # a lambda in the middle of an expression, for one
        body = []
    found: Any = body[0].body[0] if indented and body and isinstance(body[0], ast.If) else body[0] if body else None
    if isinstance(found, ast.AsyncFunctionDef):
        refuse(function, found.lineno + first - 1, "async functions can't be checkpointed", "make it a plain function")
    if code.co_name == "<lambda>":
        return _of_lambda(code)
    if not isinstance(found, ast.FunctionDef) or found.name != code.co_name:
        raise SourceError(
            f"{code.co_filename}:{code.co_firstlineno}: {function.__qualname__} is not a function defined with def, "
            "and only those have loops to checkpoint"
        )
    ast.increment_lineno(found, first - 1 - indented)
    owner = function.__qualname__.split(".")[-2:-1]
    if owner and owner[0] != "<locals>":
        _Mangle(owner[0]).visit(found)
    return found


def _of_lambda(code: CodeType) -> ast.FunctionDef:
    """A lambda as a definition, found among those of its line by its code."""
    lines = linecache.getlines(code.co_filename)
    found = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.Lambda)]
    here = [node for node in found if node.lineno == code.co_firstlineno]
    if len(here) > 1:
        here = [node for node in here if (node.body.lineno, node.body.col_offset) in _places(code)]
    if len(here) != 1:
        raise SourceError(
            f"{code.co_filename}:{code.co_firstlineno}: several lambdas begin in this line, and which is meant can't "
            "be told: write it with def"
        )
    (node,) = here
    body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
    return ast.copy_location(ast.FunctionDef(name=code.co_name, args=node.args, body=body, decorator_list=[]), node)


def _places(code: CodeType) -> set[tuple[int | None, int | None]]:
    return {(line, column) for line, _, column, _ in code.co_positions()}


def refuse(function: Any, line: int, reason: str, way_out: str) -> NoReturn:
    """Raise the error for a line of a function."""
    code = getattr(function, "__code__", None)
    name = "?" if code is None else code.co_filename
    raise SourceError(f"{name}:{line}: {reason}: {way_out}")


def compiled(function: FunctionType, tree: ast.FunctionDef) -> CodeType:
    """The code of what a tree defines, in the place of ``function``."""
    tree.decorator_list, tree.returns, tree.name = [], None, _SELF
    for arg in _arguments(tree.args):
        arg.annotation = None
    tree.args.kw_defaults = [None if default is None else ast.Constant(None) for default in tree.args.kw_defaults]
    tree.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
    free = [RUNTIME, *[name for name in function.__code__.co_freevars if name != RUNTIME]]
    outer = ast.FunctionDef(
        name=_OUTER,
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in free], kwonlyargs=[], kw_defaults=[], defaults=[]
        ),
        body=[tree],
        decorator_list=[],
    )
    if "type_params" in ast.FunctionDef._fields:  # the code that names them has them in its closure
        vars(tree)["type_params"] = vars(outer)["type_params"] = []
    module = ast.fix_missing_locations(ast.Module([outer], []))
    every = compile(module, function.__code__.co_filename, "exec", dont_inherit=True, flags=_futures(function))
    return _named(_inner(_inner(every, _OUTER), tree.name), function)


def bind(function: FunctionType, code: CodeType, runtime: Any) -> FunctionType:
    """A function with that code and the variables of ``function``; ``runtime`` is what its loops call."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells[RUNTIME] = CellType(runtime)
    new = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, tuple(cells[n] for n in code.co_freevars)
    )
    new.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(new, function)
    return new


def plain_function(f: Callable[..., Any]) -> FunctionType:
    """``f``, if it is a function whose source can be changed."""
    if isinstance(f, FunctionType):
        if hasattr(f, "__wrapped__"):
            refuse(
                f.__wrapped__,
                getattr(f.__wrapped__, "__code__", f.__code__).co_firstlineno,
                f"{f.__qualname__} is already wrapped by another decorator, whose work would be lost",
                "put @checkpoint below it, next to the def",
            )
        return f
    if isinstance(f, int | float | str):
        keyword = "memory" if isinstance(f, str) else "slots"
        raise TypeError(f"options of checkpoint are given by name: checkpoint({keyword}={f!r})")
    raise TypeError(f"checkpoint takes a function defined with def, not {f!r}")


def _arguments(args: ast.arguments) -> list[ast.arg]:
    more = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *more]


def _futures(function: FunctionType) -> int:
    import __future__

    known = 0
    for name in __future__.all_feature_names:
        known |= getattr(__future__, name).compiler_flag
    return function.__code__.co_flags & known


def _inner(code: CodeType, name: str) -> CodeType:
    return next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)


def _named(code: CodeType, function: FunctionType) -> CodeType:
    """Code whose parts go by the function's own name in tracebacks."""
    consts = tuple(_named(one, function) if isinstance(one, CodeType) else one for one in code.co_consts)
    prefix = f"{_OUTER}.<locals>.{_SELF}"
    qualname = code.co_qualname.replace(prefix, function.__qualname__, 1)
    if code.co_name.startswith(RUNTIME):
        return code.replace(co_consts=consts, co_name=function.__name__, co_qualname=function.__qualname__)
    return code.replace(co_consts=consts, co_qualname=qualname)


class _Mangle(ast.NodeTransformer):
    """Private names (``self.__x``) as the class would have made them."""

    def __init__(self, owner: str) -> None:
        self.prefix = f"_{owner.lstrip('_')}"

    def _name(self, name: str) -> str:
        return self.prefix + name if name.startswith("__") and not name.endswith("__") else name

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._name(node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node
