"""Compilations for open sizes beside the reference: one image for all calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from op_harness import tensors

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.build import Built, build
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Op, Sample
from graphc.ir.sizes import Scope
from graphc.ir.specialise import specialise
from graphc.ir.types import TupleType, dtype, tensor
from graphc.ir.unknowns import Guard
from graphc.runtime.devices.multi_device import executable
from graphc.runtime.load.filled_image import filled

SIZES = (0, 1, 2, 7, 64, 1000)
MOST = 1 << 18  # elements of an operand or a result


class Template:
    """One compilation of a graph with symbols; `run` gives None for sizes it does not serve."""

    def __init__(self, graph: Graph, scope: Scope, **options: Any) -> None:
        scope.typing = False
        self.scope = scope
        self.built: Built = build(graph, Config.create(**options))
        self.formulas: Any = self.built.image.formulas

    @property
    def guards(self) -> list[Guard]:
        return list(self.scope.guards.values())

    def run(self, arrays: Sequence[Any]) -> Any:
        values = self.formulas.fits([a.shape for a in arrays])
        if values is None:
            return None
        image = filled(self.built.image, values)
        return executable(image, threads=self.built.threads)(*arrays)


def template(
    function: Any, specs: Sequence[Any], hints: Mapping[str, int], **options: Any
) -> Template:
    """A function compiled for specs with symbols; hints are the sizes at hand."""
    import graphc as gc

    graph = gc.compile(function).graph(*specs)
    scope = Scope()
    binding = {name: scope.symbol(name, hint) for name, hint in hints.items()}
    return Template(specialise(graph, binding), scope, **options)


# ------------------------------------------------------------------------------------ ops


class OpenSample:
    """A sample of an op; extents in `opened` are symbols, wherever they occur.

    `of_size` makes operands of other sizes.
    """

    def __init__(self, op: Op, sample: Sample, opened: Iterable[int], of_size: Any = None) -> None:
        self.of_size = of_size or resized
        self.op, self.sample = op, sample
        self.given = sample
        self.arrays = [np.asarray(o) for o in sample.operands]
        self.scope = Scope()
        self.symbols = {v: self.scope.symbol(f"s{v}", v) for v in sorted(opened)}
        self.attrs = op.coerce(sample.attrs)

    def at(self, sizes: Mapping[int, Any]) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
        """Shapes of the operands, and attributes, where the symbols have these values."""
        shapes = [tuple(sizes.get(e, e) for e in a.shape) for a in self.arrays]
        attrs = self.attrs.values_dict
        for attr in self.op.attrs:
            value = attrs[attr.name]
            if attr.kind == "dim" and value is not None:
                attrs = {**attrs, attr.name: sizes.get(value, value)}
            elif attr.kind == "dims" and value is not None:
                attrs = {**attrs, attr.name: tuple(sizes.get(v, v) for v in value)}
        return shapes, attrs

    def graph(self) -> Graph:
        from graphs import param

        shapes, attrs = self.at(self.symbols)
        kinds = [tensor(dtype(a.dtype), s) for a, s in zip(self.arrays, shapes, strict=True)]
        params = tuple(param(k, kind, f"x{k}") for k, kind in enumerate(kinds))
        coerced = self.op.coerce(attrs)
        made = Node(
            len(params), self.op, params, coerced, self.op.result_type(tuple(kinds), coerced)
        )
        items = []
        if isinstance(made.type, TupleType):
            items = [self.item(made, k) for k in range(len(made.type.elements))]
        return Graph("g", params, [made, *items], tuple(items or [made]))

    def item(self, made: Node, number: int) -> Node:
        from graphc.ir.op import OPS

        op = OPS["item"]
        attrs = op.coerce({"index": number})
        return Node(made.id + 1 + number, op, (made,), attrs, op.result_type((made.type,), attrs))

    def case(self, sizes: Mapping[int, int]) -> tuple[list[Any], list[Any]] | None:
        """Operands and results of the reference for these sizes, None where it has none."""
        shapes, attrs = self.at(sizes)
        if any(math.prod(shape) > MOST for shape in shapes):
            return None
        arrays = [self.of_size(a, s) for a, s in zip(self.arrays, shapes, strict=True)]
        try:
            coerced = self.op.coerce(attrs)
            kind = self.op.result_type(
                tuple(tensor(dtype(a.dtype), a.shape) for a in arrays), coerced
            )
            kinds = tensors(kind)
            if any(k.size > MOST for k in kinds):
                return None
            with np.errstate(all="ignore"):
                made = self.op.reference(*arrays, **coerced.values_dict)
        except (GraphError, ValueError, IndexError, TypeError):
            return None
        values = list(made) if isinstance(kind, TupleType) else [made]
        return arrays, [np.asarray(v, k.dtype.numpy) for v, k in zip(values, kinds, strict=True)]


def resized(array: Any, shape: Sequence[int]) -> Any:
    """The array, repeated or cut along its axes."""
    for axis, extent in enumerate(shape):
        if extent != array.shape[axis]:
            array = np.take(array, np.arange(extent) % max(1, array.shape[axis]), axis)
    return np.ascontiguousarray(array)


def openings(sample: Sample) -> list[tuple[int, ...]]:
    """Which extents to leave open: all at once, and each alone."""
    extents = sorted({e for o in sample.operands for e in np.shape(o) if e > 1})
    if not extents:
        return []
    return [tuple(extents), *([(e,) for e in extents] if len(extents) > 1 else [])]


def wrong(got: Any, wants: Sequence[Any]) -> str:
    """How results differ from the reference, empty if they agree."""
    got = list(got) if isinstance(got, tuple | list) else [got]
    for made, want in zip(got, wants, strict=True):
        if made.shape != want.shape or made.dtype != want.dtype:
            return f"{made.dtype}{list(made.shape)} is not {want.dtype}{list(want.shape)}"
        if made.dtype.kind in "biu":
            if not np.array_equal(made, want):
                return "other integers"
            continue
        narrow = made.dtype.itemsize == 2
        tolerance = 3e-2 if narrow else 1e-4 if made.dtype in (np.float32, np.complex64) else 1e-9
        wide = np.complex128 if made.dtype.kind == "c" else np.float64
        a, b = made.astype(wide), want.astype(wide)
        scale = np.max(np.abs(b[np.isfinite(b)]), initial=1.0)
        if not np.allclose(a, b, tolerance, tolerance * scale, equal_nan=True):
            return f"differs by {np.nanmax(np.abs(a - b))}"
    return ""
