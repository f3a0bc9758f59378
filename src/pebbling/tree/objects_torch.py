"""torch's own small objects as data: random generators, dtypes, devices, shapes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")


def form_of(value: Any) -> tuple[Any, ...] | None:
    """The form of a value, if it is one of these."""
    name = _NAMES.get(type(value))
    return None if name is None else form_named(name)


def form_named(name: str) -> tuple[Any, ...] | None:
    """A name, what stands for the object, and what makes it again."""
    return (name, *_FORMS[name]) if name in _FORMS else None


def _generator(value: Any) -> tuple[str, bytes]:
    return str(value.device), value.get_state().numpy().tobytes()


def _made_generator(device: str, state: bytes) -> Any:
    made = torch.Generator(device)
    made.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return made


def _made_dtype(name: str) -> Any:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch.{name} is no dtype")
    return found


_FORMS = {
    "torch generator": (_generator, _made_generator),
    "torch dtype": (lambda dtype: (str(dtype).removeprefix("torch."),), _made_dtype),
    "torch device": (lambda device: (str(device),), torch.device),
    "torch size": (lambda size: (tuple(size),), torch.Size),
}
_NAMES = {
    torch.Generator: "torch generator",
    torch.dtype: "torch dtype",
    torch.device: "torch device",
    torch.Size: "torch size",
}
