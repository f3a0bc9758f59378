"""Every kind of leaf: copied privately, packed without copies, made again to the last bit."""

from __future__ import annotations

import random
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pebbling import tree
from pebbling.errors import StoreError


def through_bytes(state, pickle=False):
    meta, buffers = tree.pack(state, pickle)
    rooms, finish = tree.Layout(meta, pickle).allocate()
    assert [room.size for room in rooms] == [buffer.size for buffer in buffers]
    for room, buffer in zip(rooms, buffers):
        room[:] = buffer
    return finish()


def same(found, expected):
    assert tree.differing(found, expected) is None
    assert tree.fingerprint(found) == tree.fingerprint(expected)


dtypes = (
    hnp.scalar_dtypes()
    | hnp.byte_string_dtypes(min_len=1)
    | hnp.unicode_string_dtypes(min_len=1)
    | hnp.array_dtypes(hnp.integer_dtypes() | hnp.floating_dtypes(), max_size=3)
)


@given(hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)), st.data())
def test_any_numpy_array_comes_back(array, data):
    turned = array.transpose(data.draw(st.permutations(range(array.ndim))))
    index = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in range(array.ndim))
    view = turned[(*index, ...)]
    for again in (tree.copy(view), through_bytes(view)):
        assert type(again) is np.ndarray
        assert (again.dtype, again.shape) == (view.dtype, view.shape)
        assert not np.shares_memory(again, array)
        same(again, view)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_the_order_of_axes_in_memory_is_kept(order):
    array = np.arange(24.0).reshape(2, 3, 4).transpose(order)
    for again in (tree.copy(array), through_bytes(array)):
        assert again.strides == array.strides


@pytest.mark.parametrize(
    "array", [np.zeros(5), np.zeros((3, 4), order="F"), np.zeros((2, 3, 4)).transpose(1, 2, 0), np.array(1.0)]
)
def test_dense_arrays_are_packed_without_a_copy(array):
    _, (buffer,) = tree.pack(array)
    assert np.shares_memory(buffer, array)
    assert buffer.nbytes == array.nbytes


def test_torch_tensors_are_packed_without_a_copy():
    tensor = torch.arange(6.0).reshape(2, 3).T
    _, (buffer,) = tree.pack(tensor)
    assert buffer.ctypes.data == tensor.data_ptr()


def test_arrays_of_objects_and_odd_subclasses_are_carried():
    objects = np.array([{"a": 1}, None], dtype=object)
    masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    for again in (tree.copy([objects, masked]), through_bytes([objects, masked], pickle=True)):
        assert again[0][0] == {"a": 1}
        assert again[0][0] is not objects[0]
        assert again[1].mask.tolist() == [True, False]


def test_a_memory_map_comes_back_in_memory(tmp_path):
    mapped = np.memmap(tmp_path / "file", np.float64, "w+", shape=(3,))
    mapped[:] = [1, 2, 3]
    for again in (tree.copy(mapped), through_bytes(mapped)):
        assert type(again) is np.ndarray
        assert again.tolist() == [1, 2, 3]


TORCH = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4, 5)], ids=str)
def test_torch_tensors_come_back(dtype, shape):
    count = int(np.prod(shape))
    raw = np.random.default_rng(0).integers(0, 2, (count + 1) * dtype.itemsize).astype(np.uint8)
    tensor = torch.from_numpy(raw).view(dtype)[:count].reshape(shape)
    for again in (tree.copy(tensor), through_bytes(tensor)):
        assert (again.dtype, again.shape, again.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        assert again.data_ptr() != tensor.data_ptr() or not tensor.numel()
        same(again, tensor)


@given(hnp.array_shapes(max_dims=4, max_side=3), st.data())
def test_torch_views_come_back(shape, data):
    tensor = torch.arange(float(np.prod(shape))).reshape(shape)
    view = tensor.permute(data.draw(st.permutations(range(len(shape)))))
    view = view[tuple(slice(None, None, data.draw(st.sampled_from([1, 2]))) for _ in shape)]
    if data.draw(st.booleans()):
        view = view.expand(2, *view.shape)
    for again in (tree.copy(view), through_bytes(view)):
        assert again.tolist() == view.tolist()
        same(again, view)


def test_torch_memory_formats_graphs_and_views():
    last = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    grown = (torch.rand(3, requires_grad=True) * 2)[::2]
    conjugate = torch.tensor([1 + 2j]).conj()
    for again in (tree.copy([last, grown, conjugate]), through_bytes([last, grown, conjugate])):
        assert again[0].stride() == last.stride()
        assert not again[1].requires_grad
        assert again[1].tolist() == grown.tolist()
        assert again[2].tolist() == [1 - 2j]


def test_torch_generators_and_sparse_tensors_are_carried():
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    sparse = torch.eye(3).to_sparse()
    copies = [tree.copy([generator, sparse]), through_bytes([generator, sparse], pickle=True)]
    expected = torch.rand(4, generator=generator)
    for again in copies:
        assert torch.equal(torch.rand(4, generator=again[0]), expected)
        assert torch.equal(again[1].to_dense(), torch.eye(3))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 2), (3, 4)], ids=str)
def test_jax_arrays_come_back(dtype, shape):
    array = jnp.asarray(np.random.default_rng(0).integers(0, 2, shape), dtype=dtype)
    for again in (tree.copy(array), through_bytes(array)):
        assert isinstance(again, jax.Array)
        assert (again.dtype, again.shape, again.weak_type) == (array.dtype, array.shape, array.weak_type)
        assert again.committed == array.committed
        same(again, array)


def test_a_donated_jax_buffer_leaves_its_copy():
    array = jnp.arange(4.0)
    private = tree.copy(array)
    array.delete()
    assert private.tolist() == [0, 1, 2, 3]


def test_jax_keys_weak_types_and_devices():
    key, weak = jax.random.key(3), jnp.asarray(1.5)
    placed = jax.device_put(np.arange(3.0, dtype=np.float32), jax.devices()[0])
    for again in (tree.copy([key, weak, placed]), through_bytes([key, weak, placed])):
        assert jax.random.uniform(again[0]) == jax.random.uniform(key)
        assert again[1].weak_type
        assert float(again[1]) == 1.5
        assert again[2].devices() == placed.devices()
        assert again[2].committed


def test_a_traced_value_is_refused():
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(tree.copy)(jnp.arange(3.0))


def test_jax_without_64_bits_refuses_a_64_bit_snapshot():
    with jax.enable_x64(True):
        meta, buffers = tree.pack(jnp.arange(3, dtype="float64"))
    rooms, finish = tree.Layout(meta).allocate()
    rooms[0][:] = buffers[0]
    with pytest.raises(StoreError, match="jax_enable_x64"):
        finish()


def test_an_array_on_several_jax_devices_stays_in_memory():
    code = """
import os; os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pebbling import tree
from pebbling.errors import StoreError
array = jax.device_put(np.arange(4.0, dtype="f4"), NamedSharding(Mesh(jax.devices(), "x"), PartitionSpec("x")))
assert tree.copy(array).sharding == array.sharding
try: tree.pack(array)
except StoreError as error: print(error)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "over 2 devices" in output


@pytest.mark.parametrize("name", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_numpy_generators_come_back_in_their_state(name):
    generator = np.random.Generator(getattr(np.random, name)(7))
    generator.normal(size=3)
    generator.spawn(2)
    copies = [tree.copy({"rng": generator}), through_bytes({"rng": generator})]
    for again in copies:
        same(again, {"rng": generator})
    expected = (generator.normal(size=5), generator.spawn(1)[0].random())
    for again in copies:
        assert (again["rng"].normal(size=5) == expected[0]).all()
        assert again["rng"].spawn(1)[0].random() == expected[1]


def test_other_generators_come_back_in_their_state():
    state = [random.Random(3), np.random.RandomState(3)]
    copies = [tree.copy(state), through_bytes(state)]
    expected = (state[0].random(), state[1].rand())
    for again in copies:
        assert (again[0].random(), again[1].rand()) == expected


def test_one_object_stays_one_object():
    shared, generator = np.arange(3.0), np.random.default_rng(0)
    state = [shared, {"again": shared}, generator, generator, torch.ones(2)]
    state.append(state[-1])
    for again in (tree.copy(state), through_bytes(state)):
        assert again[0] is again[1]["again"]
        assert again[2] is again[3]
        assert again[4] is again[5]
    assert len(tree.pack(state)[1]) == 2
    assert tree.nbytes([shared, shared]) == 24


def test_each_tree_made_from_a_layout_is_its_own():
    meta, buffers = tree.pack([np.random.default_rng(0), np.arange(2)])
    layout = tree.Layout(meta)
    made = []
    for _ in range(2):
        rooms, finish = layout.allocate()
        rooms[0][:] = buffers[0]
        made.append(finish())
    assert made[0][0] is not made[1][0]
    assert made[0][0].random() == made[1][0].random()
    assert not np.shares_memory(made[0][1], made[1][1])


def test_what_cannot_be_pickled_is_named():
    state = {"u": np.arange(3), "f": lambda: 0}
    with pytest.raises(StoreError, match=r"state\['f'\] is a builtins.function, which is not data.*register.*pickle="):
        tree.pack(state)
    with pytest.raises(StoreError, match=r"state\['f'\], a function, can't be pickled.*register"):
        tree.pack(state, pickle=True)


def test_sizes():
    state = {"a": np.zeros((2, 3), "f4"), "b": torch.zeros(5, dtype=torch.bfloat16), "c": jnp.zeros(2, "float16")}
    assert tree.nbytes(state) == 24 + 10 + 4
    assert tree.nbytes([1, "text", None, 2.5]) == 0


def test_no_framework_is_imported():
    code = "import sys, numpy as np; from pebbling import tree; tree.pack(tree.copy([np.arange(3), 1])); \
print([m for m in ('torch', 'jax', 'ml_dtypes') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_packed_torch_tensor_brings_torch_in():
    meta, _ = tree.pack(torch.arange(3))
    code = f"import sys; from pebbling import tree; tree.Layout({meta!r}).allocate(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize(
    ("array", "fraction", "word", "known"),
    [
        (np.zeros(2), 52, 8, True),
        (np.zeros(2, "c8"), 23, 4, True),
        (np.zeros(2, ">f2"), 10, 2, True),
        (np.zeros(2, "i4"), None, 4, True),
        (np.zeros(2, "M8[s]"), None, 8, False),
        (np.zeros(2, [("a", "f4")]), None, 4, False),
        (torch.zeros(2), 23, 4, True),
        (torch.zeros(2, dtype=torch.bfloat16), 7, 2, False),
        (torch.zeros(2, dtype=torch.float8_e5m2), 2, 1, False),
        (torch.zeros(2, dtype=torch.int16), None, 2, True),
        (jnp.zeros(2, jnp.bfloat16), 7, 2, False),
        (jnp.zeros(2, jnp.int4), None, 1, False),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_forms(array, fraction, word, known):
    (form,) = tree.Layout(tree.pack(array)[0]).forms
    assert (form.fraction, form.word, form.dtype is not None, form.shape) == (fraction, word, known, (2,))
