"""A program of torch.export as plain records, whether it came from a file or from memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.formats.kinds import Kind

Array = np.ndarray[Any, Any]
Location = tuple[str, int]

# Operators of which it matters how their first argument lies in memory: they are given "laid", its
# strides and start in elements, or None where these are open.
OF_MEMORY = frozenset(
    f"aten.{name}.default"
    for name in ("as_strided", "as_strided_copy", "as_strided_scatter", "resize_")
)

# Element types by their numbers in the format; the last four are carried in wider ones.
ELEMENTS = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    34: "uint32", 35: "uint64", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
}  # fmt: skip


@record(frozen=True)
class Name:
    """A value that something before makes: a tensor or a number."""

    name: str


@record(frozen=True)
class Whole:
    """The name of all results of a node together, of which others take their parts."""

    name: str


@record(frozen=True)
class Element:
    """An element type as an argument; its name is NumPy's or that of a narrower one."""

    name: str


@record(frozen=True)
class Operator:
    """An operator as an argument, by its name: what "with_effects" calls."""

    name: str


@record(frozen=True)
class Node:
    """One call: what is computed from which arguments.

    inputs   (name in the operator's schema or "" for one that has none, value): numbers, strings,
             None, `Name`, `Element`, `Operator`, `Block`, or lists of them
    outputs  names, None for a result that has none, a tuple of them where a result is a list; or
             one `Whole`
    """

    index: int
    target: str
    inputs: tuple[tuple[str, Any], ...]
    outputs: tuple[Any, ...]
    location: Location | None = None

    @property
    def title(self) -> str:
        """How messages call it: the operator and what it makes."""
        first = self.outputs[0] if self.outputs else None
        name = first.name if isinstance(first, Whole) else first
        name = name if isinstance(name, str) else f"#{self.index}"
        return f"{self.target} (node {name!r})"


@record(frozen=True)
class Block:
    """A graph, or the body of an operator that takes graphs."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]


@record(frozen=True)
class Program:
    """A graph with what its inputs are.

    kinds      of the inputs that a caller gives, by name, in their order
    fixed      arrays and numbers of the other ones; `titles` are what the module calls them
    ranges     of the named sizes: smallest and largest, None for one that has no bound
    sizes      numbers that are extents of inputs: the input and its axis
    default    the type of floats that nothing says the type of
    """

    name: str
    block: Block
    kinds: Mapping[str, Kind]
    fixed: Mapping[str, Any]
    result_names: tuple[str, ...]
    titles: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    default: str = "float32"


def element_name(number: Any) -> str:
    """The name of an element type by its number in the format. Raises GraphError."""
    name = ELEMENTS.get(number) if isinstance(number, int) else None
    if name is None:
        raise GraphError(f"elements of an unknown type {str(number)[:40]}")
    return name


def strided(data: Array, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> Array:
    """An array that lies so in a row of elements. Raises GraphError where it sticks out."""
    if len(shape) != len(strides) or len(shape) > 32 or min((*shape, *strides, start, 0)) < 0:
        raise GraphError(f"shape {list(shape)[:33]} and strides {list(strides)[:33]}")
    reach = start + sum((n - 1) * s for n, s in zip(shape, strides)) + 1
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count and reach > data.size:
        raise GraphError(f"shape {list(shape)} needs {reach} elements, there are {data.size}")
    if not count:
        return np.zeros(shape, data.dtype)
    if count > max(data.size, 1 << 16):
        raise GraphError(f"shape {list(shape)} repeats {data.size} elements")
    steps = tuple(s * data.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(data[start:], shape, steps, writeable=False)


# ------------------------------------------------------------------------------------ lines

_FRAME = re.compile(r'File "([^"\n]{1,300})", line (\d{1,9})')
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")


def user_line(trace: str) -> Location | None:
    """The innermost line in the stack trace that the exporter kept that is not PyTorch's own; the
    innermost of all where there is none."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(trace) if file.isprintable()]
    own = [frame for frame in frames if not portable(frame[0]).startswith("torch/")]
    return (own or frames)[-1] if frames else None


def portable(file: str) -> str:
    """The file of an installed package by its place among these, on whatever machine."""
    return _INSTALLED.sub("", file)
