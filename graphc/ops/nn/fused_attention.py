"""Attention as one kernel: scores are never in memory all at once.

GPUs run it by a template of their code generator (`codegen/gpu/attention.py`).  The loops here, one
query after another, are for what that has no kernel for, and say what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphc.ir.op import FINITE, Attr, Loops, Sample
from graphc.ir.types import BOOL
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import where
from graphc.ops.nn.attention import (
    attention_cost,
    attention_reference,
    attention_samples,
    infer_attention,
)
from graphc.ops.nn.attention_scores import HIDDEN, default_scale
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.record.batching import onto
from graphc.ops.record.dims import row_major_strides
from graphc.ops.record.families import FLOATS, define, wide


class _Queries:
    """A nest over the queries of all heads."""

    def __init__(self, b: Scalars, node: Applied, read: ReadAt, write: Write) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.dims = [n.type.dims for n in node.inputs]
        self.keys = self.dims[1][-2]
        self.element = node.type.dtype

    def run(self, scratch: Sequence[Buffer]) -> None:
        b, (weights, total) = self.b, scratch
        rows, depth = self.node.type.dims[-2:]
        zero = b.const(0.0, self.element.compute)
        with b.loop(_units(self.node), "parallel") as unit:
            query = unit % rows
            heads = self.heads(unit // rows)
            starts = [self.start(n, heads) for n in range(len(self.dims))]
            top = self.scores(weights, starts, query)
            sums = b.register(zero)
            with b.loop(self.keys) as j:
                power = b.register(b.call("exp", b.load(weights, j) - b.read(top)))
                b.store(weights, j, b.read(power))
                b.update(sums, "add", b.read(power))
            with b.loop(depth, "vector") as c:
                b.store(total, c, zero)
            with b.loop(self.keys) as j:
                first = starts[2] + j * depth
                with b.loop(depth, "vector") as c:
                    part = b.load(weights, j) * self.value(2, first + c)
                    b.store(total, c, b.load(total, c) + part)
            with b.loop(depth, "vector") as c:
                made = b.load(total, c) / b.read(sums)
                self.write((*heads, query, c), made.cast(self.element))

    def scores(self, weights: Buffer, starts: list[Expr], query: Expr) -> Any:
        """The scores of a query, and a register with the largest."""
        b, width = self.b, self.dims[0][-1]
        top = b.register(b.const(-math.inf, self.element.compute))
        row = starts[0] + query * width
        with b.loop(self.keys) as j:
            total = b.register(b.const(0.0, self.element.compute))
            with b.loop(width, "vector") as c:
                near = self.value(0, row + c)
                b.update(total, "add", near * self.value(1, starts[1] + j * width + c))
            score = self.masked(b.read(total) * self.node.attrs["scale"], starts, query, j)
            b.store(weights, j, score)
            b.update(top, "max", score)
        return top

    def masked(self, score: Any, starts: list[Expr], query: Expr, j: Expr) -> Any:
        if len(starts) > 3:
            dims = self.dims[3]
            at = starts[3]
            for n, stride, place in zip(dims[::-1], row_major_strides(dims)[::-1], (j, query)):
                at = at + place * stride if n > 1 else at
            if self.node.inputs[3].type.dtype is BOOL:
                score = where(self.read(3, at), score, HIDDEN)
            else:
                score = score + self.value(3, at)
        if self.node.attrs["causal"]:
            rows = self.node.type.dims[-2]
            score = where(j <= query + (self.keys - rows), score, HIDDEN)
        return score

    def value(self, operand: int, position: Expr) -> Any:
        return self.read(operand, position).cast(self.element.compute)

    def heads(self, number: Expr) -> tuple[Expr, ...]:
        """The index of a head along the leading axes."""
        made: list[Expr] = []
        for extent in reversed(self.node.type.dims[:-2]):
            made.insert(0, number % extent)
            number = number // extent
        return tuple(made)

    def start(self, operand: int, heads: tuple[Expr, ...]) -> Expr:
        """Where an operand's part for a head begins; some have one for several, or for all."""
        dims, b = self.dims[operand], self.b
        at = b.integer(0)
        lead = list(zip(dims[:-2], row_major_strides(dims)))
        for (extent, stride), axis in zip(reversed(lead), reversed(range(len(heads)))):
            share = self.node.type.dims[axis] // extent
            at = at + heads[axis] // share * stride if extent > 1 else at
        return at


def _units(node: Applied) -> int:
    return math.prod(node.type.dims[:-1])


def _workspace(node: Applied) -> Any:
    compute = node.type.dtype.compute
    return (compute, node.inputs[1].type.dims[-2]), (compute, node.type.dims[-1])


def _samples() -> Iterator[Sample]:
    for sample in attention_samples():
        width = np.asarray(sample.operands[0]).shape[-1]
        scale = sample.attrs.get("scale") or default_scale(width)
        yield Sample(
            sample.operands, {**sample.attrs, "scale": scale}, sample.good, sample.tolerance
        )


define(
    "fused_attention",
    batch=onto(3),
    infer=infer_attention,
    reference=wide(attention_reference),
    lower=Loops(
        lambda b, node, read, write, scratch: _Queries(b, node, read, write).run(scratch),
        _units,
        _workspace,
        template="attention",
    ),
    attrs=(Attr("causal", "bool", False), Attr("scale", "float", within=FINITE)),
    dtypes=FLOATS,
    differentiable=False,
    cost=attention_cost,
    samples=lambda: list(_samples()),
    variadic=True,
    doc="Attention as one kernel, which never stores the scores.",
)
