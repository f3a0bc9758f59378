"""What is known about each loop of a function before it runs, and what is refused on the spot."""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType

import numpy as np

from .live import Liveness, Loop
from .names import Path, Uses, appended_only, exposed, root_of, variables_of
from .parse import refuse

_SEES_ALL = frozenset({"locals", "vars", "eval", "exec", "dir"})
_REACHES_OUT = frozenset({"open", "input"})
_MUTATORS = frozenset(
    {
        *("append", "appendleft", "extend", "insert", "pop", "popleft", "popitem", "remove", "discard", "clear"),
        *("update", "add", "setdefault", "sort", "reverse", "fill", "put", "resize", "rotate"),
    }
)
_MUTABLE = (list, dict, set, deque, bytearray, np.ndarray)
_CAPTURING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_GENERATOR = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)


@dataclass
class Facts:
    """One loop."""

    number: int
    line: int
    where: str
    text: str
    is_for: bool
    stops: bool
    """Whether it can end before its items do."""
    prints: bool
    captures: bool
    """Whether functions or generators are made in it, which could outlive an iteration."""
    state: tuple[str, ...]
    outs: tuple[str, ...]
    consts: tuple[str, ...]
    emits: tuple[str, ...]
    written: frozenset[Path]
    changed: frozenset[str]
    """Names whose objects the loop assigns to, in part."""
    exposed: frozenset[str]
    depth: int
    siblings: int
    """How many loops stand beside it, itself included."""
    parent: int | None
    otherwise: bool = False
    """Whether it has an ``else``."""
    renewed: frozenset[str] = frozenset()
    """State for the sake of functions that capture it alone: every iteration binds it before it reads it."""
    local: frozenset[str] = frozenset()
    """Names that are not needed after the loop, if functions made in an iteration do not outlive it."""
    head: tuple[str, ...] = ()
    """Names that the head of ``while`` binds (``:=``), before every step and once more when the loop ends."""
    promoted: set[str] = field(default_factory=set)
    """Constants that turned out to be written into by a function that the loop calls."""
    promoted_paths: set[Path] = field(default_factory=set)
    spots: set[str] = field(default_factory=set)
    """What the loop turned out to change without naming it: globals, defaults, attributes of classes."""
    trial: bool = True
    """Whether arrays that can't be locked are copied for the first step, to see whether it writes into them."""
    width: int = 0
    """The most leaves that the state has been seen to have."""


def find_loops(function: FunctionType, tree: ast.FunctionDef) -> dict[Loop, Facts]:
    """The loops of a function, outer ones before inner ones."""
    code = function.__code__
    known = variables_of(code, tree)
    _check_function(function, tree, known)
    needed, strictly = Liveness(tree).loops, Liveness(tree, lasting=False).loops
    found: dict[Loop, Facts] = {}
    for loop, parent, siblings in _loops(tree.body, None):
        inside: list[ast.AST] = [loop.target, *loop.body] if isinstance(loop, ast.For) else [loop.test, *loop.body]
        uses = Uses(inside)
        _check_loop(function, tree, loop, inside, uses, known)
        stores, loads = uses.stores & known, uses.loads & known
        emits = appended_only(inside, loads - stores - uses.captured - set(code.co_freevars))
        state = stores & (needed[loop].body | (needed[loop].after & uses.deletes))
        outs = (stores & needed[loop].after) - state
        changed = (uses.changed | {path[0] for path in uses.written}) & known
        # An object that the loop assigns to in part comes out as it went in, but has to be in snapshots.
        state |= (changed & loads) - stores - set(code.co_freevars)
        calls = {
            node.func.id for node in _walk(inside) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        found[loop] = Facts(
            number=len(found),
            line=loop.lineno,
            where=f"{code.co_filename}:{loop.lineno}",
            text=_header(loop),
            is_for=isinstance(loop, ast.For),
            stops=isinstance(loop, ast.While) or _leaves(loop.body),
            prints="print" in calls and "print" not in known,
            captures=any(isinstance(node, _CAPTURING) for node in _walk(inside)),
            state=tuple(sorted(state)),
            outs=tuple(sorted(outs)),
            consts=tuple(sorted(loads - stores - emits - state)),
            emits=tuple(sorted(emits)),
            written=frozenset(path for path in uses.written if path[0] in known),
            changed=frozenset(changed),
            exposed=frozenset(exposed(inside) & known),
            depth=0 if parent is None else found[parent].depth + 1,
            siblings=siblings,
            parent=None if parent is None else found[parent].number,
            otherwise=bool(loop.orelse),
            renewed=frozenset((state & stores) - strictly[loop].body - uses.deletes),
            local=frozenset(stores - strictly[loop].after),
            head=() if isinstance(loop, ast.For) else tuple(sorted(Uses([loop.test]).walrus & known)),
        )
    return found


def _loops(body: Sequence[ast.AST], parent: Loop | None) -> Iterator[tuple[Loop, Loop | None, int]]:
    loops = list(_outermost(body))
    for loop in loops:
        yield loop, parent, len(loops)
        yield from _loops(loop.body, loop)


def _outermost(nodes: Sequence[ast.AST]) -> Iterator[Loop]:
    """The loops among statements, inside ``if``, ``with`` and the like, but not inside other loops' bodies."""
    for node in nodes:
        if isinstance(node, ast.For | ast.While):
            yield node
            yield from _outermost(node.orelse)
        elif not isinstance(node, _CAPTURING):
            yield from _outermost(list(ast.iter_child_nodes(node)))


def _walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of one scope; of inner functions, the node alone."""
    for node in nodes:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _walk(list(ast.iter_child_nodes(node)))


def _leaves(body: Sequence[ast.AST]) -> bool:
    """Whether a loop with this body has a ``break`` or ``return`` of its own."""
    for node in body:
        if isinstance(node, ast.Break | ast.Return):
            return True
        if isinstance(node, ast.For | ast.While):
            inner = any(isinstance(part, ast.Return) for part in _walk(node.body))
            if inner or _leaves(node.orelse):
                return True
        elif not isinstance(node, _CAPTURING) and _leaves(list(ast.iter_child_nodes(node))):
            return True
    return False


def _header(loop: Loop) -> str:
    if isinstance(loop, ast.For):
        return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
    return f"while {ast.unparse(loop.test)}"


def _check_function(function: FunctionType, tree: ast.FunctionDef, known: set[str]) -> None:
    for node in _walk(tree.body):
        line = getattr(node, "lineno", tree.lineno)
        if isinstance(node, _GENERATOR):
            refuse(
                function,
                line,
                f"{tree.name} is a generator or coroutine, which stops in the middle of a loop and can't be replayed",
                "return the values in a list, or write the loop with pebbling.loop",
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SEES_ALL - known:
            refuse(
                function,
                line,
                f"{node.func.id}() reads or binds names behind the back of the source",
                "name the variables, or move the call into a function of its own",
            )


def _check_loop(
    function: FunctionType, tree: ast.FunctionDef, loop: Loop, inside: list[ast.AST], uses: Uses, known: set[str]
) -> None:
    declared = {name for node in _walk(tree.body) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for name in sorted(uses.stores & declared):
        refuse(
            function,
            loop.lineno,
            f"the loop rebinds {name}, which is declared global or nonlocal, and a replay would do so again",
            f"use a local variable in the loop and assign {name} after it",
        )
    rebound = sorted(Uses(tree.body).rebound & known & (uses.stores | uses.loads))
    if rebound:
        refuse(
            function,
            loop.lineno,
            f"the loop uses {', '.join(rebound)}, which an inner function of {tree.name} rebinds (nonlocal)",
            "return the new value from the inner function and assign it in the loop",
        )
    outside = _captured_outside(tree, loop)
    for name in sorted(uses.stores & outside):
        refuse(
            function,
            loop.lineno,
            f"the loop binds {name}, and a function or generator that is made outside of the loop uses it",
            f"pass {name} to it as an argument",
        )
    for name in sorted({path[0] for path in uses.written} | uses.changed):
        if name not in known:
            _refuse_global(function, loop.lineno, name)
    for node in _walk(inside):
        if isinstance(node, ast.Call):
            _check_call(function, node, known)


def _check_call(function: FunctionType, node: ast.Call, known: set[str]) -> None:
    func = node.func
    if isinstance(func, ast.Name) and func.id not in known:
        if func.id in _REACHES_OUT and func.id not in function.__globals__ and hasattr(builtins, func.id):
            refuse(
                function,
                node.lineno,
                f"{func.id}() in a loop would happen again whenever a step is replayed",
                "do it before or after the loop; lists collect what each step gives",
            )
        if func.id == "super" and not node.args:
            refuse(
                function,
                node.lineno,
                "super() without arguments does not work in a loop that is checkpointed",
                "write super(Class, self), or bind the method to a name before the loop",
            )
    if isinstance(func, ast.Attribute) and func.attr in _MUTATORS:
        root = root_of(func)
        value = function.__globals__.get(root) if root is not None and root not in known else None
        if root is not None and isinstance(value, _MUTABLE):
            _refuse_global(function, node.lineno, root)


def _refuse_global(function: FunctionType, line: int, name: str) -> None:
    refuse(
        function,
        line,
        f"the loop changes the global {name}, and would do so again whenever a step is replayed",
        "pass it to the function as an argument, or collect the changes in a local variable",
    )


def _captured_outside(tree: ast.FunctionDef, loop: Loop) -> set[str]:
    """Names that functions and generators made outside of a loop's body use, but for those of loops beside it.

    A function that is made in an iteration of a loop does not outlive it (``escape``).
    """
    others = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    apart = [other for other in others if other is loop or all(node is not loop for node in ast.walk(other))]
    body = {id(node) for other in apart for part in other.body for node in ast.walk(part)}
    found: set[str] = set()
    for node in _walk(tree.body):
        if isinstance(node, _CAPTURING) and id(node) not in body:
            found |= Uses([node]).captured
    return found
