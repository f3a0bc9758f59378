"""Captures the models of benchmarks/graphs.py as graphs, with times measured once per operator signature.

    python benchmarks/graph_models.py [NAME …] [--partitions COUNT]

Writes benchmarks/graphs/NAME.json.gz, so that solvers are measured on the same graphs everywhere and
without torch. One thread, CPU; a time is the least of several runs. With ``--partitions`` it writes
NAME.torch.json.gz: the order in which torch's own partitioner runs the nodes of that graph, for that
many values of its activation_memory_budget from 0 up.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from torch import nn
from torch.nn import functional

from pebbling.graph import Graph, from_fx, load, save

FOLDER = Path(__file__).parent / "graphs"


class Block(nn.Module):
    """A transformer block; ``fused`` attention is one operation, the other is written out."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.0 if fused else 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.first(x)).split(width, dim=2)
        query, key, value = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            mixed = self.drop(scores.masked_fill(~mask, -1e9).softmax(-1)) @ value
        x = x + self.drop(self.join(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(functional.gelu(self.up(self.second(x)))))


class GPT(nn.Module):
    """A language model with its loss."""

    def __init__(self, layers: int, width: int, heads: int, words: int, fused: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return functional.cross_entropy(scores.view(-1, scores.shape[-1]), tokens.roll(-1, 1).view(-1))


class Bottleneck(nn.Module):
    """The residual block of a ResNet-50."""

    def __init__(self, width: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        same = stride == 1 and width == outer
        self.short = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(width, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    """ResNet-50 with a loss."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        width = 64
        for stage, (inner, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for block in range(count):
                layers.append(Bottleneck(width, inner, 2 if stage and not block else 1))
                width = 4 * inner
        self.body, self.head = nn.Sequential(*layers), nn.Linear(width, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean((2, 3))).logsumexp(1).mean()


class UNet(nn.Module):
    """Four levels of double convolutions with skips."""

    def __init__(self, width: int = 32, levels: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(self._double(3 if not i else widths[i - 1], widths[i]) for i in range(levels))
        self.middle = self._double(widths[-2], widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, 2) for i in reversed(range(levels)))
        self.join = nn.ModuleList(self._double(2 * widths[i], widths[i]) for i in reversed(range(levels)))
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _double(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((skips.pop(), up(x)), 1))
        return self.head(x).square().mean()


class MLP(nn.Module):
    """Layers of a linear map and GELU."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.body:
            x = functional.gelu(layer(x))
        return x.square().mean()


class LSTM(nn.Module):
    """A recurrent cell unrolled in time."""

    def __init__(self, steps: int, width: int) -> None:
        super().__init__()
        self.steps, self.width = steps, width
        self.gates = nn.Linear(2 * width, 4 * width)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        hidden = cell = torch.zeros(sequence.shape[0], self.width)
        total = torch.zeros(())
        for step in range(self.steps):
            i, f, g, o = self.gates(torch.cat((sequence[:, step], hidden), 1)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            total = total + hidden.square().mean()
        return total


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "gpt12": lambda: (GPT(12, 256, 4, 4000, True), torch.randint(4000, (4, 256))),
    "resnet50": lambda: (ResNet(), torch.randn(8, 3, 224, 224)),
    "unet": lambda: (UNet(24), torch.randn(8, 3, 128, 128)),
    "mlp64": lambda: (MLP(64, 256), torch.randn(2048, 256)),
    "lstm": lambda: (LSTM(32, 128), torch.randn(64, 32, 128)),
    "gpt48": lambda: (GPT(48, 384, 6, 1000, False), torch.randint(1000, (8, 128))),
    # The three that have a limit again, at half the batch: the gradients of the weights, which no plan can drop, are
    # a larger part of the peak.
    "resnet50-half": lambda: (ResNet(), torch.randn(4, 3, 224, 224)),
    "unet-half": lambda: (UNet(24), torch.randn(4, 3, 128, 128)),
    "gpt48-half": lambda: (GPT(48, 384, 6, 1000, False), torch.randint(1000, (4, 128))),
}


def capture(name: str, use: Callable[[torch.fx.GraphModule, list, int, dict], object]) -> None:
    """Give the joint graph of one step of training to ``use``, with inputs, number of outputs and further options."""
    from functorch.compile import aot_module, make_boxed_func
    from torch._functorch.partitioners import default_partition

    def partition(joint, inputs, *, num_fwd_outputs, **options):
        use(joint, inputs, num_fwd_outputs, options)
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)

    def run(module, inputs):
        return make_boxed_func(module.forward)

    model, example = MODELS[name]()
    aot_module(model.train(), fw_compiler=run, bw_compiler=run, partition_fn=partition)(example).backward()


def graph_of(name: str) -> Graph:
    """The graph, with measured times."""
    found: list[Graph] = []

    def use(joint, inputs, outputs, options):
        mutated = _overwritten(joint, outputs)
        found.append(from_fx(joint, outputs, time=Stopwatch(), mutated=mutated, name=name))

    capture(name, use)
    return found[0]


def partitions_of(name: str, budgets: list[float]) -> dict[float, list[int]]:
    """What torch's own partitioner runs for values of activation_memory_budget: forward, then backward with replays."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    number = {node.name: i for i, node in enumerate(load(FOLDER / f"{name}.json.gz").nodes)}
    found: dict[float, list[int]] = {}

    def use(joint, inputs, outputs, options):
        for budget in budgets:
            with config.patch(activation_memory_budget=budget, cse=False):
                parts = min_cut_rematerialization_partition(
                    copy.deepcopy(joint), inputs, num_fwd_outputs=outputs, **options
                )
            runs = [number[node.name] for part in parts for node in part.graph.nodes if node.name in number]
            assert set(runs) == set(number.values())
            found[budget] = runs

    capture(name, use)
    return found


def _overwritten(joint: torch.fx.GraphModule, outputs: int) -> set[str]:
    """Buffers: placeholders whose new value is among the outputs of the forward pass, which are one longer than it."""
    results = next(node for node in joint.graph.nodes if node.op == "output").args[0][: outputs - 1]
    return {
        argument.name
        for result in results
        for node in (result, *result.all_input_nodes)
        for argument in node.all_input_nodes
        if argument.op == "placeholder" and argument.meta["val"].shape == result.meta["val"].shape
        and not argument.meta["val"].requires_grad
    }  # fmt: skip


class Stopwatch:
    """Time of an FX node by running it on random tensors, once for every signature."""

    def __init__(self, repeats: int = 5) -> None:
        self.repeats = repeats
        self.known: dict[object, float] = {}

    def __call__(self, node: torch.fx.Node) -> float:
        if node.op != "call_function":
            return 0.0
        tensor = torch.Tensor

        def real(value):
            if isinstance(value, torch.fx.Node):
                value = value.meta["val"]
            if isinstance(value, tensor):
                return torch.zeros(value.shape, dtype=value.dtype).as_strided(value.shape, value.stride()) if (
                    value.is_contiguous()
                ) else torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()  # fmt: skip
            if isinstance(value, list | tuple):
                return type(value)(real(each) for each in value)
            return value

        def signature(value):
            if isinstance(value, torch.fx.Node):
                value = value.meta["val"]
            if isinstance(value, tensor):
                return tuple(value.shape), tuple(value.stride()), value.dtype
            if isinstance(value, list | tuple):
                return tuple(signature(each) for each in value)
            return value

        keywords = dict(node.kwargs)
        key = node.target, signature(node.args), signature(list(keywords.items()))
        if key not in self.known:
            arguments = real(node.args)
            best = float("inf")
            for _ in range(self.repeats):
                begun = perf_counter()
                node.target(*arguments, **{name: real(value) for name, value in keywords.items()})
                best = min(best, perf_counter() - begun)
            self.known[key] = best
        return round(self.known[key], 9)


def main() -> None:
    """Capture the named models, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--partitions", type=int, default=0, help="write torch's own partitions, for so many budgets")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    for name in arguments.names or MODELS:
        begun = perf_counter()
        if arguments.partitions:
            budgets = [i / arguments.partitions for i in range(arguments.partitions)]
            path = FOLDER / f"{name}.torch.json.gz"
            content = json.dumps(partitions_of(name, budgets), separators=(",", ":")).encode()
            path.write_bytes(gzip.compress(content, mtime=0))
        else:
            path = FOLDER / f"{name}.json.gz"
            save(graph_of(name), path)
        print(f"{name}: {path.stat().st_size / 1e3:.0f} kB, {perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
