"""Mutated dumps of every late stage: is one ever run to harm?

    python -m benchmarks.hostile --count 100000

The stages of many small models are changed by a grammar that knows the syntax of graphs: numbers,
kinds, orders, sizes, places, attributes, types, and whole operands and ops with all types after
them worked out again.  Each is read as a file is, and run in a child process: arguments, results,
constants and the arena end where a page ends that may not be touched, and hold rubbish before.
A mutation must be refused with a GraphError, or give what the reference interpreter makes of the
same graph, whatever the rubbish was.  What does not is printed with the number that makes it again.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import random
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from graphc.codegen.table import steps
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.files.loaded import LoadedGraph
from graphc.ir.graph import Graph, Node, Program, infer
from graphc.ir.op import OPS, Scalar
from graphc.ir.parse import parse
from graphc.ir.place import Buffer
from graphc.ir.text import literals, show
from graphc.ir.types import F32, TupleType, Type, tensor
from graphc.ops.reference.interpreter import interpret
from graphc.passes.tiling import block
from graphc.runtime.call import execute, frame
from graphc.runtime.call.execute import Executable, stop_all

LATE = ("partition", "schedule", "fuse", "block", "pack", "add_workspace", "plan")
BATCH = 2000  # mutations of one child process
SECONDS = 3  # of one run, native or interpreted
MOST_BYTES = 6 << 30  # of a child's address space
LARGEST = 1 << 26  # bytes of a value worth running

# ------------------------------------------------------------------------------------ models


def attention(q: Any, k: Any, v: Any) -> Any:
    powers = np.exp(q @ np.swapaxes(k, -1, -2))
    return (powers / powers.sum(-1, keepdims=True)) @ v


def scanned(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = np.maximum(h + row @ w, 0)
        return h, h * 2

    return gc.scan(step, 0 * x[0], x)


def looped(x: Any, w: Any) -> Any:
    def body(state: Any) -> Any:
        k, y = state
        return k + 1, np.sort(np.where(y > 0, y @ w, y), axis=0)

    return gc.while_loop(lambda state: state[0] < 3, body, (0, x))


def branch(x: Any, w: Any) -> Any:
    return gc.cond(x.sum() > 0, lambda a, b: (a @ b, a.sum(0)), lambda a, b: (a * 2, b[0]), x, w)


def placed(x: Any, w: Any) -> Any:
    with gc.device("cpu:1"):
        h = np.abs(x @ w)
    return h.sum(0) + np.cumsum(x, axis=1)[0], h


def indexed(x: Any, w: Any) -> Any:
    order = np.argsort(x[:, 0])
    return np.concatenate([x[order], w[:2]]), np.pad(w, 1), np.take_along_axis(x, order[:, None], 1)


def updated(x: Any, w: Any) -> Any:
    def body(k: Any, y: Any) -> Any:
        y[k] = y[k] + w[k]
        return y

    return gc.fori(0, 3, body, x * 1)


STATE = np.arange(8, dtype=np.float32)
variable = gc.Variable(STATE, name="hostile")


def stateful(x: Any) -> Any:
    before = variable * 1
    return variable.assign_add(x.sum(0)) * 2, before


def half(x: Any, w: Any) -> Any:
    return (x.astype("bfloat16") @ w.astype("bfloat16")).astype(np.float32)


X, W = (6, 8), (8, 8)
CONSTANT = np.arange(1600, dtype=np.float32).reshape(40, 40) % 5 - 2
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "chain": (lambda x, w: np.abs(x * 2 - w[0]) + x[::-1], (X, W)),
    "sums": (lambda x, w: (x.sum(1), (x - x.max(1, keepdims=True)) / 4, w.sum(0)), (X, W)),
    "columns": (lambda x, w: (x.max(0), (x * x).sum(0), x + 1), ((40, 3), W)),
    "product": (lambda x, w: np.maximum(x @ w + w[0], 0) @ w.T, (X, W)),
    "packed": (lambda x: np.maximum(x @ CONSTANT, 0), ((6, 40),)),
    "turned": (lambda x, w: (x @ w).T + 1, (X, W)),
    "batch": (lambda x, w: np.einsum("abc,acd->abd", x, w), ((3, 4, 5), (3, 5, 2))),
    "rows": (lambda x, w: gc.nn.softmax(x @ w, axis=-1), ((130, 8), (8, 16))),
    "conv": (lambda x, w: gc.conv(x, w, padding=1), ((2, 3, 6, 6), (4, 3, 3, 3))),
    "winograd": (lambda x, w: gc.conv(x, w, padding=1), ((2, 16, 12, 12), (16, 16, 3, 3))),
    "pooled": (lambda x: gc.max_pool(x, 2), ((2, 3, 6, 6),)),
    "attention": (attention, ((2, 12, 4), (2, 12, 4), (2, 12, 4))),
    "scan": (scanned, (X, W)),
    "while": (looped, (X, W)),
    "cond": (branch, (X, W)),
    "devices": (placed, (X, W)),
    "index": (indexed, (X, W)),
    "update": (updated, (X, W)),
    "totals": (lambda x: np.cumsum(x, axis=1) + np.sort(x, axis=0), (X,)),
    "solve": (lambda x: np.linalg.solve(x + 9 * np.eye(8, dtype=x.dtype), x), (W,)),
    "state": (stateful, (X,)),
    "views": (lambda x, w: x[::-1, 2:6] @ w[4:, ::2] + x[:, :4], (X, W)),
    "axes": (lambda x: (x.reshape(2, 3, 8).sum((0, 2)), x.mean(), x - x.mean()), (X,)),
    "half": (half, (X, W)),
    "complex": (lambda x, w: np.abs((x + 1j * x[::-1]) * 2).sum(1) + w[0, 0], (X, W)),
    "taken": (lambda x, w: (np.take(w, np.argmax(x, 1), axis=0), x.std(1)), (X, W)),
    "joined": (lambda x, w: (np.concatenate([x, w]) * 2, np.concatenate([x, w])), (X, W)),
    "tall": (lambda x: (x.sum(0), x.max()), ((3000, 3),)),
    "gradient": (gc.grad(lambda x, w: (np.abs(x @ w) + x[0]).sum(), wrt=(0, 1)), (X, W)),
    "back": (gc.grad(lambda x, w: (scanned(x, w)[0] ** 2).sum(), wrt=(0, 1)), (X, W)),
    "backs": (gc.grad(lambda x, w: (looped(x, w)[1]).sum(), wrt=0), (X, W)),
    "deviced": (gc.grad(lambda x, w: (placed(x, w)[1] ** 2).sum(), wrt=1), (X, W)),
}


@dataclass
class Dump:
    """A stage of a model."""

    model: str
    stage: str
    value: Graph | Program
    text: str
    tensors: dict[str, Any] = field(repr=False)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Chains of a few kilobytes run in blocks."""
    kept = block.room_of
    block.room_of = lambda config: block.Room(1, 1 << 9, 1, 1, ((np.inf, np.inf),))
    try:
        yield
    finally:
        block.room_of = kept


@cache
def dumps(model: str) -> list[Dump]:
    """What a dump of a model holds, as text that is read back."""
    function, shapes = FUNCTIONS[model]
    specs = [gc.spec(shape, "f32") for shape in shapes]
    devices = ("cpu:0", "cpu:1") if model.startswith("device") else ("cpu:0",)
    compiled = gc.compile(function, threads=1, devices=devices)
    if model == "attention":
        with small_blocks():
            records = compiled.stages(*specs)
    else:
        records = compiled.stages(*specs)
    made = []
    for record in records:
        if record.name in LATE:
            tensors = {found.digest: found.array for found in literals(record.value)}
            made.append(Dump(model, record.name, record.value, show(record.value), tensors))
    return made


# ------------------------------------------------------------------------------------ mutated text

NUMBERS = (0, 1, 2, 3, 5, 7, 8, 16, 63, 64, 65, 4096, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 64, -1)
FLAT = tensor(F32, (8,))
DTYPES = ("f32", "f64", "i64", "i32", "u8", "bool", "bf16", "c64")
KINDS = ("loop", "contract", "staged", "nest", "library")
_NUMBER = re.compile(r"(?<![\w.%])-?\d+(?![\w.])")
_ID = re.compile(r"%\d+")
_TYPE = re.compile(r"\b(?:f32|f64|i64|i32|u8|bool|u32)\[[\d,]*\]")
_OP = re.compile(r"= (\w+)\(")
_PLACE = re.compile(r"\[(?:[\w+:,;]*)\](?= ?(?:\{|$|,|\)))", re.MULTILINE)


def put(text: str, found: re.Match[str], new: str) -> str:
    return text[: found.start()] + new + text[found.end() :]


def some(draw: random.Random, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return draw.choice(found) if found else None


def a_number(draw: random.Random, text: str) -> str:
    found = some(draw, _NUMBER, text)
    if found is None:
        return text
    old = int(found[0])
    near = (old + 1, old - 1, 2 * old, old // 2, -old)
    return put(text, found, str(draw.choice(near if draw.random() < 0.6 else NUMBERS)))


def an_id(draw: random.Random, text: str) -> str:
    found, other = some(draw, _ID, text), some(draw, _ID, text)
    return put(text, found, other[0]) if found and other else text


def a_type(draw: random.Random, text: str) -> str:
    """One type of the text in place of another, everywhere or once."""
    found, other = some(draw, _TYPE, text), some(draw, _TYPE, text)
    if not found or not other:
        return text
    new = other[0]
    if draw.random() < 0.3:
        new = re.sub(r"^\w+", draw.choice(DTYPES), found[0])
    return text.replace(found[0], new) if draw.random() < 0.5 else put(text, found, new)


def a_kind(draw: random.Random, text: str) -> str:
    found = some(draw, re.compile(r'kind="\w+"'), text)
    return put(text, found, f'kind="{draw.choice(KINDS)}"') if found else text


def an_op(draw: random.Random, text: str) -> str:
    found = some(draw, _OP, text)
    return put(text, found, f"= {draw.choice(list(OPS))}(") if found else text


def a_place(draw: random.Random, text: str) -> str:
    found, other = some(draw, _PLACE, text), some(draw, _PLACE, text)
    if not found or not other:
        return text
    base = draw.choice(("", "p0+", "p1+", "r0+", "r1+", "c+", "v0+"))
    region = f"{base}{draw.choice(NUMBERS[:-1])}:{draw.choice(NUMBERS[:-1])}"
    new = draw.choice((other[0], f"[{region}]", f"[{region};{region}]", "", "[;0:8]"))
    return put(text, found, new)


def lines(draw: random.Random, text: str) -> str:
    """A line left out, doubled or moved."""
    rows = text.split("\n")
    k, j = draw.randrange(len(rows)), draw.randrange(len(rows))
    kind = draw.random()
    if kind < 0.3:
        del rows[k]
    elif kind < 0.5:
        rows.insert(j, rows[k])
    else:
        rows.insert(j, rows.pop(k))
    return "\n".join(rows)


def a_result(draw: random.Random, text: str) -> str:
    found, other = some(draw, re.compile(r"return (.*)"), text), some(draw, _ID, text)
    if not found or not other:
        return text
    parts = found[1].split(", ")
    draw.shuffle(parts)
    if draw.random() < 0.5:
        parts[draw.randrange(len(parts))] = other[0]
    return put(text, found, f"return {', '.join(parts)}")


def an_edge(draw: random.Random, text: str) -> str:
    rows = text.split("\n")
    k, other = draw.randrange(len(rows)), some(draw, _ID, text)
    if " = " in rows[k] and other and not rows[k].endswith("{"):
        rows[k] += f" after {other[0]}"
    return "\n".join(rows)


def a_word(draw: random.Random, text: str) -> str:
    """true for false, and one quoted word for another."""
    found = some(draw, re.compile(r"\b(true|false)\b"), text)
    if found and draw.random() < 0.5:
        return put(text, found, "true" if found[0] == "false" else "false")
    quoted = re.compile(r'"[^"\n]*"')
    found, other = some(draw, quoted, text), some(draw, quoted, text)
    return put(text, found, other[0]) if found and other else text


TEXTUAL = (
    a_number,
    a_number,
    an_id,
    a_type,
    a_kind,
    an_op,
    a_place,
    lines,
    a_result,
    an_edge,
    a_word,
)


# ------------------------------------------------------------------------------------ mutated nodes


class Retyped:
    """A copy of a graph with one node changed; every type after it is worked out again."""

    def __init__(self, draw: random.Random, graph: Graph) -> None:
        self.draw = draw
        self.graph = graph
        self.next_id = graph.next_id
        self.nodes: list[Node] = []
        self.mapped: dict[Node, Node] = {p: p for p in graph.params}
        self.more: list[Node] = []  # results that kernels have now and had not

    def made(self, types: Sequence[Any] = ()) -> Graph:
        """The graph, for parameters of these types."""
        graph, draw = self.graph, self.draw
        params = list(graph.params)
        if types:
            params = [p.replace(type=kind) for p, kind in zip(params, types, strict=True)]
        elif draw.random() < 0.1 and params:
            k = draw.randrange(len(params))
            params[k] = params[k].replace(type=draw.choice([*(p.type for p in params), FLAT]))
        self.mapped = dict(zip(graph.params, params, strict=True))
        target = -1 if types or not graph.nodes else draw.randrange(len(graph.nodes))
        for k, node in enumerate(graph.nodes):
            self.append(node, self.changed(node) if k == target else self.copy(node))
            if k == target and draw.random() < 0.4:
                self.wrap(node)
        return self.finished(tuple(params), bool(types))

    def finished(self, params: tuple[Node, ...], faithful: bool) -> Graph:
        draw, nodes = self.draw, self.nodes
        results = [self.mapped[r] for r in self.graph.results]
        if not faithful and draw.random() < 0.1:
            draw.shuffle(nodes)
        if not faithful and draw.random() < 0.2 and results and nodes:
            results[draw.randrange(len(results))] = draw.choice([*params, *nodes])
        if not faithful and draw.random() < 0.3 and nodes:
            results.append(draw.choice(nodes))
        results += self.more
        names = self.graph.result_names
        names = (*names, *(f"more{k}" for k in range(len(results) - len(names))))
        return self.graph.replace(
            params=params,
            nodes=nodes,
            results=tuple(results),
            result_names=names,
            next_id=self.next_id,
        )

    def append(self, old: Node, node: Node) -> None:
        """What stands for the old node; a kernel with more results than it had is taken apart."""
        self.nodes.append(node)
        parts = node.type.elements if isinstance(node.type, TupleType) else ()
        if parts and not isinstance(old.type, TupleType):
            items = []
            for k in range(len(parts)):
                attrs = OPS["item"].coerce({"index": k})
                one = Node(self.next_id, OPS["item"], (node,), attrs, None, place=node.place)
                self.next_id += 1
                items.append(typed(one))
            self.nodes += items
            self.more += items[1:]
            node = items[0]
        self.mapped[old] = node

    def wrap(self, old: Node) -> None:
        """What stands for a node under another name: of a tuple, of another shape, behind a
        barrier."""
        value, other = self.mapped[old], self.draw.choice([*self.mapped.values()])
        kind = self.draw.choice(("tuple", "barrier", "reshape"))
        if kind == "tuple":
            both = self.add("tuple", (value, other), {})
            self.mapped[old] = self.add("item", (both,), {"index": 0})
            if self.draw.random() < 0.5:
                self.more.append(self.add("item", (both,), {"index": 1}))
        elif kind == "barrier":
            self.mapped[old] = self.add("barrier", (value, other), {})
        elif isinstance(value.type, Type):
            flat = self.add("reshape", (value,), {"dims": (value.type.size,)})
            self.mapped[old] = self.add("reshape", (flat,), {"dims": value.type.dims})

    def add(self, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
        place = inputs[0].place
        place = place.device if isinstance(place, Buffer) else place
        given = OPS[op].coerce(attrs)
        made = typed(Node(self.next_id, OPS[op], inputs, given, None, place=place))
        self.next_id += 1
        self.nodes.append(made)
        return made

    def copy(self, node: Node) -> Node:
        inputs = tuple(self.mapped[n] for n in node.inputs)
        after = tuple(self.mapped[n] for n in node.after)
        return typed(self.fitted(node.replace(inputs=inputs, after=after)))

    def fitted(self, node: Node) -> Node:
        """A kernel whose region takes what the operands are now."""
        types = [n.type for n in node.inputs]
        if node.op.name not in ("fused", "blocked"):
            return node
        region = node.regions[0]
        if types == [p.type for p in region.params] or len(types) != len(region.params):
            return node
        return node.replace(regions=(Retyped(self.draw, region).made(types),))

    def changed(self, node: Node) -> Node:
        draw, made = self.draw, self.copy(node)
        known = [*self.mapped.values()]
        if made.regions and draw.random() < 0.7:
            return typed(self.inside(made))
        kind = draw.random()
        if kind < 0.4 and made.inputs:
            inputs = list(made.inputs)
            inputs[draw.randrange(len(inputs))] = draw.choice(known)
            return typed(self.fitted(made.replace(inputs=tuple(inputs))))
        if kind < 0.7 and (others := scalars(made)):
            return typed(made.replace(op=draw.choice(others), attrs=None))
        if kind < 0.8 and len(made.inputs) > 1:
            shuffled = tuple(draw.sample(made.inputs, len(made.inputs)))
            return typed(self.fitted(made.replace(inputs=shuffled)))
        return typed(made.replace(attrs=None), self.attributes(made))

    def inside(self, node: Node) -> Node:
        regions = list(node.regions)
        k = self.draw.randrange(len(regions))
        regions[k] = Retyped(self.draw, regions[k]).made()
        if self.draw.random() < 0.2 and regions[k].params:
            return self.with_param(node, regions, k)
        return node.replace(regions=tuple(regions))

    def with_param(self, node: Node, regions: list[Graph], k: int) -> Node:
        """One operand more, which the region may read or return."""
        region, operand = regions[k], self.draw.choice([*self.mapped.values()])
        param = region.params[0].replace(id=region.next_id, type=operand.type)
        grown = region.replace(params=(*region.params, param), next_id=region.next_id + 1)
        results = list(grown.results)
        results[self.draw.randrange(len(results))] = self.draw.choice([param, *grown.nodes])
        regions[k] = grown.replace(results=tuple(results))
        return node.replace(inputs=(*node.inputs, operand), regions=tuple(regions))

    def attributes(self, node: Node) -> dict[str, Any]:
        values = dict(node.attrs.values_dict)
        for name in self.draw.sample(list(values), min(1, len(values))):
            values[name] = self.value(values[name])
        return values

    def value(self, old: Any) -> Any:
        draw = self.draw
        if isinstance(old, bool):
            return not old
        if isinstance(old, int):
            return draw.choice((old + 1, old - 1, 2 * old, *NUMBERS))
        if isinstance(old, tuple) and old:
            k = draw.randrange(len(old))
            return (*old[:k], self.value(old[k]), *old[k + 1 :])
        return draw.choice(KINDS) if isinstance(old, str) else old


def scalars(node: Node) -> list[Any]:
    """The ops that could stand in an element-wise node's place."""
    return ops_of(len(node.inputs)) if isinstance(node.op.lower, Scalar) else []


@cache
def ops_of(arity: int) -> list[Any]:
    """Element-wise ops that take so many operands."""
    found = []
    for op in OPS.values():
        if isinstance(op.lower, Scalar) and not op.attrs:
            kinds = tuple([tensor(F32, (2,))] * arity)
            try:
                op.result_type(kinds, op.coerce({}))
            except (GraphError, TypeError, AssertionError):
                continue
            found.append(op)
    return found


def typed(node: Node, attrs: dict[str, Any] | None = None) -> Node:
    """The node with the type that its rule gives. Raises GraphError."""
    given = node.attrs if node.attrs is not None and attrs is None else node.op.coerce(attrs or {})
    kind = infer(node.op, tuple(n.type for n in node.inputs), given, node.regions)
    return node.replace(attrs=given, type=kind)


def retyped(draw: random.Random, dump: Dump) -> str:
    """The text of a stage with a node changed."""
    value = dump.value
    if isinstance(value, Graph):
        return show(Retyped(draw, value).made())
    graphs = list(value.graphs)
    k = draw.randrange(len(graphs))
    graphs[k] = Retyped(draw, graphs[k]).made()
    return show(Program(value.name, tuple(graphs)))


def mutated(draw: random.Random, models: Sequence[str]) -> tuple[Dump, str]:
    """A stage and what became of its text. Raises GraphError where no types fit."""
    dump = draw.choice(dumps(draw.choice(models)))
    text = dump.text
    if draw.random() < 0.7:
        text = retyped(draw, dump)
    if text is dump.text or draw.random() < 0.1:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            text = draw.choice(TEXTUAL)(draw, text)
    return dump, text


# ------------------------------------------------------------------------------------ fenced memory

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE
rubbish = 0xA7  # the byte that memory holds before it is written


def fenced(nbytes: int) -> np.ndarray[Any, Any]:
    """So many bytes of rubbish between two pages that cannot be touched; they end at the second."""
    pages = -(-nbytes // _PAGE)
    area = mmap.mmap(-1, (pages + 2) * _PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for start in (base, base + (pages + 1) * _PAGE):
        assert _LIBC.mprotect(ctypes.c_void_p(start), _PAGE, 0) == 0
    inside = np.frombuffer(area, np.uint8, pages * _PAGE, _PAGE)
    inside[...] = rubbish
    return inside[pages * _PAGE - nbytes :]


def fenced_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    return fenced(nbytes).view(dtype).reshape(shape)


def fenced_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = fenced_array(array.shape, array.dtype)
    made[...] = array
    return made


@contextmanager
def fences() -> Iterator[None]:
    """Arenas, results and constants are fenced."""
    kept = frame.aligned_bytes, frame.result_array, execute.result_array
    constants = steps.TableWriter.constants
    frame.aligned_bytes = lambda size, alignment=64: fenced(-(-size // alignment) * alignment)
    frame.result_array = execute.result_array = fenced_array
    steps.TableWriter.constants = lambda self: fenced_copy(constants(self))
    try:
        yield
    finally:
        frame.aligned_bytes, frame.result_array, execute.result_array = kept
        steps.TableWriter.constants = constants


# ------------------------------------------------------------------------------------ judging


class TooLong(Exception):
    """An interpretation takes more than its time."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def arguments(value: Graph | Program, seed: int) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, at the end of a page."""
    numbers = np.random.default_rng(seed)
    made = []
    for param in value.params:
        assert isinstance(param.type, Type)
        drawn = numbers.integers(-2, 3, param.type.dims)
        made.append(fenced_copy(np.asarray(drawn).astype(param.type.dtype.numpy)))
    return made


def too_large(value: Graph | Program) -> bool:
    graphs = value.graphs if isinstance(value, Program) else (value,)
    return any(n.nbytes > LARGEST for g in graphs for n in (*g.params, *g.nodes))


def run_fenced(loaded: LoadedGraph, given: list[Any]) -> list[Any]:
    """The results, which are the same whatever memory held before. Raises AssertionError."""
    global rubbish
    made = []
    image = loaded.build(*(a.shape for a in given)).image
    for byte in (0xA7, 0x00):
        rubbish = byte
        executable = Executable(image) if not image.others else gc_executable(image)
        variable.assign(STATE)
        timer = threading.Timer(SECONDS, stop_all)
        timer.start()
        try:
            made.append(executable.run([fenced_copy(a) for a in given]))
        finally:
            timer.cancel()
    for first, second in zip(*made, strict=True):
        assert first.tobytes() == second.tobytes(), "a result holds what was never written"
    return made[0]


def gc_executable(image: Any) -> Any:
    from graphc.runtime.devices.multi_device import executable

    return executable(image)


def agree(made: list[Any], want: list[Any], exact: list[Any]) -> bool:
    """Are the results the reference's, up to rounding, of which `exact` has none?

    Whole numbers that rounding decides (the rows that `lu` exchanges) may be any.
    """
    for got, wanted, wide in zip(made, want, exact, strict=True):
        if got.dtype.kind in "iub":
            near = np.all((got == wanted) | (wanted != wide))
        else:
            a, b, c = (np.asarray(x).astype("c16") for x in (got, wanted, wide))
            finite = np.isfinite(b) & np.isfinite(c)
            large = np.abs(b[finite]).max(initial=1)
            rounding, room = np.where(finite, np.abs(b - c), 0), 1e-2 * np.abs(b) + 1e-3 * large
            if np.any(rounding > room):  # little is left of large numbers
                rounding[...] = rounding.max()
            error = np.abs(a - b) <= 100 * rounding + room
            near = np.all(error | (a == b) | (np.isnan(a) & np.isnan(b)))
        if not near:
            return False
    return True


def judge(dump: Dump, text: str, seed: int, level: int = 0) -> str:
    """What became of a mutated stage: refused, equal, or something that must not be."""
    try:
        value = parse(text, dump.tensors)
        if too_large(value):
            return "large"
        loaded = LoadedGraph(value, Config.create(threads=1 + seed % 2, verify=level), dump.stage)
        with fences():
            given = arguments(value, seed)
            made = run_fenced(loaded, given)
    except GraphError as error:
        return "stopped" if "cancelled" in error.message else "refused"
    try:
        with alarm(SECONDS):
            state = {("main", "hostile"): STATE}
            want = exact = interpret(value, given, state=dict(state))
            with suppress(GraphError):  # bits of wider numbers are others
                exact = interpret(value, given, wide=True, state=dict(state))
    except (GraphError, TooLong) as error:
        return f"unjudged {str(error)[:100]!r}"
    with np.errstate(all="ignore"):
        if agree(made, want, exact):
            return "equal"
        finite = all(np.isfinite(x).all() for x in want if np.asarray(x).dtype.kind in "fc")
        # Which rows change places for what is no number is nobody's promise.
        return "unjudged pivots" if "= lu(" in text and not finite else "DIFFERENT"


def outcome(seed: int, models: Sequence[str]) -> str:
    """Make mutation number `seed`, run and judge it."""
    try:
        dump, text = mutated(random.Random(seed), models)
    except GraphError:
        return "untyped"
    except Exception:  # noqa: BLE001  (a type rule of the op)
        return f"RULE {last_line()}"
    try:
        return judge(dump, text, seed)
    except MemoryError:
        return "memory"
    except Exception:  # noqa: BLE001  (what must not be: told by its number)
        return f"TRACEBACK {last_line()}"


def last_line() -> str:
    """Where the present exception comes from."""
    rows = traceback.format_exc(limit=-2).splitlines()
    where = [re.sub(r".*/(graphc|benchmarks)/", "", row) for row in rows if "File" in row]
    return f"{rows[-1][:200]} {where[-1:]}"


# ------------------------------------------------------------------------------------ processes


def work(first: int, count: int, models: Sequence[str], report: Path) -> None:
    """Judge mutations in this process; what is going on stands in the report."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with report.open("a") as file:
        for seed in range(first, first + count):
            file.write(f"{seed} ")
            file.flush()
            file.write(f"{outcome(seed, models)}\n")
            file.flush()


def batch(first: int, count: int, models: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The outcome of each mutation; a child that dies is followed by another."""
    report = Path(f"/tmp/hostile-{os.getpid()}.txt")
    while count:
        report.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            os.nice(10)
            work(first, count, models, report)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = [row.partition(" ") for row in report.read_text().splitlines()]
        for seed, _, text in found:
            yield int(seed), text or f"DEATH by signal {os.waitstatus_to_exitcode(status)}"
        done = len(found)
        first, count = first + done, count - done
    report.unlink(missing_ok=True)


def is_bad(text: str) -> bool:
    return text.split(" ")[0].isupper()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print number --first and judge it")
    parser.add_argument("--models", default=",".join(FUNCTIONS))
    options = parser.parse_args()
    models = options.models.split(",")
    if options.show:
        dump, text = mutated(random.Random(options.first), models)
        print(f"# {dump.model} {dump.stage}\n{text}")
        print(judge(dump, text, options.first))
        return 0
    for model in models:
        dumps(model)
    totals: Counter[str] = Counter()
    started = time.monotonic()
    for first in range(options.first, options.first + options.count, BATCH):
        count = min(BATCH, options.first + options.count - first)
        for seed, text in batch(first, count, models):
            totals[text.split(" ")[0]] += 1
            if is_bad(text):
                print(f"{seed}: {text}", flush=True)
        seconds = time.monotonic() - started
        print(f"{sum(totals.values())} in {seconds:.0f} s: {dict(totals)}", flush=True)
    return 1 if any(map(is_bad, totals)) else 0


if __name__ == "__main__":
    sys.exit(main())
