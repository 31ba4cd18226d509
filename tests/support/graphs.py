"""Small graphs for tests: from text, by hand, and at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np

import graphc.ops  # noqa: F401  (fills the op table)
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ir.types import AnyType, Type, dtype, tensor


def graph(body: str, params: str = "%0 x: f32[4], %1 y: f32[4]", result: str = "") -> Graph:
    """A graph from node lines; the last node is the result unless given."""
    lines = [line.strip() for line in body.strip().split("\n") if line.strip()]
    last = result or lines[-1].split(" ")[0]
    text = "\n  ".join(lines)
    made = parse(f"graph @g({params}) {{\n  {text}\n  return {last}\n}}\n")
    assert isinstance(made, Graph)
    return made


def param(id: int, kind: AnyType, name: str) -> Node:
    op = OPS["param"]
    return Node(id, op, (), op.coerce({"name": name}), kind)


def arguments(g: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Random arrays of the parameters' types, with a few special floats."""
    rng = np.random.default_rng(seed)
    made = []
    for p in g.params:
        assert isinstance(p.type, Type)
        values = rng.uniform(-3, 3, p.type.dims)
        if p.type.dtype.kind == "f" and values.size > 4:
            values.reshape(-1)[:3] = (0.0, -0.0, 1e-3)
        made.append(values.astype(p.type.dtype.numpy))
    return made


UNARY = ("neg", "abs", "tanh", "sigmoid", "square", "floor", "relu")
# No division: it would turn the sign of a zero, which max and min leave open, into an infinity.
BINARY = ("add", "sub", "mul", "maximum", "minimum")
# What rounds nothing: of the same numbers it is the same number, however it is computed.
EXACT = (
    *("const", "neg", "abs", "relu", "floor", "maximum", "minimum", "max", "min", "lt", "where"),
    *("reshape", "transpose", "broadcast", "slice", "pad", "concat", "sort"),
)
REDUCTIONS = ("sum", "max", "mean", "min")
Shapes = tuple[tuple[int, ...], ...]
SHAPES: Shapes = ((), (3,), (1,), (4, 3), (4, 1), (2, 4, 3), (0, 3), (2, 1, 3))


def is_exact(node: Node) -> bool:
    """Whether a value is the same in the last bit wherever it is computed: of one that is not,
    `floor` may be another number, as of a sigmoid that rounds to 1 or stays below."""
    seen, pending = {node}, [node]
    while pending:
        made = pending.pop()
        if made.inputs and made.op.name not in EXACT:
            return False
        pending += set(made.inputs) - seen
        seen |= {*made.inputs}
    return True


class RandomGraph:
    """Grows a well-typed graph; `draw` decides everything."""

    def __init__(self, draw: Any, shapes: Shapes = SHAPES) -> None:
        self.draw = draw
        self.shapes = shapes
        self.b = Builder()
        self.values: list[Node] = []

    def choose(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def value(self) -> Node:
        found: Node = self.choose(self.values)
        return found

    def shape(self, node: Node) -> tuple[int, ...]:
        assert isinstance(node.type, Type)
        return node.type.dims

    def emit(self, name: str, *inputs: Node, **attrs: Any) -> None:
        self.values.append(
            self.b.emit(OPS[name], inputs, attrs, loc=("model.py", len(self.values)))
        )

    def step(self) -> None:
        kind = self.choose(
            (
                "unary",
                "binary",
                "binary",
                "reduce",
                "view",
                "const",
                "select",
                "matmul",
                "matmul",
                "concat",
            )
        )
        getattr(self, kind)()

    def unary(self) -> None:
        name = self.choose([n for n in UNARY if n in OPS])
        exact = [v for v in self.values if is_exact(v)]
        self.emit(name, self.choose(exact) if name == "floor" else self.value())

    def const(self) -> None:
        shape = self.choose(self.shapes)
        data = np.full(shape, self.choose((0.5, -2.0, 0.0, -0.0, 1.0)), np.float32)
        self.values.append(self.b.emit(OPS["const"], (), {"value": literal(data)}))

    def binary(self) -> None:
        x = self.value()
        options = [v for v in self.values if self.broadcasts(x, v)]
        self.emit(self.choose([n for n in BINARY if n in OPS]), x, self.choose(options))

    def broadcasts(self, *nodes: Node) -> bool:
        try:
            np.broadcast_shapes(*(self.shape(n) for n in nodes))
        except ValueError:
            return False
        return True

    def reduce(self) -> None:
        x = self.value()
        shape = self.shape(x)
        axes = tuple(k for k in range(len(shape)) if self.draw(st.booleans()))
        name = self.choose(REDUCTIONS)
        if name != "sum" and any(shape[a] == 0 for a in axes):
            name = "sum"
        attrs = {a.name: a.default for a in OPS[name].attrs}
        attrs |= {"axes": axes, "keepdims": self.draw(st.booleans())}
        self.emit(name, x, **attrs)

    def view(self) -> None:
        x = self.value()
        shape = self.shape(x)
        kind = self.choose(("reshape", "transpose", "slice", "broadcast"))
        if kind == "transpose":
            self.emit(kind, x, perm=tuple(self.draw(st.permutations(range(len(shape))))))
        elif kind == "reshape":
            self.emit(kind, x, dims=self.choose(((int(np.prod(shape)),), (1, *shape), (*shape, 1))))
        elif kind == "broadcast":
            self.emit(kind, x, dims=(2, *shape))
        elif shape:
            starts = tuple(self.draw(st.integers(0, max(0, e - 1))) for e in shape)
            steps = tuple(self.draw(st.integers(1, 2)) for _ in shape)
            self.emit(kind, x, starts=starts, stops=shape, steps=steps)

    def select(self) -> None:
        x = self.value()
        same = [v for v in self.values if v.type is x.type]
        y = self.choose(same)
        self.emit("lt", x, y)
        condition = self.values.pop()
        self.values.append(self.b.emit(OPS["where"], (condition, x, y)))

    def concat(self) -> None:
        x = self.value()
        same = [v for v in self.values if v.type is x.type]
        if self.shape(x):
            parts = [self.choose(same) for _ in range(self.choose((2, 3, 5)))]
            self.emit("concat", *parts, axis=self.draw(st.integers(0, len(self.shape(x)) - 1)))

    def matmul(self) -> None:
        matrices = [v for v in self.values if len(self.shape(v)) >= 2]
        if not matrices:
            return
        x = self.choose(matrices)
        axes = list(range(len(self.shape(x))))
        axes[-2:] = reversed(axes[-2:])
        self.emit("transpose", x, perm=tuple(axes))
        self.emit("matmul", x, self.values[-1])


@st.composite
def random_graphs(draw: Any, most: int = 14, shapes: Shapes = SHAPES) -> Graph:
    """Well-typed f32 graphs with element-wise ops, folds, views, products and empty shapes."""
    made = RandomGraph(draw, shapes)
    kinds = [
        tensor(dtype("f32"), draw(st.sampled_from(shapes))) for _ in range(draw(st.integers(1, 3)))
    ]
    params = tuple(param(k, kind, f"x{k}") for k, kind in enumerate(kinds))
    made.b.next_id = len(params)
    made.values.extend(params)
    for _ in range(draw(st.integers(1, most))):
        made.step()
    candidates = made.values
    count = draw(st.integers(1, min(3, len(candidates))))
    results = tuple(draw(st.sampled_from(candidates)) for _ in range(count))
    return Graph("g", params, made.b.nodes, results)


def same(got: Sequence[Any], want: Sequence[Any], tolerance: float = 1e-5) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        with np.errstate(all="ignore"):
            scale = np.max(np.abs(b[np.isfinite(b)]), initial=1.0)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)
