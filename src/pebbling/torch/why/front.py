"""``why``: one real step of a model, watched from outside, with no trace left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from ...peaks import Why
from .observer import Observer


def why(
    model: Callable[..., Any],
    *batch: Any,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    **keywords: Any,
) -> Why:
    """Why the peak of a training step is where it is: run one step, and see what is alive when.

    The step is ``model(*batch, **keywords)``, ``loss`` of the result, its backward pass and, if given, a step of the
    ``optimizer``. Without ``loss``: the result's own ``loss``, or the sum of its floating-point tensors. Parameters,
    gradients, buffers, the optimizer's state and random generators are afterwards as they were. A model and a batch
    on the meta device run nowhere: tensors are counted then, and what kernels take for themselves is missing.

    >>> model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))
    >>> found = why(model, torch.ones(512, 8))
    >>> found.moment.phase, found.kinds["saved for the backward pass"]
    ('backward', 131072)
    """
    module = model if isinstance(model, nn.Module) else None
    leaves = [leaf for leaf in tree_leaves((batch, keywords)) if isinstance(leaf, torch.Tensor)]
    parameters = [] if module is None else list(module.parameters())
    device = next((each.device for each in [*parameters, *leaves]), torch.device("cpu"))
    if device.type not in ("cpu", "cuda", "meta"):
        raise ValueError(f"why on {device.type!r}: the CPU, CUDA and the meta device are known")
    with _no_trace(module, optimizer, device):
        observer = Observer(module, device)
        observer.stand(parameters, "parameter")
        observer.stand([] if module is None else module.buffers(), "buffer")
        observer.stand(leaves, "batch")
        observer.stand(_state(optimizer), "optimizer")
        with observer:
            output = model(*batch, **keywords)
            observer.name(tree_leaves(output), "output")
            number = _loss(output, loss)
            number.backward()  # type: ignore[no-untyped-call]
            observer.name([each.grad for each in parameters], "gradient")
            if optimizer is not None:
                observer.phase = "optimizer"
                optimizer.step()
                observer.name(_state(optimizer), "optimizer")
            del number
        story = observer.story()
    peak = observer.start - observer.standing + story.peak
    return Why(
        story,
        type(model).__name__ if module is not None else getattr(model, "__name__", "function"),
        observer.standing,
        max(0, observer.reserved - peak) if device.type == "cuda" else 0,
        device.type != "meta",
    )


def _loss(output: Any, loss: Callable[[Any], torch.Tensor] | None) -> torch.Tensor:
    if loss is not None:
        found = loss(output)
        if not isinstance(found, torch.Tensor) or found.numel() != 1:
            raise ValueError(f"loss returned {type(found).__name__}: expected a tensor with one number")
        return found
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        raise ValueError("the result has no tensor that requires a gradient: give loss=, or check requires_grad")
    if len(tensors) == 1 and tensors[0].numel() == 1:
        return tensors[0]
    total = tensors[0].sum()
    for tensor in tensors[1:]:
        total = total + tensor.sum()
    return total


def _state(optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    if optimizer is None:
        return []
    return [leaf for leaf in tree_leaves(list(optimizer.state.values())) if isinstance(leaf, torch.Tensor)]


@contextmanager
def _no_trace(
    module: nn.Module | None, optimizer: torch.optim.Optimizer | None, device: torch.device
) -> Iterator[None]:
    """Put everything back that a step changes. What is kept for that lies in the host's memory, not on the device."""
    parameters: list[nn.Parameter] = [] if module is None else list(module.parameters())
    buffers: list[torch.Tensor] = [] if module is None else list(module.buffers())
    changed: list[torch.Tensor] = [*buffers, *(parameters if optimizer is not None else [])]
    copies = [None if each.is_meta else each.detach().to("cpu", copy=True) for each in changed]
    gradients = [each.grad for each in parameters]
    state = None
    if optimizer is not None:
        state = {id(key): {k: _copy(v) for k, v in value.items()} for key, value in optimizer.state.items()}
    for each in parameters:
        each.grad = None
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for tensor, copy in zip(changed, copies):
                if copy is not None:
                    tensor.copy_(copy)
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        if optimizer is not None and state is not None:
            for key in list(optimizer.state):
                if id(key) not in state:
                    del optimizer.state[key]
                    continue
                for name, value in state[id(key)].items():
                    if isinstance(value, torch.Tensor):
                        optimizer.state[key][name].copy_(value)
                    else:
                        optimizer.state[key][name] = value


def _copy(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value
