"""Tuples, calls, branches, loops, and the stacks of their gradients, which are sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.formats.onnx.export.writer import Writer, element_number, rule
from graphc.ir.graph import Node
from graphc.ir.types import BOOL, I64, AnyType, StackType, TupleType, tensor


def _types(node: Node) -> Sequence[AnyType]:
    return node.type.elements if isinstance(node.type, TupleType) else (node.type,)


def _gathered(node: Node, made: Any) -> Any:
    """Results as those of the node: a tuple of names, or the one name."""
    names = made if isinstance(made, tuple | list) else (made,)
    return tuple(names) if isinstance(node.type, TupleType) else names[0]


@rule("tuple", moves=True)
def make_tuple(w: Writer, node: Node, *parts: Any) -> Any:
    return tuple(parts)


@rule("item", moves=True)
def item(w: Writer, node: Node, source: Any) -> Any:
    return source[node.attrs["index"]]


@rule("call", "fused", moves=True)
def call(w: Writer, node: Node, *operands: Any) -> Any:
    return _gathered(node, w.graph(node.regions[0], operands))


@rule("cond", moves=True)
def cond(w: Writer, node: Node, predicate: str, *operands: Any) -> Any:
    types = _types(node)
    then, other = (
        w.body(name, [], lambda region=region: w.graph(region, operands), types)  # type: ignore[misc]
        for name, region in zip(("then", "else"), node.regions)
    )
    made = w.op("If", predicate, outputs=len(types), then_branch=then, else_branch=other)
    return _gathered(node, made)


@rule("while", moves=True)
def while_loop(w: Writer, node: Node, *operands: Any) -> Any:
    """The format tests at the end of a turn, so the first test stands before the loop."""
    carries, (test, body), types = node.attrs["carries"], node.regions, _types(node)
    held = operands[carries:]
    state = [w.fresh() for _ in types]
    inputs = [(w.fresh(), tensor(I64)), (w.fresh(), tensor(BOOL)), *zip(state, types)]

    def turn() -> list[str]:
        made = w.graph(body, [*state, *held])
        return [*w.graph(test, [*made, *held]), *made]

    (go,) = w.graph(test, operands)
    inner = w.body("turn", inputs, turn, [tensor(BOOL), *types])
    return _gathered(
        node, w.op("Loop", "", go, *operands[:carries], outputs=len(types), body=inner)
    )


@rule("scan", moves=True)
def scan(w: Writer, node: Node, *operands: Any) -> Any:
    carries, scanned, way = node.attrs["carries"], node.attrs["scanned"], node.attrs["reverse"]
    types = _types(node)
    end, (body,) = carries + scanned, node.regions
    if not scanned or any(isinstance(kind, StackType) for kind in types) or not types:
        return _counted(w, node, operands)
    params = [(w.fresh(), p.type) for p in body.params[:end]]
    names = [name for name, _ in params]
    results = [r.type for r in body.results]
    inner = w.body("step", params, lambda: w.graph(body, [*names, *operands[end:]]), results)
    directions = {"scan_input_directions": [int(way)] * scanned}
    if len(results) > carries:
        directions["scan_output_directions"] = [int(way)] * (len(results) - carries)
    made = w.op(
        "Scan",
        *operands[:end],
        outputs=len(types),
        body=inner,
        num_scan_inputs=scanned,
        **directions,
    )
    return _gathered(node, made)


def _counted(w: Writer, node: Node, operands: Sequence[Any]) -> Any:
    """A scan as a Loop of so many turns: it carries sequences, too, and needs nothing to scan."""
    carries, scanned = node.attrs["carries"], node.attrs["scanned"]
    end, (body,), types = carries + scanned, node.regions, _types(node)
    turn, going = w.fresh(), w.fresh()
    state = [w.fresh() for _ in range(carries)]
    count = w.op("Squeeze", w.extent(node.attrs["length"]))
    inputs = [(turn, tensor(I64)), (going, tensor(BOOL)), *zip(state, types)]

    def step() -> list[str]:
        place = turn
        if node.attrs["reverse"]:
            place = w.op("Sub", w.op("Sub", count, w.number(1, I64)), turn)
        slices = [w.op("Gather", x, place, axis=0) for x in operands[carries:end]]
        return [going, *w.graph(body, [*state, *slices, *operands[end:]])]

    inner = w.body("step", inputs, step, [tensor(BOOL), *(r.type for r in body.results)])
    true = w.number(True, BOOL)
    made = w.op("Loop", count, true, *operands[:carries], outputs=len(types), body=inner)
    names = list(made) if isinstance(made, tuple) else [made]
    if node.attrs["reverse"]:
        back = [w.integers([k]) for k in (-1, -(2**63) + 1, 0, -1)]
        names[carries:] = [w.op("Slice", name, *back) for name in names[carries:]]
    return _gathered(node, names)


@rule("stack", moves=True)
def stack(w: Writer, node: Node) -> Any:
    return w.op("SequenceEmpty", dtype=element_number(node.attrs["type"].dtype))


@rule("push", moves=True)
def push(w: Writer, node: Node, held: str, x: str) -> Any:
    return w.op("SequenceInsert", held, x)


@rule("pop", moves=True)
def pop(w: Writer, node: Node, held: str) -> Any:
    last = w.number(-1, I64)
    return w.op("SequenceErase", held, last), w.op("SequenceAt", held, last)
