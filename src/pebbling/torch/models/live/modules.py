"""Which module of the model is running: looked up in the frames of the program, where it is asked for now and then."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

_CALL = nn.Module._call_impl.__code__


class Modules:
    """The names of a model's modules."""

    def __init__(self, function: Any) -> None:
        named = function.named_modules() if isinstance(function, nn.Module) else ()
        self._names = {id(module): name for name, module in named}

    def running(self) -> str:
        """The name of the innermost module of the model whose forward pass is running."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code is _CALL:
                name = self._names.get(id(frame.f_locals.get("self")))
                if name is not None:
                    return name
            frame = frame.f_back
        return ""
