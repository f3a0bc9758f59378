"""Containers of other packages, looked into without being registered here.

Known by themselves: datasets and arrays of xarray, quantities of astropy, masked arrays of NumPy, sparse matrices of
SciPy. Known from the package that they were registered with: whatever jax, torch or optree call a node, such as
the states and modules of flax. A package that the program has not imported is never imported for this, since a value
of its can't be there then.

What is not taken apart: subclasses, which may hold more than their base; datasets with an index of several levels or
of one that is not made of a coordinate, which are refused with what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np


class ForeignNode(NamedTuple):
    """How one type is taken apart, put together and named, as for any container."""

    parts: Callable[[Any], tuple[Iterable[Any], Any]]
    build: Callable[[type, Any, list[Any]], Any]
    names: Callable[[Any, int], Sequence[str]]


_OWN = ("builtins", "collections", "numpy", "torch", "datetime", "types", "enum", "array", "random")
"""Packages whose types are leaves, or containers that are known already, whoever registered them."""


def foreign_node(cls: type) -> ForeignNode | None:
    """How a type of another package is taken apart; ``None`` if no package says so."""
    found = _known(cls)
    if found is not None or cls.__module__.partition(".")[0] in _OWN or issubclass(cls, type):
        return found
    for look in (_of_jax, _of_torch, _of_optree):
        node = look(cls)
        if node is not None:
            return node
    return None


def _known(cls: type) -> ForeignNode | None:
    """The node of a type that is known by itself."""
    module = cls.__module__.partition(".")[0]
    if module not in ("xarray", "astropy", "numpy", "scipy"):
        return None
    if module == "numpy":
        # NumPy brings this part of it in when it is first asked for, which takes a megabyte.
        return _MASKED if cls is getattr(sys.modules.get("numpy.ma"), "MaskedArray", None) else None
    for package, name, node in _TYPES:
        if module == package and cls.__name__ == name and getattr(_home(package), name, None) is cls:
            return node
    return None


def _home(package: str) -> Any:
    """Where a package has its types."""
    return sys.modules.get({"scipy": "scipy.sparse", "astropy": "astropy.units"}.get(package, package))


def _dotted(names: Sequence[str], count: int) -> list[str]:
    return [f".{name}" for name in names]


def _numbered(rest: Any, count: int) -> list[str]:
    return [f"[{index}]" for index in range(count)]


def _dataset_parts(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
    """The variables, and which of them are coordinates and have an index."""
    indexes = value.xindexes
    if any(type(index).__name__ != "PandasIndex" for index in indexes.values()):
        raise TypeError(
            f"the {type(value).__name__} has an index that is not one coordinate's own (such as a MultiIndex), which "
            "can't be made again from its arrays: take it out of the state with reset_index, or say how with "
            "pebbling.tree.register"
        )
    # In the order in which a dataset has them when it is made again.
    variables = {name: value.variables[name] for name in (*value.data_vars, *value.coords)}
    children = [_variable_data(variable) for variable in variables.values()]
    described = tuple((name, tuple(variable.dims)) for name, variable in variables.items())
    attributes = [value.attrs, value.encoding, {n: [v.attrs, v.encoding] for n, v in variables.items()}]
    return [*children, attributes], (described, tuple(value.coords), tuple(indexes))


def _variable_data(variable: Any) -> Any:
    data = variable.data
    return data if isinstance(data, np.ndarray) else np.asarray(data) if hasattr(data, "array") else data


def _dataset_made(cls: type, rest: Any, children: list[Any]) -> Any:
    described, coordinates, indexed = rest
    *arrays, (attributes, encoding, own) = children
    xarray: Any = sys.modules["xarray"]
    variables = {}
    for (name, dims), data in zip(described, arrays):
        variable = xarray.Variable(dims, data, own[name][0], own[name][1], fastpath=True)
        variables[name] = variable
    indexes = {name: xarray.indexes.PandasIndex.from_variables({name: variables[name]}, options={}) for name in indexed}
    for name, index in indexes.items():
        variables[name] = index.create_variables({name: variables[name]})[name]
    coords = xarray.Coordinates({name: variables[name] for name in coordinates}, indexes=indexes)
    made = cls({name: variables[name] for name, _ in described if name not in coordinates}, coords, attributes)
    made.encoding = encoding
    return made


def _dataset_names(rest: Any, count: int) -> list[str]:
    return [*[f"[{name!r}]" for name, _ in rest[0]], ".attrs"]


_ITSELF = "<this array>"
"""What the array of a DataArray is called in the dataset that stands for it, as xarray does."""


def _array_parts(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
    dataset = value.to_dataset(name=_ITSELF) if _ITSELF not in value.coords else None
    if dataset is None:
        raise TypeError(f"a DataArray has a coordinate named {_ITSELF!r}: give it another name")
    children, rest = _dataset_parts(dataset)
    return children, (value.name, rest)


def _array_made(cls: type, rest: Any, children: list[Any]) -> Any:
    name, inner = rest
    made = _dataset_made(sys.modules["xarray"].Dataset, inner, children)[_ITSELF]
    made.name = name
    return made


def _array_names(rest: Any, count: int) -> list[str]:
    return [".values" if name == _ITSELF else f"[{name!r}]" for name, _ in rest[1][0]] + [".attrs"]


def _variable_parts(value: Any) -> tuple[list[Any], tuple[str, ...]]:
    return [_variable_data(value), [value.attrs, value.encoding]], tuple(value.dims)


def _variable_made(cls: type, dims: Any, children: list[Any]) -> Any:
    data, (attributes, encoding) = children
    return cls(dims, data, attributes, encoding, fastpath=True)


def _quantity_parts(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
    unit = value.unit
    text = unit.to_string()
    # A unit that its text does not bring back is carried as it is, which no file can hold.
    try:
        is_told = sys.modules["astropy.units"].Unit(text) == unit
    except (ValueError, TypeError):
        is_told = False
    return [value.view(np.ndarray)], (text if is_told else unit,)


def _quantity_made(cls: type, rest: Any, children: list[Any]) -> Any:
    return cls(children[0], rest[0], copy=False)


def _masked_parts(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
    mask = None if value.mask is np.ma.nomask else np.ma.getmask(value)
    return [np.ma.getdata(value), mask, value._fill_value], (bool(value.hardmask),)


def _masked_made(cls: type, rest: Any, children: list[Any]) -> Any:
    content, mask, fill = children
    made: Any = np.ma.MaskedArray(content, np.ma.nomask if mask is None else mask, copy=False, hard_mask=rest[0])
    made._fill_value = fill
    return made


def _compressed_parts(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
    flags = (value.has_sorted_indices, value.has_canonical_format)
    return [value.data, value.indices, value.indptr], (tuple(map(int, value.shape)), tuple(map(bool, flags)))


def _compressed_made(cls: type, rest: Any, children: list[Any]) -> Any:
    shape, (is_sorted, canonical) = rest
    made: Any = cls(tuple(children), shape=shape, copy=False)
    made.has_sorted_indices, made.has_canonical_format = is_sorted, canonical
    return made


_MASKED = ForeignNode(_masked_parts, _masked_made, lambda rest, count: [".data", ".mask", ".fill_value"])
_COMPRESSED = ForeignNode(_compressed_parts, _compressed_made, lambda rest, count: [".data", ".indices", ".indptr"])
_TYPES = (
    ("xarray", "Dataset", ForeignNode(_dataset_parts, _dataset_made, _dataset_names)),
    ("xarray", "DataArray", ForeignNode(_array_parts, _array_made, _array_names)),
    ("xarray", "Variable", ForeignNode(_variable_parts, _variable_made, lambda rest, count: [".values", ".attrs"])),
    ("astropy", "Quantity", ForeignNode(_quantity_parts, _quantity_made, lambda rest, count: [".value"])),
    *(("scipy", f"cs{axis}_{kind}", _COMPRESSED) for axis in "rc" for kind in ("array", "matrix")),
)


def _of_jax(cls: type) -> ForeignNode | None:
    """A class that was registered with ``jax.tree_util``, such as those of flax."""
    jax: Any = sys.modules.get("jax")
    registry = getattr(getattr(jax, "tree_util", None), "default_registry", None)
    if registry is None or not _in_registry(registry, cls):
        return None

    def parts(value: Any) -> tuple[list[Any], Any]:
        children, rest = registry.flatten_one_level(value)
        return list(children), rest

    def build(cls: type, rest: Any, children: list[Any]) -> Any:
        leaf = jax.tree_util.tree_structure(0)
        definition = jax.tree_util.PyTreeDef
        # The name of this changed with jaxlib 0.10.
        make: Any = getattr(definition, "from_node_data_and_children", None)
        make = make or definition.make_from_node_data_and_children
        return jax.tree_util.tree_unflatten(make(registry, (cls, rest), [leaf] * len(children)), children)

    return ForeignNode(parts, build, _numbered)


def _in_registry(registry: Any, cls: type) -> bool:
    """Whether jax takes objects of a class apart; asked without making an object."""
    try:
        known = sys.modules["jax._src.tree_util"]._registry
    except (KeyError, AttributeError):
        return False
    return cls in known and not issubclass(cls, tuple | list | dict)


def _of_torch(cls: type) -> ForeignNode | None:
    """A class that was registered with ``torch.utils._pytree``, such as the outputs and caches of transformers."""
    known: Any = getattr(sys.modules.get("torch.utils._pytree"), "SUPPORTED_NODES", {})
    entry = known.get(cls)
    if entry is None:
        return None
    return ForeignNode(
        lambda value: entry.flatten_fn(value),
        lambda cls, rest, children: entry.unflatten_fn(children, rest),
        _numbered,
    )


def _of_optree(cls: type) -> ForeignNode | None:
    """A class that was registered with ``optree``, for everybody or in one namespace."""
    registry: Any = sys.modules.get("optree.registry")
    entries = [
        entry
        for key, entry in getattr(registry, "_NODETYPE_REGISTRY", {}).items()
        if key is cls or (isinstance(key, tuple) and key[-1] is cls)
    ]
    if len(entries) != 1:
        return None
    entry = entries[0]
    return ForeignNode(
        lambda value: tuple(entry.flatten_func(value))[:2],
        lambda cls, rest, children: entry.unflatten_func(rest, children),
        _numbered,
    )
