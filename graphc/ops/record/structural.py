"""Ops the compiler itself gives meaning to: constants, parameters, tuples, calls and fused
groups.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.graph import Graph
from graphc.ir.op import EXTENT, MANY, POSITIVE, Alias, Attr, Op, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import U8, AnyType, TupleType, Type, tensor, tuple_type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import Lanes, Same, by_the_sweep, constant, late
from graphc.ops.record.families import define, require, require_tensor
from graphc.ops.record.value import Value, emit


def _no_reference(*arrays: Array, **attrs: object) -> Any:
    raise AssertionError("structural ops are interpreted by the compiler")


param = define(
    "param",
    batch=constant,
    infer=lambda **attrs: tuple_type(()),
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("name", "str", ""),),
    doc="A parameter of a graph; its type is given, not inferred.",
    traits=Traits(parameter=True),
)

const = define(
    "const",
    batch=constant,
    infer=lambda value: value.type,
    reference=lambda value: value.array,
    lower=Structural(),
    attrs=(Attr("value", "literal"),),
    doc="Literal data; data over a small size lives in the weights file beside the text.",
    traits=Traits(constant=True, stored=True, resident=True, idle=True),
)


def _infer_tuple(*types: AnyType) -> TupleType:
    return tuple_type(types)


tuple_ = define(
    "tuple",
    batch=by_the_sweep,
    infer=_infer_tuple,
    reference=lambda *arrays: tuple(arrays),
    lower=Structural(),
    variadic=True,
    doc="Several values as one.",
    traits=Traits(makes_tuple=True, idle=True),
)


def _infer_item(source: AnyType, *, index: int) -> AnyType:
    require(isinstance(source, TupleType), f"item reads a tuple, got {source}")
    assert isinstance(source, TupleType)
    count = len(source.elements)
    require(0 <= index < count, f"port {index} is out of range: the value has {count} result(s)")
    return source.elements[index]


item = define(
    "item",
    batch=by_the_sweep,
    infer=_infer_item,
    reference=lambda value, index: value[index],
    lower=Structural(),
    attrs=(Attr("index", "int", within=EXTENT),),
    doc="One result of a node with several (the `name:port` of a session).",
    traits=Traits(item=True, idle=True),
)


def infer_region(*types: AnyType, regions: tuple[Graph, ...], **attrs: object) -> AnyType:
    region = regions[0]
    expected = tuple(p.type for p in region.params)
    if types != expected:
        raise TypeRuleError(
            f"operand types ({', '.join(map(str, types))}) do not match the region's parameters "
            f"({', '.join(map(str, expected))})"
        )
    results = tuple(r.type for r in region.results)
    return results[0] if len(results) == 1 else tuple_type(results)


call = define(
    "call",
    batch=by_the_sweep,
    infer=infer_region,
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("name", "str", "f"),),
    variadic=True,
    regions=1,
    doc="Run a reusable sub-graph: a compiled function or a loaded graph used inside another.",
    traits=Traits(call=True, once=True),
)

fused = define(
    "fused",
    batch=late,
    infer=infer_region,
    reference=_no_reference,
    lower=Structural(),
    attrs=(Attr("kind", "str", "loop", choices=("loop", "contract", "staged", "nest", "library")),),
    variadic=True,
    regions=1,
    doc="One kernel: the region's nodes run together without storing what lies between them. A "
    "staged contraction keeps its sums apart, so that its results may overwrite what it reads.",
    traits=Traits(kernel=True),
)


def _infer_blocked(
    *types: AnyType,
    regions: tuple[Graph, ...],
    dims: tuple[int, ...],
    counts: tuple[int, ...],
    steps: tuple[int, ...],
) -> Type:
    block = infer_region(*types, regions=regions)
    require(isinstance(block, Type), "blocked: the region has one result")
    assert isinstance(block, Type)
    made = tensor(block.dtype, dims)
    kinds = (made, *types)
    require(bool(counts), "blocked: there are no loops")
    require(
        len(steps) == len(kinds) * len(counts),
        f"blocked: {len(kinds)} values and {len(counts)} loops need as many steps of 0 or more",
    )
    for position, (kind, move) in enumerate(zip(kinds, moves_of(counts, steps))):
        last = sum((n - 1) * step for n, step in zip(counts, move, strict=True))
        end = last + (1 if position else block.size)
        inside = isinstance(kind, Type) and end <= kind.size
        require(inside or (position > 0 and not last), f"blocked: a step leaves {kind}")
    whole = _covered(block.size, counts, steps) == made.size
    require(whole, f"blocked: blocks of {block} leave gaps in {made}")
    return made


def _covered(size: int, counts: tuple[int, ...], steps: tuple[int, ...]) -> int:
    """How many elements lie in blocks of `size`, as far apart as the first steps say; 0 if there
    are gaps.  Blocks may overlap: the last one of a loop ends where the result ends."""
    for step, count in sorted(zip(steps[: len(counts)], counts)):
        if count > 1 and step > size:
            return 0
        size += (count - 1) * step
    return size


def moves_of(counts: tuple[int, ...], steps: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The steps of the result and of each operand, one per loop."""
    size = len(counts)
    return [steps[k : k + size] for k in range(0, len(steps), size)]


def _run_blocked(
    *arrays: Array,
    regions: tuple[Graph, ...],
    run: Any,
    dims: tuple[int, ...],
    counts: tuple[int, ...],
    steps: tuple[int, ...],
) -> Any:
    """Block after block; what a window shows beyond the end of its operand is zero."""
    moves = moves_of(counts, steps)
    flat = [np.concatenate([a.reshape(-1), np.zeros(a.size, a.dtype)]) for a in arrays]
    made = None
    for index in np.ndindex(*counts):
        first, *starts = (sum(i * s for i, s in zip(index, move)) for move in moves)
        windows = [
            f[start : start + a.size].reshape(a.shape) for f, a, start in zip(flat, arrays, starts)
        ]
        block = run(regions[0], windows)[0]
        if made is None:
            made = np.zeros(math.prod(dims), block.dtype)
        made[first : first + block.size] = block.reshape(-1)
    assert made is not None
    return made.reshape(dims)


blocked = define(
    "blocked",
    batch=late,
    infer=_infer_blocked,
    reference=_run_blocked,
    lower=Structural(),
    attrs=(
        Attr("dims", "dims", within=EXTENT),
        Attr("counts", "dims", within=POSITIVE),
        Attr("steps", "dims", within=EXTENT, most=MANY),
    ),
    variadic=True,
    regions=1,
    doc="A result made block by block: the region runs for every index of the nested loops "
    "`counts` on windows of the operands, whose starts move by `steps` elements per loop "
    "(the result's steps first), so that what lies between its kernels is one block.",
    traits=Traits(blocks=True),
)


def _infer_barrier(x: AnyType, *rest: AnyType) -> AnyType:
    require_tensor("barrier", x)
    assert isinstance(x, Type)
    return x


def _barrier_gradient(ct: Value, result: Value, x: Value, *rest: Value) -> list[Any]:
    return [ct, *(None for _ in rest)]


def _batch_barrier(op: Op, lanes: Lanes, x: Value, *rest: Value) -> Any:
    made = emit(op, x, *rest)
    return made if lanes.mapped[0] else Same(made)


barrier = define(
    "barrier",
    batch=_batch_barrier,
    gradient=_barrier_gradient,
    infer=_infer_barrier,
    reference=lambda x, *rest: x,
    lower=Alias(),
    variadic=True,
    doc="Its first operand, opaque to every pass; it waits for the others.",
    traits=Traits(opaque=True, distinct=True),
)


workspace = define(
    "workspace",
    batch=late,
    infer=lambda nbytes: tensor(U8, (nbytes,)),
    reference=lambda nbytes: np.zeros(nbytes, np.uint8),
    lower=Structural(),
    attrs=(Attr("nbytes", "dim", within=EXTENT),),
    differentiable=False,
    doc="Scratch memory of one kernel; its content is undefined.",
    traits=Traits(workspace=True, idle=True, distinct=True),
)
