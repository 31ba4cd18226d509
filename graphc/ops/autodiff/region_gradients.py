"""How branches and marked regions are differentiated: each rule emits a forward op that also saves
what its backward op reads.  Of a branch the region that ran runs backwards; the others save
zeros that nobody reads.  Loops: `loop_gradients.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.ir.graph import Builder, Graph, Node, inline
from graphc.ir.op import OPS
from graphc.ir.regions import choosers
from graphc.ir.types import AnyType, leaves
from graphc.ops.autodiff.joint import Split, joint, split
from graphc.ops.autodiff.vjp import (
    Cotangents,
    Pullback,
    Sweep,
    active_nodes,
    differentiate,
    has_gradient,
    needed_leaves,
    prepared,
    pullback_of,
    zeros,
)
from graphc.ops.control.control import param_node
from graphc.ops.control.host_calls import without_calls
from graphc.ops.record.value import Trace, Value, tracing

Values = list[Any]


def region_of(
    name: str, kinds: Sequence[AnyType], write: Callable[[Trace, Values], Sequence[Any]]
) -> Graph:
    """A region with these parameter types; `write` emits it and returns its results."""
    params = tuple(param_node(k, kind) for k, kind in enumerate(kinds))
    trace = Trace(Builder(len(params)))
    with tracing(trace):
        results = tuple(v.node for v in write(trace, [trace.wrap(p) for p in params]))
    return Graph(name, params, trace.builder.nodes, results, next_id=trace.builder.next_id)


def inlined(trace: Trace, region: Graph, values: Sequence[Value]) -> Values:
    """The results of a region copied into a trace."""
    return [trace.wrap(n) for n in inline(trace.builder, region, [v.node for v in values])]


def listed(made: Value | tuple[Value, ...]) -> Values:
    return list(made) if isinstance(made, tuple) else [made]


def apply(trace: Trace, op: str, values: Sequence[Value], regions: Any, **attrs: object) -> Values:
    """Emit a region op; its results as a list."""
    nodes = tuple(v.node for v in values)
    return listed(trace.emit(OPS[op], nodes, attrs, regions=tuple(regions)))


def types_of(values: Sequence[Value]) -> list[AnyType]:
    return [v.node.type for v in values]


def or_zeros(trace: Trace, cotangent: Value | None, kind: AnyType) -> Value:
    return zeros(trace, kind) if cotangent is None else cotangent


def new_stacks(trace: Trace, kinds: Sequence[AnyType]) -> Values:
    return [zeros(trace, kind) for kind in kinds]


# ---------------------------------------------------------------------------------------- regions


@pullback_of("checkpoint")
def checkpointed(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """Run the region again when the cotangent is there; a barrier keeps the two runs apart."""
    trace, region = sweep.trace, node.regions[0]
    results = inlined(trace, region, operands)
    active = {k for k, n in enumerate(node.inputs) if sweep.active[n.id]}
    wanted = sweep.needed[node.id]

    def pullback(cotangents: Cotangents) -> Values:
        waits = tuple(c.node for c in cotangents if c is not None)
        barrier = OPS["barrier"]
        again = [trace.emit(barrier, (v.node, *waits), {}) for v in operands]
        _, pull = differentiate(trace, without_calls(region), again, active, wanted, sweep.note)
        found = pull(list(cotangents))
        return [found.get(k) for k in range(len(operands))]

    return results, pullback


@pullback_of("phased")
def phased(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """The region counts again on the way back, which keeps none of what is as long as its sizes."""
    trace, region, counts = sweep.trace, node.regions[0], node.attrs["counts"]
    results = apply(trace, "phased", operands, node.regions, **node.attrs)
    active = [k for k, n in enumerate(node.inputs) if sweep.active[n.id]]
    wanted = {len(counts) + k for k in sweep.needed[node.id]}
    count = len(operands)

    def pullback(cotangents: Cotangents) -> Values:
        given = {k: c for k, c in enumerate(cotangents, len(counts)) if c is not None}

        def write(inner: Trace, values: Values) -> Values:
            seeds = dict(zip(given, values[count:], strict=True))
            again = without_calls(region)
            made, pull = differentiate(inner, again, values[:count], set(active), wanted)
            found = pull([seeds.get(k) for k in range(len(made))])
            kinds = [param.type for param in region.params]
            return [
                *made[: len(counts)],
                *(or_zeros(inner, found.get(k), kinds[k]) for k in active),
            ]

        values = [*operands, *given.values()]
        back = region_of(f"{region.name}_back", types_of(values), write)
        gradients = dict(zip(active, apply(trace, "phased", values, [back], **node.attrs)))
        return [gradients.get(k) for k in range(count)]

    return results, pullback


@pullback_of("custom_grad")
def customised(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """The user's own backward region."""
    trace, (forward, backward), count = sweep.trace, node.regions, node.attrs["results"]
    made = inlined(trace, forward, operands)
    results, saved = made[:count], made[count:]

    def pullback(cotangents: Cotangents) -> Values:
        kinds = types_of(results)
        seeds = [or_zeros(trace, c, kind) for c, kind in zip(cotangents, kinds, strict=True)]
        gradients = iter(inlined(trace, backward, [*saved, *seeds]))
        return [next(gradients) if has_gradient(n.type) else None for n in node.inputs]

    return results, pullback


def branch_needs(node: Node, active: set[int], wanted: set[int]) -> set[int]:
    """The operands that some region needs for the results that are wanted."""
    first = choosers(node)
    inside = {k - first for k in active}
    found: set[int] = set()
    for branch in node.regions:
        region = prepared(branch, inside, None)
        needed = needed_leaves(region, wanted, active_nodes(region, inside))
        found |= {k + first for k, param in enumerate(region.params) if needed[param.id]}
    return found


@pullback_of("cond", needs=branch_needs)
def branched(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """Each branch saves for itself; all return what any of them saves."""
    trace, first = sweep.trace, choosers(node)
    flags, rest = operands[:first], operands[first:]
    active = [k for k, n in enumerate(node.inputs[first:]) if sweep.active[n.id]]
    count = len(leaves(node.type))
    seeded = sorted(k for k in sweep.needed[node.id] if has_gradient(leaves(node.type)[k]))
    joints = [joint(region, active, seeded, sweep.note) for region in node.regions]
    parts = [split(j, len(rest), count, range(len(rest))) for j in joints]
    read = sorted({k for part in parts for k in part.kept})
    saved = [kind for part in parts for kind in part.saved]
    stacks = [kind for part in parts for kind in part.stacks]
    branches = range(len(parts))
    forward = [_saving(parts, k, types_of(rest), count, stacks) for k in branches]
    own = new_stacks(trace, stacks)
    made = apply(trace, node.op.name, [*flags, *rest, *own], forward, **node.attrs)
    results, kept = made[:count], made[count:]

    def pullback(cotangents: Cotangents) -> Values:
        kinds = leaves(node.type)
        seeds = [or_zeros(trace, cotangents[k], kinds[k]) for k in seeded]
        inputs = [*(rest[k] for k in read), *kept[: len(saved)], *seeds, *kept[len(saved) :]]
        backward = [_replaying(parts, k, types_of(inputs), read, len(seeds)) for k in branches]
        gradients = apply(trace, node.op.name, [*flags, *inputs], backward, **node.attrs)
        found = dict(zip(active, gradients))
        return [*(None for _ in flags), *(found.get(k) for k in range(len(rest)))]

    return results, pullback


def _share(parts: Sequence[Split], k: int, field: str) -> slice:
    """Where the saved values or stacks of branch k are among those of all."""
    sizes = [len(getattr(part, field)) for part in parts]
    return slice(sum(sizes[:k]), sum(sizes[: k + 1]))


def _saving(
    parts: Sequence[Split], k: int, kinds: Sequence[AnyType], count: int, stacks: Sequence[AnyType]
) -> Graph:
    """Branch k of the forward op: results, saved values of all branches, stacks of all."""

    def write(trace: Trace, values: Values) -> Values:
        rest, passed = values[: len(kinds)], values[len(kinds) :]
        mine = _share(parts, k, "stacks")
        made = inlined(trace, parts[k].forward, [*rest, *passed[mine]])
        size = len(parts[k].saved)
        passed[mine] = made[count + size :]
        saved: Values = []
        for j, part in enumerate(parts):
            own = made[count : count + size]
            saved += own if j == k else [zeros(trace, kind) for kind in part.saved]
        return [*made[:count], *saved, *passed]

    return region_of(parts[k].forward.name, [*kinds, *stacks], write)


def _replaying(
    parts: Sequence[Split], k: int, kinds: Sequence[AnyType], read: Sequence[int], seeds: int
) -> Graph:
    """Branch k of the backward op: gradients of active operands, then the stacks of all."""

    def write(trace: Trace, values: Values) -> Values:
        part, size = parts[k], sum(len(p.saved) for p in parts)
        kept = dict(zip(read, values))
        rest = values[len(read) :]
        saved = rest[:size][_share(parts, k, "saved")]
        cotangents, passed = rest[size : size + seeds], rest[size + seeds :]
        mine = _share(parts, k, "stacks")
        inputs = [*(kept[j] for j in part.kept), *saved, *passed[mine], *cotangents]
        made = inlined(trace, part.backward, inputs)
        count = len(made) - len(part.stacks)
        passed[mine] = made[count:]
        return [*made[:count], *passed]

    return region_of(f"{parts[k].forward.name}_gradient", kinds, write)
