"""Random nested control flow whose values are small whole numbers, so that every engine must give
the same bits and no comparison is a matter of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from graphs import param

from graphc.codegen.build import build
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.types import BOOL, F32, I64, AnyType, TupleType, Type, stack_type, tensor
from graphc.passes import pipeline
from graphc.runtime.call.execute import Executable

SHAPES = ((), (3,), (2, 3), (0,))
KINDS = [tensor(F32, shape) for shape in SHAPES]
COUNT = tensor(I64)
FLAG = tensor(BOOL)
Region = Callable[["Code"], list[Node]]


class Code:
    """The nodes of one graph under construction; `draw` decides everything."""

    def __init__(self, draw: Any, kinds: list[AnyType], depth: int) -> None:
        self.draw = draw
        self.depth = depth
        self.params = tuple(param(k, kind, f"x{k}") for k, kind in enumerate(kinds))
        self.b = Builder(len(kinds))
        self.values = [p for p in self.params if isinstance(p.type, Type)]

    def choose(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def emit(self, name: str, *inputs: Node, **attrs: Any) -> Node:
        return self.b.emit(OPS[name], inputs, attrs, loc=("model.py", self.b.next_id))

    def control(self, name: str, inputs: list[Node], *regions: Graph, **attrs: Any) -> list[Node]:
        made = self.b.emit(OPS[name], inputs, attrs, regions=regions, loc=("model.py", 1))
        if not isinstance(made.type, TupleType):
            return [made]
        return [self.emit("item", made, index=k) for k in range(len(made.type.elements))]

    def keep(self, *nodes: Node) -> None:
        self.values += [n for n in nodes if isinstance(n.type, Type)]

    def const(self, kind: Type, value: int) -> Node:
        return self.emit("const", value=literal(np.full(kind.dims, value, kind.dtype.numpy)))

    def some(self, kind: Type) -> Node:
        """A value of a type: one that exists, rather a late one, or a constant."""
        found = [v for v in self.values if v.type is kind]
        if not found or self.number(0, 5) == 0:
            return self.const(kind, self.number(-2, 2))
        chosen: Node = self.choose((*found, *found[-2:]))
        return chosen

    def floats(self) -> Type:
        return self.choose(KINDS)  # type: ignore[no-any-return]

    # -- plain nodes

    def step(self) -> None:
        plain = (self.unary, self.binary, self.fold, self.grow, self.view, self.update)
        nested = (self.branch, self.scan, self.repeat, self.remember)
        self.choose((*plain, *nested) if self.depth else plain)()

    def clip(self, x: Node) -> Node:
        kind = x.type
        assert isinstance(kind, Type)
        x = self.emit("minimum", x, self.const(kind, 8))
        return self.emit("maximum", x, self.const(kind, -8))

    def unary(self) -> None:
        self.keep(self.emit(self.choose(("neg", "abs")), self.some(self.floats())))

    def binary(self) -> None:
        kind = self.floats()
        name = self.choose(("add", "sub", "mul", "maximum"))
        self.keep(self.clip(self.emit(name, self.some(kind), self.some(kind))))

    def fold(self) -> None:
        kind = self.choose([k for k in KINDS if k.shape])
        self.keep(self.clip(self.emit("sum", self.some(kind), axes=(0,), keepdims=False)))

    def grow(self) -> None:
        self.keep(self.emit("broadcast", self.some(tensor(F32, (3,))), dims=(2, 3)))

    def view(self) -> None:
        x = self.emit("transpose", self.some(tensor(F32, (2, 3))), perm=(1, 0))
        self.keep(self.emit("reshape", x, dims=(2, 3)))

    def update(self) -> None:
        """One element or two of a vector at a place that may be a loop's counter."""
        x, new = self.some(tensor(F32, (3,))), self.some(tensor(F32))
        if self.number(0, 1):
            block = self.emit("reshape", new, dims=(1,))
            self.keep(self.emit("dynamic_update_slice", x, block, self.some(COUNT)))
        else:
            block = self.emit("broadcast", new, dims=(2,))
            self.keep(self.emit("slice_update", x, block, starts=(2,), steps=(-2,)))

    def flag(self) -> Node:
        scalar = tensor(F32)
        return self.emit("lt", self.some(scalar), self.some(scalar))

    # -- control flow

    def region(self, kinds: list[AnyType], build: Region) -> Graph:
        inner = Code(self.draw, kinds, self.depth - 1)
        for _ in range(self.number(0, 3)):
            inner.step()
        return Graph("f", inner.params, inner.b.nodes, tuple(build(inner)))

    def operands(self, most: int = 3) -> list[Node]:
        return [self.some(self.floats()) for _ in range(self.number(0, most))]

    def branch(self) -> None:
        operands = self.operands()
        results = [self.floats() for _ in range(self.number(1, 3))]
        kinds = [n.type for n in operands]
        regions = [self.region(kinds, lambda c: [c.some(k) for k in results]) for _ in range(2)]
        self.keep(*self.control("cond", [self.flag(), *operands], *regions))

    def repeat(self) -> None:
        """A while loop with a counter as its first carry."""
        carried, invariants = self.operands(), self.operands(2)
        inputs = [
            self.const(COUNT, 0),
            *carried,
            self.const(COUNT, self.number(-1, 4)),
            *invariants,
        ]
        kinds = [n.type for n in inputs]
        carries = 1 + len(carried)

        def test(code: Code) -> list[Node]:
            more = code.emit("lt", code.params[0], code.params[carries])
            return [code.emit("and", more, code.flag()) if code.number(0, 2) == 0 else more]

        def body(code: Code) -> list[Node]:
            one = code.const(COUNT, 1)
            rest = [code.some(k) for k in kinds[1:carries] if isinstance(k, Type)]
            return [code.emit("add", code.params[0], one), *rest]

        regions = self.region(kinds, test), self.region(kinds, body)
        self.keep(*self.control("while", inputs, *regions, carries=carries)[1:])

    def scan(self) -> None:
        length = self.number(0, 3)
        slices = [self.floats() for _ in range(self.number(0, 2))]
        carried, invariants = self.operands(), self.operands(1)
        xs = [self.stacked(kind, length) for kind in slices]
        ys = [self.floats() for _ in range(self.number(0, 2))]
        kinds = [*(n.type for n in carried), *slices, *(n.type for n in invariants)]
        results = [*kinds[: len(carried)], *ys]

        def body(code: Code) -> list[Node]:
            return [code.some(k) for k in results if isinstance(k, Type)]

        self.keep(
            *self.control(
                "scan",
                [*carried, *xs, *invariants],
                self.region(kinds, body),
                carries=len(carried),
                scanned=len(xs),
                length=length,
                reverse=bool(self.number(0, 1)),
            )
        )

    def stacked(self, kind: Type, length: int) -> Node:
        wanted = tensor(F32, (length, *kind.dims))
        found = [v for v in self.values if v.type is wanted]
        return self.choose(found) if found else self.const(wanted, self.number(-2, 2))

    def remember(self) -> None:
        """A loop that pushes what it makes and a loop that pops it."""
        kind, length = self.floats(), self.number(0, 3)
        held = stack_type(kind)
        start = [self.some(kind), self.emit("stack", type=kind)]

        def push(code: Code) -> list[Node]:
            value = code.some(kind)
            return [code.some(kind), code.emit("push", code.params[1], value)]

        def pop(code: Code) -> list[Node]:
            top = code.emit("pop", code.params[1])
            value = code.emit("item", top, index=1)
            code.keep(value)
            return [code.some(kind), code.emit("item", top, index=0), value]

        attrs = {"carries": 2, "scanned": 0, "length": length}
        first = self.control("scan", start, self.region([kind, held], push), **attrs)
        made = self.control("scan", first, self.region([kind, held], pop), **attrs)
        self.keep(first[0], made[0], made[2])


@st.composite
def control_graphs(draw: Any, depth: int = 3, most: int = 6) -> Graph:
    """Graphs over f32 values with branches, loops and stacks nested `depth` deep."""
    kinds = [draw(st.sampled_from(KINDS)) for _ in range(draw(st.integers(0, 3)))]
    code = Code(draw, kinds, depth)
    for _ in range(draw(st.integers(1, most))):
        code.step()
    scalar = tensor(F32)
    values = code.values or [code.some(scalar)]
    results = tuple(draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 3))))
    return Graph("g", code.params, code.b.nodes, results)


def whole_numbers(g: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Arguments of small whole numbers."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-3, 4, p.type.dims).astype(np.float32)
        for p in g.params
        if isinstance(p.type, Type)
    ]


def compiled(g: Graph, **options: Any) -> Executable:
    config = Config(verify=3, **options)
    return build(pipeline.run(g, config)[-1].value, config)[0]


def equal(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


EYE = np.arange(4, dtype=np.float32)
STACK = """graph @g(%0 n: i64[], %1 m: i64[], %2 x: f32[4]) {
  %3 = const() {value=i64[](0)} : i64[]
  %4 = stack() {type=f32[4]} : stack<f32[4]>
  %5 = while(%3, %4, %2, %0) {carries=3} : (i64[], stack<f32[4]>, f32[4]) {
    graph @test(%0 i: i64[], %1 s: stack<f32[4]>, %2 x: f32[4], %3 n: i64[]) {
      %4 = lt(%0, %3) : bool[]
      return %4
    }
    graph @body(%0 i: i64[], %1 s: stack<f32[4]>, %2 x: f32[4], %3 n: i64[]) {
      %4 = const() {value=i64[](1)} : i64[]
      %5 = add(%0, %4) : i64[]
      %6 = push(%1, %2) : stack<f32[4]> loc("model.py":7)
      %7 = cast(%0) {dtype=f32} : f32[]
      %8 = add(%2, %7) : f32[4]
      return %5, %6, %8
    }
  }
  %6 = item(%5) {index=1} : stack<f32[4]>
  %7 = item(%5) {index=2} : f32[4]
  %8 = while(%3, %6, %7, %1) {carries=3} : (i64[], stack<f32[4]>, f32[4]) {
    graph @test(%0 i: i64[], %1 s: stack<f32[4]>, %2 x: f32[4], %3 n: i64[]) {
      %4 = lt(%0, %3) : bool[]
      return %4
    }
    graph @body(%0 i: i64[], %1 s: stack<f32[4]>, %2 x: f32[4], %3 n: i64[]) {
      %4 = const() {value=i64[](1)} : i64[]
      %5 = add(%0, %4) : i64[]
      %6 = pop(%1) : (stack<f32[4]>, f32[4]) loc("model.py":9)
      %7 = item(%6) {index=0} : stack<f32[4]>
      %8 = item(%6) {index=1} : f32[4]
      %9 = sub(%8, %2) : f32[4]
      return %5, %7, %9
    }
  }
  %9 = item(%8) {index=2} : f32[4]
  return %9
}"""
