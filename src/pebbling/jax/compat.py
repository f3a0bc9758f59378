"""Everything that pebbling takes from the inside of JAX, in one place.

Checked on jax 0.10, 0.11 and 0.12. Rules are registered on ordinary primitives; besides that, five things
are needed that JAX has no public name for: tracing to a jaxpr from abstract values, the jaxpr of a
derivative, the split of a jaxpr into what is known and what is not, the transpose of a linear
function given as Python code, and arrays whose type gives way as that of a Python number does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, TypeAlias

import jax
import jax.extend.core as extended
import jax.numpy as jnp
import numpy as np
from jax._src import api_util, checkify, config, core, dispatch, effects, linear_util, source_info_util
from jax._src.interpreters import ad, batching, mlir, partial_eval
from jax._src.lax import lax
from jax.experimental import jet

Aval: TypeAlias = Any
Jaxpr: TypeAlias = Any
Array: TypeAlias = Any
Primitive: TypeAlias = Any

# JAX is typed in part; what is taken from its inside is not
_ad: Any = ad
_batching: Any = batching
_checkify: Any = checkify
_config: Any = config
_core: Any = core
_dispatch: Any = dispatch
_lax: Any = lax
_jet: Any = jet
_pe: Any = partial_eval
_extended: Any = extended
_wrap: Any = linear_util.wrap_init

Zero: Any = _ad.Zero
is_linear: Any = _ad.is_undefined_primal
instantiate: Any = _ad.instantiate_zeros
aval_of: Any = _core.typeof
evaluate: Any = _extended.jaxpr_as_fun
ShapeDtypeStruct: Any = jax.ShapeDtypeStruct


def primitive(name: str) -> Primitive:
    """A new primitive with several results."""
    made = _extended.Primitive(name)
    made.multiple_results = True
    made.skip_canonicalization = True
    return made


def register(
    of: Primitive,
    *,
    run: Callable[..., Sequence[Array]],
    abstract: Callable[..., tuple[list[Aval], Any]],
    jvp: Callable[..., Any],
    transpose: Callable[..., Any],
    split: Callable[..., Any],
    split_equation: Callable[..., Any],
    batch: Callable[..., Any],
    prune: Callable[..., Any],
    check: Callable[..., Any],
) -> None:
    """All rules of one primitive."""
    # As JAX's own: compiled even under ``disable_jit``, and seen by ``debug_nans``.
    of.def_impl(partial(_dispatch.apply_primitive, of))
    of.def_effectful_abstract_eval(abstract)
    mlir.register_lowering(of, mlir.lower_fun(with_usual_promotion(run), multiple_results=True))
    _ad.primitive_jvps[of] = jvp
    _ad.primitive_transposes[of] = transpose
    _pe.custom_partial_eval_rules[of] = split
    _pe.partial_eval_jaxpr_custom_rules[of] = split_equation
    _batching.fancy_primitive_batchers[of] = with_usual_promotion(batch)
    # From jax 0.12 on, which references are read later comes before the equation; loops take none.
    _pe.dce_rules[of] = lambda used, *rest: prune(used, rest[-1])
    _checkify.error_checks[of] = partial(_with_context if _NUMBERED else _without_context, check)
    _jet.jet_rules[of] = partial(_no_jet, of.name)


def with_usual_promotion(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule whose own arithmetic the user's settings are not for; steps are jaxprs by then, with theirs in them."""

    @wraps(rule)
    def usual(*args: Any, **params: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return rule(*args, **params)

    return usual


def _no_jet(name: str, *_: Any, **__: Any) -> Any:
    raise NotImplementedError(
        f"jax.experimental.jet has no rule for {name}, nor for the loops of jax.lax: nest jax.jvp for higher orders"
    )


def trace(fun: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> Jaxpr:
    """The jaxpr of a function of flat arguments."""
    debug = api_util.debug_info("pebbling", fun, tuple(avals), {})
    jaxpr, _, consts = _pe.trace_to_jaxpr_dynamic(_wrap(fun, debug_info=debug), list(avals))
    return _extended.ClosedJaxpr(jaxpr, consts)


def dual(jaxpr: Jaxpr, moving: Sequence[bool], instantiated: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr of values and tangents, and which outputs have one; tangents come after all values."""
    made, out = _ad.jvp_jaxpr(jaxpr, tuple(moving), tuple(instantiated))
    return made, list(out)


def known_part(jaxpr: Jaxpr, unknown: Sequence[bool], instantiated: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """What can be computed of a jaxpr without the unknown inputs, and which outputs can't."""
    known, _, out_unknown, _ = _pe.partial_eval_jaxpr_nounits(jaxpr, list(unknown), list(instantiated))
    outputs = len(out_unknown) - sum(out_unknown)
    residuals = len(known.out_avals) - outputs
    return prune_outputs(known, [True] * outputs + [False] * residuals), list(out_unknown)


def prune_outputs(jaxpr: Jaxpr, used: Sequence[bool]) -> Jaxpr:
    """The jaxpr with some of its outputs only; all inputs stay."""
    made, _ = _pe.dce_jaxpr(jaxpr.jaxpr, list(used), True)
    return _extended.ClosedJaxpr(made, jaxpr.consts)


def outputs_apart(jaxpr: Jaxpr, carried: int) -> tuple[Jaxpr, Jaxpr]:
    """The jaxpr of the carried values, which are its first outputs, and that of the others, from inputs and those.

    Effects happen in the first alone.
    """
    inner = jaxpr.jaxpr
    kept, others = inner.outvars[:carried], inner.outvars[carried:]
    first = prune_outputs(jaxpr, [True] * carried + [False] * len(others))
    given = set(filter(is_variable, kept))
    needed, equations = {v for v in others if is_variable(v)} - given, []
    for eqn in reversed(inner.eqns):
        if needed & set(eqn.outvars):
            equations.append(eqn)
            needed |= {v for v in eqn.invars if is_variable(v)} - given

    def rest(*args: Any) -> list[Any]:
        env = dict(zip(inner.constvars, jaxpr.consts)) | dict(zip(inner.invars, args))
        env |= {v: x for v, x in zip(kept, args[len(inner.invars) :]) if is_variable(v) and v not in env}
        for eqn in reversed(equations):
            found = bind_equation(eqn, [env[v] if is_variable(v) else v.val for v in eqn.invars])
            env |= {v: x for v, x in zip(eqn.outvars, found) if v not in given}
        return [env[v] if is_variable(v) else v.val for v in others]

    return first, trace(rest, [*jaxpr.in_avals, *jaxpr.out_avals[:carried]])


def used_inputs(jaxpr: Jaxpr, used: Sequence[bool]) -> list[bool]:
    """Which inputs the given outputs depend on."""
    return list(_pe.dce_jaxpr(jaxpr.jaxpr, list(used), False)[1])


def transpose(fun: Callable[..., Sequence[Any]], avals: Sequence[Aval], cotangents: Sequence[Any]) -> list[Array]:
    """The transpose of a linear function; what ``fun`` closes over is not linear."""
    debug = api_util.debug_info("pebbling", fun, tuple(avals), {})
    jaxpr, _, consts = _pe.trace_to_jaxpr_nounits(
        _wrap(fun, debug_info=debug), [_pe.PartialVal.unknown(a) for a in avals], instantiate=True
    )
    jaxpr, _ = _pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), True)
    unknown = [_ad.UndefinedPrimal(a.to_ct_aval()) for a in avals]
    return [instantiate(g) for g in _ad.backward_pass(jaxpr, True, consts, unknown, list(cotangents))]


def batched_jaxpr(
    jaxpr: Jaxpr, axis: Any, batched: Sequence[bool], instantiated: Sequence[bool]
) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr over a batch, whose axis comes first, and which outputs have one."""
    made, out = _batching.batch_jaxpr(jaxpr, axis, list(batched), list(instantiated))
    return made, list(out)


def batch_at(value: Array, axis: Any, dim: int | None, target: int) -> Array:
    """``value`` with its batch axis at ``target``, given one if it has none."""
    if dim is None:
        return _batching.broadcast(value, axis.size, target, axis.explicit_mesh_axis)
    return _batching.moveaxis(value, dim, target)


def is_known(tracer: Any) -> bool:
    """Whether a value is known while a function is being linearized."""
    return tracer.is_known()


def known_value(tracer: Any) -> Array:
    """The value of a tracer that is known."""
    return tracer.pval.get_known()


def bind_known(trace_: Any, of: Primitive, values: Sequence[Array], params: dict[str, Any]) -> list[Array]:
    """Run the known part of an operation where its operands live."""
    with _core.set_current_trace(trace_.parent_trace):
        return of.bind(*values, **params)


def stage_unknown(trace_: Any, of: Primitive, tracers: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Record an operation in the linear program, where all its results are unknown; run it if no operand is."""
    return trace_.default_process_primitive(of, [trace_.to_jaxpr_tracer(t) for t in tracers], params)


def as_known(trace_: Any, value: Array) -> Any:
    """A value as a known tracer of the trace."""
    return trace_.to_jaxpr_tracer(value)


def new_equation(eqn: Any, inputs: Sequence[Any], outputs: Sequence[Any], params: dict[str, Any]) -> Any:
    """``eqn`` with other operands, results and parameters."""
    _, effects_ = eqn.primitive.abstract_eval(*[v.aval for v in inputs], **params)
    return _pe.new_jaxpr_eqn(list(inputs), list(outputs), eqn.primitive, params, effects_, eqn.source_info, eqn.ctx)


def is_variable(atom: Any) -> bool:
    """Whether an operand of an equation is a variable and not a literal."""
    return type(atom) is _core.Var


def has_effects(eqn: Any) -> bool:
    """Whether an equation must be kept for what it does besides its results."""
    return _pe.has_effects(eqn)


def stacked(aval: Aval, size: int) -> Aval:
    """The type of ``size`` values of one type, one after another."""
    return _core.unmapped_aval(size, 0, aval)


def unstacked(aval: Aval) -> Aval:
    """The type of one of the values that an array holds along its first axis."""
    return _core.mapped_aval(aval.shape[0], 0, aval)


def is_check(effect: Any) -> bool:
    """Whether an effect is that of ``checkify.check``, which may be made more than once."""
    return isinstance(effect, _checkify.ErrorEffect)


def forbidden_effects(found: Any) -> list[str]:
    """The names of those effects that a loop whose steps run several times can't have."""
    allowed = effects.control_flow_allowed_effects

    def name(effect: Any) -> str:
        if isinstance(effect, effects.JaxprInputEffect):
            return f"{type(effect).__name__.removesuffix('Effect').lower()} of a Ref"
        if not effects.ordered_effects.contains(effect) and (
            allowed.contains(effect) or isinstance(effect, _core.NamedAxisEffect)
        ):
            return ""
        return str(effect)

    return sorted({name(effect) for effect in found} - {""})


def zeros(aval: Aval) -> Array:
    """Zeros of a type; of whatever bits for types that have no zero."""
    return _ad.instantiate_zeros(_ad.Zero(aval)) if not _is_key(aval) else _empty_keys(aval)


def _is_key(aval: Aval) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jax.dtypes.extended))


def _empty_keys(aval: Aval) -> Array:
    template = aval.dtype._impl
    return jax.random.wrap_key_data(jnp.zeros((*aval.shape, *template.key_shape), jnp.uint32), impl=template.name)


def prune(jaxpr: Jaxpr, outputs: Sequence[bool], inputs: Sequence[bool]) -> Jaxpr:
    """The jaxpr with some outputs, and with the given inputs, which must be all that those outputs need."""
    made, used = _pe.dce_jaxpr(jaxpr.jaxpr, list(outputs), list(inputs))
    assert list(used) == list(inputs)
    return _extended.ClosedJaxpr(made, jaxpr.consts)


def explicit_consts(jaxpr: Jaxpr, after: int) -> tuple[Jaxpr, list[Array]]:
    """The jaxpr with its constants as inputs after the first ``after`` ones, and those constants."""
    consts = list(jaxpr.consts)
    if not consts:
        return jaxpr, []
    inner = jaxpr.jaxpr
    avals = [v.aval for v in inner.constvars]
    bare = _pe.convert_constvars_jaxpr(inner)

    def call(*args: Any) -> list[Any]:
        first, values, rest = args[:after], args[after : after + len(consts)], args[after + len(consts) :]
        return _core.eval_jaxpr(bare, (), *values, *first, *rest)

    types = jaxpr.in_avals
    return trace(call, [*types[:after], *avals, *types[after:]]), consts


def varying_as(value: Array, aval: Aval) -> Array:
    """``value``, inside ``shard_map``, varying over at least the mesh axes that ``aval`` varies over."""
    missing = varying(aval) - varying(_core.typeof(value))
    return jax.lax.pcast(value, tuple(sorted(missing)), to="varying") if missing else value


def varying(aval: Aval) -> frozenset[str]:
    """The mesh axes over which a value inside ``shard_map`` differs between devices."""
    kind = getattr(aval, "manual_axis_type", None)
    if kind is not None:
        return frozenset(kind.varying)
    return frozenset(getattr(aval, "vma", ()) or ())


def is_placed(aval: Aval) -> bool:
    """Whether a type says how its values are spread over a mesh with explicit axes."""
    spec = getattr(getattr(aval, "sharding", None), "spec", None) or ()
    return any(axis is not None for axis in spec)


def is_concrete(value: Any) -> bool:
    """Whether a value is a number at hand, not one that is traced."""
    return not isinstance(value, _core.Tracer)


def weakly_typed(value: Any) -> Array:
    """The value with a type that gives way to that of arrays, as the type of a Python number does."""
    return _lax._convert_element_type(value, weak_type=True)


def array_type(shape: tuple[int, ...], dtype: str) -> Aval:
    """The type of an array."""
    return _core.ShapedArray(shape, np.dtype(dtype))


def nbytes(aval: Aval) -> int:
    """The bytes of a value of a type."""
    size = aval.dtype.itemsize if not _is_key(aval) else 4 * math.prod(aval.dtype._impl.key_shape)
    return math.prod(aval.shape) * size


def shape_of(aval: Aval) -> Any:
    """A type as the public functions of JAX take it."""
    return ShapeDtypeStruct(aval.shape, aval.dtype)


def fresh_trace() -> Any:
    """A context in which functions are traced and compiled apart from the one being traced."""
    return _core.eval_context()


def bind_equation(eqn: Any, values: Sequence[Array]) -> list[Array]:
    """Run one equation on values."""
    params = eqn.primitive.get_bind_params(eqn.params)
    first, params = params if isinstance(params, tuple) else ((), params)
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*first, *values, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def scan_sizes(eqn: Any) -> tuple[int, int, int]:
    """How many operands of a ``scan`` are constants, carried and scanned over."""
    params = eqn.params
    if "num_consts" in params:
        consts, carry = params["num_consts"], params["num_carry"]
        return consts, carry, len(eqn.invars) - consts - carry
    return tuple(len(group) for group in params["ft_in"].unpack())  # type: ignore[return-value]


def source_of(eqn: Any) -> str:
    """Where in the user's code an equation comes from."""
    return source_info_util.summarize(eqn.source_info)


def close(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr without constants as one that can be evaluated."""
    return jaxpr if hasattr(jaxpr, "consts") else _extended.ClosedJaxpr(jaxpr, ())


def inner_jaxprs(eqn: Any) -> list[Jaxpr]:
    """The jaxprs among the parameters of an equation."""
    return list(_core.jaxprs_in_params(eqn.params))


_NUMBERED = hasattr(_checkify, "CheckifyContext")
"""From jax 0.11 on, errors are numbered by a context that rules are given before the errors so far."""


class Enabled:
    """Which errors are looked for, and the context that numbers them."""

    def __init__(self, kinds: Any, context: Any) -> None:
        self.kinds, self.context = kinds, context

    def aside(self) -> Enabled:
        """For what is evaluated to learn about it, and whose errors go nowhere."""
        return Enabled(self.kinds, _checkify.CheckifyContext() if _NUMBERED else None)


def _with_context(check: Callable[..., Any], context: Any, error: Any, kinds: Any, *args: Any, **params: Any) -> Any:
    return check(error, Enabled(kinds, context), *args, **params)


def _without_context(check: Callable[..., Any], error: Any, kinds: Any, *args: Any, **params: Any) -> Any:
    return check(error, Enabled(kinds, None), *args, **params)


def checked(jaxpr: Jaxpr, enabled: Enabled, tree: Any, errors: Sequence[Aval]) -> tuple[Jaxpr, Any, Any]:
    """The jaxpr with errors before inputs and outputs; the structure of what it gives; the errors that it can have."""
    context = [enabled.context] if _NUMBERED else []
    return _checkify.jaxpr_to_checkify_jaxpr(*context, jaxpr, enabled.kinds, tree, *errors, *jaxpr.in_avals)


def check(jaxpr: Jaxpr, enabled: Enabled, error: Any, *args: Any) -> tuple[Any, list[Array]]:
    """Evaluate a jaxpr with its errors added to those so far."""
    context = [enabled.context] if _NUMBERED else []
    return _checkify.checkify_jaxpr(*context, jaxpr, enabled.kinds, error, *args)


def can_fail(jaxpr: Jaxpr, enabled: Enabled) -> bool:
    """Whether a jaxpr has errors to check for."""
    values, tree = jax.tree_util.tree_flatten(_checkify.init_error)
    return bool(checked(jaxpr, enabled.aside(), tree, [aval_of(v) for v in values])[2])


def with_room_for(error: Any, kinds: Any) -> Any:
    """The error with a place for errors of further kinds."""
    return error._add_placeholder_effects(kinds)


def without_jit() -> bool:
    """Whether ``jax.disable_jit`` holds: steps are then run in Python, one after another."""
    return bool(_config.disable_jit.value)
