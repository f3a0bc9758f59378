"""The joint forward and backward graph of a PyTorch model as a ``Graph``, and a plan back as FX nodes.

Takes what AOTAutograd hands to a partition function: a functional FX graph whose nodes carry fake
tensors in ``meta["val"]``. Storages are told apart by those tensors, so views, ``detach`` and
``getitem`` make none of their own: they cost nothing and are left out of the graph. ``unroll`` puts
them back, after each run of what they look into. torch is reached through the nodes alone and never
imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from ..errors import CaptureError
from .model import Graph, Node, Storage
from .plan import Compute, Free, GraphPlan

Price = Callable[[Any], float] | Mapping[str, float] | None

# Batch norms by the position of the flag that says training. The functional ones read the running
# statistics then only to give new ones, so that a replay after the update has the same results; the
# others write them, which their schemas don't say.
_NEW_STATISTICS = {
    "aten._native_batch_norm_legit_functional.default": 5,
    "aten._batch_norm_with_update_functional.default": None,
}
_WRITTEN_STATISTICS = {
    "aten.native_batch_norm.default": 5,
    "aten.cudnn_batch_norm.default": 5,
    "aten.miopen_batch_norm.default": 5,
}
_EFFECTS = ("with_effects", "triton_kernel_wrapper_mutation")
_COLLECTIVES = ("_c10d_functional", "c10d_functional", "c10d")


def from_fx(
    joint: Any,
    forward_outputs: int,
    *,
    time: Price = None,
    workspace: Price = None,
    tangents: Collection[str] | None = None,
    mutated: Collection[str] = (),
    once: Collection[str] = (),
    together: Iterable[Sequence[str]] = (),
    held_tangents: bool = True,
    rounding: int = 1,
    name: str = "",
) -> Graph:
    """The graph of a joint FX graph (or module), of whose outputs the first ``forward_outputs`` are the model's.

    ``time`` (seconds) and ``workspace`` (bytes) give each FX node's cost, as a function of the node or
    by name; without ``time`` every operation costs its bytes read and written at 10 GB/s. ``tangents``
    names the placeholders of the backward pass, by default those called ``tangents…``; with
    ``held_tangents`` they are the caller's. ``mutated`` names placeholders that are overwritten after
    the forward pass: what reads them is never replayed. ``once`` names further nodes that are not to
    be replayed, ``together`` groups that run as one. Sizes are rounded up to ``rounding`` bytes.
    """
    nodes = list(getattr(joint, "graph", joint).nodes)
    if tangents is None:
        tangents = {node.name for node in nodes if node.op == "placeholder" and node.name.startswith("tangents")}
    sharing = Sharing(nodes)
    results = _results(nodes)
    depends = _depending(nodes, set(tangents))
    wanted = _needed(
        [
            *results[:forward_outputs],
            # What draws numbers does so in the forward pass, whoever reads them: all that come later depend on it.
            *(node for node in nodes if (_effect(node) or _random(node)) and node.name not in depends),
        ]
    )
    price, extra = _price(time, _bytes_moved), _price(workspace, lambda node: 0)
    stale = {name for node in nodes if node.name in set(mutated) for name in sharing.of(node)}
    effects: list[str] = []
    inputs: list[Storage] = []
    made: dict[str, Node] = {}
    for fx in sorted(nodes, key=lambda each: each.op != "placeholder"):
        makes = tuple(
            Storage(own, _rounded(sharing.size[own], rounding), fx.op in ("placeholder", "get_attr"))
            for own in sharing.made_by(fx)
        )
        if fx.op == "get_attr" or (fx.op == "placeholder" and (held_tangents or fx.name not in tangents)):
            inputs += makes
            continue
        if fx.op == "output" or (not makes and not _effect(fx)):
            continue
        effect = _effect(fx)
        made[fx.name] = Node(
            fx.name,
            sharing.read_by(fx),
            tuple(Storage(s.name, s.bytes) for s in makes),
            float(price(fx)),
            int(extra(fx)),
            backward=fx.name in depends,
            replayable=not (effect or fx.op == "placeholder" or fx.name in once or _reads_stale(fx, sharing, stale)),
            random=_random(fx),
            after=tuple(effects[-1:]) if effect else (),
            op=_operator(fx),
            module=_module(fx),
            members=(fx.name,),
        )
        if effect:
            effects.append(fx.name)
    made = _grouped(made, [tuple(group) for group in together], set(sharing.outputs(results)))
    first = [node for node in made.values() if set(node.members) & wanted and not node.backward]
    early = {node.name for node in first}
    ordered = first + [node for node in made.values() if node.name not in early]
    return Graph(ordered, inputs, sharing.outputs(results), name)


class Sharing:
    """Which storages each FX node's value lies in, and which node makes each."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self.size: dict[str, int] = {}
        self._made: dict[str, tuple[str, ...]] = {}
        self._of: dict[str, tuple[str, ...]] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        names: dict[int, str] = {}
        for node in nodes:
            own: list[str] = []
            lies: list[str] = []
            tensors = _tensors(node.meta.get("val"))
            for tensor in tensors:
                content = tensor.untyped_storage()
                key = content._cdata
                if key not in names:
                    names[key] = node.name if len(tensors) == 1 else f"{node.name}.{len(own)}"
                    self.size[names[key]] = _known(content.nbytes())
                    own.append(names[key])
                lies.append(names[key])
            self._made[node.name] = tuple(own)
            self._of[node.name] = tuple(dict.fromkeys(lies))
            read = (name for argument in node.all_input_nodes for name in self._needs[argument.name])
            whole = own or node.op == "placeholder" or _picks(node)
            self._needs[node.name] = tuple(dict.fromkeys(lies if whole else (*lies, *read)))

    def of(self, node: Any) -> tuple[str, ...]:
        """The storages that a node's value lies in."""
        return self._of[node.name]

    def made_by(self, node: Any) -> tuple[str, ...]:
        """The storages that a node allocates."""
        return self._made[node.name]

    def read_by(self, node: Any) -> tuple[str, ...]:
        """The storages that a node's arguments lie in, and those that views among them are made from."""
        return tuple(dict.fromkeys(name for argument in node.all_input_nodes for name in self._needs[argument.name]))

    def outputs(self, results: Iterable[Any]) -> tuple[str, ...]:
        """The storages of the results, the caller's own left in."""
        return tuple(dict.fromkeys(name for result in results if result is not None for name in self._of[result.name]))


class RunNode(NamedTuple):
    """Run an FX node, or make a view of what is there."""

    node: Any
    replay: bool


class Drop(NamedTuple):
    """Forget the value of an FX node."""

    node: Any


def unroll(plan: GraphPlan, joint: Any) -> Iterator[RunNode | Drop | None]:
    """The FX nodes to run and the values to drop, in order; ``None`` once, between the two passes.

    Views are made where they are first used after each run of what they look into, and dropped with
    it. A result that is there already when its node runs again is left out: keep the old one. What
    only the members of a group use is dropped after each run of the group.
    """
    nodes = list(getattr(joint, "graph", joint).nodes)
    by_name = {node.name: node for node in nodes}
    sharing = Sharing(nodes)
    results = [node for node in _results(nodes) if node is not None]
    # Gradients of outputs that are the plan's own arrive where it says, and so do views of them.
    given = [node for node in nodes if node.op in ("placeholder", "get_attr") and node.name not in plan.graph.node]
    there: dict[str, None] = {node.name: None for node in given}
    alive = {name for node in given for name in sharing.of(node)}
    users = {node.name: [user for user in node.users if _picks(user)] for node in nodes}
    ran: set[str] = set()

    def views(node: Any) -> Iterator[RunNode]:
        if node.name in there:
            return
        for argument in node.all_input_nodes:
            yield from views(argument)
        if not set(sharing.of(node)) <= alive:
            raise CaptureError(f"node {node.name!r} is used where its storage is not there")
        there[node.name] = None
        yield RunNode(node, node.name in ran)
        ran.add(node.name)

    def forget(storage: str) -> Iterator[Drop]:
        alive.discard(storage)
        for name in [name for name in there if storage in sharing.of(by_name[name])]:
            del there[name]
            yield Drop(by_name[name])

    for position, step in enumerate(plan.steps):
        if position == plan.split:
            for node in results:
                if set(sharing.of(node)) <= alive:
                    yield from views(node)
            yield None
            # Tensors are handed over, and lists of views made again.
            for name in [name for name in there if isinstance(by_name[name].meta.get("val"), tuple | list)]:
                del there[name]
        if isinstance(step, Free):
            yield from forget(step.storage)
            continue
        if not isinstance(step, Compute):
            raise CaptureError(f"{step!r} can't be expressed as FX nodes: plan without offloading")
        together = plan.graph.node[step.node]
        shown = {storage.name for storage in together.makes}
        for name in together.members:
            node = by_name[name]
            if node.op == "placeholder":
                alive.update(sharing.of(node))
                there[name] = None
                continue
            # Another member's result was dropped, and not this one's: a second copy would break the budget.
            if sharing.made_by(node) and alive.issuperset(sharing.made_by(node)):
                continue
            for argument in node.all_input_nodes:
                yield from views(argument)
            kept = set(sharing.made_by(node)) & alive
            alive.update(sharing.made_by(node))
            yield RunNode(node, name in ran)
            ran.add(name)
            if users[name]:
                for user in users[name]:
                    if user.name not in there and not set(sharing.of(user)) & kept:
                        there[user.name] = None
                        yield RunNode(user, user.name in ran)
                        ran.add(user.name)
                yield Drop(node)
            else:
                there[name] = None
        for name in together.members if len(together.members) > 1 else ():
            for hidden in sharing.made_by(by_name[name]):
                if hidden not in shown:
                    yield from forget(hidden)
    for node in results:
        yield from views(node)
    if plan.split == len(plan.steps):
        yield None


def _picks(node: Any) -> bool:
    """Whether a node takes one result of several."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _results(nodes: Sequence[Any]) -> list[Any]:
    """The nodes that the output lists, ``None`` where there is no tensor."""
    found: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, tuple | list):
            for each in value:
                walk(each)
        else:
            found.append(value if hasattr(value, "all_input_nodes") else None)

    output = next((node for node in nodes if node.op == "output"), None)
    if output is None:
        raise CaptureError("the FX graph has no output node")
    walk(output.args[0])
    return found


def _depending(nodes: Sequence[Any], tangents: set[str]) -> set[str]:
    """Names of the nodes that need a tangent, the tangents included."""
    found = set(tangents)
    for node in nodes:
        if any(argument.name in found for argument in node.all_input_nodes):
            found.add(node.name)
    return found


def _needed(results: Iterable[Any]) -> set[str]:
    """Names of the nodes that the results are made from."""
    found: set[str] = set()
    stack = [node for node in results if node is not None]
    while stack:
        node = stack.pop()
        if node.name not in found:
            found.add(node.name)
            stack += node.all_input_nodes
    return found


def _grouped(made: dict[str, Node], groups: list[tuple[str, ...]], outputs: set[str]) -> dict[str, Node]:
    """Members of a group as one node, in the place of the last; what only they use becomes workspace."""
    group_of = {name: group for group in groups for name in group}
    unknown = [name for name in group_of if name not in made]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is to run together with others, and is no operation of the graph")
    result: dict[str, Node] = {}
    for name, node in made.items():
        group = group_of.get(name)
        if group is None:
            result[name] = node
        elif name == max(group, key=list(made).index):
            members = [made[each] for each in sorted(group, key=list(made).index)]
            inside = {storage.name for member in members for storage in member.makes}
            elsewhere = outputs | {read for other in made.values() if other.name not in group for read in other.reads}
            hidden = sum(s.bytes for member in members for s in member.makes if s.name not in elsewhere)
            result[name] = Node(
                name,
                tuple(dict.fromkeys(r for member in members for r in member.reads if r not in inside)),
                tuple(s for member in members for s in member.makes if s.name in elsewhere),
                sum(member.time for member in members),
                hidden + max(member.workspace for member in members),
                any(member.backward for member in members),
                all(member.replayable for member in members),
                any(member.random for member in members),
                tuple(a for member in members for a in member.after if a not in group),
                " + ".join(member.op for member in members),
                members[-1].module,
                tuple(m for member in members for m in member.members),
            )
    return result


def _reads_stale(node: Any, sharing: Sharing, stale: set[str]) -> bool:
    """Whether a replay would see an overwritten input."""
    if not stale & set(sharing.read_by(node)):
        return False
    if str(node.target) not in _NEW_STATISTICS:
        return True
    flag = _NEW_STATISTICS[str(node.target)]
    return flag is not None and node.args[flag] is not True


def _effect(node: Any) -> bool:
    """Whether a node does something besides making its results."""
    if node.op not in ("call_function", "call_method", "call_module"):
        return False
    target = node.target
    if getattr(target, "namespace", "") in _COLLECTIVES or getattr(target, "__name__", "") in _EFFECTS:
        return True
    flag = _WRITTEN_STATISTICS.get(str(target))
    if flag is not None and node.args[flag] is not False:
        return True
    schema = getattr(target, "_schema", None)
    return bool(getattr(schema, "is_mutable", False)) or (schema is not None and not schema.returns)


def _random(node: Any) -> bool:
    return any(getattr(tag, "name", "") == "nondeterministic_seeded" for tag in getattr(node.target, "tags", ()))


def _operator(node: Any) -> str:
    if isinstance(node.target, FunctionType):
        return node.target.__name__
    return str(node.target) if node.op == "call_function" else node.op


def _module(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    return str(list(stack.values())[-1][0]) if stack else ""


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if hasattr(value, "untyped_storage") else []


def _bytes_moved(node: Any) -> float:
    values = [node.meta.get("val"), *(argument.meta.get("val") for argument in node.all_input_nodes)]
    return sum(_known(t.numel()) * t.element_size() for value in values for t in _tensors(value)) / 10e9


def _price(price: Price, default: Callable[[Any], float]) -> Callable[[Any], float]:
    if price is None:
        return default
    if callable(price):
        return price
    known = price
    return lambda node: known.get(node.name, 0)


def _known(size: Any) -> int:
    """A size as a number: that of the example where it is symbolic."""
    return int(size) if isinstance(size, int) else int(size.node.hint)


def _rounded(size: int, rounding: int) -> int:
    return -(-size // rounding) * rounding
