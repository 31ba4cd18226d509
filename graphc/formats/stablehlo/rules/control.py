"""Tuples, calls, branches and loops."""

from __future__ import annotations

from functools import partial
from typing import Any

from graphc.formats.exporting import static
from graphc.formats.stablehlo.writer import Value, Writer, rule, types_of
from graphc.ir.graph import Node
from graphc.ir.types import BOOL, I64, TupleType, Type, tensor


def _gathered(node: Node, made: Any) -> Any:
    """Results as those of the node: a tuple, or the one."""
    return tuple(made) if isinstance(node.type, TupleType) else made[0]


@rule("tuple")
def make_tuple(w: Writer, node: Node, *parts: Any) -> Any:
    return tuple(parts)


@rule("item")
def item(w: Writer, node: Node, source: Any) -> Any:
    return source[node.attrs["index"]]


@rule("call", "fused")
def call(w: Writer, node: Node, *operands: Any) -> Any:
    return _gathered(node, w.graph(node.regions[0], operands))


@rule("cond")
def cond(w: Writer, node: Node, predicate: Value, *operands: Value) -> Any:
    then, other = (w.region([], partial(w.graph, r, operands)) for r in node.regions)
    return _gathered(node, w.op("if", predicate, to=types_of(node.type), regions=[then, other]))


@rule("while")
def while_loop(w: Writer, node: Node, *operands: Value) -> Any:
    carries, (test, body), types = node.attrs["carries"], node.regions, types_of(node.type)
    held = operands[carries:]
    go = w.region(types, lambda *state: w.graph(test, [*state, *held]))
    turn = w.region(types, lambda *state: w.graph(body, [*state, *held]))
    made = w.op("while", *operands[:carries], to=types, regions=[go, turn])
    return _gathered(node, made)


@rule("scan")
def scan(w: Writer, node: Node, *operands: Value) -> Any:
    """A loop that counts, takes slices and writes them."""
    carries, scanned = node.attrs["carries"], node.attrs["scanned"]
    end, (body,), types = carries + scanned, node.regions, types_of(node.type)
    (length,) = static((node.attrs["length"],))
    stacked = [w.full(0, kind) for kind in types[carries:]]
    state = [w.full(0, tensor(I64)), *operands[:carries], *stacked]
    kinds = [x.type for x in state]

    def going(count: Value, *rest: Value) -> list[Value]:
        stop, way = w.full(length, tensor(I64)), "#stablehlo<comparison_direction LT>"
        return [w.op("compare", count, stop, to=tensor(BOOL), comparison_direction=way)]

    def turn(count: Value, *rest: Value) -> list[Value]:
        place = count
        if node.attrs["reverse"]:
            place = w.op("subtract", w.full(length - 1, tensor(I64)), count, to=tensor(I64))
        slices = [_row(w, x, place) for x in operands[carries:end]]
        made = w.graph(body, [*rest[:carries], *slices, *operands[end:]])
        written = [_put(w, x, y, place) for x, y in zip(rest[carries:], made[carries:])]
        after = w.op("add", count, w.full(1, tensor(I64)), to=tensor(I64))
        return [after, *made[:carries], *written]

    regions = [w.region(kinds, going), w.region(kinds, turn)]
    return _gathered(node, w.op("while", *state, to=kinds, regions=regions)[1:])


def _starts(w: Writer, x: Value, place: Value) -> list[Value]:
    return [place, *(w.full(0, tensor(I64)) for _ in x.dims[1:])]


def _row(w: Writer, x: Value, place: Value) -> Value:
    dims = (1, *x.dims[1:])
    to: Type = tensor(x.dtype, dims)
    made = w.op("dynamic_slice", x, *_starts(w, x, place), to=to, slice_sizes=dims)
    return w.reshaped(made, x.dims[1:])


def _put(w: Writer, x: Value, row: Value, place: Value) -> Value:
    part = w.reshaped(row, (1, *row.dims))
    return w.op("dynamic_update_slice", x, part, *_starts(w, x, place), to=x.type)  # type: ignore[no-any-return]
