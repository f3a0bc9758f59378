"""Tells JAX the rules of the primitives."""

from __future__ import annotations

from . import batch, checks, primitives, rules
from .compat import register

register(
    primitives.loop_p,
    run=primitives.run_loop,
    abstract=primitives.loop_abstract,
    jvp=rules.loop_jvp,
    transpose=rules.loop_transpose,
    split=rules.loop_split,
    split_equation=rules.loop_split_equation,
    batch=batch.loop_batch,
    prune=batch.loop_prune,
    check=checks.check_loop,
)
register(
    primitives.reverse_p,
    run=primitives.run_reverse,
    abstract=primitives.reverse_abstract,
    jvp=rules.reverse_jvp,
    transpose=rules.reverse_transpose,
    split=rules.reverse_split,
    split_equation=rules.reverse_split_equation,
    batch=batch.reverse_batch,
    prune=batch.reverse_prune,
    check=checks.check_reverse,
)
