"""A plan as two JAX functions: the way there, with what it keeps, and the way back.

The way back runs in parts, one after another (``gates``): replays, and what reads them. A new part begins where
the plan goes from the way back to replays again, unless what was replayed so far in the part is little. On CPUs,
where a part is a branch, what it reads stays until its end: so it ends, too, when it holds what nobody needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...graph import Compute, Free, Step
from .. import compat
from . import convolutions, gates
from .operations import Grouping, Operation


@dataclass
class Part:
    """Operations of the way back that run together; what they read that was there before, what is read later."""

    operations: list[Operation] = field(default_factory=list)
    reads: dict[str, tuple[str, int]] = field(default_factory=dict)
    made: dict[str, tuple[str, int]] = field(default_factory=dict)
    replayed: int = 0
    turned: bool = False
    """Whether it has got to the way back."""
    over: int = 0
    """Bytes that it reads and that are free from some point on; in a branch they stay to its end."""


class Emitted:
    """The two functions of a plan, for the equations that it was made for."""

    def __init__(self, grouping: Grouping, steps: Sequence[Step], little: float, platform: str) -> None:
        self._grouping, self._platform = grouping, platform
        self._named = {each.name: each for each in grouping.operations}
        self._equations = grouping.joint.equations
        node = grouping.graph.node
        split = next((k for k, s in enumerate(steps) if isinstance(s, Compute) and node[s.node].backward), len(steps))
        self._first, self._second = steps[:split], steps[split:]
        self.kept = self._alive()
        self.parts = list(self._divided(little))
        wanted = {grouping.names[v] for v in grouping.joint.gradients if compat.is_variable(v)}
        last = {name: instance for part in self.parts for name, instance in part.made.items()}
        self._wanted = {name: last.get(name, (name, 0)) for name in wanted}
        read = {i for part in self.parts for i in part.reads.values()} | set(self._wanted.values())
        self._needed = [{n: i for n, i in part.made.items() if i in read} for part in self.parts]

    def forward(self, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The results of the function, and what is kept for the way back."""
        env = self._constants() | dict(zip(self._grouping.joint.arguments, args))
        results: dict[Any, Any] = {}
        wanted = set(filter(compat.is_variable, self._grouping.joint.results))
        for step in self._first:
            if isinstance(step, Compute):
                made = self._run(self._named[step.node], env)
                env |= made
                results |= {v: x for v, x in made.items() if v in wanted and v not in results}
        results = env | results
        outs = [results[v] if compat.is_variable(v) else v.val for v in self._grouping.joint.results]
        names = self._grouping.names
        kept = {names[v]: x for v, x in env.items() if names.get(v) in self.kept}
        return outs, kept

    def backward(self, args: Sequence[Any], kept: Mapping[str, Any], seeds: Sequence[Any], before: Any) -> list[Any]:
        """The gradients; nothing is replayed before the value ``before`` was made."""
        joint, names = self._grouping.joint, self._grouping.names
        held = dict(zip(joint.arguments, args)) | dict(zip(joint.cotangents, seeds))
        constants = self._constants()
        values: dict[tuple[str, int], Any] = {(names[v], 0): x for v, x in held.items()}
        values |= {(name, 0): x for name, x in kept.items()}
        variable = {name: v for v, name in names.items()}
        for number, (part, made) in enumerate(zip(self.parts, self._needed)):
            reads = [name for name in part.reads if variable[name] not in constants]

            plain = number == 0 and not part.replayed
            inside = not plain and self._platform == "cpu"

            def run(
                *given: Any, part: Part = part, made: Mapping[str, Any] = made, reads: list[str] = reads,
                inside: bool = inside,
            ) -> Any:  # fmt: skip
                env = constants | {variable[name]: x for name, x in zip(reads, given)}
                for operation in part.operations:
                    env |= self._run(operation, env, inside)
                return [env[variable[name]] for name in made]

            given = [values[part.reads[name]] for name in reads]
            found = run(*given) if plain else gates.after(run, given, before, self._platform)
            values |= dict(zip(made.values(), found))
            before = next((x for x in reversed(found) if gates.has_bits(compat.aval_of(x))), before)
        read = {names[v]: values.get(self._wanted[names[v]]) for v in joint.gradients if compat.is_variable(v)}
        return [
            (constants[v] if v in constants else read[names[v]]) if compat.is_variable(v) else v.val
            for v in joint.gradients
        ]

    def _constants(self) -> dict[Any, Any]:
        return dict(self._grouping.joint.constants)

    def _run(self, operation: Operation, env: Mapping[Any, Any], in_branch: bool = False) -> dict[Any, Any]:
        """The results of an operation; what it makes on the way is not for others."""
        bind = convolutions.run if in_branch else compat.bind_equation
        inside: dict[Any, Any] = {}
        for k in operation.equations:
            eqn = self._equations[k]
            values = [(inside[v] if v in inside else env[v]) if compat.is_variable(v) else v.val for v in eqn.invars]
            inside |= dict(zip(eqn.outvars, bind(eqn, values)))
        return {v: inside[v] for v in self._equations[operation.root].outvars}

    def _alive(self) -> set[str]:
        """What is there between the two ways, the caller's left out."""
        node, alive = self._grouping.graph.node, set[str]()
        for step in self._first:
            if isinstance(step, Compute):
                alive |= {storage.name for storage in node[step.node].makes}
            elif isinstance(step, Free):
                alive.discard(step.storage)
        second = {name for step in self._second if isinstance(step, Compute) for name in node[step.node].reads}
        gradients = {self._grouping.names[v] for v in self._grouping.joint.gradients if compat.is_variable(v)}
        return alive & (second | gradients)

    def _divided(self, little: float) -> Iterator[Part]:
        """The steps of the way back, in parts; each value has a number that grows with every run that makes it."""
        graph, branches = self._grouping.graph, self._platform == "cpu"
        runs: dict[str, int] = {}
        part = Part()
        for step in self._second:
            if isinstance(step, Free):
                part.over += graph.storage[step.storage].bytes if step.storage in part.reads else 0
                continue
            if not isinstance(step, Compute):
                continue
            node = graph.node[step.node]
            size = 0 if node.backward else node.bytes
            again = part.turned and not node.backward and part.replayed + size > little
            if again or (branches and part.over > 2 * little and node.bytes > little):
                yield part
                part = Part()
            for name in node.reads:
                if name not in part.made:
                    part.reads[name] = (name, runs.get(name, 0))
            part.operations.append(self._named[step.node])
            part.replayed += size
            part.turned = part.turned or node.backward
            for storage in node.makes:
                runs[storage.name] = runs.get(storage.name, 0) + 1
                part.made[storage.name] = (storage.name, runs[storage.name])
        if part.operations:
            yield part
