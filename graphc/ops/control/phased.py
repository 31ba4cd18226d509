"""`phased`: a part of a loop's body or a branch that finds sizes of its own; `outlined`: its call.

    %5 = while(%0) { ...                                        %5 = while(%0) { ...
      %3 = phased(%1) {counts=["count0"]} {                       %3 = outlined(%1) {function="f#7"}
        %2 = sum(%1) : i64[]                          ->          ...
        %4 = nonzero(%1) {size=count0} ...                      }
        return %2, ...

The region's first results are the sizes that it counts, by these names; only it knows them, and
what the node gives is of other sizes.  The pass `outline` makes it a program of its own, compiled
once for all counts, which the node's place then calls: each step of a loop may count otherwise,
and its memory is what the largest one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.errors import SizeError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import EXTENT, MANY, Attr, Host, Structural
from graphc.ir.sizes import Size
from graphc.ir.specialise import specialise
from graphc.ir.traits import Traits
from graphc.ir.types import I64, AnyType, Dim, Dimension, Type, leaves, tensor
from graphc.ops.control.control import results_of, results_type
from graphc.ops.control.host_calls import function_called, kinds_of, result_of
from graphc.ops.record.batching import by_the_sweep
from graphc.ops.record.families import define, require
from graphc.ops.record.structural import infer_region

COUNT = tensor(I64)
Run = Callable[[Graph, list[Any]], list[Any]]


def _infer_phased(*types: AnyType, regions: tuple[Graph, ...], counts: tuple[str, ...]) -> AnyType:
    region = regions[0]
    infer_region(*types, regions=regions)
    require(0 < len(counts) < len(region.results), f"phased: {len(counts)} counts are no results")
    require(len(set(counts)) == len(counts), "phased: two counts have one name")
    for node in region.results[: len(counts)]:
        require(node.type is COUNT, f"phased: a count is {COUNT}, not {node.type}")
    kinds = [node.type for node in region.results[len(counts) :]]
    for kind in (*types, *kinds):
        known = [name for d in extents_of(kind) for name in sorted(d.symbols() & set(counts))]
        require(not known, f"phased: nobody else knows {', '.join(known)}, and it gives {kind}")
    return results_type(kinds)


def extents_of(kind: AnyType) -> list[Dim | Size]:
    """The extents of a value that are not numbers."""
    found = [leaf.shape for leaf in leaves(kind) if isinstance(leaf, Type)]
    return [d for shape in found for d in shape if isinstance(d, Dim | Size)]


def _run_phased(*arrays: Any, regions: tuple[Graph, ...], run: Run, counts: tuple[str, ...]) -> Any:
    region, operands = regions[0], list(arrays)
    sizes = sizes_told(region.params, operands)
    for name, node in zip(counts, region.results, strict=False):
        alone = counting_alone(region, node)
        sizes[name] = int(run(specialise(alone, sizes), operands)[0])
        if sizes[name] < 0:
            raise SizeError("the data decides a size, and there is none for this").at(node.loc)
    return results_of(run(specialise(region, sizes), operands)[len(counts) :])


def sizes_told(params: Sequence[Node], arrays: Sequence[Any]) -> dict[str, int]:
    """The sizes that arrays say, of dimensions that are nothing else."""
    found: dict[str, int] = {}
    for param, array in zip(params, arrays, strict=True):
        shape: tuple[Dimension, ...] = param.type.shape if isinstance(param.type, Type) else ()
        for extent, size in zip(shape, getattr(array, "shape", ()), strict=False):
            if isinstance(extent, Dim | Size) and extent.symbols() == {repr(extent)}:
                found[repr(extent)] = size
    return found


def counting_alone(region: Graph, node: Node) -> Graph:
    """What computes one result, and nothing else."""
    seen: set[Node] = set()
    pending = [node]
    while pending:
        found = pending.pop()
        if found not in seen:
            seen.add(found)
            pending += (*found.inputs, *found.after)
    nodes = [n for n in region.nodes if n in seen]
    return region.replace(nodes=nodes, results=(node,), result_names=(), names={})


phased = define(
    "phased",
    batch=by_the_sweep,
    infer=_infer_phased,
    reference=_run_phased,
    lower=Structural(),
    attrs=(Attr("counts", "strs", most=MANY),),
    variadic=True,
    regions=1,
    doc="Run a region whose first results are sizes that it counts, by the names in `counts`; the "
    "op gives the others, which are of sizes that are known outside.",
    traits=Traits(phased=True),
)


# ---------------------------------------------------------------------------------------- outlined


def _infer_outlined(
    *types: AnyType,
    function: str,
    dtypes: tuple[str, ...],
    ranks: tuple[int, ...],
    dims: tuple[Dimension, ...],
) -> AnyType:
    function_called("outlined", function)
    return result_of(kinds_of(dtypes, ranks, dims), False)


def _run_outlined(*arrays: Any, function: str, **described: object) -> Any:
    return results_of(function_called("outlined", function)(*arrays))


def described(kinds: Sequence[AnyType]) -> Mapping[str, Any]:
    """Attributes that say which results there are."""
    known = [kind for kind in kinds if isinstance(kind, Type)]
    return {
        "dtypes": tuple(kind.dtype.name for kind in known),
        "ranks": tuple(kind.rank for kind in known),
        "dims": tuple(extent for kind in known for extent in kind.shape),
    }


outlined = define(
    "outlined",
    batch=by_the_sweep,
    infer=_infer_outlined,
    reference=_run_outlined,
    lower=Host(is_local=True, is_program=True),
    attrs=(
        Attr("function", "str"),
        Attr("dtypes", "strs", (), most=MANY),
        Attr("ranks", "ints", (), within=EXTENT, most=MANY),
        Attr("dims", "dims", (), within=EXTENT, most=MANY),
    ),
    variadic=True,
    differentiable=False,
    doc="What a program of this process gives, which a `phased` node became.",
)
