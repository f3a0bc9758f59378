"""``fit(host=)`` on a GPU: budgets with and without memory of the host, beside the plain step.

    python benchmarks/live_offload.py

A stack of attention blocks in bfloat16. Told for each budget: whether it is refused without the host, and time and
peak beside the plain step, with and without it; bits of the gradients with those of the plain step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pebbling.errors import BudgetError
from pebbling.torch import fit


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.first(x)).view(batch, length, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Stack(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.float().square().mean()


def step(run: nn.Module, owner: nn.Module, x: Tensor) -> None:
    owner.zero_grad(set_to_none=True)
    run(x).backward()


def peak(run: nn.Module, owner: nn.Module, x: Tensor) -> int:
    owner.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(run, owner, x)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def seconds(run: nn.Module, owner: nn.Module, x: Tensor) -> float:
    found = []
    for _ in range(3):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(3):
            step(run, owner, x)
        last.record()
        last.synchronize()
        found.append(first.elapsed_time(last) / 3e3)
    return min(found)


def main() -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Stack(2048, 12).to(torch.bfloat16)
        x = torch.randn(8, 2048, 2048, dtype=torch.bfloat16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        step(model, model, x)
        expected = [p.grad for p in model.parameters()]
        step(model, model, x)
        steady = all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters(), strict=True))
        whole, plain = peak(model, model, x), seconds(model, model, x)
        print(f"plain {whole / 1e9:.2f} GB {plain * 1e3:.1f} ms, the same bits twice: {steady}", flush=True)
        for share in (0.6, 0.35, 0.15):
            for host in (None, "64GB"):
                told = f"{share:.0%} host={host}"
                fitted = fit(model, memory=int(share * whole), host=host, time_limit=3)
                try:
                    peaks = [peak(fitted, model, x) for _ in range(3)]
                except BudgetError as error:
                    print(told, "refused, least", error.minimum, flush=True)
                    continue
                bits = all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters(), strict=True))
                plan = fitted.plan.graph_plan
                moved = sum(plan.graph.storage[name].bytes for name in plan.offloaded)
                parts = [round(each / (share * whole), 3) for each in peaks]
                print(
                    told, f"x{seconds(fitted, model, x) / plain:.3f}", "peaks of budget", parts, f"bits {bits}",
                    f"planned {plan.overhead:.3f}",
                    f"moved {moved / 1e9:.2f} GB, run again {len(plan.replayed)}", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
