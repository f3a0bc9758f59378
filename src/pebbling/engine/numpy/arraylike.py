"""What makes a traced value look like a NumPy array: functions, operators, methods and refusals."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .alias import assign, augment
from .construct import array
from .out import written_to
from .refuse import caller, refuse
from .rules.create import astype, item
from .table import find
from .traced import Traced, plain


def _method(func: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__array_function__(func, (), (self, *args), kwargs)

    return method


def _binary(func: Any) -> Callable[..., Any]:
    return lambda self, other: find(func).run((self, other), {})


def _reflected(func: Any) -> Callable[..., Any]:
    return lambda self, other: find(func).run((other, self), {})


def _in_place(func: Any) -> Callable[..., Any]:
    return lambda self, other: augment(self, func(self, other))


def _compare(func: Any) -> Callable[..., Any]:
    return lambda self, other: func(plain(self), plain(other))


OPERATORS = tuple(
    f"__{reflected}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
    for reflected in ("", "r")
)


_NO_RULE = (
    "Write it with functions that have one, or add one with pebbling.numpy.rule; stop_gradient(x) passes a value on "
    "without its derivative"
)


class Array(Traced):
    """A traced array, or a traced number."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            return written_to(ufunc, method, inputs, kwargs)
        if method == "__call__":
            return find(ufunc).run(inputs, kwargs)
        if method == "outer" and not kwargs:
            left, right = inputs
            return ufunc(np.reshape(left, np.shape(left) + (1,) * np.ndim(right)), right)
        return find(getattr(ufunc, method)).run(inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if "out" in kwargs:
            if kwargs["out"] is not None:
                return written_to(func, "__call__", args, kwargs)
            kwargs = {name: value for name, value in kwargs.items() if name != "out"}
        return find(func).run(args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: Any, part: Any) -> None:
        assign(self, index, part)

    __add__, __radd__, __iadd__ = _binary(operator.add), _reflected(operator.add), _in_place(operator.add)
    __sub__, __rsub__, __isub__ = _binary(operator.sub), _reflected(operator.sub), _in_place(operator.sub)
    __mul__, __rmul__, __imul__ = _binary(operator.mul), _reflected(operator.mul), _in_place(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflected(operator.truediv)
    __itruediv__ = _in_place(operator.truediv)
    __pow__, __rpow__, __ipow__ = _binary(operator.pow), _reflected(operator.pow), _in_place(operator.pow)
    __mod__, __rmod__, __imod__ = _binary(operator.mod), _reflected(operator.mod), _in_place(operator.mod)
    __rmatmul__ = _reflected(operator.matmul)
    __imatmul__ = _in_place(operator.matmul)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflected(operator.floordiv)
    __lt__, __le__ = _compare(operator.lt), _compare(operator.le)
    __gt__, __ge__ = _compare(operator.gt), _compare(operator.ge)
    __eq__, __ne__ = _compare(operator.eq), _compare(operator.ne)

    def __matmul__(self, other: Any) -> Any:
        if type(other).__module__.startswith("scipy.sparse"):
            return other._rmatmul_dispatch(self)
        return find(operator.matmul).run((self, other), {})

    def __ifloordiv__(self, other: Any) -> Any:  # type: ignore[misc]
        return augment(self, self.constant(self // other))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pos__(self) -> Any:
        return find(operator.pos).run((self,), {})

    def __abs__(self) -> Any:
        return find(operator.abs).run((self,), {})

    @property
    def shape(self) -> tuple[int, ...]:
        value = self.value
        return () if type(value) in (float, complex) else value.shape

    @property
    def dtype(self) -> Any:
        value = self.value
        return np.dtype(type(value)) if type(value) in (float, complex) else value.dtype

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.size(plain(self))))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    device = property(lambda self: "cpu")
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.matrix_transpose(self))
    real = property(lambda self: np.real(self))
    imag = property(lambda self: np.imag(self))

    sum, prod, mean = _method(np.sum), _method(np.prod), _method(np.mean)
    max, min, std, var = _method(np.max), _method(np.min), _method(np.std), _method(np.var)
    cumsum, cumprod, dot, trace = _method(np.cumsum), _method(np.cumprod), _method(np.dot), _method(np.trace)
    ravel, squeeze, swapaxes = _method(np.ravel), _method(np.squeeze), _method(np.swapaxes)
    diagonal, repeat, take = _method(np.diagonal), _method(np.repeat), _method(np.take)
    argmax, argmin, argsort = _method(np.argmax), _method(np.argmin), _method(np.argsort)
    any, all, nonzero, round = _method(np.any), _method(np.all), _method(np.nonzero), _method(np.round)

    def conj(self) -> Any:
        return np.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Any) -> Any:
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self, order: Any = "C") -> Any:
        return np.copy(np.ravel(self, order))

    def copy(self, order: Any = "C") -> Any:
        return np.copy(self, order) if isinstance(plain(self), np.ndarray) else self

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        return astype(self, dtype, **kwargs)

    def clip(self, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
        return np.clip(self, min, max, **kwargs)

    def item(self, *position: Any) -> Any:
        if not position:
            return item(self)
        where = position[0] if len(position) == 1 else position
        elements: Any = np.ravel(self) if isinstance(where, int | np.integer) else self
        return elements[where].item()

    def tolist(self) -> Any:
        return [row.tolist() for row in self] if self.ndim else self.item()

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self[...] = np.sort(self, axis, kind)

    @property
    def flat(self) -> Any:
        return Elements(self)

    @flat.setter
    def flat(self, values: Any) -> None:
        Elements(self)[:] = values

    def __len__(self) -> int:
        return len(plain(self))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return plain(item) in plain(self)

    def __bool__(self) -> bool:
        return bool(plain(self))

    def __int__(self) -> int:
        return int(plain(self))

    def __trunc__(self) -> int:
        return int(plain(self))

    def __floor__(self) -> int:
        return int(np.floor(plain(self)))

    def __ceil__(self) -> int:
        return int(np.ceil(plain(self)))

    def __round__(self, digits: int | None = None) -> Any:
        return round(plain(self), digits) if digits is None else np.round(plain(self), digits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def __str__(self) -> str:
        return str(plain(self))

    def __format__(self, spec: str) -> str:
        return format(plain(self), spec)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        if function := caller():
            raise refuse(f"{function} has no derivative rule", _NO_RULE)
        raise refuse(
            "a traced array would become a plain one here and lose its derivative",
            "To fill an array, make it with np.zeros(n) or np.copy(a) inside of the function; a.dot(x) of a plain a "
            "is a @ x; compiled code needs a rule (pebbling.numpy.rule); stop_gradient(x) cuts the derivative",
        )

    def __float__(self) -> float:
        if function := caller():
            raise refuse(f"{function} has no derivative rule", _NO_RULE)
        raise refuse(
            "float() of a traced number loses its derivative",
            "Use functions of np in place of math; to fill an array, make it with np.zeros(n) or np.copy(a) inside of "
            "the function; float(stop_gradient(x)) cuts the derivative on purpose",
        )

    def __complex__(self) -> complex:
        raise refuse(
            "complex() of a traced number loses its derivative", "Use x.astype(complex) and functions of np instead"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a traced array can't be pickled: it lives inside one run of a function")

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(np, name, None), np.ufunc):
            raise refuse(
                f"np.{name} was given a list with differentiated values, which NumPy looks into by itself",
                f"Make an array of it: np.{name}(np.array([…]))",
            )
        raise AttributeError(f"traced arrays have no .{name}; most functions of np work on them")


class Elements:
    """``x.flat``: the elements one after the other, for reading and writing."""

    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        self.base = base

    def _places(self, index: Any) -> Any:
        return np.unravel_index(np.arange(self.base.size)[index], self.base.shape)

    def __getitem__(self, index: Any) -> Any:
        return self.base[self._places(index)]

    def __setitem__(self, index: Any, values: Any) -> None:
        places = self._places(index)
        count = np.size(places[0]) if places else 1
        values = np.ravel(array(values, copy=None))
        size = np.size(plain(values))
        self.base[places] = np.take(values, np.arange(count) % size) if np.ndim(places[0]) else values[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.ravel(self.base))

    def __len__(self) -> int:
        return int(self.base.size)

    def copy(self) -> Any:
        """The elements as an array without shape."""
        return np.copy(np.ravel(self.base))
