"""Convolutions whose windows lie in the padding for the most part, as products of what lies in x.

    x of 14, 3 taps 12 apart, 12 zeros on either side       tap 0   results 12, 13 read x[0], x[1]
                                                            tap 1   all results
    y  =  pad(w[0] x[:2])  +  w[1] x  +  pad(w[2] x[12:])   tap 2   results 0, 1 read x[12], x[13]

The wide windows of segmentation networks (dilations of 12 to 36 over images of 14 to 65) multiply
zeros most of the time.  Along each axis where that is so a product is made of each tap that reads x
at all, over the results for which it does.  Other axes keep their windows and their padding.

Of elements below 32 bits products and sum are f32: the result is rounded once, as a convolution's.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from graphc.base.record import record
from graphc.ir.graph import Node, Rewriter
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.types import F32, Type
from graphc.passes.tuning import tuned


class Tap(NamedTuple):
    """Neighbouring taps along an axis: the first and the end, the results for which they read x,
    and what they read of it with the zeros around that."""

    taps: tuple[int, int]
    results: tuple[int, int]
    source: tuple[int, int]
    zeros: tuple[int, int]


@record(frozen=True)
class Axis:
    """A spatial axis of a convolution: extents of x, of the window and of the result, and what is
    between taps, results and the edges."""

    extent: int
    window: int
    out: int
    stride: int
    gap: int
    low: int

    def live(self, tap: int) -> tuple[int, int]:
        """The results for which a tap reads x: the first and the end."""
        at = tap * self.gap - self.low  # where result 0 reads
        first = max(0, -(at // self.stride))
        end = min(self.out, -((at - self.extent) // self.stride))
        return first, max(first, end)

    @property
    def share(self) -> float:
        """The part of all products along the axis that read x."""
        ends = map(self.live, range(self.window))
        return sum(end - first for first, end in ends) / (self.window * self.out)

    def whole(self) -> list[Tap]:
        """All taps at once, as they are."""
        last = (self.out - 1) * self.stride + (self.window - 1) * self.gap + 1
        high = max(0, last - self.low - self.extent)
        read = min(self.extent, last - self.low)
        return [Tap((0, self.window), (0, self.out), (0, read), (self.low, high))]

    def apart(self) -> list[Tap]:
        """One by one those that read x for some result."""
        found = []
        for tap in range(self.window):
            first, end = self.live(tap)
            if first < end:
                at = tap * self.gap - self.low
                read = first * self.stride + at, (end - 1) * self.stride + at + 1
                found.append(Tap((tap, tap + 1), (first, end), read, (0, 0)))
        return found

    def parts(self) -> list[Tap]:
        return self.apart() if self.share <= tuned.live_taps else self.whole()


def by_live_taps(node: Node, x: Node, low: tuple[int, ...], r: Rewriter) -> Node | None:
    """The convolution of x, `low` zeros before it on each axis of space, as a sum of products; None
    where windows lie in x for the most part, or products are too small to be made apart."""
    w = node.inputs[1]
    assert isinstance(x.type, Type)
    assert isinstance(w.type, Type)
    assert isinstance(node.type, Type)
    dtype = node.type.dtype
    stride, gap = node.attrs["stride"], node.attrs["dilation"]
    extents = zip(x.type.dims[2:], w.type.dims[2:], node.type.dims[2:], stride, gap, low)
    parts = [Axis(*sizes).parts() for sizes in extents]
    if not pays(node, parts):
        return None
    if dtype.bits < F32.bits:
        x, w = in_f32(x, r), in_f32(w, r)
    made = [one(node, x, w, taps, r) for taps in product(*parts)]
    total = reduce(lambda a, b: r.emit(OPS["add"], (a, b)), made)
    return r.emit(OPS["cast"], (total,), {"dtype": dtype}) if dtype.bits < F32.bits else total


def pays(node: Node, parts: list[list[Tap]]) -> bool:
    """Are the products that are left out worth a sum of arrays, and cutting weights in each run?"""
    w = node.inputs[1]
    assert isinstance(w.type, Type)
    assert isinstance(node.type, Type)
    images, _, *outs = node.type.dims
    kept = prod(sum(map(products, axis)) for axis in parts)
    saved = 1 - kept / prod((*outs, *w.type.dims[2:]))
    results = saved * images * prod(outs)
    few = 0 < prod(map(len, parts)) <= tuned.live_products
    once = w.op.traits.constant or results >= tuned.live_results
    deep = saved * w.type.dims[1] >= tuned.live_channels
    return few and once and deep and results * w.type.size >= tuned.live_work


def products(part: Tap) -> int:
    """How many products of an element are made for it along its axis."""
    return (part.taps[1] - part.taps[0]) * (part.results[1] - part.results[0])


def in_f32(x: Node, r: Rewriter) -> Node:
    """An array as f32; of a constant, a constant."""
    if not x.op.traits.constant:
        return r.emit(OPS["cast"], (x,), {"dtype": F32})
    value = x.attrs["value"].array.astype(np.float32)
    return r.emit(OPS["const"], (), {"value": literal(value, F32)})


def one(node: Node, x: Node, w: Node, parts: tuple[Tap, ...], r: Rewriter) -> Node:
    """The product of some taps on each axis, and zeros for the results for which they read none."""
    source = cut(x, [part.source for part in parts], r)
    source = padded(source, [part.zeros for part in parts], r)
    weights = cut(w, [part.taps for part in parts], r)
    sums = r.emit(node.op, (source, weights), node.attrs)
    assert isinstance(node.type, Type)
    ends = zip(parts, node.type.dims[2:])
    return padded(sums, [(part.results[0], out - part.results[1]) for part, out in ends], r)


def cut(x: Node, ranges: list[tuple[int, int]], r: Rewriter) -> Node:
    """The part of an array in these ranges of its axes of space; of a constant, a constant."""
    assert isinstance(x.type, Type)
    starts, stops = (0, 0, *(a for a, _ in ranges)), (*x.type.dims[:2], *(b for _, b in ranges))
    if stops == x.type.dims and not any(starts):
        return x
    if not x.op.traits.constant:
        attrs = {"starts": starts, "stops": stops, "steps": (1,) * len(stops)}
        return r.emit(OPS["slice"], (x,), attrs)
    value = x.attrs["value"].array[tuple(map(slice, starts, stops))]
    return r.emit(OPS["const"], (), {"value": literal(np.ascontiguousarray(value), x.type.dtype)})


def padded(x: Node, zeros: list[tuple[int, int]], r: Rewriter) -> Node:
    """An array with zeros around it on its axes of space."""
    if not any(map(any, zeros)):
        return x
    assert isinstance(x.type, Type)
    zero = r.emit(OPS["const"], (), {"value": literal(0, x.type.dtype)})
    low, high = zip((0, 0), (0, 0), *zeros)
    return r.emit(OPS["pad"], (x, zero), {"low": low, "high": high, "interior": ()})
