"""Run by the tests on each of two ranks: a fitted model under DDP or FSDP2 beside the plain one."""

from __future__ import annotations

import copy
import gc
import os
import sys

import pytest
import torch
from fit_cases import GPT, captured
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from pebbling.errors import BudgetError, CaptureError
from pebbling.torch import fit


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [whole(parameter.grad) for parameter in model.parameters()]


def same_everywhere(value: object) -> bool:
    seen: list[object] = [None] * distributed.get_world_size()
    distributed.all_gather_object(seen, value)
    return all(each == seen[0] for each in seen)


def ddp(rank: int) -> None:
    model = GPT(layers=2, drop=0.1)
    mine, theirs = copy.deepcopy(model), nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    fitted = captured(mine, memory=tight(model), time_limit=1, group=distributed.group.WORLD)
    wrapped = nn.parallel.DistributedDataParallel(fitted)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (wrapped, theirs)]
    for step in range(2):
        tokens = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(10 * step + rank))
        for each, optimizer in zip((wrapped, theirs), optimizers):
            torch.manual_seed(step + rank)
            optimizer.zero_grad()
            each(tokens).backward()
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(gradients(wrapped), gradients(theirs)))
    assert fitted.plan.replayed
    assert same_everywhere(fitted.plan.steps)


def live(rank: int) -> None:
    """The program itself, on two ranks with one plan."""
    model = GPT(layers=2, drop=0.1)
    tokens = torch.randint(11, (64, 7), generator=torch.Generator().manual_seed(rank))
    tried = nn.parallel.DistributedDataParallel(
        fit(copy.deepcopy(model), memory=1, time_limit=1, group=distributed.group.WORLD)
    )
    tried(tokens).backward()
    with pytest.raises(BudgetError) as refused:
        tried(tokens)
    mine, theirs = copy.deepcopy(model), nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    fitted = fit(mine, memory=refused.value.minimum, time_limit=1, group=distributed.group.WORLD)
    wrapped = nn.parallel.DistributedDataParallel(fitted)
    for step in range(3):
        for each in (wrapped, theirs):
            torch.manual_seed(step + rank)
            each.zero_grad()
            each(tokens).backward()
        assert all(torch.equal(a, b) for a, b in zip(gradients(wrapped), gradients(theirs)))
    assert fitted.plan.replayed
    assert same_everywhere(fitted.plan.steps)
    for batch, memory, told in (
        ((2 + rank, 4), 10**6, "ran another step"),
        ((2, 4), 10**6 + rank, "different budgets"),
    ):
        fitted = fit(nn.Linear(4, 4), memory=memory, group=distributed.group.WORLD)
        fitted(torch.ones(batch)).sum().backward()
        with pytest.raises(CaptureError, match=told):
            fitted(torch.ones(batch))


def fsdp(rank: int) -> None:
    mine, theirs = GPT(layers=2, tied=False), GPT(layers=2, tied=False)
    theirs.load_state_dict(mine.state_dict())
    for model in (mine, theirs):
        for i, block in enumerate(model.blocks):
            part = block
            if model is mine:
                part = captured(block, memory="60kB", time_limit=1, group=distributed.group.WORLD)
            model.blocks[i] = fully_shard(part)
        fully_shard(model)
    tokens = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(rank))
    for _ in range(2):
        for model in (mine, theirs):
            model.zero_grad()
            model(tokens).backward()
        assert all(torch.equal(a, b) for a, b in zip(gradients(mine), gradients(theirs)))
    assert all(same_everywhere(block.plan.steps) for block in mine.blocks)


def disagreement(rank: int) -> None:
    fitted = captured(nn.Linear(4, 4), group=distributed.group.WORLD)
    with pytest.raises(CaptureError, match="ranks 1 captured another graph"):
        fitted(torch.ones(2 + rank, 4))
    fitted = captured(nn.Linear(4, 4), memory=4096 * (1 + rank), group=distributed.group.WORLD)
    with pytest.raises(CaptureError, match=r"different budgets \(4096 bytes, 8192 bytes\)"):
        fitted(torch.ones(2, 4))


def tight(model: nn.Module) -> int:
    """A budget that every rank computes alike, and that needs replays."""
    tokens = torch.zeros(3, 7, dtype=torch.int64)
    from pebbling.graph import smallest
    from pebbling.torch import plan

    return smallest(plan(copy.deepcopy(model), tokens).graph) + 4096


def main() -> None:
    meeting, rank = f"file://{os.environ['MEETING']}", int(os.environ["RANK"])
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    try:
        torch.manual_seed(0)
        {"ddp": ddp, "fsdp": fsdp, "live": live, "disagreement": disagreement}[sys.argv[1]](distributed.get_rank())
    finally:
        # What was captured holds on to groups, and so to their threads, past the end of the interpreter.
        torch._dynamo.reset()
        gc.collect()
        distributed.destroy_process_group()
    print("agreed", os.environ["RANK"])


if __name__ == "__main__":
    main()
