"""Derivatives of functions of trees: gradients, products with the Jacobian from both sides, and with the Hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...tree.reach import may_catch
from ..tree import Tree, flatten, paths
from .alias import Alias
from .hold import hold
from .standins import Tracing
from .step import differentiable, run_dual, run_taped
from .tape import StepTape, is_own, meta
from .traced import plain

Argnums = int | Sequence[int]


def vjp(f: Callable[..., Tree], *args: Tree) -> tuple[Tree, Callable[[Tree], tuple[Tree, ...]]]:
    """``f(*args)``, and the function that takes a cotangent of it to those of the arguments, once.

    >>> y, pullback = vjp(lambda x: x * x, np.array([1.0, 2.0]))
    >>> pullback(np.array([1.0, 10.0]))
    (array([ 2., 40.]),)
    """
    leaves, rebuild = _arguments(args)
    with Tracing(f):
        outputs, back, rebuild_output = _run(f, leaves, rebuild, {}, may_catch(f))
    metas = [meta(leaf) for leaf in leaves]
    shapes = [meta(output) for output in outputs]

    def pullback(cotangent: Tree) -> tuple[Tree, ...]:
        given = _matching(cotangent, shapes, "cotangent", "output")
        grads: list[Any] = [None] * len(metas)
        back(given, grads)
        return tuple(rebuild(iter(_owned(grads, metas))))

    return rebuild_output(iter(outputs)), pullback


def jvp(f: Callable[..., Tree], args: Sequence[Tree], tangents: Sequence[Tree]) -> tuple[Tree, Tree]:
    """``f(*args)``, and its derivative along ``tangents``.

    >>> jvp(np.sin, (0.0,), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    leaves, rebuild = _arguments(tuple(args))
    given = _matching(tuple(tangents), [meta(leaf) for leaf in leaves], "tangent", "argument")
    shape: list[Any] = []

    def step(traced: list[Any]) -> list[Any]:
        outputs, back = flatten(f(*rebuild(iter(_separate(traced)))))
        shape.append(back)
        return outputs

    with Tracing(f):
        outputs, pushed = run_dual(step, leaves, given, may_catch(f))
    filled = [_zeros(*meta(out)) if t is None else t for out, t in zip(outputs, pushed)]
    return shape[0](iter(outputs)), shape[0](iter(filled))


def value_and_grad(f: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., tuple[Any, Tree]]:
    """A function that gives ``f`` and its gradient with respect to the arguments ``argnums``.

    >>> value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def with_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Tree]:
        places = [_place(i, len(args)) for i in chosen]
        leaves, rebuild = _arguments(tuple(args[i] for i in places), places)

        def of_chosen(*new: Any, **kwargs: Any) -> Any:
            given = list(args)
            for i, arg in zip(places, new):
                given[i] = arg
            return f(*given, **kwargs)

        with Tracing(f):  # on the way back as well, where loops run their steps again
            return pulled(_run(of_chosen, leaves, rebuild, kwargs, may_catch(of_chosen)), leaves, rebuild)

    def pulled(ran: Any, leaves: list[Any], rebuild: Any) -> tuple[Any, Tree]:
        outputs, back, rebuild_output = ran
        value = rebuild_output(iter(outputs))
        if len(outputs) != 1 or np.size(plain(value)) != 1 or meta(value)[1].kind != "f":
            found = f"{meta(value)[1]} of shape {meta(value)[0]}" if len(outputs) == 1 else f"{len(outputs)} values"
            raise TypeError(
                f"the gradient is that of one real number, but the function returned {found}; use pebbling.numpy.vjp"
            )
        grads: list[Any] = [None] * len(leaves)
        shape, dtype = meta(value)
        back([np.ones(shape, dtype) if shape else dtype.type(1)], grads)
        result = rebuild(iter(_owned(grads, [meta(leaf) for leaf in leaves])))
        return value, result[0] if isinstance(argnums, int) else result

    return with_gradient


def grad(f: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Tree]:
    """A function that gives the gradient of ``f`` with respect to the arguments ``argnums``.

    >>> grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    with_gradient = value_and_grad(f, argnums)
    return lambda *args, **kwargs: with_gradient(*args, **kwargs)[1]


def hvp(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Tree]:
    """A function of the arguments of ``f`` and a direction: the Hessian times the direction, forward over reverse.

    >>> hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    gradient = grad(f, argnums)

    def product(*args: Any, **kwargs: Any) -> Tree:
        if len(args) < 2:
            raise TypeError(
                f"hvp(f) takes the arguments of f and then a direction, as in hvp(f)(x, v); it was given {len(args)}"
            )
        *args_of_f, direction = args
        place = _place(argnums, len(args_of_f))

        def of_one(x: Any) -> Tree:
            return gradient(*args_of_f[:place], x, *args_of_f[place + 1 :], **kwargs)

        return jvp(of_one, (args_of_f[place],), (direction,))[1]

    return product


def stop_gradient(x: Any) -> Any:
    """The plain value of ``x``, through which no derivative flows; an array comes read-only.

    >>> float(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    value = plain(x)
    if value is not x and isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _run(f: Callable[..., Tree], leaves: list[Any], rebuild: Any, kwargs: dict[str, Any], watch: bool) -> Any:
    tape, shape = StepTape(), []
    for leaf in leaves:
        hold(tape.held, plain(leaf))

    def step(traced: list[Any]) -> list[Any]:
        outputs, back = flatten(f(*rebuild(iter(_separate(traced))), **kwargs))
        shape.append(back)
        return outputs

    return *run_taped(tape, step, leaves, None, watch), shape[0]


def _place(argnum: int, count: int) -> int:
    if not -count <= argnum < count:
        raise ValueError(f"argnums={argnum} names an argument that was not given: there were {count} arguments")
    return range(count)[argnum]


FRONT_ENDS = {
    "torch": "torch tensors are differentiated by torch: call .backward(), or torch.func.grad(f); loops of "
    "pebbling.torch.loop and @pb.checkpoint work there",
    "jax": "JAX arrays are differentiated by JAX: jax.grad(f); loops of pebbling.jax and @pb.checkpoint work there",
    "jaxlib": "JAX arrays are differentiated by JAX: jax.grad(f); loops of pebbling.jax and @pb.checkpoint work there",
    "autograd": "boxes of autograd are differentiated by autograd.grad(f); pb.loop and @pb.checkpoint work there",
}
"""Where arrays of other packages are differentiated."""


def _arguments(args: tuple[Tree, ...], places: Sequence[int] | None = None) -> tuple[list[Any], Any]:
    leaves, rebuild = flatten(args)
    if all(differentiable(leaf) for leaf in leaves):
        return leaves, rebuild
    names = [path for i, arg in enumerate(args) for path in paths(arg, f"argument {places[i] if places else i}")]
    name, leaf = next((name, leaf) for name, leaf in zip(names, leaves) if not differentiable(leaf))
    if (way := FRONT_ENDS.get(type(leaf).__module__.partition(".")[0])) is not None:
        raise TypeError(f"{name} is {type(leaf).__name__}, and pb.grad is for NumPy: {way}")
    found = meta(leaf)[1] if isinstance(plain(leaf), np.ndarray | np.generic) else type(leaf).__name__
    raise TypeError(
        f"{name} is {found}, and only floating-point and complex arrays have derivatives; "
        "convert it (x.astype(float)), or leave it out of argnums"
    )


def _separate(traced: list[Any]) -> list[Any]:
    """Mark arguments that share memory: assigning to one would have to change the derivative of the other."""
    arrays = [x for x in traced if isinstance(plain(x), np.ndarray)]
    for i, x in enumerate(arrays):
        for y in arrays[:i]:
            if np.may_share_memory(plain(x), plain(y)):
                x.alias, y.alias = x.alias or Alias(), y.alias or Alias()
                x.alias.refusal = y.alias.refusal = "two differentiated arguments share memory, and one is assigned to"
    return traced


def _matching(tree: Tree, metas: Sequence[Any], what: str, like: str) -> list[Any]:
    leaves, _ = flatten(tree)
    if len(leaves) != len(metas):
        raise ValueError(f"{len(leaves)} {what}s were given for {len(metas)} {like}s")
    for i, (leaf, (shape, dtype)) in enumerate(zip(leaves, metas)):
        if np.shape(plain(leaf)) != shape:
            raise ValueError(f"{what} {i} has shape {np.shape(plain(leaf))}, but the {like} has shape {shape}")
        if meta(leaf)[1] != dtype or not hasattr(leaf, "dtype"):
            leaves[i] = leaf.astype(dtype) if hasattr(leaf, "astype") else dtype.type(leaf)
    return leaves


def _owned(grads: list[Any], metas: Sequence[Any]) -> list[Any]:
    """Gradients that share no memory with each other or with anything else."""
    for i, (shape, dtype) in enumerate(metas):
        if grads[i] is None:
            grads[i] = _zeros(shape, dtype)
        elif isinstance(grads[i], np.ndarray) and not is_own(grads, i):
            grads[i] = np.array(grads[i])
    return grads


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return np.zeros(shape, dtype) if shape else dtype.type(0)
