"""Batch norms in training as eager mode runs them.

AOTAutograd traces every batch norm into the native one, since cuDNN's changes the running statistics without
saying so: where eager mode would have used cuDNN, so does the captured graph. What was traced also makes new
statistics and a new count of batches beside the old ones, which are copied over those after the forward
pass: five small kernels a norm that eager mode does not run. Where nobody else reads the old ones, they are
updated where they are, the counts of all norms at once; elsewhere the new ones remain among the results. A
replay takes no statistics and gives none.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .partition import new_values, output_of, picks

aten = torch.ops.aten
NEW_STATISTICS = (3, 4)
"""Their places among the results of a batch norm."""
_TRACED = aten._native_batch_norm_legit_functional.default
_WITHOUT_STATISTICS = aten._native_batch_norm_legit.no_stats
_BACKWARD = aten.native_batch_norm_backward.default


def native_batch_norm(
    data: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float, copies: bool
) -> tuple[Any, ...]:
    """torch's own batch norm in training; the new statistics are among the results if they are to be copies."""
    if copies:
        mean, var = mean.clone(), var.clone()
    found = aten._native_batch_norm_legit(data, weight, bias, mean, var, True, momentum, eps)
    return *found, *((mean, var) if copies else (None, None))


def native_batch_norm_again(
    data: Any, weight: Any, bias: Any, mean: None, var: None, momentum: float, eps: float, copies: bool
) -> tuple[Any, ...]:
    """The same without statistics."""
    return *aten._native_batch_norm_legit.no_stats(data, weight, bias, True, momentum, eps), None, None


def cudnn_batch_norm(
    data: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float, copies: bool
) -> tuple[Any, ...]:
    """cuDNN's batch norm in training, as the native one, and what its derivative reads."""
    if copies:
        mean, var = mean.clone(), var.clone()
    *found, reserve = aten.cudnn_batch_norm(data, weight, bias, mean, var, True, momentum, eps)
    return *found, *((mean, var) if copies else (None, None)), reserve


def cudnn_batch_norm_again(
    data: Any, weight: Any, bias: Any, mean: None, var: None, momentum: float, eps: float, copies: bool
) -> tuple[Any, ...]:
    """The same without statistics."""
    *found, reserve = aten.cudnn_batch_norm(data, weight, bias, None, None, True, momentum, eps)
    return *found, None, None, reserve


def cudnn_batch_norm_backward(
    gradient: Any, data: Any, weight: Any, mean: Any, deviation: Any, eps: float, reserve: Any, wanted: Any
) -> tuple[Any, ...]:
    """Gradients of the data, the weight and the bias, those that are wanted: cuDNN computes all."""
    found = aten.cudnn_batch_norm_backward(data, gradient, weight, None, None, mean, deviation, eps, reserve)
    return tuple(each if wish else None for each, wish in zip(found, wanted))


native_batch_norm.again, native_batch_norm.stale = native_batch_norm_again, NEW_STATISTICS  # type: ignore[attr-defined]
cudnn_batch_norm.again, cudnn_batch_norm.stale = cudnn_batch_norm_again, NEW_STATISTICS  # type: ignore[attr-defined]
NORMS = (native_batch_norm, cudnn_batch_norm, cudnn_batch_norm_backward)


def as_batch_norms(graph: fx.Graph, forward_outputs: int) -> None:
    """Put them in place of what was traced."""
    updates = _Updates(graph, forward_outputs)
    for node in list(graph.nodes):
        arguments = _arguments(node)
        if arguments is None:
            continue
        pulls = _backward_of(node)
        for pull in pulls:
            # In training the derivative does not look at them.
            pull.args = (*pull.args[:3], None, None, *pull.args[5:])
        cudnn = _cudnn(*arguments)
        if node.target is _TRACED:
            kind = cudnn_batch_norm if cudnn else native_batch_norm
            norm = _replaced(graph, node, kind, (*arguments, not updates.in_place(node)))
        elif cudnn:
            norm = _replaced(graph, node, cudnn_batch_norm, (*arguments, False))
        if cudnn:
            _hand_reserve(graph, norm, pulls)
    updates.count()


class _Updates:
    """The arguments of a graph that get new values, and which of them can be given theirs where they are."""

    def __init__(self, graph: fx.Graph, forward_outputs: int) -> None:
        self.graph = graph
        self.output = output_of(graph)
        self.forward_outputs = forward_outputs
        self.argument = dict(new_values(graph))

    def in_place(self, norm: fx.Node) -> bool:
        """Let a norm update its statistics where they are, if nobody would notice."""
        picked = {pick.args[1]: pick for pick in norm.users}
        new: list[Any] = [picked.get(place) for place in NEW_STATISTICS]
        old: list[Any] = [norm.args[place] for place in NEW_STATISTICS]
        if not all(self._updates(a, b, norm) for a, b in zip(new, old)) or not self._runs_without(norm, new):
            return False
        for result, argument in zip(new, old):
            self._give(result, argument)
        return True

    def count(self) -> None:
        """Let counts of batches be raised where they are, all at once."""
        found: dict[str, list[fx.Node]] = {}
        for result, argument in list(self.argument.items()):
            if result.target is aten.add.Tensor and result.args == (argument, 1) and not result.kwargs:
                value = argument.meta["val"]
                if not value.dtype.is_floating_point and self._updates(result, argument, result):
                    found.setdefault(str(value.device), []).append(result)
        for results in found.values():
            first = min(results)
            with self.graph.inserting_before(first):
                counts = [result.args[0] for result in results]
                node = self.graph.call_function(aten._foreach_add_.Scalar, (counts, 1))
            node.meta = {**first.meta, "val": None}
            for result in results:
                self._give(result, result.args[0])

    def _updates(self, result: Any, argument: Any, by: Any) -> bool:
        """Whether a result is the new value of an argument and nothing else, and nobody else reads the old one."""
        if result not in self.argument or self.argument[result] is not argument:
            return False
        once = sum(each is result for each in self.output.args[0]) == 1
        return once and list(result.users) == [self.output] and list(argument.users) == [by]

    def _runs_without(self, norm: fx.Node, new: list[Any]) -> bool:
        """Whether a norm runs in the forward pass even if nobody asks for its statistics."""
        stack = [each for each in self.output.args[0][: self.forward_outputs] if each not in new]
        seen = set()
        while stack:
            node = stack.pop()
            if node is norm:
                return True
            if isinstance(node, fx.Node) and node not in seen:
                seen.add(node)
                stack += [each for each in node.all_input_nodes if each >= norm]
        return False

    def _give(self, result: Any, argument: Any) -> None:
        """Hand the argument itself back as its new value."""
        del self.argument[result]
        result.replace_all_uses_with(argument)
        self.graph.erase_node(result)


def _arguments(node: Any) -> tuple[Any, ...] | None:
    """Data, weight, bias, statistics, momentum and eps of a traced batch norm in training."""
    if node.target is _TRACED and node.args[5] is True:
        return (*node.args[:5], *node.args[6:])
    if node.target is _WITHOUT_STATISTICS and node.args[3] is True:
        return (*node.args[:3], None, None, *node.args[4:])
    return None


def _backward_of(node: fx.Node) -> list[Any]:
    means = [user for user in node.users if picks(user) and user.args[1] == 1]
    return [user for mean in means for user in mean.users if user.target is _BACKWARD and user.args[5] is mean]


def _replaced(graph: fx.Graph, node: Any, kind: Any, arguments: tuple[Any, ...]) -> fx.Node:
    """The norm that was traced as one of ours."""
    with graph.inserting_before(node):
        norm = graph.call_function(kind, arguments)
    norm.meta = dict(node.meta)
    copies = arguments[-1]
    norm.meta["val"] = (*node.meta["val"][:3], *(node.meta["val"][3:] if copies else (None, None)))
    node.replace_all_uses_with(norm)
    graph.erase_node(node)
    return norm


def _cudnn(data: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> bool:
    """Whether eager mode would run cuDNN's norm."""
    if data.meta["val"].device.type != "cuda" or weight is None or bias is None:
        return False
    # Statistics are all there or all missing, which makes no difference in training.
    given = (data, weight, bias, mean or weight, var or weight)
    chosen = torch._C._select_batch_norm_backend(*(each.meta["val"] for each in given), True, eps)
    return bool(chosen == torch._C._BatchNormBackend.Cudnn)  # type: ignore[attr-defined]


def _reserve(data: torch.Tensor) -> int:
    return int(torch._C._get_cudnn_batch_norm_reserve_space_size(data, True))  # type: ignore[attr-defined]


def _hand_reserve(graph: fx.Graph, norm: Any, pulls: list[fx.Node]) -> None:
    """Let cuDNN's derivative read what the norm reserved for it."""
    value, eps = norm.args[0].meta["val"], norm.args[6]
    with value.fake_mode:
        space = torch.empty(_reserve(value), dtype=torch.uint8, device=value.device)
    norm.meta["val"] = (*norm.meta["val"], space)
    with graph.inserting_after(norm):
        reserve = graph.call_function(operator.getitem, (norm, 5))
    reserve.meta["val"] = space
    for pull in pulls:
        gradient, values, scale, _, _, mean, deviation, _, _, wanted = pull.args
        with graph.inserting_before(pull):
            args = (gradient, values, scale, mean, deviation, eps, reserve, wanted)
            back = graph.call_function(cudnn_batch_norm_backward, args)
        back.meta = dict(pull.meta)
        pull.replace_all_uses_with(back)
        graph.erase_node(pull)
