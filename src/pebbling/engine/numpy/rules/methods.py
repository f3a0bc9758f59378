"""The methods of ufuncs: ``np.add.reduce`` and its kin, told as functions that have rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..indexing import scatter
from ..kinds import refuse_out
from ..table import composed
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


def _adds_at(ufunc: Any) -> None:
    @composed(ufunc.at, exact=True)
    def at(array: Any, indices: Any, part: Any) -> None:
        if not isinstance(array, Traced):
            raise refuse_out(ufunc.at)
        shape = np.shape(array)
        whole = np.broadcast_to(part, np.shape(np.zeros(shape, bool)[indices]))
        array[...] = ufunc(array, scatter(whole, indices, shape, array.dtype))  # type: ignore[index,attr-defined]


_adds_at(np.add)
_adds_at(np.subtract)
