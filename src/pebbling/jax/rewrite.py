"""``checkpoint_loops``: every loop of a traced function replaced by a checkpointed one.

The function is traced to a jaxpr, which is run again equation by equation; ``scan`` and ``while``
become the primitives of this package, those inside the bodies of others first. What is left alone
is reported with the reason. It does not look into functions with derivative rules of their own or
into ``shard_map``, and it inlines those ``jit`` that hold a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import tree_flatten, tree_unflatten

from . import budget, compat, registry, sites, tracers  # noqa: F401
from .compat import Jaxpr, aval_of, evaluate, trace
from .masks import parts, pick
from .online import unbounded
from .primitives import loop_p
from .program import fit
from .simplify import growth_of, index_type, simplify
from .surroundings import seen

_INLINED = ("jit", "pjit", "closed_call", "core_call", "eval_jaxpr")


@dataclass(frozen=True)
class Entry:
    """One loop of the function: what became of it."""

    kind: str
    steps: int | None
    where: str
    replaced: bool
    reason: str

    def __str__(self) -> str:
        steps = "an unknown number of" if self.steps is None else str(self.steps)
        return f"{self.where}: {self.kind} of {steps} steps {'replaced' if self.replaced else 'left'}: {self.reason}"


@dataclass
class Report:
    """The loops of a function, in the order in which they were met."""

    loops: list[Entry] = field(default_factory=list)

    @property
    def replaced(self) -> list[Entry]:
        return [entry for entry in self.loops if entry.replaced]

    @property
    def left(self) -> list[Entry]:
        return [entry for entry in self.loops if not entry.replaced]

    def __str__(self) -> str:
        return "\n".join(map(str, self.loops)) or "no loops"


def checkpoint_loops(
    f: Callable[..., Any],
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    min_steps: int = 3,
) -> Callable[..., Any]:
    """``f`` with every ``scan``, ``fori_loop`` and ``while_loop`` in it checkpointed, nested ones included.

    ``slots`` are those of each loop. ``memory`` is what XLA may take besides arguments and results for ``f`` with the
    derivatives and batches around it, divided among the loops; ``pebbling.jax.jit`` takes one for a program of which
    ``f`` is a part. Loops of fewer than ``min_steps`` steps are left alone. Wrap ``f`` before differentiating it.
    ``.report``, after the first call, says what became of each loop.

    >>> import jax, jax.numpy as jnp
    >>> def f(x): return jax.lax.while_loop(lambda y: y < 10.0, lambda y: y * 1.5, x)
    >>> g = checkpoint_loops(f, slots=4)
    >>> float(jax.grad(g)(1.0)), len(g.report.replaced)
    (11.390625, 1)
    """
    asked = budget.Asked(slots, memory)
    each = budget.Asked(slots)

    @wraps(f)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        if compat.without_jit():
            return f(*args, **kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        dynamic = [isinstance(x, jax.Array | np.ndarray | np.generic | bool | int | float | complex) for x in leaves]
        values = [x if hasattr(x, "aval") else jnp.asarray(x) for x, d in zip(leaves, dynamic) if d]
        trees: list[Any] = []

        def flat(*moving: Any) -> list[Any]:
            rest = iter(moving)
            inner_args, inner_kwargs = tree_unflatten(tree, [next(rest) if d else x for x, d in zip(leaves, dynamic)])
            outs, out_tree = tree_flatten(f(*inner_args, **inner_kwargs))
            made = [hasattr(o, "aval") for o in outs]
            trees[:] = [(out_tree, made, [None if m else o for o, m in zip(outs, made)])]
            return pick(made, outs)

        def traced() -> tuple[Jaxpr, list[Any]]:
            jaxpr, consts = compat.explicit_consts(trace(flat, [aval_of(v) for v in values]), after=0)
            return jaxpr, [*consts, *values]

        division = _divide(traced, min_steps, asked.memory) if asked.memory is not None else sites.current.value
        report = Report()
        with sites.current(division):
            moving = iter(_Rewriter(each, min_steps, report).run(*traced()))
        replaced.report = report  # type: ignore[attr-defined]
        out_tree, made, fixed = trees[0]
        # What is no value of JAX comes out as it is: text, functions, NumPy arrays that depend on nothing.
        return tree_unflatten(out_tree, [next(moving) if m else o for o, m in zip(fixed, made)])

    replaced.report = Report()  # type: ignore[attr-defined]
    return replaced


def _divide(traced: Callable[[], tuple[Jaxpr, list[Any]]], min_steps: int, memory: float | str) -> sites.Shares:
    """The slots of all loops for which the function, with what is seen around it, stays within the memory."""

    def make(division: sites.Shares) -> Any:
        with sites.current(division):
            jaxpr, values = traced()
            around = seen(values)
            run = around.program(lambda *args: _Rewriter(budget.Asked(), min_steps, Report()).run(jaxpr, args))
            with compat.fresh_trace():
                return jax.jit(run).trace(*map(compat.shape_of, around.avals))

    return fit(make, memory, "the function, with the derivatives and batches around it,", part=True)


def _line(eqn: Any) -> str:
    return tracers.line_of(eqn.source_info.traceback)


@dataclass
class _Rewriter:
    asked: budget.Asked
    min_steps: int
    report: Report

    def run(self, jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
        """Evaluate a jaxpr with its loops replaced."""
        inner = jaxpr.jaxpr
        env: dict[Any, Any] = dict(zip(inner.constvars, jaxpr.consts)) | dict(zip(inner.invars, args))

        def read(atom: Any) -> Any:
            return atom.val if hasattr(atom, "val") else env[atom]

        for eqn in inner.eqns:
            env.update(zip(eqn.outvars, self.equation(eqn, [read(v) for v in eqn.invars]), strict=True))
        return [read(v) for v in inner.outvars]

    def equation(self, eqn: Any, values: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if name == "scan":
            return self.scan(eqn, values)
        if name == "while":
            return self.while_(eqn, values)
        if not _holds_loop(eqn):
            return compat.bind_equation(eqn, values)
        params = eqn.params
        if name in _INLINED:
            return self.run(compat.close(params.get("jaxpr", params.get("call_jaxpr"))), values)
        if name == "cond":
            index, *operands = values
            branches = [lambda *a, b=b: self.run(compat.close(b), a) for b in params["branches"]]
            return list(lax.switch(index, branches, *operands))
        if name in ("checkpoint", "remat", "remat2"):
            again = jax.checkpoint(
                lambda *a: self.run(compat.close(params["jaxpr"]), a),
                policy=params.get("policy"), prevent_cse=params.get("prevent_cse", True),
            )  # fmt: skip
            return list(again(*values))
        self._leave("loop", None, eqn, f"it is inside {name}, which pebbling does not look into")
        return compat.bind_equation(eqn, values)

    def scan(self, eqn: Any, values: list[Any]) -> list[Any]:
        params, steps = eqn.params, eqn.params["length"]
        jaxpr = compat.close(params["jaxpr"])
        reason = self._reason(jaxpr, jaxpr.out_avals[: compat.scan_sizes(eqn)[1]], steps)
        if reason:
            self._leave("scan", steps, eqn, reason)
            return compat.bind_equation(eqn, values)
        sizes = compat.scan_sizes(eqn)
        consts, carry, xs, _ = parts(values, sizes)
        inner = trace(lambda i, *args: self.run(jaxpr, args), [index_type(), *jaxpr.in_avals])
        note = f"; unroll={params['unroll']} is not kept" if params["unroll"] != 1 else ""
        return self._loop("scan", eqn, inner, consts, carry, xs, steps, [], params["reverse"], note)

    def while_(self, eqn: Any, values: list[Any]) -> list[Any]:
        params = eqn.params
        cond, body = compat.close(params["cond_jaxpr"]), compat.close(params["body_jaxpr"])
        reason = self._reason(body, body.out_avals, None) or self._reason(cond, body.out_avals, None)
        if reason:
            self._leave("while", None, eqn, reason)
            return compat.bind_equation(eqn, values)
        cond_consts, consts, carry = parts(values, [params["cond_nconsts"], params["body_nconsts"]])
        inner = trace(lambda i, *args: self.run(body, args), [index_type(), *body.in_avals])
        limit = _upper_bound(cond, inner, len(cond_consts), len(consts))
        if limit is not None:
            count = jnp.maximum(carry[limit[1]] - carry[limit[0]], 0).astype(jnp.int32)
            return self._loop("fori_loop", eqn, inner, consts, carry, [], None, [count], False)
        small = simplify(inner, consts, carry, 0)
        plan = budget.plan(self.asked, small.bare(), None, where=_line(eqn))
        assert plan is not None
        self._replace("while_loop", None, eqn, f"{plan.slots} slots, placed online")
        return unbounded(lambda x: evaluate(cond)(*cond_consts, *x), small, plan)

    def _loop(
        self, kind: str, eqn: Any, body: Jaxpr, consts: list[Any], carry: list[Any], xs: list[Any], steps: int | None,
        count: list[Any], flip: bool, note: str = "",
    ) -> list[Any]:  # fmt: skip
        small = simplify(body, consts, carry, len(xs))
        plan = budget.plan(self.asked, small.bare(), steps, xs, count, _line(eqn))
        if plan is None:
            self._leave(kind, steps, eqn, "all of it fits the memory")
            return compat.bind_equation(eqn, [*consts, *carry, *xs])
        self._replace(kind, steps, eqn, f"{plan.slots} slots, binomial{note}")
        outs = loop_p.bind(
            *count, *small.consts, *small.carry, *xs,
            body=small.body, sizes=(len(small.consts), len(small.carry), len(xs)), length=steps, plan=plan,
            store=(), flip=flip, hinted=None,
        )  # fmt: skip
        final, ys = parts(outs, [len(small.carry)])
        return [*small.final(final, count[0] if count else steps), *ys]

    def _reason(self, jaxpr: Jaxpr, carry: Sequence[Any], steps: int | None) -> str:
        happening = sorted(str(effect) for effect in jaxpr.effects if not compat.is_check(effect))
        if happening:
            return f"it has the effects {', '.join(happening)}, which would happen again"
        if not any(jnp.issubdtype(a.dtype, np.inexact) for a in carry):
            return "it carries no floating-point state, so there is nothing to checkpoint"
        if steps is not None and steps < self.min_steps:
            return f"it is shorter than min_steps={self.min_steps}"
        return ""

    def _leave(self, kind: str, steps: int | None, eqn: Any, reason: str) -> None:
        self.report.loops.append(Entry(kind, steps, compat.source_of(eqn), False, reason))

    def _replace(self, kind: str, steps: int | None, eqn: Any, how: str) -> None:
        self.report.loops.append(Entry(kind, steps, compat.source_of(eqn), True, how))


def _holds_loop(eqn: Any) -> bool:
    if eqn.primitive.name in ("scan", "while"):
        return True
    return any(_holds_loop(inner) for jaxpr in compat.inner_jaxprs(eqn) for inner in jaxpr.eqns)


def _upper_bound(cond: Jaxpr, body: Jaxpr, cond_consts: int, consts: int) -> tuple[int, int] | None:
    """For a loop ``while i < n: i += 1; …``, which of the carried values are i and n."""

    inner = cond.jaxpr
    if cond_consts or len(inner.eqns) != 1 or inner.eqns[0].primitive.name != "lt":
        return None
    one, two = inner.eqns[0].invars
    if one not in inner.invars or two not in inner.invars or inner.outvars[0] is not inner.eqns[0].outvars[0]:
        return None
    counter, limit = inner.invars.index(one), inner.invars.index(two)
    grows = growth_of(body, 1 + consts + counter, counter), growth_of(body, 1 + consts + limit, limit)
    return (counter, limit) if grows == (1, 0) else None
