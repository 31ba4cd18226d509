"""Random typed graphs with open sizes, run between closed pages beside the reference.

As a script: `python tests/support/open_graphs.py FIRST COUNT` runs so many programs from a number
on, each with one and with two threads, optimised and not, for several sizes; it stops at the first
difference and says which program it is.
"""

from __future__ import annotations

import faulthandler
import math
import random
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from graphs import BINARY, UNARY, is_exact, param
from guarded_arrays import guarded
from open_sizes import Template, wrong

import graphc.ops  # noqa: F401  (fills the op table)
from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OPS
from graphc.ir.sizes import Scope
from graphc.ir.specialise import specialise
from graphc.ir.types import F32, Dimension, Type, substitute, substitute_dim, symbol, tensor
from graphc.ops.reference.interpreter import interpret

N, M = symbol("n"), symbol("m")
SHAPES: tuple[tuple[Dimension, ...], ...] = (
    *((), (N,), (M,), (N, M), (M, N), (N, 1), (1, M), (N, 5), (3, N), (N, 33), (1,)),
    *((2, N, M), (N, 3, M), (N, M, 4), (N, N)),
)
SIZES = ((7, 5), (0, 9), (6, 0), (1, 1), (16, 33), (2, 64), (100, 3), (33, 16))
EXAMPLES = ((20, 33), (5, 2), (300, 64))
REDUCTIONS = ("sum", "sum", "max", "mean", "min", "var", "logsumexp")
MOST = 1 << 16  # elements of a value, for the largest sizes


class OpenGraph:
    """Grows a well-typed graph of f32 arrays; `chance` decides everything."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.b = chance, Builder()
        self.values: list[Node] = []

    def graph(self) -> Graph:
        kinds = [tensor(F32, self.pick(SHAPES)) for _ in range(self.chance.randint(1, 3))]
        params = tuple(param(k, kind, f"x{k}") for k, kind in enumerate(kinds))
        self.b.next_id = len(params)
        self.values += params
        for _ in range(self.chance.randint(1, 14)):
            self.step()
        results = [self.pick(self.values) for _ in range(self.chance.randint(1, 3))]
        return Graph("g", params, self.b.nodes, tuple(results))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.chance.randrange(len(options))]

    def shape(self, node: Node) -> tuple[Dimension, ...]:
        assert isinstance(node.type, Type)
        return node.type.shape

    def emit(self, name: str, *inputs: Node, **attrs: Any) -> None:
        """One node more, unless it is not typed or too large."""
        try:
            made = self.b.emit(OPS[name], inputs, attrs, loc=("model.py", len(self.values)))
        except GraphError:
            return
        largest = {"n": max(n for n, _ in SIZES), "m": max(m for _, m in SIZES)}
        shape = [substitute_dim(d, largest) for d in self.shape(made)]
        if math.prod(n for n in shape if isinstance(n, int)) <= MOST:
            self.values.append(made)
        else:
            self.b.nodes.remove(made)

    def step(self) -> None:
        kinds = (self.unary, self.binary, self.binary, self.reduce, self.view, self.view, self.move)
        self.pick((*kinds, self.rows, self.select, self.concat, self.product, self.product))()

    def unary(self) -> None:
        name, exact = self.pick(UNARY), [v for v in self.values if is_exact(v)]
        self.emit(name, self.pick(exact if name == "floor" else self.values))

    def binary(self) -> None:
        x = self.pick(self.values)
        fits = [v for v in self.values if self.broadcasts(self.shape(x), self.shape(v))]
        self.emit(self.pick(BINARY), x, self.pick(fits))

    def broadcasts(self, x: tuple[Dimension, ...], y: tuple[Dimension, ...]) -> bool:
        return all(a is b or 1 in (a, b) for a, b in zip(reversed(x), reversed(y), strict=False))

    def reduce(self) -> None:
        x = self.pick(self.values)
        axes = tuple(k for k in range(len(self.shape(x))) if self.chance.random() < 0.5)
        name, keeps = self.pick(REDUCTIONS), self.chance.random() < 0.5
        self.emit(name, x, axes=axes, keepdims=keeps)

    def rows(self) -> None:
        x = self.pick(self.values)
        if not self.shape(x):
            return
        axis = self.chance.randrange(len(self.shape(x)))
        name = self.pick(("softmax", "log_softmax", "cumsum", "sort", "layer_norm"))
        attrs: dict[str, Any] = {"axis": axis}
        if name == "layer_norm":
            attrs = {"axes": (axis,)}
        self.emit(name, x, **({} if name == "sort" else attrs))

    def view(self) -> None:
        x = self.pick(self.values)
        shape = self.shape(x)
        kind = self.pick(("reshape", "transpose", "broadcast"))
        if kind == "transpose":
            perm = tuple(self.chance.sample(range(len(shape)), len(shape)))
            self.emit(kind, x, perm=perm)
        elif kind == "broadcast":
            self.emit(kind, x, dims=(self.pick((2, N, M)), *shape))
        else:
            flat: Dimension = 1
            for extent in shape:
                flat = flat * extent
            self.emit(kind, x, dims=self.pick(((flat,), (1, *shape), (*shape, 1))))

    def move(self) -> None:
        """A part, in steps or backwards, or zeros around."""
        x = self.pick(self.values)
        shape = self.shape(x)
        if not shape:
            return
        zeros = (0,) * len(shape)
        which = self.pick(range(len(shape)))
        here = {which: self.pick((1, 2))}
        steps = tuple(here.get(k, 1) for k in range(len(shape)))
        if self.chance.random() < 0.5:
            starts = tuple(1 if k == which and d != 1 else 0 for k, d in enumerate(shape))
            self.emit("slice", x, starts=starts, stops=shape, steps=steps)
        else:
            fill = self.b.emit(OPS["const"], (), {"value": _number(0.5)})
            low = tuple(self.pick((0, 1)) for _ in shape)
            self.emit("pad", x, fill, low=low, high=tuple(s - 1 for s in steps), interior=zeros)

    def select(self) -> None:
        x = self.pick(self.values)
        y = self.pick([v for v in self.values if v.type is x.type])
        condition = self.b.emit(OPS["lt"], (x, y), {})
        self.emit("where", condition, x, y)

    def concat(self) -> None:
        x = self.pick(self.values)
        shape = self.shape(x)
        if shape:
            alike = [v for v in self.values if v.type is x.type]
            parts = [self.pick(alike) for _ in range(self.pick((2, 3)))]
            self.emit("concat", *parts, axis=self.chance.randrange(len(shape)))

    def product(self) -> None:
        matrices = [v for v in self.values if len(self.shape(v)) == 2]
        pairs = [(x, y) for x in matrices for y in matrices if self.shape(x)[1] is self.shape(y)[0]]
        if pairs and self.chance.random() < 0.7:
            self.emit("matmul", *self.pick(pairs))
        elif matrices:
            x = self.pick(matrices)
            before = len(self.values)
            self.emit("transpose", x, perm=(1, 0))
            if len(self.values) > before:
                self.emit("matmul", x, self.values[-1])


def _number(value: float) -> Any:
    from graphc.ir.literal import literal

    return literal(np.float32(value))


# ------------------------------------------------------------------------------------ runs


def open_graph(number: int) -> Graph:
    """The program of a number."""
    return OpenGraph(random.Random(number)).graph()


def check(
    number: int, turns: Sequence[tuple[int, int]], count: int = len(SIZES)
) -> tuple[int, int]:
    """Compile a program for (opt, threads) and compare; how many sizes were served and refused."""
    graph, served, refused = open_graph(number), 0, 0
    example = EXAMPLES[number % len(EXAMPLES)]
    names = {s for p in graph.params for s in p.type.symbols()}  # type: ignore[union-attr]
    for opt, threads in turns:
        scope = Scope()
        binding = {s: scope.symbol(s, e) for s, e in zip("nm", example, strict=True) if s in names}
        try:
            made = Template(specialise(graph, binding), scope, opt=opt, threads=threads)
        except (GraphError, KeyError):
            return 0, 0  # it needs a number, or a size that no array says
        if made.formulas is None:
            return 0, 0
        for turn, sizes in enumerate(SIZES[:count]):
            numbers = dict(zip("nm", sizes, strict=True))
            try:
                exact = specialise(graph, numbers)
            except GraphError:  # the greatest of nothing
                shapes = [substitute(p.type, numbers).dims for p in graph.params]  # type: ignore[union-attr]
                assert made.formulas.fits(shapes) is None, number
                continue
            got = between_pages(made, exact, "before" if turn % 2 else "behind")
            served, refused = served + (got is not None), refused + (got is None)
            if got is not None and (trouble := wrong(*got)):
                raise AssertionError(
                    f"program {number}, opt {opt}, {threads} threads, {sizes}: {trouble}"
                )
    return served, refused


def between_pages(made: Template, exact: Graph, side: str) -> tuple[Any, Any] | None:
    """What a program and the reference give; its operands, results and arena lie beside a page
    that nobody may touch."""
    rng = np.random.default_rng(1)
    shapes = [p.type.dims for p in exact.params]  # type: ignore[union-attr]
    arrays = [guarded(rng.uniform(-2, 2, s).astype(np.float32), side) for s in shapes]

    def fresh(shape: Any, element: Any) -> Any:
        return guarded(np.full(shape, 7, element), side)

    def arena(size: int, alignment: int = 64) -> Any:
        return guarded(np.full(-(-size // 4096) * 4096, 77, np.uint8), side)[:size]

    frames = "graphc.runtime.call.frame"
    with (
        mock.patch(f"{frames}.result_array", fresh),
        mock.patch(f"{frames}.aligned_bytes", arena),
        np.errstate(all="ignore"),
    ):
        got = made.run(arrays)
        return None if got is None else (got, interpret(exact, arrays))


def main() -> None:
    """Programs FIRST, FIRST + 1 ..., COUNT of them."""
    faulthandler.enable()
    first, count = int(sys.argv[1]), int(sys.argv[2])
    served = refused = 0
    for number in range(first, first + count):
        print(number, end="\r", flush=True)
        more, less = check(number, [(opt, threads) for opt in (0, 2) for threads in (1, 2)])
        served, refused = served + more, refused + less
    print(f"{count} programs: {served} runs served, {refused} refused")


if __name__ == "__main__":
    main()
