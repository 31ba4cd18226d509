"""Collectives: one op for what several devices do together, an operand and a result for each.

    all_reduce       x0 x1 x2           ->  s s s            with s = x0 + x1 + x2
    all_gather       x0 x1 x2           ->  g g g            with g = x0, x1, x2 in a row
    reduce_scatter   x0 x1 x2           ->  s0 s1 s2         the parts of s in a row
    to_all           x                  ->  x x x
    reduce_to        x0 x1 x2           ->  s
    all_to_all       (x00 x01 x02) ...  ->  (x00 x10 x20) (x01 x11 x21) ...

Rows are cut and joined along the first axis.  The stage `route_collectives` writes them out as
values that go from device to device; the gradient of each is another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Attr, Op, Sample, Structural
from graphc.ir.place import parse_spec
from graphc.ir.traits import Traits
from graphc.ir.types import BOOL, AnyType, Dim, Type, tensor, tuple_type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import Lanes, Rule, moved
from graphc.ops.record.dims import tensor_type
from graphc.ops.record.families import ALL, NUMERIC, define, require, sample_array
from graphc.ops.record.value import Value, emit, functions

MOST_DEVICES = 512
Names = tuple[str, ...]
Results = Sequence[Value]
Cotangents = Sequence[Value | None]
WAYS = ("sum", "mean", "max", "min")
DEVICES = Attr("devices", "strs", most=MOST_DEVICES)
COMBINE = Attr("combine", "str", "sum", choices=WAYS)
_FOLD: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}

# ----------------------------------------------------------------------------------------- types


def _team(name: str, devices: Names) -> None:
    """Raise GraphError unless there are devices, with names of some."""
    require(len(devices) > 0, f"{name} takes one device or more")
    for device in devices:
        parse_spec(device)


def _parts(name: str, types: Sequence[AnyType], devices: Names) -> list[Type]:
    """The types of the operands, one for each device."""
    _team(name, devices)
    require(
        len(types) == len(devices), f"{name}: {len(types)} operand(s) for {len(devices)} device(s)"
    )
    return [tensor_type(name, kind) for kind in types]


def _alike(name: str, types: Sequence[AnyType], devices: Names) -> Type:
    """The one type of all operands."""
    found = _parts(name, types, devices)
    for kind in found:
        require(kind is found[0], f"{name} takes operands of one type, got {found[0]} and {kind}")
    return found[0]


def _summed(name: str, kind: Type, combine: str) -> Type:
    require(kind.dtype is not BOOL, f"{name} takes numbers, got {kind}")
    if combine == "mean":
        require(kind.dtype.kind in "fc", f"{name}: a mean is of floats, got {kind}")
    if combine in ("max", "min"):
        require(not kind.dtype.is_complex, f"{name}: {combine} takes real numbers, got {kind}")
    return kind


def _rows(name: str, kind: Type, parts: int) -> int:
    """How many rows each of so many parts of a value has."""
    require(kind.rank > 0, f"{name} cuts along the first axis, {kind} has none")
    rows = kind.shape[0]
    if isinstance(rows, Dim):
        raise TypeRuleError(f"{name}: the number of rows of {kind} is not known")
    require(rows % parts == 0, f"{name}: {rows} rows do not divide by {parts} devices")
    return rows // parts


def _infer_all_reduce(*types: AnyType, devices: Names, combine: str) -> AnyType:
    kind = _summed("all_reduce", _alike("all_reduce", types, devices), combine)
    return tuple_type((kind,) * len(devices))


def _infer_reduce_to(*types: AnyType, devices: Names, combine: str) -> AnyType:
    return _summed("reduce_to", _alike("reduce_to", types, devices), combine)


def _infer_to_all(*types: AnyType, devices: Names) -> AnyType:
    require(len(types) == 1, f"to_all takes one operand, got {len(types)}")
    _team("to_all", devices)
    return tuple_type((tensor_type("to_all", types[0]),) * len(devices))


def _infer_all_gather(*types: AnyType, devices: Names) -> AnyType:
    found = _parts("all_gather", types, devices)
    first = found[0]
    for kind in found:
        fits = kind.rank > 0 and kind.dtype is first.dtype and kind.shape[1:] == first.shape[1:]
        require(fits, f"all_gather joins rows of one type, got {first} and {kind}")
    rows = reduce(lambda a, b: a + b, [kind.shape[0] for kind in found])
    return tuple_type((tensor(first.dtype, (rows, *first.shape[1:])),) * len(devices))


def _infer_reduce_scatter(*types: AnyType, devices: Names, combine: str) -> AnyType:
    kind = _summed("reduce_scatter", _alike("reduce_scatter", types, devices), combine)
    rows = _rows("reduce_scatter", kind, len(devices))
    return tuple_type((tensor(kind.dtype, (rows, *kind.shape[1:])),) * len(devices))


def _infer_all_to_all(*types: AnyType, devices: Names) -> AnyType:
    kind = _alike("all_to_all", types, devices)
    _rows("all_to_all", kind, len(devices))
    return tuple_type((kind,) * len(devices))


# ------------------------------------------------------------------------------------- reference


def _total(arrays: Sequence[Array], combine: str) -> Array:
    total = reduce(_FOLD[combine], map(np.asarray, arrays))
    return np.asarray(total / total.dtype.type(len(arrays)) if combine == "mean" else total)


def _cut(array: Array, parts: int) -> list[Array]:
    return np.split(np.asarray(array), parts)


def _exchanged(arrays: Sequence[Array]) -> list[Array]:
    cut = [_cut(array, len(arrays)) for array in arrays]
    return [np.concatenate([parts[k] for parts in cut]) for k in range(len(arrays))]


# -------------------------------------------------------------------------------------- gradients


def _given(cotangents: Cotangents, like: Results) -> list[Any]:
    """The cotangents of all devices: zeros where nothing has come back."""
    pairs = zip(cotangents, like, strict=True)
    return [functions.zeros_like(x) if ct is None else ct for ct, x in pairs]


def _shares(cts: Results, totals: Results, xs: Sequence[Value], devices: Names, way: str) -> Any:
    """What of the cotangent of a total, of which every device has one, each operand gets: of a
    largest or smallest value those that are it, in equal parts."""
    f = functions
    if way in ("sum", "mean"):
        return [f.divide(ct, len(xs)) if way == "mean" else ct for ct in cts]
    hits = [f.astype(f.equal(x, y), x.element) for x, y in zip(xs, totals, strict=True)]
    counts = emit("all_reduce", *hits, devices=devices, combine="sum")
    rows = zip(cts, hits, counts, strict=True)
    return [f.multiply(ct, f.divide(hit, count)) for ct, hit, count in rows]


def _all_reduce_gradient(
    ct: Cotangents, results: Results, *xs: Value, devices: Names, combine: str
) -> Any:
    cts = emit("all_reduce", *_given(ct, results), devices=devices, combine="sum")
    return _shares(cts, results, xs, devices, combine)


def _reduce_to_gradient(ct: Value, result: Value, *xs: Value, devices: Names, combine: str) -> Any:
    totals = emit("to_all", result, devices=devices)
    return _shares(emit("to_all", ct, devices=devices), totals, xs, devices, combine)


def _all_gather_gradient(ct: Cotangents, results: Results, *xs: Value, devices: Names) -> Any:
    cotangents = _given(ct, results)
    if all(x.shape == xs[0].shape for x in xs):
        return emit("reduce_scatter", *cotangents, devices=devices, combine="sum")
    whole = emit("all_reduce", *cotangents, devices=devices, combine="sum")
    ends = pairwise(accumulate([x.shape[0] for x in xs], initial=0))
    return [total[start:stop] for total, (start, stop) in zip(whole, ends)]


def _reduce_scatter_gradient(
    ct: Cotangents, results: Results, *xs: Value, devices: Names, combine: str
) -> Any:
    cts = emit("all_gather", *_given(ct, results), devices=devices)
    totals = emit("all_gather", *results, devices=devices)
    return _shares(cts, totals, xs, devices, combine)


def _to_all_gradient(ct: Cotangents, results: Results, x: Value, *, devices: Names) -> Any:
    return (emit("reduce_to", *_given(ct, results), devices=devices, combine="sum"),)


def _all_to_all_gradient(ct: Cotangents, results: Results, *xs: Value, devices: Names) -> Any:
    return emit("all_to_all", *_given(ct, results), devices=devices)


# ------------------------------------------------------------------------------------------ vmap


def _whole(op: Op, lanes: Lanes, *values: Value, **attrs: object) -> Any:
    return emit(op, *lanes.spread(values), **attrs)


def _by_rows(op: Op, lanes: Lanes, *values: Value, **attrs: object) -> Any:
    """Rows stay first: the lanes stand behind them meanwhile."""
    made = emit(op, *(moved(x, 0, 1) for x in lanes.spread(values)), **attrs)
    return tuple(moved(x, 1, 0) for x in made)


# ---------------------------------------------------------------------------------------- samples


def _samples(count: int, ways: Sequence[str] = (), rows: int = 4) -> Callable[[], list[Sample]]:
    """`count` operands for two devices; without `ways` the op combines nothing."""

    def sample(name: str, attrs: dict[str, Any]) -> Sample:
        shape = (rows, 3)
        operands = [sample_array(name, shape, (-4.0, 4.0), seed) for seed in range(count)]
        return Sample(tuple(operands), {"devices": _HERE, **attrs})

    def make() -> list[Sample]:
        given: list[dict[str, Any]] = [{"combine": way} for way in ways] or [{}]
        made = [sample("f32", attrs) for attrs in given]
        made += [sample(name, given[0]) for name in (NUMERIC if ways else ALL) if name != "f32"]
        one = np.ones((3, 2), np.float32)
        bad = [((one,) * 3, _HERE), ((), ()), ((np.ones(2), np.ones(3), one)[: count + 1], _HERE)]
        return made + [Sample(tuple(x), {"devices": d}, good=False) for x, d in bad]

    return make


_HERE = ("/job:localhost", "/job:localhost")


def _define(
    name: str,
    infer: Rule,
    reference: Rule,
    gradient: Rule,
    doc: str,
    batch: Rule,
    combines: bool = False,
) -> Op:
    count = 1 if name == "to_all" else 2
    return define(
        name,
        infer=infer,
        reference=reference,
        lower=Structural(),
        attrs=(DEVICES, COMBINE) if combines else (DEVICES,),
        dtypes=NUMERIC if combines else ALL,
        gradient=gradient,
        variadic=True,
        samples=_samples(count, WAYS if combines else ()),
        doc=doc,
        traits=Traits(collective=True),
        batch=batch,
    )


ALL_REDUCE = _define(
    "all_reduce",
    _infer_all_reduce,
    lambda *xs, devices, combine: (_total(xs, combine),) * len(xs),
    _all_reduce_gradient,
    "The sum, mean, largest or smallest of the operands of all devices, on each of them.",
    combines=True,
    batch=_whole,
)
REDUCE_TO = _define(
    "reduce_to",
    _infer_reduce_to,
    lambda *xs, devices, combine: _total(xs, combine),
    _reduce_to_gradient,
    "The sum, mean, largest or smallest of the operands of all devices, on the first of them.",
    combines=True,
    batch=_whole,
)
TO_ALL = _define(
    "to_all",
    _infer_to_all,
    lambda x, devices: (x,) * len(devices),
    _to_all_gradient,
    "Its operand, on every device.",
    batch=_whole,
)
ALL_GATHER = _define(
    "all_gather",
    _infer_all_gather,
    lambda *xs, devices: (np.concatenate(xs),) * len(xs),
    _all_gather_gradient,
    "The rows of the operands of all devices one after the other, on each of them.",
    batch=_by_rows,
)
REDUCE_SCATTER = _define(
    "reduce_scatter",
    _infer_reduce_scatter,
    lambda *xs, devices, combine: tuple(_cut(_total(xs, combine), len(xs))),
    _reduce_scatter_gradient,
    "Of what `all_reduce` gives, to each device as many rows, in their order.",
    combines=True,
    batch=_by_rows,
)
ALL_TO_ALL = _define(
    "all_to_all",
    _infer_all_to_all,
    lambda *xs, devices: tuple(_exchanged(xs)),
    _all_to_all_gradient,
    "Each operand is cut into a part for every device, which gets its parts in a row.",
    batch=_by_rows,
)
