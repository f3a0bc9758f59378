"""Functions without a derivative: their results are plain."""

from __future__ import annotations

import operator

import numpy as np

from ..table import flat

flat(
    np.floor, np.ceil, np.rint, np.trunc, np.fix, np.round, np.around, np.floor_divide, operator.floordiv,
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal,
    np.logical_and, np.logical_or, np.logical_not, np.logical_xor,
    np.isnan, np.isinf, np.isfinite, np.isneginf, np.isposinf, np.signbit,
    np.isclose, np.allclose, np.array_equal, np.array_equiv, np.isreal, np.iscomplex, np.isrealobj, np.iscomplexobj,
    np.any, np.all, np.count_nonzero, np.nonzero, np.flatnonzero, np.argwhere, np.isin,
    np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort, np.argpartition, np.lexsort,
    np.searchsorted, np.digitize,
    np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.min_scalar_type, np.common_type,
    np.may_share_memory, np.shares_memory, np.array_repr, np.array_str, np.array2string,
)  # fmt: skip
