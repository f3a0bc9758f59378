"""All that a chain must know of its modules at each call, found in one walk: they may have changed since the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn


class ChainParts:
    """The modules of a chain with everything inside them."""

    def __init__(self, links: Sequence[nn.Module]) -> None:
        self.links = list(links)
        self.parameters: list[torch.Tensor] = []
        """Those that require gradients, each once."""
        self.own: list[list[int]] = []
        """Places of the parameters of each module."""
        self.buffers: list[tuple[nn.Module, str]] = []
        self.training: list[bool] = []
        self.compiled = False
        self.parts: list[nn.Module] = []
        self.apart = True
        """Whether no two of the modules have a part in common."""
        places: dict[int, int] = {}
        seen: set[int] = set()
        for link in self.links:
            own: set[int] = set()
            for part in _inside(link):
                for parameter in part._parameters.values():
                    if parameter is not None and parameter.requires_grad:
                        place = places.setdefault(id(parameter), len(places))
                        if place == len(self.parameters):
                            self.parameters.append(parameter)
                        own.add(place)
                if id(part) in seen:
                    self.apart = False
                else:
                    seen.add(id(part))
                    self._note(part)
            self.own.append(sorted(own))

    def _note(self, part: nn.Module) -> None:
        self.parts.append(part)
        self.training.append(part.training)
        self.buffers += [(part, name) for name, buffer in part._buffers.items() if buffer is not None]
        if part._compiled_call_impl is not None or "_orig_mod" in part._modules:
            self.compiled = True

    def reach(self, start: int, stop: int) -> list[int]:
        """Places of the parameters that a block of modules uses."""
        if stop == start + 1:
            return self.own[start]
        return sorted({place for one in self.own[start:stop] for place in one})


def _inside(module: nn.Module) -> Iterator[nn.Module]:
    # Not modules(), which is several times slower and would be most of the time of a call.
    stack: list[nn.Module] = [module]
    seen: set[int] = set()
    while stack:
        part = stack.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            stack += [inner for inner in part._modules.values() if inner is not None]
