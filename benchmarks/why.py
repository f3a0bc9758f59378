"""The peak that `pebbling.torch.why` names, beside the allocator's, on models of transformers and torchvision.

    python benchmarks/why.py [--write]            on the CPU, beside torch's profiler: tiny configurations
    python benchmarks/why.py --gpu [--write]      on a CUDA device, beside the allocator's own maximum

Both are bytes above what is there before the step. The last columns are a change that `why` advises (the model's own
checkpointing of its blocks): the bytes by which it says that the peak falls, and those by which it falls when the
change is made. The limit is 2 %. Nothing is downloaded: weights are random.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import platform
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import nn

from pebbling.torch import why

RESULTS = Path(__file__).parent / "results"
LIMIT = 0.02
Made = tuple[nn.Module, dict[str, torch.Tensor]]


def words(vocabulary: int, batch: int, length: int) -> dict[str, torch.Tensor]:
    drawn = torch.randint(vocabulary, (batch, length))
    return {"input_ids": drawn, "labels": drawn}


def llama(large: bool) -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (32000, 2048, 5632, 16, 32) if large else (300, 64, 172, 4, 4)
    v, width, wide, layers, heads = sizes
    config = LlamaConfig(
        vocab_size=v,
        hidden_size=width,
        intermediate_size=wide,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        use_cache=False,
    )
    return LlamaForCausalLM(config), words(v, 8 if large else 4, 2048 if large else 128)


def gpt2(large: bool) -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    width, layers, heads = (1024, 24, 16) if large else (64, 4, 4)
    config = GPT2Config(vocab_size=50257 if large else 300, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
    config.loss_type = "ForCausalLM"
    return GPT2LMHeadModel(config), words(config.vocab_size, 8 if large else 4, 1024 if large else 128)


def bert(large: bool) -> Made:
    from transformers import BertConfig, BertForMaskedLM

    width, layers, heads = (1024, 24, 16) if large else (64, 4, 4)
    config = BertConfig(
        vocab_size=30522 if large else 300,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return BertForMaskedLM(config), words(config.vocab_size, 32 if large else 4, 512 if large else 128)


def t5(large: bool) -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    width, layers, heads = (1024, 12, 16) if large else (64, 3, 4)
    config = T5Config(
        vocab_size=32128 if large else 300,
        d_model=width,
        d_kv=width // heads,
        d_ff=2816 if large else 128,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=heads,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        pad_token_id=0,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config), words(config.vocab_size, 16 if large else 4, 512 if large else 96)


def vit(large: bool) -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    width, layers, heads, side, patch = (1024, 24, 16, 224, 16) if large else (64, 4, 4, 64, 8)
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=side,
        patch_size=patch,
    )
    pictures = torch.randn(64 if large else 8, 3, side, side)
    return ViTForImageClassification(config), {
        "pixel_values": pictures,
        "labels": torch.randint(2, (len(pictures),)),
    }


class Squared(nn.Module):
    """A model of pictures with a loss."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).float().square().mean()


def pictures(name: str, large: bool) -> Made:
    from torchvision import models

    side = 224 if large else 64
    return Squared(getattr(models, name)()), {"x": torch.randn(48 if large else 2, 3, side, side)}


MODELS: dict[str, Callable[[bool], Made]] = {
    "Llama": llama,
    "GPT2": gpt2,
    "BERT": bert,
    "T5": t5,
    "ViT": vit,
    "ResNet-50": lambda large: pictures("resnet50", large),
    "ConvNeXt": lambda large: pictures("convnext_tiny", large),
    "Swin": lambda large: pictures("swin_t", large),
    "DenseNet": lambda large: pictures("densenet121", large),
    "MobileNet": lambda large: pictures("mobilenet_v3_large", large),
}


def step(model: nn.Module, batch: dict[str, torch.Tensor]) -> None:
    model.zero_grad(set_to_none=True)
    found = model(**batch)
    (found if isinstance(found, torch.Tensor) else found.loss).backward()


def allocated(model: nn.Module, batch: dict[str, torch.Tensor], gpu: bool) -> int:
    """The peak of a step above its start, by the allocator on a GPU and by torch's profiler on the CPU."""
    step(model, batch)
    model.zero_grad(set_to_none=True)
    gc.collect()
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(model, batch)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    else:
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
            step(model, batch)
        held = peak = 0
        for event in sorted(profiler.profiler.kineto_results.events(), key=lambda each: each.start_ns()):
            if event.name() == "[memory]":
                held += event.nbytes()
                peak = max(peak, held)
    model.zero_grad(set_to_none=True)
    return peak


def row(name: str, gpu: bool) -> str:
    torch.manual_seed(0)
    with torch.device("cuda" if gpu else "cpu"):
        model, batch = MODELS[name](gpu)
    model.train()
    measured = allocated(model, batch, gpu)
    begun = time.perf_counter()
    found = why(model, **batch)
    seconds = time.perf_counter() - begun
    off = found.above / measured - 1
    blocks = [each for each in found.advice if "checkpoint" in each.change]
    said = fell = "-"
    if blocks and hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        said = f"{blocks[0].lowers / 1e6:,.1f} ({blocks[0].change})"
        fell = f"{(measured - allocated(model, batch, gpu)) / 1e6:,.1f}"
    top = next(iter(found.kinds))
    within = "" if abs(off) <= LIMIT else " **over 2 %**"
    return (
        f"| {name} | {measured / 1e6:,.1f} | {found.above / 1e6:,.1f} | {off:+.2%}{within} | {seconds:.1f} s "
        f"| {top}, {found.kinds[top] / found.peak:.0%} | {said} | {fell} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--write", action="store_true", help="also into benchmarks/results")
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ["HF_HUB_OFFLINE"] = "1"
    where = torch.cuda.get_device_name() if options.gpu else f"CPU, {platform.machine()}"
    lines = [
        f"# Peaks that `why` names, beside the {'allocator' if options.gpu else 'profiler'}'s",
        "",
        f"{date.today()}, {where}, torch {torch.__version__}. MB above what is there before the step; limit 2 %.",
        "",
        "| model | measured | `why` | off | takes | most at the peak | checkpointing: said (MB less) | fell by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.models.split(","):
        try:
            lines.append(row(name, options.gpu))
        except Exception as error:  # the table says which model failed, and the others follow
            lines.append(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:120]} | | | | | | |")
        print(lines[-1], flush=True)
        gc.collect()
        if options.gpu:
            torch.cuda.empty_cache()
    if options.write:
        path = RESULTS / f"{date.today()}-why-{'gpu' if options.gpu else 'cpu'}.md"
        path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
