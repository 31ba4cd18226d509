"""Order: sorted keys, their places, and the places of true elements."""

from __future__ import annotations

from typing import Any

from graphc.formats.stablehlo.writer import Value, Writer, in_other_ops, rule, types_of
from graphc.ir.graph import Node
from graphc.ir.types import BOOL, I64, Type, tensor
from graphc.ops.record.value import functions as f
from graphc.ops.reduce.occurrences import by_scatter


def _sorted(w: Writer, *rows: Value) -> Any:
    """Rows by the first of them; equal keys stay in order."""
    scalars = [tensor(x.dtype) for x in rows for _ in range(2)]
    way = "#stablehlo<comparison_direction LT>"

    def before(p: Value, q: Value, *rest: Value) -> list[Value]:
        return [w.op("compare", p, q, to=tensor(BOOL), comparison_direction=way)]

    return w.op(
        "sort",
        *rows,
        to=[x.type for x in rows],
        regions=[w.region(scalars, before)],
        dimension=len(rows[0].dims) - 1,
        is_stable=True,
    )


def _places(w: Writer, like: Value) -> Value:
    kind = tensor(I64, like.dims)
    return w.op("iota", to=kind, iota_dimension=len(like.dims) - 1)  # type: ignore[no-any-return]


@rule("sort_keys")
def sort_keys(w: Writer, node: Node, keys: Value) -> Value:
    return _sorted(w, keys)[0]  # type: ignore[no-any-return]


@rule("argsort_keys")
def argsort_keys(w: Writer, node: Node, keys: Value) -> Value:
    assert isinstance(node.type, Type)
    return w.cast(_sorted(w, keys, _places(w, keys))[1], node.type.dtype)


@rule("topk_keys")
def topk_keys(w: Writer, node: Node, keys: Value) -> Any:
    made = _sorted(w, keys, _places(w, keys))
    few, starts = node.attrs["k"], (0,) * len(keys.dims)
    stops = (*keys.dims[:-1], few)
    ones = (1,) * len(keys.dims)
    cut = (
        w.op(
            "slice",
            x,
            to=tensor(x.dtype, stops),
            start_indices=starts,
            limit_indices=stops,
            strides=ones,
        )
        for x in made
    )
    return tuple(w.cast(x, kind.dtype) for x, kind in zip(cut, types_of(node.type)))


@in_other_ops("nonzero")
def nonzero(mask: Any, size: int) -> Any:
    """Places of true elements come first when all are sorted; those left over are 0."""
    flat = f.reshape(mask, (-1,))
    extent = flat.shape[0]
    count = f.sum(f.astype(flat, I64))
    order = f.sort(f.where(flat, f.arange(extent), extent))
    padded = f.pad(order, [(0, size)])[:size]
    return f.where(f.arange(size) < count, padded, 0), count


in_other_ops("occurrences")(by_scatter)
