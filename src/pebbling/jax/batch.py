"""The two primitives over a batch (``jax.vmap``), and what is dropped of them when results go unused.

Where only the number of steps differs between the members of a batch, all run as long as the
longest; those that are done keep their state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from . import compat
from .compat import Jaxpr, batched_jaxpr, evaluate, trace
from .masks import either, parts, pick, settle, spread
from .primitives import counted, loop_p, reverse_p
from .writes import held


def masked(jaxpr: Jaxpr, kept: slice) -> Jaxpr:
    """The jaxpr with the count of a member before its inputs; past it the inputs ``kept`` come out unchanged."""
    index, *avals = jaxpr.in_avals
    call = evaluate(held(jaxpr, 1 + kept.start, kept.stop - kept.start))
    return trace(lambda i, count, *args: call(i < count, i, *args), [index, index, *avals])


def batch_dims(mask: Sequence[bool], dim: int) -> list[int | None]:
    """Where the batch axis is, for values that have one."""
    return [dim if m else None for m in mask]


def place_batch(
    values: Sequence[Any], dims: Sequence[int | None], mask: Sequence[bool], axis: Any, target: int
) -> list[Any]:
    """Values with their batch axis in one place, where they have one."""
    return [compat.batch_at(v, axis, d, target) if m else v for v, d, m in zip(values, dims, mask)]


def loop_batch(
    axis: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
) -> tuple[list[Any], list[Any]]:
    sizes, length = params["sizes"], params["length"]
    if length is None and dims[0] is not None:
        body = masked(params["body"], slice(sizes[0], sizes[0] + sizes[1]))
        made = {**params, "body": body, "sizes": (sizes[0] + 1, *sizes[1:])}
        return loop_batch(axis, [jnp.max(args[0]), *args], [None, *dims], **made)
    first = counted(length)
    count, consts, carry, xs, hint = parts(args, [first, *sizes])
    _, dc, dz, dx, dh = parts(dims, [first, *sizes])
    bc, bz, bx = ([d is not None for d in group] for group in (dc, dz, dx))
    hinted = params["hinted"]
    body = params["body"]
    rest = [False] * (len(body.out_avals) - sizes[1])
    made, bz, by = settle(bz, lambda bz: batched_jaxpr(body, axis, [False, *bc, *bz, *bx], [*bz, *rest]))
    hints: list[Any] = []
    if hinted is not None:
        hints = [*hint[:first], *place_batch(hint[first:], dh[first:], pick(hinted, bz), axis, 1)]
    outs = loop_p.bind(
        *count, *place_batch(consts, dc, bc, axis, 0), *place_batch(carry, dz, bz, axis, 0),
        *place_batch(xs, dx, bx, axis, 1), *hints,
        **{**params, "body": made},
    )  # fmt: skip
    out_dims = batch_dims(bz, 0) + batch_dims(by, 1)
    if params["store"]:
        out_dims += [None] * first + batch_dims(pick(params["store"], bz), 1)
    return outs, out_dims


def reverse_batch(
    axis: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
) -> tuple[list[Any], list[Any]]:
    sizes, length = params["sizes"], params["length"]
    if length is None and dims[0] is not None:
        before = sum(sizes[:3])
        made = {
            "step": masked(params["step"], slice(sizes[0], sizes[0] + sizes[1])),
            "back": masked(params["back"], slice(before, before + sizes[4])),
            "sizes": (sizes[0] + 1, *sizes[1:]),
        }
        return reverse_batch(axis, [jnp.max(args[0]), *args], [None, *dims], **{**params, **made})
    first = counted(length)
    count, consts, z, xs, hint, w, us, _ = parts(args, [first, *sizes])
    _, dc, dz, dx, dh, dw, du, _ = parts(dims, [first, *sizes])
    bc, bz, bx, bw, bu = ([d is not None for d in group] for group in (dc, dz, dx, dw, du))
    if hint:
        bz = either(bz, [d is not None for d in dh[first:]])
    step, bz, _ = settle(bz, lambda bz: batched_jaxpr(params["step"], axis, [False, *bc, *bz, *bx], bz))
    rest = [False] * (len(params["back"].out_avals) - len(w))
    back, bw, bv = settle(
        bw, lambda bw: batched_jaxpr(params["back"], axis, [False, *bc, *bz, *bx, *bw, *bu], [*bw, *rest])
    )
    hints = [*hint[:first], *place_batch(hint[first:], dh[first:], bz, axis, 1)] if hint else []
    outs = reverse_p.bind(
        *count, *place_batch(consts, dc, bc, axis, 0), *place_batch(z, dz, bz, axis, 0),
        *place_batch(xs, dx, bx, axis, 1), *hints,
        *place_batch(w, dw, bw, axis, 0), *place_batch(us, du, bu, axis, 1),
        **{**params, "step": step, "back": back},
    )  # fmt: skip
    return outs, batch_dims(bw, 0) + batch_dims(bv, 1)


def loop_prune(used: Sequence[bool], eqn: Any) -> tuple[list[bool], Any]:
    """Drop outputs, carried values and snapshots that nothing depends on."""
    params = eqn.params
    if not any(used) and not compat.has_effects(eqn):
        return [False] * len(eqn.invars), None
    body, sizes, first = params["body"], params["sizes"], counted(params["length"])
    ny = len(body.out_avals) - sizes[1]
    uz, uy, uh = parts(used, [sizes[1], ny])
    store, asked = params["store"], params["store"]
    if store:
        store = tuple(spread(store, uh[first:], lambda k: False))
        store = store if any(store) else ()
        uz = either(uz, store or [False] * len(uz))

    def grow(uz: list[bool]) -> tuple[Any, list[bool]]:
        needed = compat.used_inputs(body, [*uz, *uy])
        return needed, needed[1 + sizes[0] : 1 + sizes[0] + sizes[1]]

    needed, uz, _ = settle(uz, grow)
    _, uc, _, ux = parts(needed, [1, *sizes[:2]])
    made = compat.prune(body, [*uz, *uy], [True, *uc, *uz, *ux])
    hinted = params["hinted"]
    hint_used: list[bool] = []
    if hinted is not None:
        kept = pick(hinted, uz)
        hint_used = [True] * first + kept
        hinted = tuple(h for h, u in zip(hinted, uz) if u)
    used_in = [True] * first + uc + uz + ux + hint_used
    used_out = uz + uy + ([True] * first + pick(asked, store) if store else [])
    full = used_out + ([False] * (len(eqn.outvars) - len(used_out)))
    changed = {
        "body": made, "sizes": (sum(uc), sum(uz), sum(ux)), "store": tuple(pick(uz, store)) if store else (),
        "hinted": hinted,
    }  # fmt: skip
    new = compat.new_equation(eqn, pick(used_in, eqn.invars), pick(full, eqn.outvars), {**params, **changed})
    return used_in, new


def reverse_prune(used: Sequence[bool], eqn: Any) -> tuple[list[bool], Any]:
    """Drop what is carried back and given by each step where nothing depends on it."""
    params = eqn.params
    if not any(used) and not compat.has_effects(eqn):
        return [False] * len(eqn.invars), None
    step, back, sizes, first = params["step"], params["back"], params["sizes"], counted(params["length"])
    nc, nz, nx, nh, nw, _ = sizes
    uw, uv = parts(used, [nw])

    def grow_w(uw: list[bool]) -> tuple[Any, list[bool]]:
        needed = compat.used_inputs(back, [*uw, *uv])
        return needed, parts(needed, [1, nc, nz, nx, nw])[4]

    needed, uw, _ = settle(uw, grow_w)
    _, uc, uz, ux, _, uu = parts(needed, [1, nc, nz, nx, nw])

    def grow_z(uz: list[bool]) -> tuple[Any, list[bool]]:
        wanted = compat.used_inputs(step, uz)
        return wanted, parts(wanted, [1, nc, nz])[2]

    wanted, uz, _ = settle(uz, grow_z)
    _, sc, _, sx = parts(wanted, [1, nc, nz])
    uc, ux = either(uc, sc), either(ux, sx)
    hints = [True] * first + uz if nh else []
    used_in = [True] * first + uc + uz + ux + hints + uw + uu
    changed = {
        "step": compat.prune(step, uz, [True, *uc, *uz, *ux]),
        "back": compat.prune(back, [*uw, *uv], [True, *uc, *uz, *ux, *uw, *uu]),
        "sizes": (sum(uc), sum(uz), sum(ux), sum(hints), sum(uw), sum(uu)),
    }
    new = compat.new_equation(eqn, pick(used_in, eqn.invars), pick([*uw, *uv], eqn.outvars), {**params, **changed})
    return used_in, new
