"""torch's errors of capture as ours: which line, why, and what can be done."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from ...errors import CaptureError, PebblingError

_WAYS_OUT = (
    "Move that line out of what is fitted, express it with tensor operations (torch.where, torch.cond), or "
    'fit(…, breaks="keep") to run that part as it is and plan what is before and after it on its own.'
)
_NO_DERIVATIVE = "autograd kernel was not registered"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<number>\d+), in (?P<name>\S+)\n\s*(?P<text>[^\n]*)')
_LONG = 160
_SPARSE = {nn.functional.embedding: (6, "sparse"), nn.functional.embedding_bag: (7, "sparse")}
_MASK_TYPE = {torch._transformer_encoder_layer_fwd: (19, "mask_type")}
_PADDING = 1
_PRODUCTS = (torch.prod, "prod", torch.Tensor.prod)


class Raised(CaptureError):
    """The program raised an error while it was traced; the refusal, if it raises none by itself."""

    def __init__(self, refusal: CaptureError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@contextmanager
def refusals(name: str, function: Callable[..., Any] | None = None) -> Iterator[None]:
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
        raise CaptureError(f"{name} could not be captured{_where(inner, function)}: {_reason(inner)}") from error
    except (exc.Unsupported, exc.UserError) as error:
        hooked = _hooked(function)
        if "backwards hooks" in str(error) and hooked:
            raise CaptureError(
                f"{name} can't be captured whole: {hooked} has backward hooks, which run outside of any graph. "
                'Register them on what fit returns, or on parameters, or fit(…, breaks="keep") to run that module as '
                "it is and plan what is before and after it on its own."
            ) from error
        refusal = CaptureError(
            f"{name} can't be captured whole{_where(error, function)}: {_reason(error)}. {_WAYS_OUT}"
        )
        if "raised exception" in str(error):
            raise Raised(refusal) from error
        raise refusal from error
    except exc.TorchDynamoException as error:
        raise CaptureError(f"{name} could not be captured{_where(error, function)}: {_reason(error)}") from error


@contextmanager
def derivatives() -> Iterator[None]:
    """Let torch fail where it would only warn that an operation has no derivative."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{_NO_DERIVATIVE}")
        yield


def refuse(module: fx.GraphModule, name: str, function: Callable[..., Any] | None = None, exact: bool = True) -> None:
    """Refuse a traced program that could not be planned, or, with ``exact``, would not be the original bit for bit."""
    modules = function.modules() if isinstance(function, nn.Module) else ()
    nests = any(getattr(each, "use_nested_tensor", False) for each in modules)
    for node in module.graph.nodes:
        reason = _unplannable(node, nests) or (exact and _inexact(node))
        if reason:
            where = _last(_written(node.meta.get("stack_trace") or ""))
            raise CaptureError(f"{name} can't be captured{where}: {reason}")


def _unplannable(node: fx.Node, nests: bool) -> str:
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("example_value"))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(not isinstance(size, int) for tensor in tensors for size in tensor.shape):
        return (
            f"the size of what {node.name!r} returns depends on values of tensors, and no plan could say what it "
            f"takes. {_WAYS_OUT}"
        )
    if _told(node, _SPARSE) is True and any(tensor.requires_grad for tensor in tensors):
        return "gradients of sparse=True have no storage that could be planned; use sparse=False, or leave it out"
    if nests and _told(node, _MASK_TYPE) == _PADDING:
        return (
            "without gradients nn.TransformerEncoder packs padded sequences into nested tensors, which can't be "
            "captured; make it with enable_nested_tensor=False, or evaluate with the model that was fitted"
        )
    return ""


def _inexact(node: fx.Node) -> str:
    value = node.meta.get("example_value")
    if node.target in _PRODUCTS and isinstance(value, torch.Tensor) and value.requires_grad:
        return (
            "the derivative of prod looks for zeros and goes by them, which a graph can't, and without that it rounds "
            "differently. Multiply one by one, take the last of cumprod, or leave it out of what is fitted"
        )
    return ""


def _told(node: fx.Node, arguments: Mapping[Any, tuple[int, str]]) -> Any:
    """What an operator was given for the argument that it has there, if it is one of those."""
    place, name = arguments.get(node.target, (len(node.args), ""))
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)


class _Frame(NamedTuple):
    file: str
    number: int
    name: str
    text: str


def _where(error: Any, function: Callable[..., Any] | None) -> str:
    """The line of the user's program that torch stopped at."""
    stack = getattr(error, "real_stack", None) or ()
    frames = [_Frame(each.filename, each.lineno, each.name, each.line or "") for each in stack]
    return _last(frames or _written(str(error))) or _begin(function)


def _written(text: str) -> list[_Frame]:
    """The frames that a text shows."""
    return [_Frame(each["file"], int(each["number"]), each["name"], each["text"]) for each in _FRAME.finditer(text)]


def _last(frames: list[_Frame]) -> str:
    here = torch.__path__[0]
    frames = [frame for frame in frames if not frame.file.startswith(here)] or frames
    if not frames:
        return ""
    frame = frames[-1]
    text = f" ({_short(frame.text.strip())})" if frame.text else ""
    return f" at {frame.file}:{frame.number}, in {frame.name}{text}"


def _hooked(function: Any) -> str:
    """The module within a model that has backward hooks."""
    modules = function.named_modules() if isinstance(function, nn.Module) else ()
    found = [(name, each) for name, each in modules if each._backward_hooks or each._backward_pre_hooks]
    return f"{type(found[0][1]).__name__} {found[0][0]!r}".removesuffix(" ''") if found else ""


def _begin(function: Callable[..., Any] | None) -> str:
    """Where a function or the forward pass of a module begins."""
    inner = function.forward if isinstance(function, nn.Module) else function
    code = getattr(inner, "__code__", None)
    return "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}, in {code.co_name}"


def _reason(error: BaseException) -> str:
    """What torch says in its first line, and what it found."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0].rstrip(".") if lines else type(error).__name__
    found = {key: rest for key, _, rest in (line.partition(": ") for line in lines[1:]) if rest}
    raised = found.get("Developer debug context", "")
    if raised.startswith("raised exception "):
        return f"the program raised {_short(raised.removeprefix('raised exception '))} there"
    explained = found.get("Explanation", "")
    if "): got " in explained:
        return f"{first}: {_short(explained.rpartition('): got ')[2])}"
    return f"{first}: {_short(explained)}" if explained else first


def _short(text: str) -> str:
    return text.rstrip(".") if len(text) <= _LONG else f"{text[:_LONG]}…"
