"""Joint FX graphs become graphs with the bytes of storages, and plans run as FX nodes give the same gradients."""

from __future__ import annotations

import sys
from collections import Counter
from operator import getitem

import pytest
import torch
from functorch.compile import aot_module, make_boxed_func
from torch import nn
from torch._functorch.partitioners import default_partition

from pebbling.graph import from_fx, smallest, solve, unroll
from pebbling.graph.fx import Drop, Sharing


def captured(model, *example):
    """The joint graph, its number of forward outputs and its inputs."""
    found = []

    def partition(joint, inputs, *, num_fwd_outputs, **options):
        found.append((joint, num_fwd_outputs))
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)

    def run(module, inputs):
        return make_boxed_func(module.forward)

    aot_module(model, fw_compiler=run, bw_compiler=run, partition_fn=partition)(*example).backward()
    return found[0]


class Branches(nn.Module):
    """Views, a normalisation with statistics, several results of one operation, and a skip."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 12), nn.BatchNorm1d(4), nn.Linear(12, 3)
        self.layer_norm = nn.LayerNorm(12)

    def forward(self, x):
        y = torch.tanh(self.first(x))
        z = self.norm(y.view(-1, 4, 3)).reshape(-1, 12)
        left, right = z.split(6, 1)
        y = self.layer_norm(torch.cat((torch.sin(right), left.exp()), 1)) + y
        return self.last(torch.tanh(y)).square().mean()


def deep():
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.GELU())], _Mean())


class _Mean(nn.Module):
    def forward(self, x):
        return x.square().mean()


def run(sequence, inputs, outputs):
    """Run FX nodes in the planned order, holding no more than is told, and give the outputs."""
    values = {}
    iterator = iter(inputs)
    for node in outputs[1]:
        if node.op == "placeholder":
            values[node.name] = next(iterator)
    passes = 0
    for step in sequence:
        if step is None:
            passes += 1
        elif isinstance(step, Drop):
            del values[step.node.name]
        else:
            arguments = torch.fx.node.map_arg((step.node.args, step.node.kwargs), lambda node: values[node.name])
            values[step.node.name] = step.node.target(*arguments[0], **arguments[1])
    assert passes == 1
    return [None if node is None else values[node.name] for node in outputs[0]]


@pytest.mark.parametrize(("make", "example"), [(Branches, (5, 6)), (deep, (64, 16))], ids=["branches", "deep"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_plans_run_as_fx_nodes_to_the_same_bits(make, example, share):
    torch.manual_seed(0)
    model = make()
    joint, forward = captured(model, torch.randn(example))
    graph = from_fx(joint, forward)
    least, peak = smallest(graph), solve(graph, None).peak
    plan = solve(graph, int(least + share * (peak - least)), time_limit=5)
    assert plan.replayed or share
    assert not plan.replayed or share < 1
    nodes = list(joint.graph.nodes)
    inputs = [torch.randn(node.meta["val"].shape).abs() for node in nodes if node.op == "placeholder"]
    inputs = [
        value.to(node.meta["val"].dtype)
        for value, node in zip(inputs, [node for node in nodes if node.op == "placeholder"], strict=True)
    ]
    outputs, gradients = joint(*[[v.clone() for v in part] for part in _parts(joint, inputs)])
    results = next(node for node in nodes if node.op == "output").args[0]
    found = run(unroll(plan, joint), inputs, (results, nodes))
    for one, other in zip([*outputs, *gradients], found, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


class Blocks(nn.Module):
    """Blocks whose normalisation only the activation behind it reads."""

    def __init__(self):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(16, 16) for _ in range(5))
        self.norm = nn.ModuleList(nn.LayerNorm(16) for _ in range(5))

    def forward(self, x):
        for linear, norm in zip(self.linear, self.norm, strict=True):
            x = torch.tanh(norm(linear(x))) + x
        return x.square().mean()


def test_what_is_hidden_in_a_group_is_dropped_and_made_again_with_it():
    torch.manual_seed(0)
    joint, forward = captured(Blocks(), torch.randn(64, 16))
    nodes = list(joint.graph.nodes)
    norms = [node for node in nodes if "native_layer_norm" in node.name and "backward" not in node.name]
    tanhs = [node for node in nodes if node.name.startswith("tanh") and "backward" not in node.name]
    groups = [(norm.name, tanh.name) for norm, tanh in zip(norms, tanhs, strict=True)]
    graph = from_fx(joint, forward, together=groups)
    hidden = {f"{norm.name}.0" for norm in norms}
    assert not hidden & set(graph.storage)
    plan = solve(graph, smallest(graph), time_limit=5)
    assert set(plan.replayed) & {tanh for _, tanh in groups}

    sharing = Sharing(nodes)
    there, runs, makers = set(), Counter(), Counter()
    for step in unroll(plan, joint):
        if step is None:
            known = set(plan.saved) | graph.kept
            assert {own for name in there for own in sharing.of(by_name(nodes, name))} <= known
        elif isinstance(step, Drop):
            there.remove(step.node.name)
        else:
            assert step.node.name not in there, "a second copy"
            there.add(step.node.name)
            runs.update(set(sharing.of(step.node)) & hidden if step.node.target is getitem else ())
            makers.update([f"{step.node.name}.0"] if step.node in norms else ())
    assert runs == makers
    assert max(runs.values()) > 1

    inputs = [torch.randn(node.meta["val"].shape) for node in nodes if node.op == "placeholder"]
    outputs, gradients = joint(*_parts(joint, inputs))
    found = run(unroll(plan, joint), inputs, (next(node for node in nodes if node.op == "output").args[0], nodes))
    assert all(
        torch.equal(one, other) for one, other in zip([*outputs, *gradients], found, strict=True) if one is not None
    )


def by_name(nodes, name):
    return next(node for node in nodes if node.name == name)


def _parts(joint, inputs):
    """Primals and tangents, as the joint graph takes them."""
    names = [node.name for node in joint.graph.nodes if node.op == "placeholder"]
    return [
        [value for name, value in zip(names, inputs, strict=True) if name.startswith("tangents") == tangent]
        for tangent in (False, True)
    ]


def test_views_share_a_storage_and_cost_nothing():
    joint, forward = captured(Branches(), torch.randn(5, 6))
    graph = from_fx(joint, forward)
    assert not [node for node in graph.nodes if node.op in ("aten.view.default", "aten.split.Tensor", "aten.t.default")]
    assert graph.storage["tanh"].bytes == 5 * 12 * 4
    reads = {node.name: node.reads for node in graph.nodes}
    assert "tanh" in reads["_native_batch_norm_legit_functional"]
    assert reads["sin"] == ("_native_batch_norm_legit_functional.0",)


def test_statistics_are_outputs_and_are_updated_once():
    """What reads an overwritten buffer is not replayed; a batch norm in training only updates its buffers."""
    joint, forward = captured(Branches(), torch.randn(5, 6))
    normalise = next(node for node in joint.graph.nodes if "batch_norm_legit" in node.name)
    count = next(node for node in joint.graph.nodes if node.name == "add")
    buffers = [node.name for node in (*normalise.args[3:5], *count.all_input_nodes)]
    graph = from_fx(joint, forward, mutated=buffers)
    assert not graph.node["add"].replayable
    assert graph.node["_native_batch_norm_legit_functional"].replayable


def test_random_operations_and_given_costs_are_marked():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), _Mean())
    joint, forward = captured(model, torch.randn(3, 4))
    graph = from_fx(joint, forward, time={"addmm": 2.0}, workspace=lambda node: 5, once=["addmm"], rounding=512)
    assert [node.name for node in graph.nodes if node.random] == ["native_dropout"]
    assert graph.node["addmm"].time == 2.0
    assert graph.node["addmm"].workspace == 5
    assert not graph.node["addmm"].replayable
    assert graph.storage["addmm"].bytes == 512


def test_groups_are_one_node_whose_inner_results_are_workspace():
    joint, forward = captured(deep(), torch.randn(64, 16))
    plain = from_fx(joint, forward)
    graph = from_fx(joint, forward, together=[("pow_1", "mean")])
    assert len(graph) == len(plain) - 1
    assert graph.node["mean"].members == ("pow_1", "mean")
    assert graph.node["mean"].workspace == plain.storage["pow_1"].bytes
    assert graph.node["mean"].reads == plain.node["pow_1"].reads
    with pytest.raises(ValueError, match="'nothing' is to run together"):
        from_fx(joint, forward, together=[("nothing", "mean")])


def test_tangents_can_be_counted():
    joint, forward = captured(deep(), torch.randn(64, 16))
    assert "tangents_1" in {storage.name for storage in from_fx(joint, forward).inputs}
    counted = from_fx(joint, forward, held_tangents=False)
    assert counted.node["tangents_1"].backward
    assert not counted.node["tangents_1"].replayable


def test_the_graph_layer_imports_no_framework():
    import subprocess

    program = "import sys, pebbling.graph; print([m for m in ('torch', 'jax', 'numba', 'highspy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
