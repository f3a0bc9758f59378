"""PyTorch as loops see it: autograd follows its tensors, and ``pebbling.torch`` runs whole loops on them."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.protocol import Leaf
from .loops.node import LoopNode, execute


class TorchFramework:
    """What loops ask of tensors."""

    engine = None
    compiled = None
    execute = staticmethod(execute)

    def level(self, leaf: Leaf) -> int:
        return int(isinstance(leaf, torch.Tensor) and leaf.requires_grad)

    def plain(self, leaf: Leaf) -> Any:
        return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf

    def share(self, leaf: Leaf) -> Leaf:
        return leaf

    def enter(self, leaf: Leaf, of_state: bool) -> Leaf:
        return leaf

    def idle(self) -> bool:
        return not torch.is_grad_enabled()

    def mark(self, leaf: Leaf) -> Any:
        return leaf._version if isinstance(leaf, torch.Tensor) and not leaf.is_inference() else None

    def bar(self, leaf: Leaf, reason: str) -> None:
        """Outputs of a loop are refused in the backward pass if somebody has written into them by then."""
        node = getattr(leaf.grad_fn, "node", None) if isinstance(leaf, torch.Tensor) else None
        if isinstance(node, LoopNode):
            node.barred.append((leaf.detach(), leaf._version, reason))

    def root(self, leaf: Leaf) -> Leaf:
        return leaf

    def follow(self, leaf: Leaf, other: Leaf) -> None:
        return

    def viewed(self, leaf: Leaf) -> bool:
        return False

    def array(self, leaf: Leaf) -> bool:
        return isinstance(leaf, torch.Tensor)

    def clone(self, leaf: Leaf) -> Leaf:
        return leaf.clone()

    def memory(self, leaf: Leaf) -> tuple[int, int, int] | None:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided or leaf.numel() == 0:
            return None
        reach = int(sum([(size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride())]))
        first, size = int(leaf.storage_offset()), leaf.element_size()
        return leaf.untyped_storage()._cdata, first * size, (first + reach + 1) * size - 1
