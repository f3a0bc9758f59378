"""The methods of ufuncs: ``np.add.reduce`` and its kin, told as functions that have rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..alias import augment
from ..indexing import freeze, scatter
from ..kinds import refuse_out
from ..table import composed, primitive
from ..traced import Traced


def _reduces(method: Any, func: Any) -> None:
    @composed(method, exact=True)
    def reduce(array: Any, axis: Any = 0, **kwargs: Any) -> Any:
        return func(array, axis=axis, **kwargs)


_reduces(np.add.reduce, np.sum)
_reduces(np.multiply.reduce, np.prod)
_reduces(np.maximum.reduce, np.max)
_reduces(np.minimum.reduce, np.min)
_reduces(np.logical_and.reduce, np.all)
_reduces(np.logical_or.reduce, np.any)
_reduces(np.add.accumulate, np.cumsum)
_reduces(np.multiply.accumulate, np.cumprod)


@composed(np.logaddexp.reduce)
def log_sum_exp(array: Any, axis: Any = 0, keepdims: bool = False) -> Any:
    top = np.max(array, axis=axis, keepdims=True)
    result = np.log(np.sum(np.exp(array - top), axis=axis, keepdims=True)) + top
    return result if keepdims else np.squeeze(result, axis=axis)


def _at(ufunc: Any, sign: int) -> None:
    def written(x: Any, part: Any, index: Any) -> Any:
        new = np.copy(x)
        ufunc.at(new, index, part)
        return new

    @primitive(written, arrays=slice(2))
    def changed(y: Any, x: Any, part: Any, index: Any) -> Any:
        shape, dtype = np.shape(x), y.dtype
        return (
            [lambda g: g, lambda g: sign * g[index]],
            [lambda t: t, lambda t: sign * scatter(t, index, shape, dtype)],
        )

    @composed(ufunc.at, exact=True)
    def at(array: Any, indices: Any, part: Any) -> None:
        if not isinstance(array, Traced):
            raise refuse_out(ufunc.at)
        augment(array, changed(array, part, freeze(None, indices)))


_at(np.add, 1)
_at(np.subtract, -1)
