"""The op that a pipelined function is traced to: its batch in chunks, its region in stages.

    operands    what all chunks share, each chunk's own, cotangents of the losses if it `trains`
    results     those of every chunk, then the gradients by `wrt`, summed over chunks

What it computes has nothing to do with stages: it is the function on every chunk, and the sum of
the gradients.  Where it is cut and what runs when is the business of `expand_pipelines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

from graphc.base.record import record
from graphc.errors import GraphError, TypeRuleError
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import EXTENT, MANY, NOT_NEGATIVE, OPS, Attr, Composite, Range
from graphc.ir.place import parse_device
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Type, tuple_type
from graphc.limits import check_within
from graphc.ops.control.control import param_node
from graphc.ops.record.families import define, require
from graphc.ops.record.structural import infer_region
from graphc.ops.record.value import Trace, Value, current, emit, tracing

CHECKPOINTS = ("always", "except_last", "never")
BALANCES = ("time", "bytes")
MOST_STAGES = 256
STAGES = Range(1, MOST_STAGES)  # balancing them takes time by the square of the nodes for each


@record(frozen=True)
class Layout:
    """Which operand is what: `own` are the numbers of the parameters that each chunk has its own
    values of, of `params` parameters."""

    own: tuple[int, ...]
    params: int
    chunks: int

    @property
    def shared(self) -> int:
        """How many operands all chunks have in common: they come first."""
        return self.params - len(self.own)

    @property
    def cotangents(self) -> int:
        """The number of the first operand that is a cotangent."""
        return self.shared + self.chunks * len(self.own)

    def of_chunk(self, values: Sequence[Any], chunk: int) -> list[Any]:
        """Those operands that a chunk runs on, in the order of the region's parameters."""
        first = self.shared + chunk * len(self.own)
        shared, own = iter(values[: self.shared]), iter(values[first : first + len(self.own)])
        mine = set(self.own)
        return [next(own if k in mine else shared) for k in range(self.params)]

    def joined(self, chunks: Sequence[Sequence[Any]]) -> list[Any]:
        """The operands, cotangents left out, of those of every chunk."""
        mine = set(self.own)
        shared = compress(chunks[0], [k not in mine for k in range(self.params)])
        return [*shared, *(values[k] for values in chunks for k in self.own)]


def layout_of(regions: Sequence[Graph], attrs: Any) -> Layout:
    """Of a pipeline's regions and attributes."""
    return Layout(attrs["own"], len(regions[0].params), len(attrs["shapes"]))


def _infer(*types: AnyType, regions: tuple[Graph, ...], **attrs: Any) -> AnyType:
    """Also everything that the stage which expands it relies on."""
    require(bool(regions), "pipeline: there is no region")
    layout = layout_of(regions, attrs)
    _check_numbers(regions, layout, attrs)
    _check_devices(attrs)
    seeds = layout.chunks if attrs["trains"] else 0
    wanted = layout.cotangents + seeds
    require(len(types) == wanted, f"pipeline: {wanted} operands are needed, got {len(types)}")
    made: list[AnyType] = []
    for chunk, shape in enumerate(attrs["shapes"]):
        region = regions[shape]
        infer_region(*layout.of_chunk(types, chunk), regions=(region,))
        made += region.signature[1]
        if seeds:
            loss, seed = region.results[0].type, types[layout.cotangents + chunk]
            require(_is_float(loss) and loss == seed, f"pipeline: cotangent {seed} of {loss}")
    require(all(isinstance(kind, Type) for kind in made), "pipeline: a result is a tuple")
    slopes = [regions[0].params[k].type for k in attrs["wrt"]]
    for kind in slopes:
        require(
            _is_float(kind), f"pipeline: {kind} has no gradient", hint="gradients are of floats"
        )
    return tuple_type((*made, *slopes))


def _check_numbers(regions: Sequence[Graph], layout: Layout, attrs: Any) -> None:
    own, wrt, shapes, counts = (attrs[name] for name in ("own", "wrt", "shapes", "counts"))
    for name, numbers in (("own", own), ("wrt", wrt)):
        fine = list(numbers) == sorted({*numbers}) and all(k < layout.params for k in numbers)
        require(fine, f"pipeline: {name} are parameters of the region, in order")
    require(not set(own) & set(wrt), "pipeline: gradients are by what all chunks share")
    require(attrs["trains"] or not wrt, "pipeline: gradients are of one that trains")
    require(all(k < len(regions) for k in shapes), "pipeline: shapes are numbers of regions")
    same = {(len(region.params), len(region.results)) for region in regions}
    require(len(same) == 1 and all(r.results for r in regions), "pipeline: its regions differ")
    nodes = sum(len(regions[k].nodes) for k in shapes)
    check_within("pipelined_nodes", nodes, f"a pipeline with {nodes} nodes in its chunks")
    require(bool(shapes) and sum(counts) == len(shapes), "pipeline: counts are of its chunks")
    require(attrs["stages"] is None or not attrs["ends"], "pipeline: stages by number or by name")


def _check_devices(attrs: Any) -> None:
    devices, counts = attrs["devices"], attrs["counts"]
    try:
        found = [parse_device(name) for name in devices]
    except GraphError as error:
        raise TypeRuleError(f"pipeline: {error.message}", hint=error.hint) from None
    fair = bool(counts) and len(devices) % len(counts) == 0
    require(fair, "pipeline: all pipelines have equally many devices")
    width = len(devices) // len(counts)
    groups = [{*found[k : k + width]} for k in range(0, len(found), max(1, width))]
    once = bool(groups) and all(len(group) == width for group in groups)
    require(once, "pipeline: it has devices, each of them once")  # two may share a device


def _is_float(kind: AnyType) -> bool:
    return isinstance(kind, Type) and kind.dtype.kind in "fc"


def _expand(*values: Value, regions: tuple[Graph, ...], **attrs: Any) -> tuple[Value, ...]:
    """The function on every chunk, one after the other, and the sums of the gradients."""
    trace = current()
    assert trace is not None
    results: list[Value] = []
    slopes: list[Value] = []
    for region, operands in _calls(values, regions, attrs):
        nodes = tuple(v.node for v in operands)
        given = {"wrt": attrs["wrt"]} if attrs["trains"] else {"name": region.name}
        op = OPS["grad" if attrs["trains"] else "call"]
        made = trace.emit(op, nodes, given, regions=(region,))
        made = made if isinstance(made, tuple) else (made,)
        results += made[: len(region.results)]
        new = made[len(region.results) :]
        slopes = [emit("add", a, b) for a, b in zip(slopes, new)] if slopes else list(new)
    return (*results, *slopes)


def _calls(
    values: Sequence[Any], regions: Sequence[Graph], attrs: Any
) -> Iterator[tuple[Graph, list[Any]]]:
    layout = layout_of(regions, attrs)
    for chunk, shape in enumerate(attrs["shapes"]):
        seed = values[layout.cotangents + chunk :][:1]
        yield regions[shape], [*layout.of_chunk(values, chunk), *seed]


def _run(*arrays: Any, regions: tuple[Graph, ...], run: Any, **attrs: Any) -> Any:
    """What it is written out as, run."""
    layout = layout_of(regions, attrs)
    used = [regions[shape] for shape in attrs["shapes"]]
    kinds = layout.joined([region.signature[0] for region in used])
    kinds += [region.results[0].type for region in used if attrs["trains"]]
    params: tuple[Node, ...] = tuple(param_node(k, kind) for k, kind in enumerate(kinds))
    trace = Trace(Builder(len(params)))
    with tracing(trace):
        made = _expand(*map(trace.wrap, params), regions=regions, **attrs)
    results = tuple(value.node for value in made)
    return tuple(run(Graph("pipeline", params, trace.builder.nodes, results), list(arrays)))


define(
    "pipeline",
    infer=_infer,
    reference=_run,
    lower=Composite(_expand),
    attrs=(
        Attr("devices", "strs", most=MANY),
        Attr("counts", "ints", within=EXTENT, most=MANY),
        Attr("shapes", "ints", within=EXTENT, most=MANY),
        Attr("own", "ints", within=EXTENT, most=MANY),
        Attr("wrt", "ints", (), within=EXTENT, most=MANY),
        Attr("trains", "bool", True),
        Attr("schedule", "strs", ("1f1b",), most=MANY),
        Attr("checkpoint", "str", "except_last", choices=CHECKPOINTS),
        Attr("balance", "str", "time", choices=BALANCES),
        Attr("stages", "int", None, optional=True, within=STAGES),
        Attr("ends", "strs", (), most=MOST_STAGES - 1),
        Attr("memory_limit", "float", None, optional=True, within=NOT_NEGATIVE),
        Attr("fenced", "bool", True),
    ),
    variadic=True,
    regions=-1,
    doc="A region in stages on `devices`, a batch in chunks: chunk k runs region `shapes[k]` (they "
    "differ in sizes alone) on the operands that all share and its own of parameters `own`; "
    "`counts` chunks go through each of several pipelines of equally many devices. Results of all "
    "chunks, then gradients by `wrt`, summed; the cotangents of the first results come last. "
    "`schedule` is a name, or a name and the actions of each device after a `|`; a stage begins "
    "where a device does, or behind values that `ends` names, or `stages` are balanced.",
    traits=Traits(in_stages=True),
)
