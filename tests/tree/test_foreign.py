"""States in containers of other packages: looked into, copied, compared, stored and locked without registration."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import astropy.units as units
import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optree
import pytest
import scipy.sparse
import torch
import xarray as xr
from torch.utils import _pytree as torch_tree

from pebbling import ReplayError, adjoint, tree
from pebbling.store import Disk


@attrs.define
class Growing:
    """A class of attrs, with slots."""

    u: Any
    time: int = 0


@attrs.frozen
class Frozen:
    """A class of attrs whose objects can't be changed."""

    u: Any
    time: int = 0


class Registered:
    """A class of which other packages are told, and this one is not."""

    def __init__(self, u, time=0):
        self.u, self.time = u, time


class InJax(Registered):
    pass


class InTorch(Registered):
    pass


class InOptree(Registered):
    pass


jax.tree_util.register_pytree_node(InJax, lambda s: ((s.u,), s.time), lambda time, parts: InJax(parts[0], time))
torch_tree.register_pytree_node(InTorch, lambda s: ([s.u], s.time), lambda parts, time: InTorch(parts[0], time))
optree.register_pytree_node(
    InOptree, lambda s: ((s.u,), s.time), lambda time, parts: InOptree(parts[0], time), namespace="waves"
)
NUMBERS = np.linspace(0.1, 1.0, 6)


def own(cls):
    return cls(NUMBERS), lambda s: cls(1.01 * s.u, s.time + 1), lambda s: s.u


def dataset():
    made = xr.Dataset(
        {"v": (("x", "y"), NUMBERS.reshape(2, 3)), "t": ((), 0.5)},
        coords={"x": [1.0, 2.0], "y": ["a", "b", "c"], "area": ("y", [1.0, 2.0, 3.0])},
        attrs={"title": "waves", "levels": np.arange(3)},
    )
    made.v.attrs["units"] = "m/s"
    return made


def moved(s):
    result = s.copy()
    result["v"] = s.v * 1.01
    return result


MASKED = np.ma.MaskedArray(NUMBERS, mask=[0, 1, 0, 0, 0, 1], fill_value=-1.0)
CASES = {
    "Dataset": (dataset(), moved, lambda s: s.v.values),
    "DataArray": (dataset().v, lambda s: 1.01 * s, lambda s: s.values),
    "DataArray of a name": (dataset().area, lambda s: 1.01 * s, lambda s: s.values),
    "Variable": (dataset().v.variable, lambda s: 1.01 * s, lambda s: s.values),
    "Quantity": (NUMBERS * units.km / units.hour, lambda s: 1.01 * s, lambda s: s.value),
    "masked": (MASKED, lambda s: 1.01 * s, lambda s: s.filled()),
    "sparse": (scipy.sparse.csr_array(np.diag(NUMBERS)), lambda s: 1.01 * s, lambda s: s.data),
    "attrs": own(Growing),
    "frozen attrs": own(Frozen),
    "in jax": own(InJax),
    "in torch": own(InTorch),
    "in optree": own(InOptree),
    "equinox": (
        eqx.nn.Linear(3, 2, key=jax.random.key(1)),
        lambda s: jax.tree.map(lambda x: 1.01 * x, s),
        lambda s: np.asarray(s.weight),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kept", ["memory", "disk"])
def test_a_state_of_another_package(name, kept, tmp_path):
    state, step, values = CASES[name]
    want = state
    for _ in range(7):
        want = step(want)
    seed = tree.copy(state)
    store = Disk(tmp_path) if kept == "disk" else None
    result = adjoint(lambda s, i: step(s), lambda s, a, i: step(a), state, 7, seed, slots=2, store=store, verify="all")
    assert result.report.compared > 0
    for found in (result.state, result.adjoint):
        assert type(found) is type(state)
        assert values(found).tobytes() == values(want).tobytes()
    if store is not None:
        store.put("final", want)
        assert tree.differing(store.get("final"), want) is None
        store.close()


@pytest.mark.parametrize(
    "name", ["Dataset", "DataArray", "Variable", "Quantity", "masked", "sparse", "attrs", "in jax"]
)
def test_all_of_it_comes_back_in_arrays_of_its_own(name):
    state = CASES[name][0]
    copied = tree.copy(state)
    assert tree.differing(state, copied) is None
    arrays, others = (
        [leaf for leaf in tree.flatten(one)[0] if isinstance(leaf, np.ndarray)] for one in (state, copied)
    )
    assert arrays
    assert not any(np.shares_memory(one, two) for one, two in zip(arrays, others, strict=True))
    if name in ("Dataset", "DataArray", "Variable"):
        assert copied.identical(state)
    if name == "Quantity":
        assert copied.unit == state.unit
    if name == "masked":
        assert copied.fill_value == -1.0
        assert copied.mask.tolist() == state.mask.tolist()


def test_a_write_into_an_array_of_a_dataset_is_refused_where_it_happens():
    def step(s, i):
        s.v.values[0] += 1.0
        return moved(s)

    with pytest.raises(ReplayError, match="writes into a state that is stored"):
        adjoint(step, lambda s, a, i: a, dataset(), 5, dataset(), slots=2)


def test_an_index_that_is_not_made_of_one_coordinate_is_refused_by_what_to_do():
    state = dataset().stack(place=("x", "y"))
    with pytest.raises(TypeError, match=r"MultiIndex.*reset_index"):
        tree.flatten(state)


class Moody:
    """Its pickle is another one each time."""

    def __init__(self, u):
        self.u = u

    def __reduce__(self):
        return (Moody, (self.u,), {"noise": id(object()), "other": np.random.default_rng().random()})


def test_objects_that_can_not_be_compared_are_not_called_written():
    with pytest.raises(ReplayError, match="whose pickle differs between equal objects"):
        adjoint(lambda s, i: Moody(s.u * 1.1), lambda s, a, i: a, Moody(NUMBERS), 9, Moody(NUMBERS), slots=2)


def test_a_kept_dataset_is_read_by_a_program_that_has_seen_none(tmp_path):
    with Disk(tmp_path, run="waves", keep=True) as store:
        store.put("a", dataset())
    code = (
        "import sys, xarray; from pebbling.store import Disk;"
        "store = Disk(sys.argv[1], run='waves', keep=True); print(store.get('a').v.attrs, list(store.get('a').coords))"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert found.stdout.strip() == "{'units': 'm/s'} ['x', 'y', 'area']", found.stderr


def test_no_package_is_imported_for_this():
    code = (
        "import sys, numpy; from pebbling import tree; tree.copy({'u': object()});"
        "tree.copy(numpy.float64(1.0));"
        "names = ('numpy.ma', 'xarray', 'astropy', 'scipy', 'jax', 'torch', 'optree', 'attr');"
        "print([name for name in names if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_arrays_of_jax_in_a_registered_class_are_arrays():
    leaves, structure = tree.flatten(InJax(jnp.arange(3.0), 4))
    assert len(leaves) == 1
    assert tree.unflatten(structure, leaves).time == 4
    assert torch.equal(tree.copy(InTorch(torch.ones(2))).u, torch.ones(2))
