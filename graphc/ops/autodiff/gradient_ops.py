"""The ops a differentiated program is traced to; the pass `gradient` expands them.

grad            results of a region and the gradients of its first results
checkpoint      a region that the backward pass computes again instead of keeping its values
custom_grad     a region together with its own backward region
stop_gradient   its operand, which no gradient flows through
"""

from __future__ import annotations

from typing import Any

from graphc.ir.graph import Builder, Graph
from graphc.ir.op import EXTENT, MANY, OPS, POSITIVE, Alias, Attr, Composite, Sample, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Type, tuple_type
from graphc.ops.autodiff.vjp import expand_grad
from graphc.ops.control.control import param_node, results_of, results_type
from graphc.ops.record.batching import by_the_sweep, leading
from graphc.ops.record.families import ALL, define, require, require_tensor, sample_array
from graphc.ops.record.structural import infer_region
from graphc.ops.record.value import Trace, Value, current, tracing


def _listed(types: tuple[AnyType, ...]) -> str:
    return f"({', '.join(map(str, types))})"


def _is_float(kind: AnyType) -> bool:
    return isinstance(kind, Type) and kind.dtype.kind in "fc"


def _infer_grad(
    *types: AnyType, regions: tuple[Graph, ...], wrt: tuple[int, ...], seeds: int
) -> AnyType:
    region = regions[0]
    count = len(region.params)
    infer_region(*types[:count], regions=regions)
    require(0 < seeds <= len(region.results), f"grad: {seeds} of {len(region.results)} results")
    wanted = region.signature[1][:seeds]
    require(
        types[count:] == wanted,
        f"grad: cotangents {_listed(types[count:])} do not fit the results {_listed(wanted)}",
    )
    in_range = all(0 <= k < count for k in wrt)
    require(in_range, f"grad: wrt {list(wrt)} is out of range for {count} operand(s)")
    for kind in (*wanted, *(types[k] for k in wrt)):
        require(_is_float(kind), f"grad: {kind} has no gradient", hint="gradients are of floats")
    return tuple_type((*region.signature[1], *(types[k] for k in wrt)))


def _run_grad(*arrays: Any, regions: tuple[Graph, ...], run: Any, **attrs: Any) -> Any:
    """Expand, then run what came out."""
    region = regions[0]
    kinds = (*region.signature[0], *region.signature[1][: attrs["seeds"]])
    params = tuple(param_node(number, kind) for number, kind in enumerate(kinds))
    trace = Trace(Builder(len(params)))
    node = trace.builder.emit(grad, params, attrs, regions=regions)
    trace.builder.nodes.clear()
    with tracing(trace):
        made = expand_grad(trace, node, [trace.wrap(p) for p in params])
    results = tuple(v.node for v in made)
    return tuple(run(Graph("grad", params, trace.builder.nodes, results), list(arrays)))


grad = define(
    "grad",
    batch=by_the_sweep,
    infer=_infer_grad,
    reference=_run_grad,
    lower=Structural(),
    attrs=(Attr("wrt", "ints", within=EXTENT, most=MANY), Attr("seeds", "int", 1, within=EXTENT)),
    variadic=True,
    regions=1,
    doc="The results of a region and, for each operand number in `wrt`, the gradient of its first "
    "`seeds` results; their cotangents follow the region's operands.",
    traits=Traits(asks_gradient=True, once=True),
)


def _call(*values: Value, regions: tuple[Graph, ...], name: str = "f") -> Any:
    trace = current()
    assert trace is not None
    nodes = tuple(v.node for v in values)
    return trace.emit(OPS["call"], nodes, {"name": name}, regions=regions[:1])


def _run_region(*arrays: Any, regions: tuple[Graph, ...], run: Any, **attrs: object) -> Any:
    return results_of(run(regions[0], list(arrays)))


checkpoint = define(
    "checkpoint",
    batch=by_the_sweep,
    infer=infer_region,
    reference=_run_region,
    lower=Composite(_call),
    attrs=(Attr("name", "str", "f"),),
    variadic=True,
    regions=1,
    doc="Run a region; the backward pass runs it again instead of keeping what lies inside.",
    traits=Traits(once=True),
)


def _infer_custom(*types: AnyType, regions: tuple[Graph, ...], results: int) -> AnyType:
    forward, backward = regions
    infer_region(*types, regions=(forward,))
    made = forward.signature[1]
    require(0 < results <= len(made), f"custom_grad: {results} of {len(made)} results")
    infer_region(*made[results:], *made[:results], regions=(backward,))
    gradients, wanted = backward.signature[1], tuple(filter(_is_float, types))
    require(
        gradients == wanted,
        f"custom_grad: the gradients {_listed(gradients)} do not fit the float operands "
        f"{_listed(wanted)}",
    )
    return results_type(made[:results])


def _run_custom(*arrays: Any, regions: tuple[Graph, ...], run: Any, results: int) -> Any:
    return results_of(run(regions[0], list(arrays))[:results])


def _expand_custom(*values: Value, regions: tuple[Graph, ...], results: int) -> Any:
    made = _call(*values, regions=regions)
    made = made if isinstance(made, tuple) else (made,)
    return results_of(made[:results])


custom_grad = define(
    "custom_grad",
    batch=by_the_sweep,
    infer=_infer_custom,
    reference=_run_custom,
    lower=Composite(_expand_custom),
    attrs=(Attr("results", "int", within=POSITIVE),),
    variadic=True,
    regions=2,
    doc="Run the first region: its first `results` results, then what the second region reads. "
    "That one maps those and the cotangents to a gradient for each float operand.",
    traits=Traits(custom_gradient=True),
)


def _infer_stop(x: AnyType) -> AnyType:
    require_tensor("stop_gradient", x)
    return x


stop_gradient = define(
    "stop_gradient",
    batch=leading,
    infer=_infer_stop,
    reference=lambda x: x,
    lower=Alias(),
    differentiable=False,
    samples=lambda: [Sample((sample_array(name, (3, 4), (-4.0, 4.0), 0),)) for name in ALL],
    doc="Its operand; no gradient flows through it.",
)
