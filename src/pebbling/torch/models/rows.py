"""A loss over many classes, some rows at a time and in one place.

Between the scores of a language model and its loss lie values as large as the scores and more: the scores
in float32, their logarithms of probabilities, two gradients of these, and the gradient of the scores. They
are all there at the one moment when everything that the backward pass needs is there too. But each row is
computed from that row alone, and the kernels give it the same bits whether they are handed all rows or
some. So what lies between runs for a part of the rows at a time, and two more things follow:

- backward, the gradient of the scores can be written over the logarithms, whose last reader it is;
- forward, the scores in 16 bits can lie in the second half of what their logarithms are to fill.

What remains is one storage in float32, where there were two and a half. Rows of a part begin at a multiple
of 64, so that every row is aligned as it is among all of them: kernels look at that. Left alone: losses that
are not ``cross_entropy`` of a matrix with class indices; with several losses in one graph nothing is written
over, as a replay of the logarithms may pay there; scores that are read by others stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .in_place import JoinedNode

aten = torch.ops.aten

_PARTS = 16
_ALIGNED = 64
_GRAIN = 512
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_LOOKS = (*_VIEWS, aten.detach.default, aten.t.default, aten.transpose.int, aten.permute.default)
_PRODUCTS = {aten.mm.default: aten.mm.out, aten.addmm.default: aten.addmm.out}


@dataclass(frozen=True)
class InParts(JoinedNode):
    """Operations that run as one node, part by part."""

    workspace: int = 0
    """Bytes of what there is of one part."""
    over: str | None = None
    """The node whose result is written over."""


@dataclass(frozen=True)
class _Loss:
    """The nodes of one loss: what makes the logarithms, and what leads from the loss to the gradient of the scores."""

    made: tuple[Any, ...]
    logs: Any
    pulled: tuple[Any, ...]

    @property
    def part(self) -> int:
        """Rows of one part."""
        rows = int(self.logs.meta["val"].shape[0])
        return -(-rows // (_PARTS * _ALIGNED)) * _ALIGNED

    @property
    def part_bytes(self) -> int:
        """Bytes of one part of the logarithms."""
        value = self.logs.meta["val"]
        return min(self.part, int(value.shape[0])) * int(value.shape[1]) * int(value.element_size())


def has_loss(module: fx.GraphModule) -> bool:
    """Whether there is a loss that can run some rows at a time."""
    return bool(_losses(module.graph))


def in_parts(module: fx.GraphModule, backward: set[str]) -> dict[str, InParts]:
    """Let losses run some rows at a time; what the new nodes stand for, by name."""
    found: dict[str, InParts] = {}
    losses = _losses(module.graph)
    for loss in losses:
        over = len(losses) == 1 and _last_reader(loss)
        target = _pull(loss, over)
        node = _replace(module.graph, loss.pulled, target, _inputs_of_pull(loss))
        backward.add(node.name)
        logs = loss.logs
        if over and loss.made:
            logs = _replace(module.graph, (*loss.made, logs), _make(loss), loss.made[0].all_input_nodes)
            found[logs.name] = _described((*loss.made, loss.logs), loss.part_bytes)
        found[node.name] = _described(loss.pulled, loss.part_bytes, logs.name if over else None)
    module.graph.eliminate_dead_code()
    return found


def _losses(graph: fx.Graph) -> list[_Loss]:
    pulls = [node for node in graph.nodes if node.target is aten.nll_loss_backward.default]
    return [loss for loss in map(_loss, pulls) if loss is not None]


def _loss(first: Any) -> _Loss | None:
    logs = first.args[1]
    if getattr(logs, "target", None) is not aten._log_softmax.default or logs.args[2] is not False:
        return None
    value = logs.meta["val"]
    if value.dim() != 2 or logs.args[1] not in (1, -1) or not value.is_contiguous() or value.shape[0] <= _ALIGNED:
        return None
    second = _only_user(first)
    if second is None or second.target is not aten._log_softmax_backward_data.default:
        return None
    if second.args[0] is not first or _attached(second.args[1]) is not logs or second.args[2] not in (1, -1):
        return None
    if second.meta["val"].dtype != value.dtype or not second.meta["val"].is_contiguous():
        return None
    return _Loss(_makers(logs), logs, (first, second, *_cast_after(second)))


def _cast_after(node: Any) -> list[Any]:
    """Views, and a conversion to fewer bits after them, if that is what a node's result goes through."""
    path: list[Any] = []
    while True:
        node = _only_user(node)
        if node is None or not (node.target in _VIEWS or _converts(node)):
            return []
        path.append(node)
        if node.target not in _VIEWS:
            smaller = node.meta["val"].element_size() < node.args[0].meta["val"].element_size()
            return path if smaller else []


def _makers(logs: Any) -> tuple[Any, ...]:
    """The matrix product, the views and the conversion that logarithms are made through, if nobody else reads them."""
    path: list[Any] = []
    node = logs.args[0]
    while node.target in _VIEWS or _converts(node):
        path.append(node)
        node = node.args[0]
    casts = [each for each in path if each.target not in _VIEWS]
    if node.target not in _PRODUCTS or len(casts) != 1 or any(len(each.users) != 1 for each in (*path, node)):
        return ()
    scores, value = node.meta["val"], logs.meta["val"]
    halves = 2 * scores.element_size() == value.element_size() and scores.shape == value.shape
    # In the second half scores are aligned as they would be in a storage of their own.
    aligned = scores.is_contiguous() and scores.numel() * scores.element_size() % _GRAIN == 0
    return (node, *reversed(path)) if halves and aligned else ()


def _converts(node: Any) -> bool:
    """Whether a node changes the type of its operand's numbers and nothing else."""
    if node.target is not aten._to_copy.default:
        return False
    value, operand = node.meta["val"], node.args[0].meta["val"]
    return bool(value.is_contiguous() and operand.is_contiguous() and value.device == operand.device)


def _attached(node: Any) -> Any:
    while node.target is aten.detach.default:
        node = node.args[0]
    return node


def _only_user(node: Any) -> Any:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _last_reader(loss: _Loss) -> bool:
    """Whether nobody reads the logarithms after the gradient of the scores is made, and nobody outside gets that."""
    known = (aten.nll_loss_forward.default, *(node.target for node in loss.pulled[:2]))
    if any(user.target not in known for user in _readers(loss.logs)):
        return False
    return all(user.op != "output" for user in _readers(loss.pulled[-1]))


def _readers(node: Any) -> list[Any]:
    """Who reads a result, or a view of it."""
    found: list[Any] = []
    stack = list(node.users)
    while stack:
        user = stack.pop()
        if user.target in _LOOKS:
            stack += user.users
        else:
            found.append(user)
    return found


def _inputs_of_pull(loss: _Loss) -> list[fx.Node]:
    """The nodes among the arguments of the first operation, the logarithms being one of them."""
    found: list[fx.Node] = loss.pulled[0].all_input_nodes
    return found


def _pull(loss: _Loss, over: bool) -> Callable[..., Any]:
    """From the gradient of the loss to that of the scores."""
    first, second = loss.pulled[:2]
    inputs = first.all_input_nodes
    places = [inputs.index(each) if isinstance(each, fx.Node) else None for each in first.args]
    constants, part = list(first.args), loss.part
    value, numbers = loss.pulled[-1].meta["val"], second.args[3]
    shape, kind = tuple(value.shape), value.dtype

    def pull(*given: Any) -> Any:
        pulled, logs, classes, weight, reduction, ignored, total = (
            constant if place is None else given[place] for place, constant in zip(places, constants)
        )
        if over and torch._C._autograd._get_current_graph_task_keep_graph() and torch._C._current_graph_task_id() >= 0:
            # Another backward pass is to come, and will read them.
            logs = logs.clone()
        into = _front(logs, kind) if over else torch.empty(logs.shape, dtype=kind, device=logs.device)
        for start in range(0, logs.shape[0], part):
            rows = slice(start, start + part)
            of_rows = pulled[rows] if pulled.dim() else pulled
            found = aten.nll_loss_backward(of_rows, logs[rows], classes[rows], weight, reduction, ignored, total)
            found = aten._log_softmax_backward_data.out(found, logs[rows], 1, numbers, out=found)
            into[rows].copy_(found)
            # Freed before the next is made.
            del found
        return into.view(shape)

    return _named(pull, loss.pulled)


def _make(loss: _Loss) -> Callable[..., Any]:
    """From the operands of the matrix product to the logarithms."""
    product, part = loss.made[0], loss.part
    inputs = product.all_input_nodes
    places = [inputs.index(each) for each in product.args]
    options, run = dict(product.kwargs), _PRODUCTS[product.target]
    value, kind = loss.logs.meta["val"], product.meta["val"].dtype
    shape, wide = tuple(value.shape), value.dtype

    def make(*given: Any) -> Any:
        logs = torch.empty(shape, dtype=wide, device=given[0].device)
        scores = logs.view(kind).view(-1)[logs.numel() :].view(shape)
        run(*(given[place] for place in places), **options, out=scores)
        for start in range(0, shape[0], part):
            rows = slice(start, start + part)
            # A copy, since what is written reaches into scores that were read by then.
            aten._log_softmax.out(scores[rows].to(wide), 1, False, out=logs[rows])
        return logs

    return _named(make, (*loss.made, loss.logs))


def _front(logs: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """As many numbers of another kind at the beginning of a tensor's memory."""
    return logs.view(kind).view(-1)[: logs.numel()].view(logs.shape)


def _named(run: Any, nodes: tuple[Any, ...]) -> Any:
    run.__name__ = run.__qualname__ = f"{nodes[0].name}_to_{nodes[-1].name}"
    run.in_parts = True
    return run


def _replace(graph: fx.Graph, nodes: tuple[Any, ...], target: Any, inputs: list[fx.Node]) -> fx.Node:
    """One node in place of several, where the last of them is."""
    with graph.inserting_before(nodes[-1]):
        node = graph.call_function(target, tuple(inputs))
    node.meta = dict(nodes[-1].meta)
    nodes[-1].replace_all_uses_with(node)
    for each in reversed(nodes):
        graph.erase_node(each)
    return node


def _described(nodes: tuple[Any, ...], workspace: int, over: str | None = None) -> InParts:
    running = [node for node in nodes if node.target not in _VIEWS]
    return InParts(tuple(n.name for n in running), tuple(str(n.target) for n in running), workspace, over)
