"""Values as bytes and back, without pickle: what is read can be wrong, and can never run.

One letter says what follows; sizes are counted in sevens of bits, numbers are little-endian. A reader believes
nothing: every size is held against the bytes that are left, nesting ends at a depth, a class is only looked up
(``classes.py``), and objects are made from a fixed list of kinds (``objects.py``). What it makes takes at most a
small multiple of the bytes that it reads. An object that occurs twice is written once.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from . import dtypes
from .arrays import dense, inverse
from .classes import class_named, known_class, known_name, name_of
from .data import NotData, Unreadable

DEEPEST = 400
_DOUBLE, _COMPLEX = struct.Struct("<d"), struct.Struct("<dd")


class Writer:
    """Turns values into bytes, one after the other."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []

    def size(self, number: int) -> None:
        """A number that is not negative."""
        while number > 0x7F:
            self.content.append(number & 0x7F | 0x80)
            number >>= 7
        self.content.append(number)

    def blob(self, content: bytes | bytearray | memoryview) -> None:
        """Bytes, after their number."""
        self.size(len(content))
        self.content += content

    def text(self, text: str) -> None:
        """Text, any text."""
        self.blob(text.encode("utf-8", "surrogatepass"))

    def value(self, value: Any, depth: int = 0) -> None:
        """One value, after the letter of its kind."""
        if depth > DEEPEST:
            raise NotData(f"something nested more than {DEEPEST} deep, or that holds itself")
        write = _WRITERS.get(type(value))
        if write is not None:
            write(self, value, depth)
        elif isinstance(value, enum.Enum):
            self._enum(value)
        elif isinstance(value, np.generic):
            self._scalar(value)
        elif isinstance(value, np.dtype):
            self.content += b"d"
            self.value(dtypes.described(value), depth + 1)
        elif (name := known_name(value)) is not None:
            self.content += b"C"
            self.text(name)
        else:
            self._object(value, depth)

    def _object(self, value: Any, depth: int) -> None:
        from .objects import as_data

        if id(value) in self._seen:
            self.content += b"&"
            self.size(self._seen[id(value)])
            return
        kind, data = as_data(value)
        self.content += b"o"
        self.text(kind)
        self.value(data, depth + 1)
        self._seen[id(value)] = len(self._alive)
        self._alive.append(value)

    def _enum(self, value: enum.Enum) -> None:
        name = name_of(type(value))
        if name is None or type(value)._member_map_.get(str(value._name_)) is not value:
            raise NotData(f"the enum member {value!r}")
        self.content += b"E"
        self.text(name)
        self.text(str(value._name_))

    def _scalar(self, value: np.generic) -> None:
        self.content += b"n"
        array = np.asarray(value)
        if array.dtype.hasobject or array.ndim:
            raise NotData(f"a NumPy scalar of {array.dtype}")
        self.value(dtypes.described(array.dtype))
        self.blob(array.tobytes())


def _integer(writer: Writer, value: int, depth: int) -> None:
    writer.content += b"i"
    writer.blob(value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _items(letter: bytes) -> Callable[[Writer, Any, int], None]:
    def write(writer: Writer, value: Any, depth: int) -> None:
        writer.content += letter
        writer.size(len(value))
        for item in value:
            writer.value(item, depth + 1)

    return write


def _mapping(writer: Writer, value: dict[Any, Any], depth: int) -> None:
    writer.content += b"{"
    writer.size(len(value))
    for key, item in value.items():
        writer.value(key, depth + 1)
        writer.value(item, depth + 1)


def _array(writer: Writer, value: np.ndarray, depth: int) -> None:
    """An array that is part of something else, and small; those of the state have files of their own."""
    if value.dtype.hasobject:
        raise NotData("an array of Python objects")
    array, order = dense(value)
    writer.content += b"a"
    writer.value((dtypes.described(array.dtype), array.shape, order), depth + 1)
    writer.blob(array.tobytes())


def _text(writer: Writer, value: str, depth: int) -> None:
    writer.content += b"s"
    writer.text(value)


def _blob(writer: Writer, value: bytes, depth: int) -> None:
    writer.content += b"b"
    writer.blob(value)


def _constant(letter: bytes) -> Callable[[Writer, Any, int], None]:
    def write(writer: Writer, value: Any, depth: int) -> None:
        writer.content += letter

    return write


def _float(writer: Writer, value: float, depth: int) -> None:
    writer.content += b"f" + _DOUBLE.pack(value)


def _complex(writer: Writer, value: complex, depth: int) -> None:
    writer.content += b"c" + _COMPLEX.pack(value.real, value.imag)


def _bounds(letter: bytes) -> Callable[[Writer, Any, int], None]:
    def write(writer: Writer, value: Any, depth: int) -> None:
        writer.content += letter
        for part in (value.start, value.stop, value.step):
            writer.value(part, depth + 1)

    return write


def _boolean(writer: Writer, value: bool, depth: int) -> None:
    writer.content += b"T" if value else b"F"


_WRITERS: dict[type, Callable[[Writer, Any, int], None]] = {
    type(None): _constant(b"N"),
    type(...): _constant(b"."),
    bool: _boolean,
    int: _integer,
    float: _float,
    complex: _complex,
    str: _text,
    bytes: _blob,
    tuple: _items(b"("),
    list: _items(b"["),
    dict: _mapping,
    range: _bounds(b"r"),
    slice: _bounds(b"l"),
    np.ndarray: _array,
}


class Reader:
    """Turns bytes into values, one after the other; ``Unreadable`` or ``LookupError`` if that can't be."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._seen: list[Any] = []

    @property
    def left(self) -> int:
        """The bytes that were not read yet."""
        return len(self._content) - self._at

    def size(self) -> int:
        """A number that is not negative."""
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return number
            if shift > 63:
                raise Unreadable("a size of more than 63 bits")

    def count(self) -> int:
        """A number of things, each of which takes a byte at the least."""
        number = self.size()
        if number > self.left:
            raise Unreadable(f"{number} things in {self.left} bytes")
        return number

    def take(self, count: int) -> bytes:
        """That many bytes."""
        if count > self.left:
            raise Unreadable(f"{count} bytes where {self.left} are left")
        self._at += count
        return self._content[self._at - count : self._at]

    def blob(self) -> bytes:
        """Bytes after their number."""
        return self.take(self.size())

    def text(self) -> str:
        """Text."""
        return self.blob().decode("utf-8", "surrogatepass")

    def value(self, depth: int = 0) -> Any:
        """One value."""
        if depth > DEEPEST:
            raise Unreadable(f"nested more than {DEEPEST} deep")
        letter = self.take(1)
        read = _READERS.get(letter)
        if read is None:
            raise Unreadable(f"{letter!r} is the letter of nothing")
        return read(self, depth + 1)

    def items(self, depth: int) -> list[Any]:
        """Several values after their number."""
        return [self.value(depth) for _ in range(self.count())]

    def mapping(self, depth: int) -> dict[Any, Any]:
        """Pairs after their number."""
        pairs = [(self.value(depth), self.value(depth)) for _ in range(self.count())]
        return {hashable(key): item for key, item in pairs}

    def dtype(self, depth: int) -> np.dtype:
        """A type of array."""
        return dtypes.from_description(self.value(depth))

    def scalar(self, depth: int) -> Any:
        """One number of NumPy's."""
        dtype, content = self.dtype(depth), self.blob()
        if len(content) != dtype.itemsize:
            raise Unreadable(f"{len(content)} bytes for a {dtype}")
        return np.frombuffer(content, dtype)[0] if content else np.zeros((), dtype)[()]

    def array(self, depth: int) -> np.ndarray:
        """A small array."""
        described = self.value(depth)
        content = self.blob()
        if not isinstance(described, tuple) or len(described) != 3:
            raise Unreadable("an array without dtype, shape and order")
        dtype, shape, order = dtypes.from_description(described[0]), *dtypes.checked(*described[1:])
        if dtypes.size(dtype, shape) != len(content):
            raise Unreadable(f"{len(content)} bytes for an array of {shape} of {dtype}")
        array = np.empty(shape, dtype)
        if content:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(content, np.uint8)
        return array if order is None else array.transpose(inverse(order))

    def object(self, depth: int) -> Any:
        """Something of a kind that is known."""
        from .objects import from_data

        kind = self.text()
        made = from_data(kind, self.value(depth))
        self._seen.append(made)
        return made

    def again(self, depth: int) -> Any:
        """An object that was read before."""
        number = self.size()
        if number >= len(self._seen):
            raise Unreadable("an object that was not there before")
        return self._seen[number]

    def member(self, depth: int) -> Any:
        """A member of an enum."""
        cls, name = class_named(self.text()), self.text()
        if not issubclass(cls, enum.Enum) or name not in cls._member_map_:
            raise LookupError(f"{cls.__qualname__} has no member {name!r}")
        return cls._member_map_[name]

    def bounds(self, cls: type, depth: int) -> Any:
        """A range or a slice."""
        parts = [self.value(depth) for _ in range(3)]
        if cls is range and not all(type(part) is int for part in parts):
            raise Unreadable("a range of what are no integers")
        return cls(*parts)


def hashable(key: Any) -> Any:
    """A key of a dict or a set."""
    try:
        hash(key)
    except TypeError:
        raise Unreadable(f"a key that is a {type(key).__name__}") from None
    return key


_READERS: dict[bytes, Callable[[Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b".": lambda reader, depth: ...,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"i": lambda reader, depth: int.from_bytes(reader.blob(), "little", signed=True),
    b"f": lambda reader, depth: _DOUBLE.unpack(reader.take(8))[0],
    b"c": lambda reader, depth: complex(*_COMPLEX.unpack(reader.take(16))),
    b"s": lambda reader, depth: reader.text(),
    b"b": lambda reader, depth: reader.blob(),
    b"(": lambda reader, depth: tuple(reader.items(depth)),
    b"[": lambda reader, depth: reader.items(depth),
    b"{": lambda reader, depth: reader.mapping(depth),
    b"r": lambda reader, depth: reader.bounds(range, depth),
    b"l": lambda reader, depth: reader.bounds(slice, depth),
    b"d": lambda reader, depth: reader.dtype(depth),
    b"n": lambda reader, depth: reader.scalar(depth),
    b"a": lambda reader, depth: reader.array(depth),
    b"E": lambda reader, depth: reader.member(depth),
    b"C": lambda reader, depth: known_class(reader.text()),
    b"o": lambda reader, depth: reader.object(depth),
    b"&": lambda reader, depth: reader.again(depth),
}
