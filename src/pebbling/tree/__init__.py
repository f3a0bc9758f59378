"""States as trees: containers of arrays and of anything else, taken apart, copied, written and compared."""

from .arrays import Form
from .compare import differing, fingerprint
from .copying import copy, nbytes
from .leaves import Kind, kind_of
from .packing import Layout, pack
from .structure import Structure, flatten, paths, register, unflatten

__all__ = [
    "Form",
    "Kind",
    "Layout",
    "Structure",
    "copy",
    "differing",
    "fingerprint",
    "flatten",
    "kind_of",
    "nbytes",
    "pack",
    "paths",
    "register",
    "unflatten",
]
