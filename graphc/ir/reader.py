"""Reading graph text: the records of lines, what turns them into nodes, and the grammar's rules.

    canonical text   `parse` splits node lines by one regular expression, `canonical` reads their
                     types, attributes and headers
    other text       goes to lark whole from its first line that is not canonical; lark also tells
                     line, column and what was expected where the text is wrong

Both give the same plain records, which the `Assembler` here turns into nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import GraphError, LimitError, ParseError
from graphc.ir.graph import Graph, Location, Node, infer
from graphc.ir.literal import Literal, literal
from graphc.ir.op import OPS, Attr, Attrs, Host, Op
from graphc.ir.place import Place, parse_place
from graphc.ir.types import (
    AnyType,
    Dimension,
    Type,
    dtype,
    leaves,
    stack_type,
    symbol,
    tensor,
    tuple_type,
)
from graphc.limits import check_within, limit

STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'  # JSON's
# What names of custom ops mean in the text that is being read; None: what they mean in the program.
custom_ops: ContextVar[Mapping[str, Op] | None] = ContextVar("custom_ops", default=None)
# Whether marks of the text give names to formulas of sizes.  What a type rule cannot say of these
# is what the text declares: who fills sizes in infers all types anew.
has_formulas: ContextVar[bool] = ContextVar("has_formulas", default=False)
MAX_SPARE_IDS = 100_000
MAX_BITS = 64  # of an integer in the text
_TOKEN = re.compile(rf"{STRING}|[\w.]++|[^\s\w]")


class Word(str):
    """A bare identifier used as an attribute value; the op's schema says what it means."""


class Bits(int):
    """The bit pattern of a NaN."""


class NodeLine(NamedTuple):
    line: int
    id: int
    op: str
    inputs: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...]
    type: AnyType
    place: Place | None
    after: tuple[int, ...]
    loc: Location | None


class Header(NamedTuple):
    name: str
    params: tuple[tuple[int, str, AnyType, Place | None, Location | None], ...]
    device: Place | None


# ------------------------------------------------------------------------------------ assembling


class Assembler:
    """Builds one graph from its header and lines, checking as it goes. Errors carry the text
    line.

    The names of a region's parameters may repeat: operands have positions.  Passes add parameters.
    """

    def __init__(
        self, header: Header, line: int, tensors: Mapping[str, Any] | None, is_region: bool
    ) -> None:
        self.header = header
        self.is_region = is_region
        self.tensors = tensors
        self.by_id: dict[int, Node] = {}
        self.nodes: list[Node] = []
        self.names: dict[str, int] = {}
        self.marks: dict[str, frozenset[int]] = {}
        self.params = tuple(self._param(line, *p) for p in header.params)

    def _param(
        self, line: int, id: int, name: str, kind: AnyType, place: Any, loc: Location | None
    ) -> Node:
        op = OPS["param"]
        node = Node(id, op, (), op.coerce({"name": name}), kind, place=place, loc=loc)
        self._define(line, node)
        return node

    def _define(self, line: int, node: Node) -> None:
        if node.id in self.by_id:
            raise ParseError(f"line {line}: %{node.id} is defined twice")
        self.by_id[node.id] = node

    def _use(self, line: int, ids: tuple[int, ...]) -> tuple[Node, ...]:
        try:
            return tuple([self.by_id[i] for i in ids])
        except KeyError as missing:
            raise ParseError(
                f"line {line}: %{missing.args[0]} is used before it is defined",
                hint="nodes stand in execution order; a cycle or a dangling edge has no such order",
            ) from None

    def add(self, record: NodeLine, regions: tuple[Graph, ...] = ()) -> None:
        line = record.line
        op = OPS.get(record.op)
        if op is not None and op.is_custom:
            op = _permitted(op, line)
        if op is not None and isinstance(op.lower, Host) and op.lower.is_local:
            _require_own(op, line)
        if op is None or op.traits.parameter:
            raise ParseError(f"line {line}: unknown op {record.op!r}", hint=_closest(record.op))
        inputs = self._use(line, record.inputs)
        try:
            attrs = coerce_attrs(op, record.attrs, self.tensors)
            kind = self._type(record, op, inputs, attrs, regions)
        except GraphError as error:
            raise _with_line(error, line, record) from None
        if kind is not record.type:
            raise ParseError(
                f"line {line}: {op.name} gives {kind}, but the text says {record.type}"
            )
        node = Node(
            record.id,
            op,
            inputs,
            attrs,
            kind,
            after=self._use(line, record.after),
            place=record.place,
            regions=regions,
            loc=record.loc,
        )
        self._define(line, node)
        self.nodes.append(node)

    def _type(
        self,
        record: NodeLine,
        op: Op,
        inputs: tuple[Node, ...],
        attrs: Attrs,
        regions: tuple[Graph, ...],
    ) -> AnyType:
        types = tuple([n.type for n in inputs])
        if not has_formulas.get():
            return infer(op, types, attrs, regions)
        try:
            kind = infer(op, types, attrs, regions)
        except (GraphError, TypeError):
            kind = None
        return record.type if kind is None or symbols_in(record.type) else kind

    def alias(self, line: int, name: str, id: int) -> None:
        self._use(line, (id,))
        self.names[name] = id

    def mark(self, line: int, name: str, ids: tuple[int, ...]) -> None:
        self._use(line, ids)
        self.marks[name] = frozenset(ids)

    def finish(self, line: int, results: list[tuple[str | None, int]]) -> Graph:
        # Side tables are lists indexed by id, so ids must stay in proportion to the node count.
        if max(self.by_id, default=0) > MAX_SPARE_IDS + 100 * len(self.by_id):
            raise ParseError(f"line {line}: node ids run too far ahead of the number of nodes")
        nodes = self._use(line, tuple(id for _, id in results))
        check_within("results", len(results))
        names = tuple(str(k) if name is None else name for k, (name, _) in enumerate(results))
        for kind, values in (("result", names), ("parameter", [p[1] for p in self.header.params])):
            if len(set(values)) != len(values) and not self.is_region:
                raise ParseError(f"line {line}: a {kind} name stands twice in the graph")
        device = self.header.device
        return Graph(
            self.header.name,
            self.params,
            self.nodes,
            nodes,
            result_names=names,
            names=self.names,
            marks=self.marks,
            device=device,
        )


def symbols_in(kind: AnyType) -> set[str]:
    """The symbols in the shapes of a type."""
    return {s for leaf in leaves(kind) if isinstance(leaf, Type) for s in leaf.symbols()}


def _with_line(error: GraphError, line: int, record: NodeLine) -> GraphError:
    made = ParseError(f"line {line}: {error.message}", details=error.details, hint=error.hint)
    return made.at(record.loc)


def _permitted(op: Op, line: int) -> Op:
    """The op that a text means by the name of a user's own. Raises ParseError if it means none."""
    allowed = custom_ops.get()
    if allowed is None:
        return op
    if op.name not in allowed:
        raise ParseError(
            f"line {line}: {op.name} is a custom op of this program, which the file may not call",
            hint=f"if you trust the file: gc.load(..., custom_ops=[{op.name!r}])",
        )
    return allowed[op.name]


def _require_own(op: Op, line: int) -> None:
    """Refuse a function of this process in a text that comes from a file. Raises ParseError."""
    if custom_ops.get() is not None:
        raise ParseError(
            f"line {line}: {op.name} calls a Python function, and a file may only compute",
            hint="trace the function that calls it anew; gc.print and gc.assert_ may be saved",
        )


def _closest(name: str) -> str | None:
    import difflib

    close = difflib.get_close_matches(name, OPS, 3)
    return f"did you mean {', '.join(close)}?" if close else "`graphc passes --ops` lists the ops"


# ------------------------------------------------------------------------------------ attributes


def coerce_attrs(
    op: Op, given: tuple[tuple[str, Any], ...], tensors: Mapping[str, Any] | None
) -> Attrs:
    """Raw values from the text to the op's schema. Raises TypeRuleError, ParseError."""
    schema = {a.name: a for a in op.attrs}
    values = {}
    for name, raw in given:
        if name in values:
            raise ParseError(f"attribute {name} stands twice")
        values[name] = _coerce(schema[name], raw, tensors) if name in schema else raw
    return op.coerce(values)


def _coerce(attr: Attr, raw: Any, tensors: Mapping[str, Any] | None) -> Any:
    if isinstance(raw, Word):
        if raw == "none":
            return None
        if attr.kind == "bool" and raw in ("true", "false"):
            return raw == "true"
        return symbol(raw) if attr.kind == "dim" else raw
    if attr.kind == "dims" and isinstance(raw, tuple):
        return tuple(symbol(d) if isinstance(d, Word) else d for d in raw)
    if isinstance(raw, Literal) and tensors is not None and raw.type is not None:
        found = tensors.get(raw.digest) if raw.key[1] == raw.digest else None
        return _resolve(raw, found) if found is not None else raw
    return raw


def _resolve(raw: Literal, found: Any) -> Literal:
    if found.shape != raw.type.shape or found.dtype != raw.type.dtype.numpy:
        raise ParseError(
            f"constant {raw.digest} is {raw.type} in the text but {found.dtype}"
            f"{list(found.shape)} in the weights file"
        )
    return raw.resolved(found)


def make_literal(kind: AnyType, elements: tuple[Any, ...]) -> Literal:
    """A literal from its elements in row-major order."""
    if not isinstance(kind, Type) or not kind.is_static:
        raise ParseError(f"a literal needs a concrete tensor type, got {kind}")
    if len(elements) != kind.size:
        raise ParseError(f"a literal of {kind} needs {kind.size} element(s), got {len(elements)}")
    storage = kind.dtype.numpy
    array = np.zeros(kind.size, storage)
    for position, element in enumerate(elements):
        try:
            _set_element(array, position, element, kind)
        except (ValueError, OverflowError, TypeError):
            raise ParseError(f"{element!r} is no element of {kind.dtype}") from None
    return literal(array.reshape(kind.dims), kind.dtype)


def _set_element(array: Any, position: int, element: Any, kind: Type) -> None:
    if isinstance(element, Word):
        if kind.dtype.kind != "b" or element not in ("true", "false"):
            raise ValueError
        array[position] = element == "true"
    elif isinstance(element, Bits):
        array.view(f"u{array.itemsize}")[position] = element
    elif isinstance(element, tuple):
        parts = array.view(f"f{array.itemsize // 2}")
        for k, part in enumerate(element):
            _set_element(parts, 2 * position + k, part, kind)
    elif kind.dtype.kind == "b" or (kind.dtype.is_integer and not isinstance(element, int)):
        raise ValueError
    else:
        array[position] = element


# ------------------------------------------------------------------------------------ lark


@cache
def grammar() -> Any:
    """The LALR parsers of `graph.lark`."""
    import lark

    text = resources.files("graphc.ir").joinpath("graph.lark").read_text()
    starts = ["file", "header", "attrs", "type"]
    return lark.Lark(
        text, parser="lalr", start=starts, propagate_positions=True, maybe_placeholders=True
    )


def dimension(terms: list[tuple[int, list[Any]]]) -> Any:
    """A dimension from signed products; a lone integer or word stays what it is."""
    if len(terms) == 1 and terms[0][0] == 1 and len(terms[0][1]) == 1:
        return terms[0][1][0]
    total: Dimension = 0
    for sign, factors in terms:
        product: Dimension = sign
        for factor in factors:
            product = bounded(product * as_dim(factor))
        total = bounded(total + product)
    return total


def bounded(value: Dimension) -> Dimension:
    """The number, if it is one that the machine has. Raises LimitError."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise LimitError(f"an integer of {value.bit_length()} bits; the most are {MAX_BITS}")
    return value


def integer(text: str) -> int:
    """The integer of a token. Raises LimitError for one of more than 64 bits."""
    value = int(text)
    bounded(value)
    return value


def string_of(text: str) -> str:
    """The string or name that a token stands for: JSON, or bare. Raises GraphError."""
    if not text.startswith('"'):
        return text
    made = str(json.loads(text))
    if "\\u" in text and any("\ud800" <= c <= "\udfff" for c in made):
        raise GraphError(
            f"the string {made[:40]!a} holds half of a character",
            hint="a \\ud800 to \\udfff stands for nothing without the other half of its pair",
        )
    return made


def as_dim(value: Any) -> Dimension:
    return symbol(value) if isinstance(value, Word) else value


def value_of(tree: Any) -> Any:
    """The Python value of an attribute or type subtree."""
    match tree.data:
        case "integer" | "float" | "string" | "word" | "bits":
            return _LEAVES[tree.data](str(tree.children[0]))
        case "dim":
            return _dim_of(tree)
        case "list" | "complex":
            return tuple(value_of(c) for c in tree.children if c is not None)
        case "tensor":
            dims = (as_dim(value_of(c)) for c in tree.children[1:] if c is not None)
            return tensor(dtype(str(tree.children[0])), dims)
        case "tuple":
            return tuple_type(value_of(c) for c in tree.children if c is not None)
        case "stack":
            return stack_type(value_of(tree.children[0]))
        case "literal":
            elements = tuple(value_of(c) for c in tree.children[1:] if c is not None)
            return make_literal(value_of(tree.children[0]), elements)
        case _:
            assert tree.data == "data"
            return Literal(None, value_of(tree.children[0]), str(tree.children[1])[7:])


def _dim_of(tree: Any) -> Any:
    terms: list[tuple[int, list[Any]]] = []
    sign = 1
    for child in tree.children:
        if hasattr(child, "data"):
            first, *factors = child.children
            inner = -1 if first == "-" else 1
            terms.append((sign * inner, [value_of(f) for f in factors]))
            sign = 1
        else:
            sign = -1 if child == "-" else 1
    return dimension(terms)


_LEAVES: dict[str, Callable[[str], Any]] = {
    "integer": integer,
    "float": float,
    "string": string_of,
    "word": Word,
    "bits": lambda t: Bits(int(t, 16)),
}


def attr_pairs(tree: Any) -> tuple[tuple[str, Any], ...]:
    pairs = (c for c in tree.children if c is not None)
    return tuple((str(c.children[0]), value_of(c.children[1])) for c in pairs)


def header_of(tree: Any) -> Header:
    name, *params, device = tree.children
    made = tuple(_param_of(p) for p in params if p is not None)
    check_within("parameters", len(made))
    return Header(string_of(name[1:]), made, _place_of(device))


def _place_of(token: Any) -> Place | None:
    return parse_place(str(token)[1:]) if token is not None else None


def _param_of(tree: Any) -> tuple[int, str, AnyType, Place | None, Location | None]:
    id, name, kind, place, loc = tree.children
    return int(id[1:]), name_of(name), value_of(kind), _place_of(place), loc_of(loc)


def name_of(tree: Any) -> str:
    return string_of(str(tree.children[0]))


def loc_of(tree: Any) -> Location | None:
    return (string_of(tree.children[0]), int(tree.children[1])) if tree is not None else None


def grammar_tree(text: str, start: str) -> Any:
    """The tree of a text by a rule of the grammar. Raises ParseError, LimitError."""
    import lark

    if len(text) > limit("loose_tokens"):
        check_within(
            "loose_tokens", sum(1 for _ in _TOKEN.finditer(text)), "text in a form of its own"
        )
    try:
        return grammar().parse(text, start=start)
    except lark.exceptions.UnexpectedInput as error:
        raise syntax_error(text, error) from None


def syntax_error(text: str, error: Any) -> ParseError:
    """Line, column, caret and what was expected."""
    line, column = max(error.line, 1), max(error.column, 1)
    lines = text.split("\n")
    if getattr(getattr(error, "token", None), "type", "") == "$END":
        line, column = len(lines), len(lines[-1]) + 1
    shown = lines[line - 1] if line <= len(lines) else ""
    start = max(0, column - 60)
    expected = sorted(
        getattr(error, "accepts", None)
        or getattr(error, "expected", None)
        or getattr(error, "allowed", None)
        or ()
    )
    wanted = " or ".join(_TOKENS.get(e, e.lower()) for e in expected[:8])
    return ParseError(
        f"line {line}, column {column}: the text does not follow the grammar",
        details=(shown[start : start + 90], " " * (column - 1 - start) + "^"),
        hint=f"expected {wanted}" if wanted else None,
    )


_TOKENS = {
    "ID": "%id",
    "IDENT": "a name",
    "LPAR": "(",
    "RPAR": ")",
    "LBRACE": "{",
    "RBRACE": "}",
    "LSQB": "[",
    "RSQB": "]",
    "COLON": ":",
    "COMMA": ",",
    "EQUAL": "=",
    "STRING": "a string",
    "INT": "an integer",
    "GNAME": "@name",
    "PLACE": "@place",
    "$END": "end of text",
}
