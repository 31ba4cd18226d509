"""Printing graphs: one node per line, canonical spacing, defaults printed, floats exact.

    gir 1
    graph @mlp(%0 x: f32[32,784], %1 w: f32[784,10]) {
      %2 = matmul(%0, %1) : f32[32,10] loc("model.py":9)
      return %2
    }

The text of a graph is its canonical form: golden tests, bug reports and cache keys use it.  Laws:
`parse(print(g)) == g` and `print(parse(t)) == t` for canonical t.  `reader.py` is the other
direction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.literal import Literal
from graphc.ir.op import Op
from graphc.ir.types import DType

FORMAT = 1
_PLAIN = re.compile(r"[A-Za-z_][\w.]*")
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def quote(name: str) -> str:
    """A name as it stands in text: bare when it is an identifier, else a JSON string."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def element_text(value: Any, element: DType) -> str:
    """One element of a literal, exact: floats by shortest repr, unusual NaNs by their bits."""
    if element.kind == "b":
        return "true" if value else "false"
    if element.kind in "iu":
        return str(int(value))
    if element.kind == "c":
        part = np.float32 if element.itemsize == 8 else np.float64
        return f"{_float_text(part(value.real))}:{_float_text(part(value.imag))}"
    return _float_text(value)


def _float_text(value: Any) -> str:
    if np.isnan(value):
        bits = int(np.asarray(value).view(_BITS[value.dtype.itemsize]))
        plain = int(np.array(np.nan, value.dtype).view(_BITS[value.dtype.itemsize]))
        return "nan" if bits == plain else hex(bits)
    if value.dtype.itemsize == 4:
        text = np.format_float_scientific(value, unique=True, trim="0")
        return repr(float(text)) if np.isfinite(value) else repr(float(value))
    return repr(float(value))


def _literal_text(value: Literal) -> str:
    if not value.is_small:
        return f"{value.type}(sha256:{value.digest})"
    element = value.type.dtype
    elements = ",".join(element_text(v, element) for v in value.array.reshape(-1))
    return f"{value.type}({elements})"


def _list_text(values: tuple[Any, ...]) -> str:
    return f"[{','.join(map(str, values))}]"


_VALUE_TEXT: dict[str, Callable[[Any], str]] = {
    "int": str,
    "float": repr,
    "bool": lambda v: "true" if v else "false",
    "str": json.dumps,
    "dim": str,
    "dims": _list_text,
    "ints": _list_text,
    "strs": lambda v: f"[{','.join(map(json.dumps, v))}]",
    "dtype": str,
    "type": str,
    "literal": _literal_text,
}


def attrs_text(op: Op, node: Node) -> str:
    """`{axis=1, keepdims=false}`, or nothing for an op without attributes; memoised per value."""
    parts = []
    for attr in op.attrs:
        value = node.attrs[attr.name]
        text = "none" if value is None else _VALUE_TEXT[attr.kind](value)
        parts.append(f"{attr.name}={text}")
    return f" {{{', '.join(parts)}}}"


class _Printer:
    """Prints with memos for attribute and location text, which repeat a great deal."""

    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.attrs: dict[Any, str] = {}
        self.files: dict[str, str] = {}

    def graph(self, graph: Graph, indent: str) -> Iterator[str]:
        params = ", ".join(map(self.param, graph.params))
        device = f" on @{graph.device}" if graph.device is not None else ""
        yield f"{indent}graph @{quote(graph.name)}({params}){device} {{"
        inner = indent + "  "
        for node in graph.nodes:
            line = self.node(node)
            if node.regions:
                yield f"{inner}{line} {{"
                for region in node.regions:
                    yield from self.graph(region, inner + "  ")
                yield f"{inner}}}"
            else:
                yield inner + line
        for name, id in graph.names.items():
            yield f"{inner}name {quote(name)} = %{id}"
        for mark, ids in sorted(graph.marks.items()):
            there = sorted(ids.intersection(node.id for node in graph.nodes))
            if there:
                yield f"{inner}mark {mark} = {', '.join(f'%{id}' for id in there)}"
        results = ", ".join(
            f"%{r.id}" if name == str(k) else f"{quote(name)}: %{r.id}"
            for k, (name, r) in enumerate(zip(graph.result_names, graph.results, strict=True))
        )
        yield f"{inner}return {results}".rstrip()
        yield f"{indent}}}"

    def param(self, node: Node) -> str:
        place = f" @{node.place}" if node.place is not None else ""
        return f"%{node.id} {quote(node.attrs['name'])}: {node.type}{place}{self.loc(node)}"

    def node(self, node: Node) -> str:
        op = node.op
        attrs = ""
        if op.attrs:
            found = self.attrs.get(node.attrs)
            attrs = found if found is not None else attrs_text(op, node)
            self.attrs[node.attrs] = attrs
        inputs = ", ".join([f"%{n.id}" for n in node.inputs])
        place = f" @{node.place}" if node.place is not None else ""
        after = " after " + ", ".join(f"%{n.id}" for n in node.after) if node.after else ""
        return (
            f"%{node.id} = {op.name}({inputs}){attrs} : {node.type}{place}{after}{self.loc(node)}"
        )

    def loc(self, node: Node) -> str:
        if node.loc is None or not self.locations:
            return ""
        file, line = node.loc
        if file not in self.files:
            self.files[file] = json.dumps(file)
        return f" loc({self.files[file]}:{line})"


def show(value: Graph | Program, *, locations: bool = True) -> str:
    """The canonical text of a graph or program, ending in a newline."""
    printer = _Printer(locations)
    lines = [f"gir {FORMAT}"]
    if isinstance(value, Program):
        lines.append(f"program @{quote(value.name)} {{")
        for graph in value.graphs:
            lines.extend(printer.graph(graph, "  "))
        lines.append("}")
    else:
        lines.extend(printer.graph(value, ""))
    return "\n".join(lines) + "\n"


def literals(value: Graph | Program) -> Iterator[Literal]:
    """Every literal over the inline size, once per digest, regions included."""
    seen: set[str] = set()
    pending = list(value.graphs if isinstance(value, Program) else (value,))
    while pending:
        graph = pending.pop()
        for node in graph.nodes:
            pending.extend(node.regions)
            for attr in node.op.attrs:
                found = node.attrs[attr.name] if attr.kind == "literal" else None
                if found is not None and not found.is_small and found.digest not in seen:
                    seen.add(found.digest)
                    yield found
