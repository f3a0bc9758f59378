"""How the two primitives are differentiated, split, transposed and batched.

Each rule finds by a fixpoint which of the carried values are concerned (have a tangent, are
unknown, are batched), and writes the same primitive with other bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import compat
from .compat import Jaxpr, Zero, dual, evaluate, instantiate, is_linear, known_part, trace, zeros
from .masks import drop, merge, parts, pick, settle, spread
from .needs import needed_inputs
from .primitives import counted, loop_p, reverse_p


def has_tangent(tangents: Sequence[Any]) -> list[bool]:
    """Which values have a tangent that is not zero by construction."""
    return [type(t) is not Zero for t in tangents]


def zero_tangent(value: Any) -> Any:
    """A tangent that is zero by construction."""
    return Zero(compat.aval_of(value).to_tangent_aval())


def dual_body(jaxpr: Jaxpr, ins: Sequence[Sequence[bool]], outs: Sequence[Sequence[bool]]) -> Jaxpr:
    """The jaxpr of values and tangents, each group of values followed by its tangents.

    ``ins`` are the masks of the groups of inputs after the index, ``outs`` those of the outputs.
    """
    flat_in, flat_out = [m for g in ins for m in g], [m for g in outs for m in g]
    made, found = dual(jaxpr, [False, *flat_in], flat_out)
    sizes = [len(g) for g in ins]
    index, *avals = jaxpr.in_avals
    tangent = [a.to_tangent_aval() for a in avals]
    call = evaluate(made)

    def body(i: Any, *args: Any) -> list[Any]:
        groups = parts(args, [n for g in ins for n in (len(g), sum(g))])
        values, tangents = groups[0:-1:2], groups[1:-1:2]
        out, moved = parts(call(i, *(v for g in values for v in g), *(t for g in tangents for t in g)), [len(flat_out)])
        moved = spread(found, moved, lambda k: None)
        grouped, dots = parts(out, [len(g) for g in outs])[:-1], parts(moved, [len(g) for g in outs])[:-1]
        return [item for g, d, mask in zip(grouped, dots, outs) for item in (*g, *pick(mask, d))]

    groups, dots = parts(avals, sizes)[:-1], parts(tangent, sizes)[:-1]
    types = [a for g, d, mask in zip(groups, dots, ins) for a in (*g, *pick(mask, d))]
    return trace(body, [index, *types])


def with_tangents(values: Sequence[Any], tangents: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """Values followed by the tangents of those that have one."""
    return [*values, *(instantiate(t) for t in pick(mask, tangents))]


def loop_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    body, sizes, length, store = params["body"], params["sizes"], params["length"], params["store"]
    count, consts, carry, xs, _ = parts(primals, [counted(length), *sizes])
    _, dc, dz, dx, _ = parts(tangents, [counted(length), *sizes])
    mc, mx = has_tangent(dc), has_tangent(dx)
    rest = [False] * (len(body.out_avals) - sizes[1])
    _, mz, my = settle(has_tangent(dz), lambda mz: dual(body, [False, *mc, *mz, *mx], [*mz, *rest]))
    args = [*count, *with_tangents(consts, dc, mc), *with_tangents(carry, dz, mz), *with_tangents(xs, dx, mx)]
    made = dual_body(body, [mc, mz, mx], [mz, my])
    total = (sizes[0] + sum(mc), sizes[1] + sum(mz), sizes[2] + sum(mx))
    kept_too = (*store, *pick(mz, store)) if store else ()
    outs = loop_p.bind(*args, **{**params, "body": made, "sizes": total, "hinted": None, "store": kept_too})
    x, ddx, ys, dys, hints = parts(outs, [sizes[1], sum(mz), len(my), sum(my)])
    values, dots = (
        [*x, *ys],
        [*spread(mz, ddx, lambda k: zero_tangent(x[k])), *spread(my, dys, lambda k: zero_tangent(ys[k]))],
    )
    if store:
        ledger, kept, moved = parts(hints, [counted(length), sum(store)])
        values += [*ledger, *kept]
        dots += [*map(zero_tangent, ledger), *spread(pick(store, mz), moved, lambda k: zero_tangent(kept[k]))]
    return values, dots


def reverse_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    step, back, sizes, length = params["step"], params["back"], params["sizes"], params["length"]
    first = counted(length)
    count, consts, z, xs, hint, w, us, _ = parts(primals, [first, *sizes])
    _, dc, dz, dx, dh, dw, du, _ = parts(tangents, [first, *sizes])
    mc, mx, mu = has_tangent(dc), has_tangent(dx), has_tangent(du)
    _, mz, _ = settle(has_tangent(dz), lambda mz: dual(step, [False, *mc, *mz, *mx], mz))
    rest = [False] * (len(back.out_avals) - len(w))
    _, mw, mv = settle(has_tangent(dw), lambda mw: dual(back, [False, *mc, *mz, *mx, *mw, *mu], [*mw, *rest]))
    hints = hint
    if hint:
        ledger, kept = parts(hint, [first])
        hints = [*ledger, *with_tangents(kept, dh[first:], mz)]
    args = [
        *count, *with_tangents(consts, dc, mc), *with_tangents(z, dz, mz), *with_tangents(xs, dx, mx),
        *hints, *with_tangents(w, dw, mw), *with_tangents(us, du, mu),
    ]  # fmt: skip
    total = tuple(n + k for n, k in zip(sizes, [sum(mc), sum(mz), sum(mx), len(hints) - len(hint), sum(mw), sum(mu)]))
    made = {
        "step": dual_body(step, [mc, mz, mx], [mz]),
        "back": dual_body(back, [mc, mz, mx, mw, mu], [mw, mv]),
        "sizes": total,
    }
    outs = reverse_p.bind(*args, **{**params, **made})
    new, dnew, vs, dvs = parts(outs, [len(w), sum(mw), len(mv)])
    return [*new, *vs], [
        *spread(mw, dnew, lambda k: zero_tangent(new[k])),
        *spread(mv, dvs, lambda k: zero_tangent(vs[k])),
    ]


def _loop_unknown(unknown: Sequence[bool], params: dict[str, Any]) -> tuple[Jaxpr, list[list[bool]], list[bool]]:
    """The known part of a loop's body, and masks of what is unknown: consts, carry, xs; ys."""
    body, sizes = params["body"], params["sizes"]
    _, uc, uz, ux, _ = parts(unknown, [counted(params["length"]), *sizes])
    rest = [False] * (len(body.out_avals) - sizes[1])
    known, uz, uy = settle(uz, lambda uz: known_part(body, [False, *uc, *uz, *ux], [*uz, *rest]))
    return known, [uc, uz, ux], uy


def _known_loop(
    known: Jaxpr, masks: list[list[bool]], params: dict[str, Any], store: tuple[bool, ...]
) -> dict[str, Any]:
    sizes = tuple(len(m) - sum(m) for m in masks)
    return {**params, "body": known, "sizes": sizes, "store": store, "hinted": None}


def loop_split(trace_: Any, *tracers: Any, **params: Any) -> list[Any]:
    first, sizes, asked = counted(params["length"]), params["sizes"], params["store"]
    unknown = [not compat.is_known(t) for t in tracers]
    if not any(unknown):
        return compat.stage_unknown(trace_, loop_p, tracers, params)
    known, (uc, uz, ux), uy = _loop_unknown(unknown, params)
    count, consts, carry, xs, _ = parts(tracers, [first, *sizes])
    if any(unknown[:first]) or (all(uz) and all(uy)):
        bare = [*count, *consts, *carry, *xs]
        return compat.stage_unknown(trace_, loop_p, bare, {**params, "hinted": None})
    inputs = [*count, *drop(uc, consts), *drop(uz, carry), *drop(ux, xs)]
    values = [compat.known_value(t) for t in inputs]
    linear, masks, hinted = linear_loop(params, uz, uy)
    store = snapshots_of(uz, masks[1], asked)
    outs = compat.bind_known(trace_, loop_p, values, _known_loop(known, [uc, uz, ux], params, store))
    x, ys, hints = parts(outs, [len(uz) - sum(uz), len(uy) - sum(uy)])
    ledger, kept = parts(hints, [first])
    held = dict(zip(pick(store, [k for k, u in enumerate(uz) if not u]), kept)) if store else {}
    nc, nz, nx = masks
    given = [*ledger, *(held[k] for k, n in enumerate(nz) if n and not uz[k])] if hinted else []
    staged = [*count, *pick(nc, consts), *pick(nz, carry), *pick(nx, xs)]
    staged += [compat.as_known(trace_, h) for h in given]
    outs = compat.stage_unknown(trace_, loop_p, staged, {**linear, "hinted": hinted})
    lx, lys, lhints = parts(outs, [sum(nz), sum(uy)])
    result = [*merge(uz, x, pick(pick(nz, uz), lx)), *merge(uy, ys, lys)]
    if asked:
        moved = dict(zip([k for k, s in enumerate(asked) if s and uz[k]], lhints[first:]))
        result += [*(ledger or lhints[:first]), *(moved[k] if uz[k] else held[k] for k, s in enumerate(asked) if s)]
    return [compat.as_known(trace_, r) for r in result]


def linear_loop(
    params: dict[str, Any], uz: Sequence[bool], uy: Sequence[bool]
) -> tuple[dict[str, Any], list[list[bool]], tuple[bool, ...] | None]:
    """The part of a loop that is left when some is known.

    Its parameters; what it takes of consts, carry and xs; and which of its carried values come with snapshots, if any
    do: it carries what is unknown, and of the rest only what the steps need for that.
    """
    body, sizes, asked = params["body"], params["sizes"], params["store"]
    nc, nz, nx = needed_inputs(body, sizes, uz, uy)
    made = {
        **params, "body": compat.prune(body, [*nz, *uy], [True, *nc, *nz, *nx]), "sizes": (sum(nc), sum(nz), sum(nx)),
        "store": tuple(s and u for s, u, n in zip(asked, uz, nz) if n) if asked else (),
    }  # fmt: skip
    if not any(made["store"]):
        made["store"] = ()
    known = tuple(not u for u in pick(nz, uz))
    return made, [nc, nz, nx], known if any(known) else None


def snapshots_of(uz: Sequence[bool], nz: Sequence[bool], asked: tuple[bool, ...]) -> tuple[bool, ...]:
    """Of the known carried values, those whose snapshots are needed by the linear part, or asked for."""
    store = tuple(n or bool(asked and asked[k]) for k, (n, u) in enumerate(zip(nz, uz)) if not u)
    return store if any(store) else ()


def _reverse_unknown(unknown: Sequence[bool], params: dict[str, Any]) -> tuple[Any, ...]:
    """Known parts of the step and the way back, and masks: consts, z, xs, w, us; outputs."""
    step, back, sizes = params["step"], params["back"], params["sizes"]
    _, uc, uz, ux, _, uw, uu, _ = parts(unknown, [counted(params["length"]), *sizes])
    known_step, uz, _ = settle(uz, lambda uz: known_part(step, [False, *uc, *uz, *ux], uz))
    rest = [False] * (len(back.out_avals) - len(uw))
    ins = [*uc, *uz, *ux]
    known_back, uw, uv = settle(uw, lambda uw: known_part(back, [False, *ins, *uw, *uu], [*uw, *rest]))
    return known_step, known_back, [uc, uz, ux, uw, uu], uv


def _known_reverse(
    known_step: Jaxpr, known_back: Jaxpr, masks: list[list[bool]], hints: int, params: dict[str, Any]
) -> dict[str, Any]:
    nc, nz, nx, nw, nu = (len(m) - sum(m) for m in masks)
    return {**params, "step": known_step, "back": known_back, "sizes": (nc, nz, nx, hints, nw, nu)}


def reverse_split(trace_: Any, *tracers: Any, **params: Any) -> list[Any]:
    first, sizes = counted(params["length"]), params["sizes"]
    unknown = [not compat.is_known(t) for t in tracers]
    if not any(unknown):
        return compat.stage_unknown(trace_, reverse_p, tracers, params)
    known_step, known_back, masks, uv = _reverse_unknown(unknown, params)
    uc, uz, ux, uw, uu = masks
    if any(unknown[:first]) or (all(uw) and all(uv)):
        return compat.stage_unknown(trace_, reverse_p, tracers, params)
    count, consts, z, xs, hint, w, us, _ = parts(tracers, [first, *sizes])
    hints = [*hint[:first], *drop(uz, hint[first:])] if hint else []
    if not all(map(compat.is_known, hints)):
        hints = []
    inputs = [*count, *drop(uc, consts), *drop(uz, z), *drop(ux, xs), *hints, *drop(uw, w), *drop(uu, us)]
    made = _known_reverse(known_step, known_back, masks, len(hints), params)
    outs = compat.bind_known(trace_, reverse_p, [compat.known_value(t) for t in inputs], made)
    new, vs = parts(outs, [len(uw) - sum(uw)])
    lnew, lvs = parts(compat.stage_unknown(trace_, reverse_p, tracers, params), [len(uw)])
    result = [*merge(uw, new, pick(uw, lnew)), *merge(uv, vs, pick(uv, lvs))]
    return [compat.as_known(trace_, r) for r in result]


def uninstantiated(eqn: Any, instantiated: Sequence[bool]) -> list[Any]:
    """Operands that a staged equation needs and that are not there yet."""
    return [v for v, there in zip(eqn.invars, instantiated) if compat.is_variable(v) and not there]


def loop_split_equation(saveable: Any, unknown: Sequence[bool], instantiated: Sequence[bool], eqn: Any) -> Any:
    params = eqn.params
    first, sizes = counted(params["length"]), params["sizes"]
    known, (uc, uz, ux), uy = _loop_unknown(unknown, params)
    more = uninstantiated(eqn, instantiated)
    if any(unknown[:first]) or (all(uz) and all(uy)):
        every = [True] * len(eqn.outvars)
        return None, eqn, every, every, more
    count, consts, carry, xs, _ = parts(eqn.invars, [first, *sizes])
    asked = params["store"]
    store = snapshots_of(uz, [False] * len(uz), asked)
    unknown_out = [*uz, *uy] + ([not store] * first + pick(asked, uz) if asked else [])
    made = _known_loop(known, [uc, uz, ux], params, store)
    inputs = [*count, *drop(uc, consts), *drop(uz, carry), *drop(ux, xs)]
    known_eqn = compat.new_equation(eqn, inputs, drop(unknown_out, eqn.outvars), made)
    return known_eqn, eqn, unknown_out, [True] * len(eqn.outvars), more


def reverse_split_equation(saveable: Any, unknown: Sequence[bool], instantiated: Sequence[bool], eqn: Any) -> Any:
    params = eqn.params
    first, sizes = counted(params["length"]), params["sizes"]
    known_step, known_back, masks, uv = _reverse_unknown(unknown, params)
    uc, uz, ux, uw, uu = masks
    more = uninstantiated(eqn, instantiated)
    if any(unknown[:first]) or (all(uw) and all(uv)):
        every = [True] * len(eqn.outvars)
        return None, eqn, every, every, more
    count, consts, z, xs, _, w, us, _ = parts(eqn.invars, [first, *sizes])
    made = _known_reverse(known_step, known_back, masks, 0, params)
    inputs = [*count, *drop(uc, consts), *drop(uz, z), *drop(ux, xs), *drop(uw, w), *drop(uu, us)]
    unknown_out = [*uw, *uv]
    known_eqn = compat.new_equation(eqn, inputs, drop(unknown_out, eqn.outvars), made)
    return known_eqn, eqn, unknown_out, [True] * len(eqn.outvars), more


def _cotangent_avals(avals: Sequence[Any]) -> list[Any]:
    return [a.to_ct_aval() if hasattr(a, "to_ct_aval") else a for a in avals]


def loop_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    body, sizes, length = params["body"], params["sizes"], params["length"]
    first = counted(length)
    known, (lc, lz, lx), ly = _loop_unknown([is_linear(a) for a in args], params)
    count, consts, carry, xs, hints = parts(args, [first, *sizes])
    ct, ctys, _ = parts(cotangents, [sizes[1], len(ly)])
    ctys = pick(ly, ctys)
    given = has_tangent(ctys)
    step = compat.prune_outputs(known, [True] * (len(lz) - sum(lz)) + [False] * (len(ly) - sum(ly)))
    _, tc, tz, tx = parts(body.in_avals, [1, *sizes[:2]])
    tc, tz, tx = pick(lc, tc), pick(lz, tz), pick(lx, tx)
    call = evaluate(body)

    def back(i: Any, *values: Any) -> list[Any]:
        kc, kz, kx, w, acc, u = parts(
            values, [len(lc) - len(tc), len(lz) - len(tz), len(lx) - len(tx), len(tz), len(tc)]
        )

        def linear(*moved: Any) -> list[Any]:
            c, z, x = parts(moved, [len(tc), len(tz)])
            out, ys = parts(call(i, *merge(lc, kc, c), *merge(lz, kz, z), *merge(lx, kx, x)), [sizes[1]])
            return [*pick(lz, out), *pick(given, pick(ly, ys))]

        c, z, x = parts(compat.transpose(linear, [*tc, *tz, *tx], [*w, *u]), [len(tc), len(tz)])
        return [*z, *(a + b for a, b in zip(acc, c)), *x]

    w = [*map(instantiate, pick(lz, ct)), *(zeros(a) for a in _cotangent_avals(tc))]
    u = pick(given, ctys)
    values = [*drop(lc, consts), *drop(lz, carry), *drop(lx, xs)]
    hint = hints if params["hinted"] == tuple(not m for m in lz) else []
    known_types = drop([False, *lc, *lz, *lx], body.in_avals)
    made = trace(back, [*known_types, *map(compat.aval_of, w), *(compat.unstacked(compat.aval_of(x)) for x in u)])
    total = (len(lc) - len(tc), len(lz) - len(tz), len(lx) - len(tx), len(hint), len(w), len(u))
    outs = reverse_p.bind(
        *count, *values, *hint, *w, *u,
        step=step, back=made, sizes=total, length=length, plan=params["plan"], flip=params["flip"],
    )  # fmt: skip
    z, c, x = parts(outs, [len(tz), len(tc)])
    nothing = [None] * len(hints)
    all_z = spread(lz, z, lambda k: None)
    return [
        *[None] * first, *spread(lc, c, lambda k: None),
        *(g if is_linear(a) else None for g, a in zip(all_z, carry)), *spread(lx, x, lambda k: None), *nothing,
    ]  # fmt: skip


def _without_cotangents(body: Jaxpr, inputs: int) -> Jaxpr:
    """The body without the cotangents at its end, which it must not depend on."""
    every = [True] * len(body.out_avals)
    if any(compat.used_inputs(body, every)[inputs:]):
        raise NotImplementedError(
            "reverse-mode differentiation of a checkpointed gradient whose loop body has a custom_vjp rule that is not "
            "linear in the cotangent (such as one that clips gradients): JAX calls it a derivative, but it has no "
            "transpose; take the rule out of the loop, or differentiate forward over reverse"
        )
    return compat.prune(body, every, [True] * inputs + [False] * (len(body.in_avals) - inputs))


def reverse_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    step, back, sizes, length = params["step"], params["back"], params["sizes"], params["length"]
    first = counted(length)
    known_step, known_back, masks, lv = _reverse_unknown([is_linear(a) for a in args], params)
    lc, lz, lx, lw, lu = masks
    count, consts, z0, xs, hints, wn, us, _ = parts(args, [first, *sizes])
    ct, ctvs = parts(cotangents, [len(lw)])
    ctvs = pick(lv, ctvs)
    given = has_tangent(ctvs)
    _, tc, tz, tx, tw, tu = parts(back.in_avals, [1, sizes[0], sizes[1], sizes[2], sizes[4]])
    kept = parts(known_back.out_avals, [len(lw) - sum(lw)])
    pull = compat.prune_outputs(known_back, [True] * len(kept[0]) + [False] * len(kept[1]))
    advance, reverse, follow = evaluate(step), evaluate(back), evaluate(pull)
    known = [len(m) - sum(m) for m in (lc, lz, lx)]
    omega = [instantiate(c) for c in pick(lw, ct)]
    upsilon = pick(given, ctvs)

    def none(mask: list[bool], types: list[Any], values: Sequence[Any]) -> list[Any]:
        return merge(mask, values, [zeros(a) for a in pick(mask, types)])

    def outputs(new: list[Any]) -> list[Any]:
        w, vs = parts(new, [len(lw)])
        return [*pick(lw, w), *pick(given, pick(lv, vs))]

    def forward(i: Any, *values: Any) -> list[Any]:
        kc, kz, om, kx, up, fixed_w, fixed_u = parts(
            values, [known[0], known[1], len(omega), known[2], len(upsilon), len(lw) - sum(lw)]
        )
        c, z, x = none(lc, tc, kc), none(lz, tz, kz), none(lx, tx, kx)

        def linear(*moved: Any) -> list[Any]:
            w, u = parts(moved, [sum(lw)])
            return outputs(reverse(i, *c, *z, *x, *merge(lw, fixed_w, w), *merge(lu, fixed_u, u)))

        new, gu = parts(compat.transpose(linear, [*pick(lw, tw), *pick(lu, tu)], [*om, *up]), [sum(lw)])
        return [*evaluate(known_step)(i, *kc, *kz, *kx), *new, *gu]

    def backward(i: Any, *values: Any) -> list[Any]:
        kc, kz, om, kx, up, kw, zeta, acc, ku = parts(
            values,
            [known[0], known[1], len(omega), known[2], len(upsilon), len(lw) - sum(lw), sum(lz), sum(lc)],
        )

        def linear(*moved: Any) -> list[Any]:
            mc, mz, mx = parts(moved, [sum(lc), sum(lz)])
            c, z, x = merge(lc, kc, mc), merge(lz, kz, mz), merge(lx, kx, mx)
            w, u = none(lw, tw, kw), none(lu, tu, ku)
            return [*pick(lz, advance(i, *c, *z, *x)), *outputs(reverse(i, *c, *z, *x, *w, *u))]

        types = [*pick(lc, tc), *pick(lz, tz), *pick(lx, tx)]
        gc, gz, gx = parts(compat.transpose(linear, types, [*zeta, *om, *up]), [sum(lc), sum(lz)])
        return [*follow(i, *kc, *kz, *kx, *kw, *ku), *gz, *(a + b for a, b in zip(acc, gc)), *gx]

    up_types = [compat.unstacked(compat.aval_of(u)) for u in upsilon]
    index = back.in_avals[0]
    c, z, x = drop(lc, consts), drop(lz, z0), drop(lx, xs)
    types = [index, *drop(lc, tc), *drop(lz, tz), *map(compat.aval_of, omega), *drop(lx, tx), *up_types]
    body = _without_cotangents(trace(forward, [*types, *drop(lw, tw), *drop(lu, tu)]), len(types))
    outs = loop_p.bind(
        *count, *c, *z, *omega, *x, *upsilon,
        body=body, sizes=(len(c), len(z) + len(omega), len(x) + len(upsilon)), length=length, plan=params["plan"],
        store=(True,) * (len(z) + len(omega)), flip=params["flip"], hinted=None,
    )  # fmt: skip
    _, ctw, ctu, hint = parts(outs, [len(z), len(omega), sum(lu)])
    zeta = [zeros(a) for a in _cotangent_avals(pick(lz, tz))]
    acc = [zeros(a) for a in _cotangent_avals(pick(lc, tc))]
    w, u = [*drop(lw, wn), *zeta, *acc], drop(lu, us)
    made = trace(backward, [*types, *map(compat.aval_of, w), *drop(lu, tu)])
    made = compat.prune_outputs(made, [True] * len(made.out_avals))
    both = compat.prune_outputs(body, [True] * (len(z) + len(omega)) + [False] * sum(lu))
    total = (len(c), len(z) + len(omega), len(x) + len(upsilon), len(hint), len(w), len(u))
    outs = reverse_p.bind(
        *count, *c, *z, *omega, *x, *upsilon, *hint, *w, *u,
        step=both, back=made, sizes=total, length=length, plan=params["plan"], flip=params["flip"],
    )  # fmt: skip
    _, ctz, ctc, ctx = parts(outs, [len(lw) - sum(lw), sum(lz), sum(lc)])

    def only_linear(mask: list[bool], grads: list[Any], values: list[Any]) -> list[Any]:
        return [g if is_linear(a) else None for g, a in zip(spread(mask, grads, lambda k: None), values)]

    return [
        *[None] * first, *spread(lc, ctc, lambda k: None), *only_linear(lz, ctz, z0), *spread(lx, ctx, lambda k: None),
        *[None] * len(hints), *only_linear(lw, ctw, wn), *spread(lu, ctu, lambda k: None),
    ]  # fmt: skip
