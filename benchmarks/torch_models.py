"""Models in a byte budget beside torch.utils.checkpoint and torch.compile's own budget, in one run.

    python benchmarks/torch_models.py [--compiled] [--write]                 on the CPU
    python benchmarks/torch_models.py --gpu [--compiled] [--write]           on a CUDA device
    python benchmarks/torch_models.py --gpu --only compiled --models gpt --budgets 1,0.6,0.2

With --compiled, torch.compile runs at several values of its own activation_memory_budget, and fit with
backend="inductor" at each peak that it reaches; --only compiled leaves everything else out.
Peaks are measured, above what is allocated before the step: storages that are alive on the CPU, the
allocator's count on a GPU. Times are the best of several steps, and every line is measured in turns with
the plain step, compiled ones with each other as well, so that whatever else the machine does, and the clock
of a GPU that grows warm, slows all alike; on the CPU they are the processor time of one thread. Every line
stands on its own: one that fails prints its error and the run goes on.
"""

from __future__ import annotations

import argparse
import copy
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from graph_models import GPT, ResNet, UNet
from pebbling.errors import BudgetError
from pebbling.torch import fit
from pebbling.torch.models import Measured

RESULTS = Path(__file__).parent / "results"
Step = Callable[[], torch.Tensor]
_IN_A_ROW = 4
"""Steps between two looks at a GPU's clock, as in training: nobody waits for one before the next is launched."""
EQUAL = "equal bit for bit"
lines: list[str] = []


def say(text: str = "") -> None:
    print(text, flush=True)
    lines.append(text)


class Encoder(nn.Module):
    """A stack of torch's own encoder layers, with a loss."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class Stack(nn.Module):
    """Residual blocks of two convolutions, with a loss."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.inward = nn.Conv2d(3, channels, 3, 1, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels),
            )
            for _ in range(depth)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x)
        for block in self.blocks:
            x = functional.relu(x + block(x))
        return x.square().mean()


class FloatLoss(GPT):
    """A language model whose loss is computed in float32."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x)).float()
        return functional.cross_entropy(scores.view(-1, scores.shape[-1]), tokens.roll(-1, 1).view(-1))


class Segment(nn.Module):
    """Modules that are checkpointed as one."""

    def __init__(self, modules: list[nn.Module], **options: Any) -> None:
        super().__init__()
        self.body, self.options = nn.Sequential(*modules), options

    def forward(self, *args: Any) -> Any:
        return checkpoint(self.body, *args, use_reentrant=False, **self.options)


MATRIX = {
    torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten.convolution.default,
}  # fmt: skip


def selective() -> Any:
    def policy(ctx: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operation in MATRIX else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpointed(model: nn.Module, every: int, **options: Any) -> nn.Module:
    """A twin of the model, of the same parameters, whose blocks are checkpointed in groups."""
    twin = copy.copy(model)
    twin._modules = dict(model._modules)
    if isinstance(model, UNet):
        for name in ("down", "join"):
            setattr(twin, name, nn.ModuleList(Segment([block], **options) for block in getattr(model, name)))
        twin.middle = Segment([model.middle], **options)
        return twin
    blocks = list(model.body if isinstance(model, ResNet) else model.blocks)
    head = [nn.Sequential(*blocks[:4])] if isinstance(model, ResNet) else []
    blocks = blocks[4:] if isinstance(model, ResNet) else blocks
    groups = head + [Segment(blocks[i : i + every], **options) for i in range(0, len(blocks), every)]
    if isinstance(model, ResNet):
        twin.body = nn.Sequential(*groups)
    else:
        twin.blocks = nn.ModuleList(groups)
    return twin


def peak_of(model: nn.Module, step: Step, device: str) -> int:
    model.zero_grad(set_to_none=True)
    step().backward()
    model.zero_grad(set_to_none=True)
    gc.collect()
    with Measured(device) as memory:
        step().backward()
    return memory.peak


def in_turns(model: nn.Module, steps: list[Step], device: str, repeats: int) -> list[list[float]]:
    """Seconds of each step, turn by turn."""
    found: list[list[float]] = [[] for _ in steps]
    for step in steps:
        seconds_of(model, step, device)
    for turn in range(repeats):
        order = range(len(steps)) if turn % 2 else reversed(range(len(steps)))
        for place in order:
            found[place].append(seconds_of(model, steps[place], device))
    model.zero_grad(set_to_none=True)
    return found


def seconds_of(model: nn.Module, step: Step, device: str) -> float:
    def once() -> None:
        model.zero_grad(set_to_none=True)
        step().backward()

    if device == "cpu":
        start = time.process_time()
        once()
        return time.process_time() - start
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for _ in range(_IN_A_ROW):
        once()
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / _IN_A_ROW / 1e3


def gradients(model: nn.Module, step: Step) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    step().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def apart(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> str:
    """Largest difference of all gradients, as a share of the largest entry of that gradient.

    Or of a thousandth of the largest entry of all: a bias in front of a batch norm has nothing but rounding.
    """
    if all(torch.equal(a, b) for a, b in zip(mine, theirs)):
        return EQUAL
    floor = 1e-3 * max(float(b.abs().max()) for b in theirs) + 1e-30
    return f"{max(float((a - b).abs().max()) / max(floor, float(b.abs().max())) for a, b in zip(mine, theirs)):.1e}"


def guarded(name: str, work: Callable[[], Any], too_small: Callable[[BudgetError], None] | None = None) -> Any:
    try:
        return work()
    except BudgetError as error:
        if too_small is not None:
            too_small(error)
        return None
    except Exception as error:
        text = " ".join(str(error).split())[:160]
        say(f"| {name} | – | – | – | – | {type(error).__name__}: {text} |")
        return None


class Bench:
    """One model, its plain step, and a table."""

    def __init__(self, title: str, model: nn.Module, batch: torch.Tensor, device: str, half: bool) -> None:
        self.model, self.batch, self.device = model, batch, device
        self.around = (lambda: torch.autocast(device, torch.bfloat16)) if half else nullcontext
        say(f"\n### {title}\n")
        say("| | peak above the start | memory | step | time, × plain | |")
        say("|---|---|---|---|---|---|")
        step = self.step(model)
        self.peak = peak_of(model, step, device)
        self.seconds = min(in_turns(model, [step], device, 5)[0])
        self.row("plain", self.peak, self.seconds, self.seconds)

    def row(self, name: str, peak: int, seconds: float, plain: float, note: str = "") -> None:
        """A line; ``plain`` are the seconds of the plain step in turns with this one."""
        share, slower = peak / self.peak - 1, seconds / plain
        say(f"| {name} | {peak / 1e6:,.1f} MB | {share:+.1%} | {seconds * 1e3:,.1f} ms | {slower:.3f} | {note} |")

    def measured(self, model: Any) -> tuple[int, float, float]:
        """Peak in bytes, and the seconds of a step and of the plain one in turns with it."""
        step, plain = self.step(model), self.step(self.model)
        peak = peak_of(self.model, step, self.device)
        mine, theirs = in_turns(self.model, [step, plain], self.device, self.turns())
        return peak, min(mine), min(theirs)

    def step(self, model: Any) -> Step:
        def run() -> torch.Tensor:
            with self.around():
                return model(self.batch)

        return run

    def peer(self, name: str, every: int, **options: Any) -> int | None:
        def work() -> int:
            found = self.measured(checkpointed(self.model, every, **options))
            self.row(name, *found)
            return found[0]

        return guarded(name, work)

    def ours(self, name: str, memory: float | None, time_limit: float = 10.0, check: bool = False) -> None:
        def work() -> None:
            begun = time.perf_counter()
            fitted = fit(self.model, memory, time_limit=time_limit)
            gradients(self.model, self.step(fitted))
            first = time.perf_counter() - begun
            found = self.measured(fitted)
            self.row(name, *found, about(fitted.plan, memory, found[0], first))
            if check:
                self.exactness(fitted)

        guarded(name, work, lambda error: too_small(name, error))
        self.forget()

    def forget(self) -> None:
        """What was compiled."""
        torch._dynamo.reset()
        gc.collect()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def exactness(self, fitted: Any) -> None:
        """Gradients of the fitted model against the plain one's, beside those of two plain runs."""
        plain = self.step(self.model)
        theirs, mine = gradients(self.model, plain), gradients(self.model, self.step(fitted))
        chance = apart(gradients(self.model, plain), theirs)
        say(f"| gradients: fitted against plain | {apart(mine, theirs)} | | plain against plain | {chance} | |")
        if self.device == "cpu":
            return
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            theirs, mine = gradients(self.model, plain), gradients(self.model, self.step(fitted))
            chance = apart(gradients(self.model, plain), theirs)
        finally:
            torch.use_deterministic_algorithms(False)
        name = "gradients, deterministic algorithms: fitted against plain"
        say(f"| {name} | {apart(mine, theirs)} | | plain against plain | {chance} | |")

    def compiled(self, budgets: list[float]) -> None:
        """torch.compile at its own budgets, and fit with inductor at the peaks that these reach, in turns."""
        whole: list[torch.Tensor] | None = None
        for budget in budgets:
            name = f"torch.compile, activation_memory_budget={budget:g}"
            found = guarded(name, lambda budget=budget: self.own_budget(budget))
            if found is not None:
                run, peak, theirs, first = found
                whole = theirs if budget == 1 else whole
                mine = self.at_the_peak_of(peak, theirs, whole)
                models = [self.model, run, *(mine[:1] if mine else ())]
                times = in_turns(self.model, [self.step(each) for each in models], self.device, self.turns())
                plain, their_seconds = min(times[0]), min(times[1])
                self.row(name, peak, their_seconds, plain, f"first step {first:.0f} s")
                if mine:
                    medians = statistics.median(times[2]) / statistics.median(times[1])
                    ratio = f"{min(times[2]) / their_seconds:.3f} × torch.compile at this peak (medians {medians:.3f})"
                    self.row(
                        f"fit, inductor, {peak / 1e6:,.1f} MB", mine[1], min(times[2]), plain, f"{ratio}; {mine[2]}"
                    )
            self.forget()

    def own_budget(self, budget: float) -> tuple[Any, int, list[torch.Tensor], float]:
        """torch.compile's model, its peak, its gradients, and the seconds of its first step."""
        import torch._functorch.config

        with torch._functorch.config.patch(activation_memory_budget=budget):
            begun = time.perf_counter()
            run = torch.compile(self.model, dynamic=False)
            found = gradients(self.model, self.step(run))
            first = time.perf_counter() - begun
        return run, peak_of(self.model, self.step(run), self.device), found, first

    def at_the_peak_of(
        self, memory: int, theirs: list[torch.Tensor], whole: list[torch.Tensor] | None
    ) -> tuple[Any, int, str] | None:
        """The model fitted into the peak of torch.compile's, its peak, and a note.

        With a budget of its own torch.compile may draw other numbers for dropout than without (``whole``).
        """

        def work() -> tuple[Any, int, str]:
            begun = time.perf_counter()
            fitted = fit(self.model, memory, time_limit=10.0, backend="inductor")
            mine = gradients(self.model, self.step(fitted))
            first = time.perf_counter() - begun
            same = apart(mine, theirs)
            if whole is not None and same != EQUAL:
                same += (
                    f", against its budget of 1 {apart(mine, whole)}, where its own are apart {apart(theirs, whole)}"
                )
            peak = peak_of(self.model, self.step(fitted), self.device)
            note = about(fitted.plan, memory, peak, first)
            return fitted, peak, f"{note}, gradients against torch.compile's {same}"

        name = f"fit, inductor, {memory / 1e6:,.1f} MB"
        return guarded(name, work, lambda error: too_small(name, error))

    def turns(self) -> int:
        """Enough for small models, not too long for large ones."""
        return 7 if self.device != "cpu" else max(11, min(60, int(3 / self.seconds)))


def about(plan: Any, memory: float | None, peak: int, first: float) -> str:
    """A note on a fitted model."""
    over = "" if memory is None or peak <= memory else f", OVER the budget by {(peak - memory) / 1e6:.1f} MB"
    share = "" if memory is None else f"; {plan.graph_plan.memory / 1e6:,.1f} MB for the plan"
    return (
        f"planned {plan.planned / 1e6:,.1f} MB{share}, overhead {plan.overhead:.1%}, bound {plan.bound:.1%}, "
        f"first step {first:.0f} s{over}"
    )


def too_small(name: str, error: BudgetError) -> None:
    least = int(error.minimum or 0)
    say(f"| {name} | – | – | – | – | does not fit, the smallest budget found is {least / 1e6:,.1f} MB |")


def on_cpu(asked: argparse.Namespace) -> None:
    """tiny-backprop's models: at least 40 % less memory at no more than 1.30 × the time."""
    torch.manual_seed(0)
    models: list[tuple[str, nn.Module, torch.Tensor]] = []
    for batch, length, width, heads, layers in ((4, 64, 128, 4, 2), (8, 256, 192, 6, 6)):
        title = f"TransformerEncoder, {layers} layers × {width}, batch {batch} × {length}"
        models.append((title, Encoder(width, heads, layers), torch.randn(batch, length, width)))
    for batch, length, words, width, layers in ((2, 64, 2000, 192, 4), (4, 256, 4000, 256, 8)):
        title = f"GPT, {layers} layers × {width}, {words} words, batch {batch} × {length}"
        models.append((title, GPT(layers, width, 4, words, False), torch.randint(words, (batch, length))))
    models.append(("U-Net, base 32, depth 2, image 128²", UNet(32, 2), torch.randn(1, 3, 128, 128)))
    title = "residual stack, 64 channels, depth 8, batch 2, image 112²"
    models.append((title, Stack(64, 8), torch.randn(2, 3, 112, 112)))
    say("## CPU, one thread")
    if asked.only != "compiled":
        say("\nTarget of each model: at least 40 % less memory than plain at no more than 1.30 × its time.")
    for title, model, example in wanted(asked, models):
        own = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        table = Bench(f"{title}; gradients of parameters {own / 1e6:.1f} MB", model, example, "cpu", False)
        if asked.only != "compiled":
            table.peer("torch.utils.checkpoint, every block", 1)
            table.ours("fit, 60 % of plain", 0.6 * table.peak, check=True)
            table.ours("fit, 50 % of plain", 0.5 * table.peak)
        if asked.compiled or asked.only == "compiled":
            table.compiled(asked.budgets)


def wanted(asked: argparse.Namespace, models: list[Any]) -> list[Any]:
    """Those whose title contains one of the texts that were asked for."""
    texts = [text.lower() for text in asked.models or [""]]
    return [each for each in models if any(text in each[0].lower() for text in texts)]


def on_gpu(asked: argparse.Namespace) -> None:
    """A GPT, a ResNet-50 and a U-Net, each at every peak that a peer reaches."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    say(f"## {torch.cuda.get_device_name()}")

    def gpt() -> tuple[nn.Module, torch.Tensor]:
        return FloatLoss(24, 1024, 16, 50304, True).to(torch.bfloat16), torch.randint(50304, (16, 1024))

    models: list[tuple[str, Callable[[], tuple[nn.Module, torch.Tensor]], tuple[int, ...], bool]] = [
        ("GPT 24 × 1024, batch 16 × 1024, bf16", gpt, (1, 2, 6), False),
        ("ResNet-50, batch 64 × 224², float32", lambda: (ResNet(), torch.randn(64, 3, 224, 224)), (1, 4), False),
        ("U-Net, batch 16 × 256², bf16 autocast", lambda: (UNet(64, 4), torch.randn(16, 3, 256, 256)), (1,), True),
    ]
    for title, make, groups, half in wanted(asked, models):
        with torch.device("cuda"):
            model, batch = make()
        one_gpu(Bench(title, model, batch, "cuda", half), groups, asked)
        del model, batch
        gc.collect()


def one_gpu(table: Bench, groups: tuple[int, ...], asked: argparse.Namespace) -> None:
    if asked.only != "compiled":
        peers = [table.peer(f"torch.utils.checkpoint, every {every}", every) for every in groups]
        peers.append(table.peer("selective checkpointing, matrix products kept", 1, context_fn=selective))
        table.ours("fit, no limit", None, check=True)
        for found in peers:
            if found is not None:
                table.ours(f"fit, {found / 1e6:,.0f} MB", found)
        for share in (0.7, 0.5, 0.3):
            table.ours(f"fit, {share:.0%} of plain", share * table.peak)
    if asked.compiled or asked.only == "compiled":
        table.compiled(asked.budgets)


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> None:
    """Run one of the two halves and print or write its tables."""
    # Without it cuBLAS is not deterministic even where that is asked for.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gpu", action="store_true")
    options.add_argument("--compiled", action="store_true", help="torch.compile's budgets as well")
    options.add_argument("--only", choices=("eager", "compiled"), help="one half of the lines")
    options.add_argument("--models", nargs="+", help="only models whose title contains one of these texts")
    every = "1,0.8,0.6,0.4,0.2,0"
    options.add_argument("--budgets", type=numbers, default=every, help="torch.compile's, with commas in between")
    options.add_argument("--write", nargs="?", const="", help="write a table under benchmarks/results, or to a file")
    given = options.parse_args()
    say(f"# Models in a byte budget, {date.today()}\n")
    say(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    if given.gpu:
        on_gpu(given)
    else:
        torch.set_num_threads(1)
        on_cpu(given)
    if given.write is not None:
        half = "-compiled" if given.only == "compiled" else ""
        name = f"{date.today()}-torch-models{half}-{'gpu' if given.gpu else 'cpu'}.md"
        target = Path(given.write) if given.write else RESULTS / name
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"written to {target}", file=sys.stderr)


if __name__ == "__main__":
    main()
