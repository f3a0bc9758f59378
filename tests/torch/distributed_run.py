"""One of two processes: a model whose forward pass is a loop, wrapped, against the same with a plain loop."""

from __future__ import annotations

import functools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch_bodies import plain

from pebbling.torch import chain, loop


class Model(nn.Module):
    """A loop whose body calls a module of its own."""

    def __init__(self, run):
        super().__init__()
        self.into = nn.Linear(8, 16)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.out = nn.Linear(16, 4)
        self.run = run

    def forward(self, x):
        return self.out(self.run(lambda i, s: s + torch.tanh(self.block(s)), self.into(x), 12))


class Outside(nn.Module):
    """A loop whose body calls a module that is wrapped already."""

    def __init__(self, run, wrap):
        super().__init__()
        self.block = wrap(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
        self.run = run

    def forward(self, x):
        return self.run(lambda i, s: s + self.block(s), x, 12)


def shard(model):
    fully_shard(model.block)
    return fully_shard(model)


def shard_block(module):
    return fully_shard(module)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


CASES = {
    "ddp": lambda run: DistributedDataParallel(Model(run)),
    "ddp in the body": lambda run: Outside(run, DistributedDataParallel),
    "ddp of a chain": lambda run: DistributedDataParallel(
        nn.Sequential(*layers()) if run is plain else chain(layers(), slots=2)
    ),
    "fsdp around": lambda run: fully_shard(Model(run)),
    "fsdp in the body": lambda run: shard(Model(run)),
    "fsdp of the body alone": lambda run: Outside(run, shard_block),
}


def layers():
    return [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(8)]


def train(make, run):
    torch.manual_seed(0)
    model = make(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        loss = (model(torch.randn(5, 8)) ** 2).mean()
        loss.backward()
        seen += [loss.detach(), *[whole(p.grad).clone() for p in model.parameters()]]
        optimizer.step()
        optimizer.zero_grad()
    return seen


def compare(name: str) -> str:
    expected = train(CASES[name], plain)
    found = train(CASES[name], lambda *given: loop(*given, slots=3))
    differing = [(one - two).abs().max().item() for one, two in zip(expected, found) if not torch.equal(one, two)]
    assert len(expected) == len(found)
    return f"differs by {max(differing)}" if differing else "equal"


def of_shards() -> str:
    """A state that is a tensor in shards, and a weight that every process holds."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    x, w = torch.randn(8, 4), torch.randn(4, 4)

    def gradients(run):
        state = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
        weight = distribute_tensor(w, mesh, [Replicate()]).requires_grad_()
        y = run(lambda i, s, w: torch.tanh(s @ w) + 0.1 * s, state, 12, weight)
        y.to_local().sum().backward()
        assert y.placements == (Shard(0),)
        return y.to_local().detach(), state.grad.to_local(), weight.grad.full_tensor()

    def straight(body, state, steps, weight):
        for i in range(steps):
            state = body(i, state, weight)
        return state

    expected = gradients(straight)
    for slots in (1, 3):
        found = gradients(functools.partial(loop, slots=slots))
        if not all(map(torch.equal, expected, found)):
            return f"differs with {slots} slots"
    return "equal"


def main(rank: int, path: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    for name in CASES:
        print(f"{name}: {compare(name)}", flush=True)
    print(f"state in shards: {of_shards()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
