"""Programs with plain loops over tensors, and what several tests ask of them."""

# The programs are what people write: unused loop variables and late closures belong to them.

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from tensor_numpy import CAREFUL, FLOAT, NUMPY


def shared(name, namespace):
    """A module of the tests of NumPy programs, with another library in place of NumPy."""
    path = Path(__file__).parents[1] / "source" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tensor_{name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.np = namespace
    return module


constructs = shared("construct_programs", NUMPY)
random_programs = shared("random_programs", CAREFUL)
PROGRAMS = constructs.PROGRAMS
OPTIONS = [
    {"slots": 1},
    {"slots": 2},
    {"slots": 3},
    {"slots": 40},
    {},
    {"memory": "4MiB"},
    {"slots": 2, "verify": "all"},
]
GENERATOR = torch.Generator().manual_seed(7)
X, A, B = (torch.randn(shape, generator=GENERATOR, dtype=FLOAT) for shape in (6, 6, (4, 6)))
SUMMED_APART = {
    "any_start_and_step",
    "tuple_and_starred_targets",
    "break_and_else",
    "return_from_nested_loops",
    "three_deep",
    "exception_out_of_nested_loops",
    "collected_and_used_twice_by_the_next_step",
    "collected_again_and_again",
    "constant_that_an_inner_loop_carries",
    "constants_used_after_the_loop",
}
"""Programs with a tensor that is used in a loop, and outside of it or in another one as well."""
REFUSED_BY_TORCH = {
    "augmented_and_slices",
    "written_array_is_the_argument",
    "no_iterations",
    "rows_written_through_the_target",
}
"""Programs that write into what autograd has saved, into leaves or into rows: they can't be differentiated at all."""


def given():
    return [(X * 1).requires_grad_(), (A * 0.2 + 0.7).requires_grad_(), (B * 0.3).requires_grad_()]


def total(value):
    return value[0] + value[1] if isinstance(value, tuple) else value


def differentiated(function):
    inputs = given()
    value = total(function(*inputs))
    value.backward()
    return value.detach(), [one.grad for one in inputs]


def alike(one, two, exact=True):
    if one is None or two is None:
        return one is two
    return torch.equal(one, two) if exact else torch.allclose(one, two, rtol=1e-12, atol=1e-14)


DRAWS = torch.Generator()


class Opaque:
    def __init__(self, value):
        self.value = value

    def __deepcopy__(self, memo):
        import copy

        return Opaque(copy.deepcopy(self.value, memo))

    def times(self, x):
        return x * self.value
