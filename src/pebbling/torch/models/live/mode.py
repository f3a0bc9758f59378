"""What the modes of the live engine have in common."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class LiveMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees operations as they run, and compiled parts from outside only."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Torch's question whether compiled parts may run as they are."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No wrapper around every operation: nothing here is ever traced."""
        return False
