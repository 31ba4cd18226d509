"""How control flow is differentiated: each rule emits a forward op that also saves what its
backward op reads.

    cond     the branch that ran runs backwards; the other branch saves zeros that nobody reads
    scan     what a step saves is stacked like a y; the backward scan runs the other way
    while    what a step saves is pushed on a stack; the backward loop pops as often as the forward
             loop ran (TensorFlow white paper, section 4.1)

Memory is linear in the trips.  Loops in loops share the stacks of the outermost one: the backward
pass empties them in exactly the reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.graph import Builder, Graph, Node, inline
from graphc.ir.op import OPS
from graphc.ir.types import AnyType, leaves, stack_type
from graphc.ops.control import param_node, scan_operands
from graphc.ops.cotangents import (
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
from graphc.ops.joint import Split, joint, split
from graphc.ops.value import Trace, Value, emit, functions, tracing

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


def listed(made: Any) -> Values:
    return list(made) if isinstance(made, tuple) else [made]


def apply(trace: Trace, op: str, values: Sequence[Value], regions: Any, **attrs: Any) -> Values:
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
        _, pull = differentiate(trace, region, again, active, wanted, sweep.note)
        found = pull(list(cotangents))
        return [found.get(k) for k in range(len(operands))]

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


@pullback_of("cond")
def branched(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """Each branch saves for itself; both return what either saves."""
    trace, pred, rest = sweep.trace, operands[0], operands[1:]
    active = [k for k, n in enumerate(node.inputs[1:]) if sweep.active[n.id]]
    count = len(leaves(node.type))
    seeded = sorted(k for k in sweep.needed[node.id] if has_gradient(leaves(node.type)[k]))
    joints = [joint(region, active, seeded, sweep.note) for region in node.regions]
    parts = [split(j, len(rest), count, range(len(rest))) for j in joints]
    read = sorted({*parts[0].kept, *parts[1].kept})
    saved = [kind for part in parts for kind in part.saved]
    stacks = [kind for part in parts for kind in part.stacks]
    forward = [_saving(parts, k, types_of(rest), count, stacks) for k in (0, 1)]
    own = new_stacks(trace, stacks)
    made = apply(trace, "cond", [pred, *rest, *own], forward)
    results, kept = made[:count], made[count:]

    def pullback(cotangents: Cotangents) -> Values:
        kinds = leaves(node.type)
        seeds = [or_zeros(trace, cotangents[k], kinds[k]) for k in seeded]
        inputs = [*(rest[k] for k in read), *kept[: len(saved)], *seeds, *kept[len(saved) :]]
        backward = [_replaying(parts, k, types_of(inputs), read, len(seeds)) for k in (0, 1)]
        found = dict(zip(active, apply(trace, "cond", [pred, *inputs], backward)))
        return [None, *(found.get(k) for k in range(len(rest)))]

    return results, pullback


def _share(parts: Sequence[Split], k: int, field: str) -> slice:
    """Where the saved values or stacks of branch k are among those of both."""
    first = len(getattr(parts[0], field))
    return slice(0, first) if k == 0 else slice(first, first + len(getattr(parts[1], field)))


def _saving(
    parts: Sequence[Split], k: int, kinds: Sequence[AnyType], count: int, stacks: Sequence[AnyType]
) -> Graph:
    """Branch k of the forward cond: results, saved values of both branches, stacks of both."""

    def write(trace: Trace, values: Values) -> Values:
        rest, passed = values[: len(kinds)], values[len(kinds) :]
        mine = _share(parts, k, "stacks")
        made = inlined(trace, parts[k].forward, [*rest, *passed[mine]])
        size = len(parts[k].saved)
        passed[mine] = made[count + size :]
        saved = [
            made[count : count + size] if j == k else [zeros(trace, t) for t in part.saved]
            for j, part in enumerate(parts)
        ]
        return [*made[:count], *saved[0], *saved[1], *passed]

    return region_of(parts[k].forward.name, [*kinds, *stacks], write)


def _replaying(
    parts: Sequence[Split], k: int, kinds: Sequence[AnyType], read: Sequence[int], seeds: int
) -> Graph:
    """Branch k of the backward cond: gradients of the active operands, then the stacks of both."""

    def write(trace: Trace, values: Values) -> Values:
        part, size = parts[k], len(parts[0].saved) + len(parts[1].saved)
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


# ---------------------------------------------------------------------------------------- loops


class Flow:
    """Which carries and operands of a loop cotangents flow through, to a fixed point."""

    def __init__(self, sweep: Sweep, node: Node, body: Graph) -> None:
        self.carries: int = node.attrs["carries"]
        active = {k for k, n in enumerate(node.inputs) if sweep.active[n.id]}
        while True:
            region = prepared(body, active, None)
            flags = active_nodes(region, active)
            more = {k for k in range(self.carries) if flags[region.results[k].id]} - active
            if not more:
                break
            active |= more
        wanted = set(sweep.needed[node.id])
        while True:
            needed = needed_leaves(region, wanted, flags)
            more = {k for k in range(self.carries) if needed[region.params[k].id]} - wanted
            if not more:
                break
            wanted |= more
        self.carried = [k for k in range(self.carries) if k in active and k in wanted]
        outside = [k for k in sorted(active) if k >= self.carries]
        self.operands = [k for k in outside if needed[region.params[k].id]]
        self.results = [k for k in sorted(wanted)
                        if k >= self.carries and flags[region.results[k].id]]  # fmt: skip


@pullback_of("scan")
def scanned(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """Saved values are further ys; the backward scan runs in the other direction.

    Its carries are the cotangents of the carries and the sums of those of the invariants.
    """
    trace, body, attrs = sweep.trace, node.regions[0], node.attrs
    carries, xs, length = attrs["carries"], attrs["scanned"], attrs["length"]
    flow = Flow(sweep, node, body)
    first = carries + xs
    wrt = [*flow.carried, *flow.operands]
    whole = joint(body, wrt, [*flow.carried, *flow.results], sweep.note)
    count = len(body.results)
    part = split(whole, len(body.params), count, range(carries, len(body.params)))
    own = new_stacks(trace, part.stacks)
    forward = _stacked(part, carries, len(body.params), count)
    values = [*operands[:carries], *own, *operands[carries:]]
    stacks = len(own)
    made = apply(
        trace, "scan", values, [forward],
        carries=carries + stacks, scanned=xs, length=length, reverse=attrs["reverse"],
    )  # fmt: skip
    results = [*made[:carries], *made[carries + stacks :][: count - carries]]
    saved = made[count + stacks :]
    tops = made[carries : carries + stacks]

    def pullback(cotangents: Cotangents) -> Values:
        kinds = [r.node.type for r in results]
        starts = [or_zeros(trace, cotangents[k], kinds[k]) for k in flow.carried]
        sums = [k for k in flow.operands if k >= first]
        totals = [zeros(trace, node.inputs[k].type) for k in sums]
        seeds = [or_zeros(trace, cotangents[k], kinds[k]) for k in flow.results]
        walked = [k for k in part.kept if k < first]
        fixed = [k for k in part.kept if k >= first]
        inputs = [
            *starts, *totals, *tops, *seeds, *saved, *(operands[k] for k in walked),
            *(operands[k] for k in fixed),
        ]  # fmt: skip
        loops = len(starts) + len(totals) + stacks
        moving = len(seeds) + len(saved) + len(walked)
        step = _backward_step(part, flow, sums, walked, fixed)
        region = region_of(
            f"{body.name}_gradient",
            scan_operands(types_of(inputs), loops, moving, length),
            step,
        )
        found = apply(
            trace, "scan", inputs, [region],
            carries=loops, scanned=moving, length=length, reverse=not attrs["reverse"],
        )  # fmt: skip
        gradients: dict[int, Value] = dict(zip(flow.carried, found))
        gradients |= zip(sums, found[len(starts) :])
        gradients |= zip([k for k in flow.operands if k < first], found[loops:])
        return [gradients.get(k) for k in range(len(operands))]

    return results, pullback


def _stacked(part: Split, carries: int, params: int, count: int) -> Graph:
    """The forward body with its stacks as carries: (carries, stacks, rest) -> (carries, stacks,
    ys, saved)."""
    graph, size = part.forward, len(part.stacks)
    if not size:
        return graph
    inputs, outputs = graph.params, graph.results
    end = len(outputs) - size
    return graph.replace(
        params=(*inputs[:carries], *inputs[params:], *inputs[carries:params]),
        results=(*outputs[:carries], *outputs[end:], *outputs[carries:end]),
        result_names=(),
    )


def _backward_step(
    part: Split, flow: Flow, sums: Sequence[int], walked: Sequence[int], fixed: Sequence[int]
) -> Callable[[Trace, Values], Values]:
    """One backward step: new cotangents and sums, stacks, then the cotangents of the slices."""

    def write(trace: Trace, values: Values) -> Values:
        queue = iter(values)

        def take(count: int) -> Values:
            return [next(queue) for _ in range(count)]

        carried, totals = take(len(flow.carried)), take(len(sums))
        tops, seeds = take(len(part.stacks)), take(len(flow.results))
        saved = take(len(part.saved))
        kept = dict(zip([*walked, *fixed], take(len(walked) + len(fixed))))
        inputs = [*(kept[k] for k in part.kept), *saved, *tops, *carried, *seeds]
        made = inlined(trace, part.backward, inputs)
        gradients = dict(zip([*flow.carried, *flow.operands], made))
        ends = made[len(made) - len(tops) :]
        return [
            *(gradients[k] for k in flow.carried),
            *(emit("add", total, gradients[k]) for k, total in zip(sums, totals, strict=True)),
            *ends,
            *(gradients[k] for k in flow.operands if k not in sums),
        ]

    return write


@pullback_of("while")
def repeated(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """The forward loop counts its trips and pushes what a step saves; the backward loop pops."""
    trace, (test, body) = sweep.trace, node.regions
    carries = node.attrs["carries"]
    flow = Flow(sweep, node, body)
    whole = joint(body, [*flow.carried, *flow.operands], flow.carried, sweep.note)
    part = split(whole, len(body.params), carries, range(carries, len(body.params)))
    kinds = types_of(operands)
    own = new_stacks(trace, [*(stack_type(t) for t in part.saved), *part.stacks])
    count = trace.constant(np.int64(0))
    inputs = [*operands[:carries], count, *own, *operands[carries:]]
    outer = types_of(inputs)
    regions = [
        region_of(test.name, outer, lambda t, v: inlined(t, test, _without(v, carries, len(own)))),
        region_of(body.name, outer, _pushing(part, carries, len(own))),
    ]
    made = apply(trace, "while", inputs, regions, carries=carries + 1 + len(own))
    results, trips, tops = made[:carries], made[carries], made[carries + 1 :]

    def pullback(cotangents: Cotangents) -> Values:
        starts = [or_zeros(trace, cotangents[k], kinds[k]) for k in flow.carried]
        totals = [zeros(trace, kinds[k]) for k in flow.operands]
        state = [trips, *starts, *totals, *tops]
        values = [*state, *(operands[k] for k in part.kept)]
        regions = [
            region_of("more", types_of(values), lambda t, v: [functions.greater(v[0], 0)]),
            region_of(f"{body.name}_gradient", types_of(values), _popping(part, flow)),
        ]
        found = apply(trace, "while", values, regions, carries=len(state))[1:]
        gradients = dict(zip([*flow.carried, *flow.operands], found))
        return [gradients.get(k) for k in range(len(operands))]

    return results, pullback


def _without(values: Values, carries: int, stacks: int) -> Values:
    """The operands of the original loop among those of the counting one."""
    return [*values[:carries], *values[carries + 1 + stacks :]]


def _pushing(part: Split, carries: int, stacks: int) -> Callable[[Trace, Values], Values]:
    def write(trace: Trace, values: Values) -> Values:
        own = values[carries + 1 :][:stacks]
        passed = own[len(part.saved) :]
        made = inlined(trace, part.forward, [*_without(values, carries, stacks), *passed])
        saved = made[carries:][: len(part.saved)]
        pushed = [emit("push", s, x) for s, x in zip(own, saved)]
        count = functions.add(values[carries], np.int64(1))
        return [*made[:carries], count, *pushed, *made[carries + len(saved) :]]

    return write


def _popping(part: Split, flow: Flow) -> Callable[[Trace, Values], Values]:
    """One backward step of a while loop."""

    def write(trace: Trace, values: Values) -> Values:
        queue = iter(values)

        def take(count: int) -> Values:
            return [next(queue) for _ in range(count)]

        count, carried, totals = take(1)[0], take(len(flow.carried)), take(len(flow.operands))
        popped = [emit("pop", s) for s in take(len(part.saved))]
        tops, kept = take(len(part.stacks)), list(queue)
        inputs = [*kept, *(x for _, x in popped), *tops, *carried]
        made = inlined(trace, part.backward, inputs)
        size = len(flow.carried)
        sums = [emit("add", t, g) for t, g in zip(totals, made[size : size + len(totals)])]
        ends = made[len(made) - len(tops) :]
        left = functions.subtract(count, np.int64(1))
        return [left, *made[:size], *sums, *(s for s, _ in popped), *ends]

    return write
