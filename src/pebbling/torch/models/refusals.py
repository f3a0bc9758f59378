"""torch's errors of capture as ours: which line, why, and what can be done."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import CaptureError, PebblingError

_WAYS_OUT = (
    "Move that line out of what is fitted, express it with tensor operations (torch.where, torch.cond), or "
    'fit(…, breaks="keep") to run that part as it is and plan what is before and after it on its own.'
)


_NO_DERIVATIVE = "autograd kernel was not registered"


@contextmanager
def refusals(name: str) -> Iterator[None]:
    """Turn what torch raises while it captures into a ``CaptureError``, and let our own errors through."""
    from torch._dynamo import exc

    try:
        yield
    except exc.BackendCompilerFailed as error:
        inner = error.inner_exception
        if isinstance(inner, PebblingError):
            raise inner.with_traceback(None) from None
        if _NO_DERIVATIVE in str(inner):
            raise CaptureError(
                f"{name} could not be captured: torch has no derivative of {str(inner).partition(': an')[0]} on the "
                "meta device, and the backward pass would be missing from the plan; give plan() tensors and parameters "
                "on a real device"
            ) from error
        raise CaptureError(f"{name} could not be captured: {_first_line(inner)}.{_where(inner)}") from error
    except (exc.Unsupported, exc.UserError) as error:
        raise CaptureError(
            f"{name} can't be captured whole{_where(error)}: {_first_line(error)}. {_WAYS_OUT}"
        ) from error
    except exc.TorchDynamoException as error:
        raise CaptureError(f"{name} could not be captured{_where(error)}: {_first_line(error)}") from error


@contextmanager
def derivatives() -> Iterator[None]:
    """Let torch fail where it would only warn that an operation has no derivative."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{_NO_DERIVATIVE}")
        yield


def _where(error: Any) -> str:
    """The line of the user's program that torch stopped at."""
    stack = getattr(error, "real_stack", None) or ()
    here = torch.__path__[0]
    frames = [frame for frame in stack if not frame.filename.startswith(here)] or list(stack)
    if not frames:
        return ""
    frame = frames[-1]
    text = f" ({frame.line.strip()})" if frame.line else ""
    return f" at {frame.filename}:{frame.lineno}, in {frame.name}{text}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
