"""Loops and chains of PyTorch against plain autograd and torch.utils.checkpoint, in one run on one machine.

    python benchmarks/torch_loops.py [--gpu] [--quick] [--only NAME …] [--write]

Every figure stands beside its peers, measured in turn with it, and beside the limit. *ideal* is forwards x time
of a forward + n x time of a reversal, each measured on one step in the same run, with nothing for control.
Memory is the peak above what was there before: tracked storages on the CPU, the allocator's own figure on a GPU.
Times on the CPU are CPU times of the process with one thread, on a GPU wall times after a synchronisation; the
least of the repeats. *checkpoint* is ``torch.utils.checkpoint`` around every k steps, with the best k of those that
take no more memory than ours; *sequential* is ``checkpoint_sequential`` with the best number of segments likewise.
``--write`` puts the tables into ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import gc
import math
import platform
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import pebbling as pb
from pebbling.chain import Periodic
from pebbling.store import Host
from pebbling.torch import Tracked, chain, fit, loop

RESULTS = Path(__file__).parent / "results"
MB = 1e6


class Bench:
    """Where it runs, and what it says."""

    def __init__(self, gpu: bool, quick: bool) -> None:
        self.gpu, self.quick = gpu, quick
        self.device = "cuda" if gpu else "cpu"
        self.lines: list[str] = []

    def say(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def head(self, *names: str) -> None:
        self.say("| " + " | ".join(names) + " |")
        self.say("|" + "---|" * len(names))

    def row(self, *cells: str) -> None:
        self.say("| " + " | ".join(cells) + " |")

    def time(self, run, repeats: int = 3) -> float:
        best = math.inf
        for _ in range(repeats):
            gc.collect()
            if self.gpu:
                torch.cuda.synchronize()
                begun = time.perf_counter()
                run()
                torch.cuda.synchronize()
                best = min(best, time.perf_counter() - begun)
            else:
                begun = time.process_time()
                run()
                best = min(best, time.process_time() - begun)
        return best

    def both(self, run, repeats: int = 3) -> tuple[int, float]:
        """Peak and time; the run for the peak comes first, and fills the allocator's cache for the others."""
        return self.peak(run), self.time(run, repeats)

    def peak(self, run) -> int:
        gc.collect()
        if not self.gpu:
            with Tracked() as memory:
                run()
            return memory.peak
        torch.cuda.synchronize()
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - start


def plain(body, state, steps, *args, **_):
    for i in range(steps):
        state = body(i, state, *args)
    return state


def every(k):
    """The loop with torch.utils.checkpoint around every k steps."""

    def run(body, state, steps, *args):
        def segment(state, start, stop, *args):
            for i in range(start, stop):
                state = body(i, state, *args)
            return state

        for start in range(0, steps, k):
            stop = min(start + k, steps)
            state = checkpoint(segment, state, start, stop, *args, use_reentrant=False)
        return state

    return run


def training(run, body, state, steps, args, **budget):
    tensors = [state, *args]

    def once():
        run(body, state, steps, *args, **budget).sum().backward()
        for tensor in tensors:  # now, so that they count as made by the next run and not as there before it
            tensor.grad = None

    return once


def best_checkpoint(bench, body, state, steps, args, limit, repeats, ks=None):
    """The fastest k within a peak; the one of the least peak if none is."""
    tried = []
    around = math.isqrt(steps)
    for k in ks or sorted({1, around // 4, around // 2, around, 2 * around, 4 * around} - {0}):
        run = training(every(k), body, state, steps, args)
        tried.append((k, *bench.both(run, repeats)))
    fitting = [one for one in tried if one[1] <= limit]
    return min(fitting, key=lambda one: one[2]) if fitting else None, min(tried, key=lambda one: one[1])


def show_peer(fitting, least, plain_time):
    k, peak, seconds = fitting or least
    name = f"checkpoint every {k}" if fitting else f"checkpoint every {k} (least memory; none fits)"
    return [name, f"{seconds * 1e3:.1f}", f"{seconds / plain_time:.2f}", f"{peak / MB:.3f}"]


def small(bench):
    """1000 steps of tanh(x*a+b) on 100 elements."""
    bench.say("## Small steps: 1000 x tanh(x*a+b), 100 elements, gradients of x, a and b\n")
    x, a, b = (torch.randn(100, device=bench.device, requires_grad=True) for _ in range(3))
    repeats = 3 if bench.quick else 9

    def body(i, s, a, b):
        return torch.tanh(s * a + b)

    base = training(plain, body, x, 1000, (a, b))
    base()
    everything, reference = bench.both(base, repeats)
    bench.head("", "ms", "x plain", "peak MB")
    bench.row("plain autograd", f"{reference * 1e3:.1f}", "1.00", f"{everything / MB:.3f}")
    most = 0
    for slots in (16, None, 8):
        peak, seconds = bench.both(training(loop, body, x, 1000, (a, b), slots=slots), repeats)
        most = max(most, peak)
        name = "ours, default" if slots is None else f"ours, {slots} slots"
        bench.row(name, f"{seconds * 1e3:.1f}", f"{seconds / reference:.2f}", f"{peak / MB:.3f}")
    bench.row(*show_peer(*best_checkpoint(bench, body, x, 1000, (a, b), most, repeats), reference))
    bench.say("\nlimit: 1.3 x plain with 16 slots\n")


def heavy_body(i, s, w):
    return torch.tanh(s @ w)


def one_step(bench, state, args, repeats):
    """Seconds of one forward without a tape, and of the reversal of one taped step."""
    count = 1000 if bench.gpu else 20  # in the middle of a long loop the clock of a GPU is lower than at its start

    def forwards():
        with torch.no_grad():
            s = state
            for i in range(count):
                s = heavy_body(i, s, *args)

    def turns():
        for i in range(count):
            root = state.detach().requires_grad_()
            out = heavy_body(i, root, *args)
            torch.autograd.grad(out, [root, *args], out.detach())

    forward = bench.time(forwards, repeats) / count
    return forward, bench.time(turns, repeats) / count - forward


def matrices(bench, side):
    x = torch.randn(side, side, device=bench.device, requires_grad=True)
    w = (torch.randn(side, side, device=bench.device) / math.sqrt(side)).requires_grad_()
    training(plain, heavy_body, x, 3, (w,))()
    return x, w


def heavy(bench):
    """Large states and heavy steps, within a share of the memory."""
    side, steps = (4096, 100 if bench.quick else 1000) if bench.gpu else (512, 40 if bench.quick else 200)
    repeats = 2 if bench.gpu or bench.quick else 3
    size = side * side * 4
    torch.backends.cuda.matmul.allow_tf32 = True
    bench.say(f"## Heavy steps: {steps} x tanh(x @ w), state {size / MB:.1f} MB, gradients of x and w\n")
    x, w = matrices(bench, side)
    forward, backward = one_step(bench, x, (w,), 3)
    everything, reference = bench.both(training(plain, heavy_body, x, steps, (w,)), repeats)
    bench.head("", "ms", "x plain", "peak MB", "forwards", "x ideal")
    bench.row("plain autograd", f"{reference * 1e3:.0f}", "1.00", f"{everything / MB:.0f}", "", "")
    shares = (0.1,) if bench.gpu and not bench.quick else (0.2,)
    calls = [0]

    def counting(*given):
        calls[0] += 1
        return heavy_body(*given)

    for budget in (*[{"memory": int(share * everything)} for share in shares], {"slots": 16}):
        run = training(loop, counting, x, steps, (w,), **budget)
        run()  # measures what a step takes
        calls[0] = 0
        peak, seconds = bench.both(run, repeats)
        count = calls[0] // (repeats + 1)
        ideal = count * forward + steps * backward
        name = f"ours, {budget['slots']} slots" if "slots" in budget else f"ours, {budget['memory'] / MB:.0f} MB"
        cells = [f"{seconds * 1e3:.0f}", f"{seconds / reference:.2f}", f"{peak / MB:.0f}"]
        bench.row(name, *cells, str(count), f"{seconds / ideal:.3f}")
        ks = None if not bench.gpu else [max(1, round(math.isqrt(steps) * factor)) for factor in (0.5, 1, 2)]
        peers = best_checkpoint(bench, heavy_body, x, steps, (w,), peak, 1, ks)
        bench.row(*show_peer(*peers, reference), "", "")
    bench.say(f"\na forward {forward * 1e3:.3f} ms, a reversal {backward * 1e3:.3f} ms; limit: 1.05 x ideal\n")
    torch.backends.cuda.matmul.allow_tf32 = False


def offload(bench):
    """States of 64 MB with host memory beside a few of them on the device."""
    side, steps = 4096, 100 if bench.quick else 400
    size = side * side * 4
    bench.say(f"## Host memory: {steps} x tanh(x @ w), state {size / MB:.0f} MB\n")
    x, w = matrices(bench, side)
    everything, reference = bench.both(training(plain, heavy_body, x, steps, (w,)), 1)
    torch.cuda.empty_cache()
    bench.head("", "ms", "x plain", "peak MB", "peak in states")
    cells = [f"{reference * 1e3:.0f}", "1.00", f"{everything / MB:.0f}", f"{everything / size:.1f}"]
    bench.row("plain autograd", *cells)
    with Host() as store:
        out, back = bandwidth(store, x)
        try:
            loop(heavy_body, x, steps, w, memory=1000, store=store)
        except pb.BudgetError as refused:
            budget = refused.minimum
        run = training(loop, heavy_body, x, steps, (w,), memory=budget, store=store)
        pinning = bench.time(run, 1)
        peak, later = bench.both(run, 1)
        for name, seconds in (("first run, which pins the memory", pinning), ("later runs", later)):
            within = "within" if peak <= budget else "ABOVE"
            cells = [f"{seconds * 1e3:.0f}", f"{seconds / reference:.3f}"]
            cells += [f"{peak / MB:.0f} ({within} {budget / MB:.0f})", f"{peak / size:.1f}"]
            bench.row(f"ours, Host, {name}", *cells)
    bench.say(
        f"\nThe budget is what the turn of one step takes, and 4 states. Link measured: {out / 1e9:.1f} GB/s out, "
        f"{back / 1e9:.1f} GB/s back; limit: 1.15 x plain where the link has the bandwidth\n"
    )


def bandwidth(store, x):
    found = []
    for _ in range(4):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        store.put("probe", x.detach())
        store.flush()
        middle = time.perf_counter()
        store.get("probe")
        torch.cuda.synchronize()
        found.append((middle - begun, time.perf_counter() - middle))
        store.drop("probe")
    size = x.numel() * 4
    return size / min(out for out, _ in found), size / min(back for _, back in found)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.two(torch.relu(self.norm(self.one(x))))


def models(bench):
    width, batch = (2048, 16384) if bench.gpu else (64, 2048)
    mlp = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(64)])
    yield "MLP of 64 layers", mlp, torch.randn(batch, width)
    scale = 8 if bench.gpu else 1
    blocks = [nn.Conv2d(3, 8 * scale, 3, padding=1), *[Residual(8 * scale) for _ in range(8)]]
    for stage in (1, 2):
        channels = 8 * scale * 2**stage
        blocks += [nn.Conv2d(channels // 2, channels, 3, 2, 1), *[Residual(channels) for _ in range(8)]]
    images = torch.randn(256, 3, 64, 64) if bench.gpu else torch.randn(8, 3, 24, 24)
    yield "ResNet-like", nn.Sequential(*blocks), images
    dim, length, depth = (1024, 512, 24) if bench.gpu else (64, 64, 16)
    layers = [nn.TransformerEncoderLayer(dim, 4, 4 * dim, batch_first=True, dropout=0.1) for _ in range(depth)]
    yield "transformer", nn.Sequential(*layers), torch.randn(16 if bench.gpu else 4, length, dim)


def sequential(net, segments):
    return lambda x: checkpoint_sequential(net, segments, x, use_reentrant=False)


def chains(bench):
    """Chains of modules against checkpoint_sequential with its best number of segments."""
    bench.say("## Chains of modules at 25 %, 40 % and 60 % of the memory\n")
    torch.backends.cuda.matmul.allow_tf32 = True
    repeats = 3 if bench.quick else 7
    gains = []
    columns = ["model", "memory", "ours ms", "x plain", "peak / budget", "sequential ms", "ours faster by"]
    bench.head(*columns, "at most", "fit ms", "fit faster by")
    for name, net, given in models(bench):
        gains += chain_rows(bench, name, net.to(bench.device), given.to(bench.device), repeats)
    if gains:
        ours, most, fitted = ([one for one in column if one is not None] for column in zip(*gains))
        bench.say(
            f"\nMedian gain {statistics.median(ours):+.0%}, least {min(ours):+.0%}; limits: +10 % and 0 %. *At most*: "
            "what the fastest plan of whole modules would gain on sequential by these times and sizes, working memory "
            f"left out (median {statistics.median(most):+.0%}); the chain can't gain more."
        )
        if fitted:
            bench.say(f"`fit`, which looks into the modules, gains {statistics.median(fitted):+.0%} in the median.")
        bench.say()
    torch.backends.cuda.matmul.allow_tf32 = False


def chain_rows(bench, name, net, x, repeats):
    def train(run):
        def once():
            (run(x) ** 2).mean().backward()
            net.zero_grad(set_to_none=True)

        return once

    base = train(net)
    base()
    everything, reference = bench.both(base, repeats)
    peers, count = {}, len(net)
    for segments in sorted({2, 3, 4, 6, 8, 12, 16, count // 2, count} & set(range(2, count + 1))):
        run = train(sequential(net, segments))
        run()
        peers[segments] = (bench.peak(run), run)
    gains = []
    for share in (0.25, 0.4, 0.6):
        budget = int(share * everything)
        runs, chained = {}, chain(net, memory=budget)
        needs = ""
        made_by = {"ours": chained} if bench.gpu else {"ours": chained, "fit": fit(net, memory=budget, time_limit=10)}
        for key, made in made_by.items():
            try:
                train(made)()
                runs[key] = train(made)
            except pb.BudgetError as refused:
                needs = needs or f"needs {refused.minimum / everything:.0%}"
        runs |= {segments: run for segments, (used, run) in peers.items() if used <= budget}
        # In turns, so that a busy machine slows all of them alike.
        times = dict.fromkeys(runs, math.inf)
        for _ in range(repeats):
            for key, run in runs.items():
                times[key] = min(times[key], bench.time(run, 1))
        best = min((key for key in times if isinstance(key, int)), key=times.__getitem__, default=None)
        cells, gain = [name, f"{share:.0%}"], [None] * 3
        if "ours" in times:
            peak = bench.peak(runs["ours"])
            cells += [f"{times['ours'] * 1e3:.1f}", f"{times['ours'] / reference:.2f}", f"{peak / budget:.2f}"]
        else:
            cells += [needs, "", ""]
        cells.append("none fits" if best is None else f"{times[best] * 1e3:.1f} ({best} segments)")
        if best is not None and "ours" in times:
            gain[0] = times[best] / times["ours"] - 1
            gain[1] = chained.expect(Periodic(count, best)).time / chained.plan.bound - 1
        if best is not None and "fit" in times:
            gain[2] = times[best] / times["fit"] - 1
        shown = ["" if one is None else f"{one:+.0%}" for one in gain]
        cells += [shown[0], shown[1], f"{times['fit'] * 1e3:.1f}" if "fit" in times else "", shown[2]]
        bench.row(*cells)
        gains.append(gain)
    return gains


def budgets(bench):
    """Ten budgets for three problems: the measured peak stays below each."""
    bench.say("## Ten budgets, three problems: peak / budget\n")
    unit = 8 if bench.gpu else 1
    w = (torch.randn(64 * unit, 64 * unit, device=bench.device) / 8).requires_grad_()
    x = torch.randn(200 * unit, 64 * unit, device=bench.device, requires_grad=True)
    net = nn.Sequential(nn.Linear(32 * unit, 128 * unit), nn.GELU(), nn.Dropout(0.1), nn.Linear(128 * unit, 32 * unit))
    net = net.to(bench.device)
    y = torch.randn(100 * unit, 32 * unit, device=bench.device)
    u, v, k = (torch.randn(5000 * unit**2, device=bench.device, requires_grad=True) for _ in range(3))

    def swing(i, s, k):
        u, v = s
        v = v - 0.1 * torch.sin(k * u) * u
        return u + 0.1 * v, v

    problems = {
        "matrix": lambda run, **b: run(heavy_body, x, 60, w, **b).sum(),
        "network": lambda run, **b: (run(lambda i, s: s + net(s), y, 50, **b) ** 2).mean(),
        "pendulums": lambda run, **b: run(swing, (u, v), 80, k, **b)[0].sum(),
    }
    bench.head("problem", "smallest", *[f"{i}" for i in range(1, 11)])
    for name, loss in problems.items():

        def run(loss=loss, how=plain, **budget):
            loss(how, **budget).backward()
            for tensor in (x, w, u, v, k, *net.parameters()):
                tensor.grad = None

        run()
        everything = bench.peak(run)
        try:
            run(how=loop, memory=1000)
        except pb.BudgetError as refused:
            least = refused.minimum
        row = [name, f"{least / everything:.0%}"]
        for i in range(10):
            budget = int(least + (1.2 * everything - least) * i / 9)
            run(how=loop, memory=budget)
            row.append(f"{bench.peak(lambda b=budget: run(how=loop, memory=b)) / budget:.2f}")
        bench.row(*row)
    bench.say("\nBudgets from the smallest to 1.2 x plain autograd's peak; limit: 1.00\n")


def second_order(bench):
    """Hessian-vector products: jvp over grad."""
    bench.say("## Hessian times vector, torch.func.jvp over grad, 300 steps\n")
    size = 100_000 if bench.gpu else 10_000
    x, v, a = (torch.rand(size, device=bench.device) for _ in range(3))

    def product(run, **budget):
        def f(x):
            return run(lambda i, s, a: torch.tanh(s * a + 0.1), x, 300, a, **budget).sum()

        return lambda: torch.func.jvp(torch.func.grad(f), (x,), (v,))

    reference = None
    bench.head("", "ms", "x plain", "peak MB")
    for name, run in (("plain", product(plain)), ("ours, 8 slots", product(loop, slots=8))):
        run()
        seconds, peak = bench.time(run, 2), bench.peak(run)
        reference = reference or (seconds, peak)
        bench.row(name, f"{seconds * 1e3:.0f}", f"{seconds / reference[0]:.2f}", f"{peak / MB:.2f}")
    bench.say()


SECTIONS = {"small": small, "heavy": heavy, "chains": chains, "budgets": budgets, "second_order": second_order}
ON_GPU = {"heavy": heavy, "offload": offload, "budgets": budgets, "chains": chains, "small": small}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="on a GPU, with offload to the host")
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("--only", nargs="+", choices=sorted({*SECTIONS, *ON_GPU}), help="these sections alone")
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/results")
    options = parser.parse_args()
    torch.manual_seed(0)
    if not options.gpu:
        torch.set_num_threads(1)
    bench = Bench(options.gpu, options.quick)
    machine = torch.cuda.get_device_name() if options.gpu else f"{platform.machine()}, one thread"
    bench.say(
        f"# Loops and chains of PyTorch ({machine}; torch {torch.__version__}, Python {platform.python_version()})\n"
    )
    bench.say(f"`python benchmarks/torch_loops.py {' '.join(sys.argv[1:])}`\n")
    sections = ON_GPU if options.gpu else SECTIONS
    for name, section in sections.items():
        if options.only and name not in options.only:
            continue
        begun = time.perf_counter()
        section(bench)
        if options.gpu:
            torch.cuda.empty_cache()
        print(f"({name}: {time.perf_counter() - begun:.0f} s)\n", flush=True)
    if options.write:
        kind = "gpu" if options.gpu else "cpu"
        (RESULTS / f"2026-11-16-torch-loops-{kind}.md").write_text("\n".join(bench.lines) + "\n")


if __name__ == "__main__":
    main()
