"""``out=`` and ``where=``: a result that is written into an array that is there already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .alias import assign, augment
from .kinds import refuse_out
from .refuse import name_of, refuse
from .traced import Traced, plain


def written_to(func: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The call ``func(*args, out=…)``, of which something is traced."""
    call = func if method == "__call__" else getattr(func, method)
    kwargs = dict(kwargs)
    out: Any = kwargs.pop("out")
    where = kwargs.pop("where", True)
    if type(out) is tuple and len(out) == 1:
        out = out[0]
    if out is None:
        raise refuse(f"{name_of(call)} with where= and no out= leaves elements without a value", "Give it out=")
    if not isinstance(out, Traced):
        raise refuse_out(call)
    target: Any = out
    if where is not True:
        if not isinstance(call, np.ufunc):
            raise refuse(f"{name_of(call)} with where= and out= has no derivative rule", "Use np.where")
        return _masked(call, args, kwargs, target, where)
    result = call(*args, **kwargs)
    if isinstance(call, np.ufunc) and np.shape(result) != target.shape:
        result = np.broadcast_to(result, target.shape)
    augment(target, result)
    return target


def _masked(ufunc: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, where: Any) -> Any:
    """Only where the mask says so, so that nothing comes from the elements that are left out."""
    mask = np.broadcast_to(np.asarray(plain(where), bool), out.shape)
    chosen = [np.broadcast_to(arg, out.shape)[mask] if np.ndim(arg) else arg for arg in args]
    assign(out, mask, ufunc(*chosen, **kwargs))
    return out
