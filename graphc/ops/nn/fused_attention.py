"""Attention as one kernel, and its gradient: scores are never in memory all at once.

GPUs run it by a template of their own (`codegen/gpu/attention/kernels.py`).  The loops here, one
query after another, are for what that has no kernel for, and say what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graphc.ir.op import FINITE, Attr, Loops, Sample
from graphc.ir.types import BOOL, AnyType, TupleType, Type, leaves, tensor, tuple_type
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import where
from graphc.ops.nn.attention import (
    attention_cost,
    attention_reference,
    attention_samples,
    backward_reference,
    backward_samples,
    infer_attention,
    infer_backward,
)
from graphc.ops.nn.attention_scores import HIDDEN, default_scale
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.record.batching import onto
from graphc.ops.record.dims import row_major_strides
from graphc.ops.record.families import FLOATS, define, wide


class _Attention:
    """What the nests share; q, k, v and a mask are the operands from `first` on."""

    def __init__(self, b: Scalars, node: Applied, read: ReadAt, write: Write, first: int) -> None:
        self.b, self.node, self.read, self.write, self.first = b, node, read, write, first
        self.operands = node.inputs[first:]
        self.dims = [n.type.dims for n in self.operands]
        self.lead, (self.queries, self.width) = self.dims[0][:-2], self.dims[0][-2:]
        self.keys, self.depth = self.dims[2][-2:]
        self.element = self.operands[0].type.dtype

    def zero(self) -> Expr:
        return self.b.const(0.0, self.element.compute)

    def softmax(self, weights: Buffer, starts: list[Expr], query: Expr) -> Any:
        """Powers of a query's scores, and a register with their sum."""
        b = self.b
        top = self.scores(weights, starts, query)
        sums = b.register(self.zero())
        with b.loop(self.keys) as j:
            power = b.register(b.call("exp", b.load(weights, j) - b.read(top)))
            b.store(weights, j, b.read(power))
            b.update(sums, "add", b.read(power))
        return sums

    def scores(self, weights: Buffer, starts: list[Expr], query: Expr) -> Any:
        """The scores of a query, and a register with the largest."""
        b = self.b
        top = b.register(b.const(-math.inf, self.element.compute))
        row = starts[0] + query * self.width
        with b.loop(self.keys) as j:
            total = b.register(self.zero())
            with b.loop(self.width, "vector") as c:
                near = self.value(0, row + c)
                b.update(total, "add", near * self.value(1, starts[1] + j * self.width + c))
            score = b.read(total) * self.node.attrs["scale"]
            if len(starts) > 3 and self.operands[3].type.dtype is not BOOL:
                score = score + self.value(3, self.of_mask(starts, query, j))
            for seen in self.seen(starts, query, j):
                score = where(seen, score, HIDDEN)
            b.store(weights, j, score)
            b.update(top, "max", score)
        return top

    def seen(self, starts: list[Expr], query: Expr, j: Expr) -> Iterator[Any]:
        """Conditions for a query to see a key."""
        if len(starts) > 3 and self.operands[3].type.dtype is BOOL:
            yield self.read(self.first + 3, self.of_mask(starts, query, j))
        if self.node.attrs["causal"]:
            yield j <= query + (self.keys - self.queries)

    def of_mask(self, starts: list[Expr], query: Expr, j: Expr) -> Expr:
        dims, at = self.dims[3], starts[3]
        for n, stride, place in zip(dims[::-1], row_major_strides(dims)[::-1], (j, query)):
            at = at + place * stride if n > 1 else at
        return at

    def value(self, operand: int, position: Expr) -> Any:
        return self.read(self.first + operand, position).cast(self.element.compute)

    def heads(self, number: Expr) -> tuple[Expr, ...]:
        """The index of a head along the leading axes."""
        made: list[Expr] = []
        for extent in reversed(self.lead):
            made.insert(0, number % extent)
            number = number // extent
        return tuple(made)

    def starts(self, heads: tuple[Expr, ...]) -> list[Expr]:
        """Where the operands' parts for a head begin; some have one for several, or for all."""
        made = []
        for dims in self.dims:
            at, lead = self.b.integer(0), list(zip(dims[:-2], row_major_strides(dims)))
            for (extent, stride), axis in zip(reversed(lead), reversed(range(len(heads)))):
                share = self.lead[axis] // extent
                at = at + heads[axis] // share * stride if extent > 1 else at
            made.append(at)
        return made


class _Forward(_Attention):
    """A nest over the queries of all heads."""

    def run(self, scratch: Sequence[Buffer]) -> None:
        b, (weights, total) = self.b, scratch
        with b.loop(math.prod(self.lead) * self.queries, "parallel") as unit:
            query, heads = unit % self.queries, self.heads(unit // self.queries)
            starts = self.starts(heads)
            sums = self.softmax(weights, starts, query)
            with b.loop(self.depth, "vector") as c:
                b.store(total, c, self.zero())
            with b.loop(self.keys) as j:
                first = starts[2] + j * self.depth
                with b.loop(self.depth, "vector") as c:
                    part = b.load(weights, j) * self.value(2, first + c)
                    b.store(total, c, b.load(total, c) + part)
            with b.loop(self.depth, "vector") as c:
                made = b.load(total, c) / b.read(sums)
                self.write((*heads, query, c), made.cast(self.element))


class _Backward(_Attention):
    """A nest over heads: queries one after another add to what keys and values get."""

    def run(self, scratch: Sequence[Buffer]) -> None:
        b, (weights, near, far, row) = self.b, scratch
        with b.loop(math.prod(self.lead), "parallel") as unit:
            heads = self.heads(unit)
            starts = self.starts(heads)
            given = unit * (self.queries * self.depth)
            for buffer, size in ((near, self.keys * self.width), (far, self.keys * self.depth)):
                with b.loop(size, "vector") as c:
                    b.store(buffer, c, self.zero())
            with b.loop(self.queries) as query:
                sums = self.softmax(weights, starts, query)
                at = given + query * self.depth
                drops = self.product(lambda c: self.ct(at + c) * self.ct(at + c, 1), self.depth)
                with b.loop(self.width, "vector") as c:
                    b.store(row, c, self.zero())
                with b.loop(self.keys) as j:
                    self.key(scratch, starts, query, j, at, sums, drops)
                with b.loop(self.width, "vector") as c:
                    self.write((*heads, query, c), b.load(row, c).cast(self.element), 0)
            for number, (buffer, width) in enumerate(((near, self.width), (far, self.depth)), 1):
                kind = leaves(self.node.type)[number].dtype  # type: ignore[union-attr]
                with b.loop(self.keys) as j, b.loop(width, "vector") as c:
                    made = b.load(buffer, j * width + c).cast(kind)
                    self.write((*heads, j, c), made, number)

    def key(
        self,
        scratch: Sequence[Buffer],
        starts: list[Expr],
        query: Expr,
        j: Expr,
        at: Expr,
        sums: Any,
        drops: Any,
    ) -> None:
        """What one key and its value get from a query, and the query from them."""
        b, (weights, near, far, row) = self.b, scratch
        value, key = starts[2] + j * self.depth, starts[1] + j * self.width
        first = starts[0] + query * self.width
        p = b.register(b.load(weights, j) / b.read(sums))
        dp = self.product(lambda c: self.ct(at + c) * self.value(2, value + c), self.depth)
        made = b.read(p) * (b.read(dp) - b.read(drops)) * self.node.attrs["scale"]
        for seen in self.seen(starts, query, j):
            made = where(seen, made, self.zero())
        ds = b.register(made)
        with b.loop(self.depth, "vector") as c:
            place = j * self.depth + c
            b.store(far, place, b.load(far, place) + b.read(p) * self.ct(at + c))
        with b.loop(self.width, "vector") as c:
            place = j * self.width + c
            b.store(near, place, b.load(near, place) + b.read(ds) * self.value(0, first + c))
        with b.loop(self.width, "vector") as c:
            b.store(row, c, b.load(row, c) + b.read(ds) * self.value(1, key + c))

    def ct(self, position: Expr, operand: int = 0) -> Any:
        """The cotangent of the result, or the result."""
        return self.read(operand, position).cast(self.element.compute)

    def product(self, term: Callable[[Expr], Any], size: int) -> Any:
        """A register with a sum."""
        total = self.b.register(self.zero())
        with self.b.loop(size, "vector") as c:
            self.b.update(total, "add", term(c))
        return total


def _workspace(node: Applied) -> Any:
    compute = node.type.dtype.compute
    return (compute, node.inputs[1].type.dims[-2]), (compute, node.type.dims[-1])


def _backward_workspace(node: Applied) -> Any:
    q, _, v = (n.type.dims for n in node.inputs[2:5])
    keys, compute = v[-2], node.inputs[0].type.dtype.compute
    return tuple((compute, size) for size in (keys, keys * q[-1], keys * v[-1], q[-1]))


def _infer_backward(
    ct: AnyType, result: AnyType, q: AnyType, k: AnyType, v: AnyType, *mask: AnyType, **attrs: Any
) -> TupleType:
    """Cotangents of keys and values that heads share are those of each head, to be added."""
    q, k, v = infer_backward(ct, result, q, k, v, *mask, **attrs).elements
    made, lead = [q], q.shape[:-2]  # type: ignore[union-attr]
    for kind in (k, v):
        assert isinstance(kind, Type)
        element = kind.dtype if kind.shape[:-2] == lead else kind.dtype.compute
        made.append(tensor(element, (*lead, *kind.shape[-2:])))
    return tuple_type(made)


def _backward_reference(*operands: Any, **attrs: Any) -> Any:
    ct, result, q, k, v, *mask = operands
    if q.ndim > 2:
        k, v = (
            np.broadcast_to(shared(x, q.shape[-3]), (*q.shape[:-2], *x.shape[-2:])) for x in (k, v)
        )
    return backward_reference(ct, result, q, k, v, *mask, **attrs)


def shared(x: Any, heads: int) -> Any:
    return np.repeat(x, heads // x.shape[-3], axis=-3)


def _backward_samples() -> Iterator[Sample]:
    for sample in backward_samples():
        yield Sample(sample.operands, scaled(sample, 2), tolerance=sample.tolerance)


def scaled(sample: Sample, q: int) -> dict[str, Any]:
    """The attributes with the scale as a number."""
    width = np.asarray(sample.operands[q]).shape[-1]
    return {**sample.attrs, "scale": sample.attrs.get("scale") or default_scale(width)}


def _samples() -> Iterator[Sample]:
    for sample in attention_samples():
        yield Sample(sample.operands, scaled(sample, 0), sample.good, sample.tolerance)


ATTRS = (Attr("causal", "bool", False), Attr("scale", "float", within=FINITE))

define(
    "fused_attention",
    batch=onto(3),
    infer=infer_attention,
    reference=wide(attention_reference),
    lower=Loops(
        lambda b, node, read, write, scratch: _Forward(b, node, read, write, 0).run(scratch),
        lambda node: math.prod(node.type.dims[:-1]),
        _workspace,
        template="attention",
    ),
    attrs=ATTRS,
    dtypes=FLOATS,
    differentiable=False,
    cost=attention_cost,
    samples=lambda: list(_samples()),
    variadic=True,
    doc="Attention as one kernel, which never stores the scores.",
)

define(
    "fused_attention_backward",
    batch=onto(5),
    infer=_infer_backward,
    reference=wide(_backward_reference),
    lower=Loops(
        lambda b, node, read, write, scratch: _Backward(b, node, read, write, 2).run(scratch),
        lambda node: math.prod(node.inputs[2].type.dims[:-2]),
        _backward_workspace,
        template="attention_backward",
    ),
    attrs=ATTRS,
    dtypes=FLOATS,
    differentiable=False,
    samples=lambda: list(_backward_samples()),
    variadic=True,
    doc="Cotangents of q, k and v of attention, without storing scores; those of keys and values "
    "for every head of queries.",
)
