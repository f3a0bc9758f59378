"""Which functions have derivatives, by the modules that programs know them from: ``python known_functions.py``."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np

import pebbling as pb
from pebbling.engine.numpy import foreign, standins
from pebbling.engine.numpy.kinds import Flat
from pebbling.engine.numpy.rules.scipy_stats import BELOW, DENSITY
from pebbling.engine.numpy.table import TABLE

MODULES = """
    numpy numpy.linalg numpy.fft math scipy.special scipy.linalg scipy.sparse.linalg scipy.ndimage scipy.signal
    scipy.integrate scipy.interpolate
"""


def _is_known(function: Any) -> bool:
    if getattr(function, "__hash__", None) is None or function in foreign.REFUSED:
        return False
    if function in TABLE:
        return not isinstance(TABLE[function], Flat)
    return id(function) in standins._OURS and standins._OURS[id(function)][0] is function


def known() -> dict[str, set[str]]:
    """The names by module; those of ``scipy.stats`` are distributions."""
    for name in MODULES.split():
        importlib.import_module(name)
    pb.grad(lambda x: np.sum(x))(np.ones(2))  # which loads the rules of what has been imported
    found = {
        name: {item for item, value in vars(sys.modules[name]).items() if item[0] != "_" and _is_known(value)}
        for name in MODULES.split()
    }
    return found | {"scipy.stats": {name for name in {*DENSITY, *BELOW} if name[0] != "_"} | {"multivariate_normal"}}


if __name__ == "__main__":
    print(json.dumps({module: sorted(names) for module, names in known().items()}))
