"""The text of a compiled program, as far as memory goes: instructions in their order, sizes, operands, source lines.

XLA prints compiled programs as scheduled, so that their order is that of execution. An instruction reads

    %tanh.3 = f32[128,64]{1,0} tanh(%dot.1), metadata={op_name="jit(f)/tanh" source_file="f.py" source_line=4}

or, in newer versions, with the number of a stack frame, which tables at the top of the text explain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SIZES = {"pred": 1, "token": 0, "c64": 8, "c128": 16}
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_BITS = re.compile(r"[a-z]+(\d+)")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*->.*\{\s*$")
_CALLS = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a program: what it makes (bytes of each array), of what, and for whom."""

    name: str
    opcode: str
    sizes: tuple[int, ...]
    operands: tuple[str, ...]
    calls: tuple[str, ...]
    index: int
    """Of a ``get-tuple-element`` the place, of a ``parameter`` its number."""
    is_root: bool
    op_name: str
    line: str


@dataclass(frozen=True)
class CompiledProgram:
    """Computations by name, and the one that is entered."""

    computations: Mapping[str, tuple[Instruction, ...]]
    entry: str


def parse(text: str) -> CompiledProgram:
    """Read the text of a compiled program."""
    lines = text.splitlines()
    frames = _frames(lines)
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name, found = "", "", list[Instruction]()
    for line in lines:
        if head := _COMPUTATION.match(line):
            name, found = head[2], []
            entry = name if head[1] else entry
        elif line.startswith("}"):
            computations[name] = tuple(found)
        elif instruction := _INSTRUCTION.match(line):
            found.append(_instruction(instruction, frames))
    if entry not in computations:
        raise ValueError("this is not the text of a compiled program: it has no entry")
    return CompiledProgram(computations, entry)


def _instruction(match: re.Match[str], frames: Mapping[str, str]) -> Instruction:
    shape, rest = _shape(match[3])
    opcode = rest[: rest.index("(")]
    end = _closing(rest, len(opcode))
    operands, attributes = rest[len(opcode) + 1 : end], rest[end + 1 :]
    calls = [*_CALLS.findall(attributes)]
    for branches in _BRANCHES.findall(attributes):
        calls += re.findall(r"%?([\w.\-]+)", branches)
    index = re.search(r"index=(\d+)", attributes)
    return Instruction(
        name=match[2],
        opcode=opcode,
        sizes=_bytes(shape),
        operands=tuple(re.findall(r"%([\w.\-]+)", operands)),
        calls=tuple(calls),
        index=int(operands) if opcode == "parameter" else int(index[1]) if index else 0,
        is_root=match[1] is not None,
        op_name=_of(r'op_name="([^"]*)"', attributes),
        line=_line(attributes, frames),
    )


def _shape(text: str) -> tuple[str, str]:
    """The shape at the start of an instruction, and what follows."""
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    return text[:end], text[end:].lstrip()


def _closing(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    raise ValueError(f"a bracket is never closed: {text[:80]}")


def _bytes(shape: str) -> tuple[int, ...]:
    sizes = []
    for kind, dimensions in _ARRAY.findall(shape):
        bits = _BITS.match(kind)
        size = _SIZES.get(kind, max(1, int(bits[1]) // 8) if bits else 0)
        for dimension in filter(None, dimensions.split(",")):
            size *= int(dimension)
        sizes.append(size)
    return tuple(sizes)


def _line(attributes: str, frames: Mapping[str, str]) -> str:
    if frame := _of(r"stack_frame_id=(\d+)", attributes):
        return frames.get(frame, "")
    file, line = _of(r'source_file="([^"]*)"', attributes), _of(r"source_line=(\d+)", attributes)
    return f"{file.rpartition('/')[2]}:{line}" if file else ""


def _frames(lines: list[str]) -> dict[str, str]:
    """The file and line of each stack frame, from the tables at the top."""
    tables: dict[str, dict[str, str]] = {}
    table: dict[str, str] = {}
    for line in lines:
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables[line] = {}
        elif match := re.match(r"^(\d+) (.*)$", line):
            table[match[1]] = match[2]
        elif _COMPUTATION.match(line):
            break
    files, places = tables.get("FileNames", {}), {}
    for number, location in tables.get("FileLocations", {}).items():
        file = files.get(_of(r"file_name_id=(\d+)", location), "").strip('"')
        line = _of(r"\bline=(\d+)", location)
        places[number] = f"{file.rpartition('/')[2]}:{line}"
    stack = tables.get("StackFrames", {})
    return {number: places.get(_of(r"file_location_id=(\d+)", frame), "") for number, frame in stack.items()}


def _of(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""
