"""How loops are differentiated: each rule emits a forward loop that also saves what its backward
loop reads.

    scan     what a step saves is stacked like a y; the backward scan runs the other way
    while    what a step saves is pushed on a stack; the backward loop pops as often as the forward
             loop ran (TensorFlow white paper, section 4.1)

Memory is linear in the trips.  Loops in loops share the stacks of the outermost one: the backward
pass empties them in exactly the reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir.graph import Graph, Node
from graphc.ir.types import stack_type
from graphc.ops.autodiff.joint import Split, joint, split
from graphc.ops.autodiff.region_gradients import (
    Values,
    apply,
    inlined,
    new_stacks,
    or_zeros,
    region_of,
    types_of,
)
from graphc.ops.autodiff.vjp import (
    Cotangents,
    Pullback,
    Sweep,
    active_nodes,
    needed_leaves,
    prepared,
    pullback_of,
    zeros,
)
from graphc.ops.control.control import scan_operands
from graphc.ops.record.value import Trace, Value, emit, functions


class Flow:
    """Which carries and operands of a loop cotangents flow through, to a fixed point."""

    def __init__(self, node: Node, active: set[int], wanted: set[int]) -> None:
        self.carries: int = node.attrs["carries"]
        body, active, wanted = node.regions[-1], set(active), set(wanted)
        while True:
            region = prepared(body, active, None)
            flags = active_nodes(region, active)
            more = {k for k in range(self.carries) if flags[region.results[k].id]} - active
            if not more:
                break
            active |= more
        while True:
            needed = needed_leaves(region, wanted, flags)
            more = {k for k in range(self.carries) if needed[region.params[k].id]} - wanted
            if not more:
                break
            wanted |= more
        self.carried = [k for k in range(self.carries) if k in active and k in wanted]
        outside = [k for k in sorted(active) if k >= self.carries]
        self.operands = [k for k in outside if needed[region.params[k].id]]
        self.results = [
            k for k in sorted(wanted) if k >= self.carries and flags[region.results[k].id]
        ]

    @staticmethod
    def of(sweep: Sweep, node: Node) -> Flow:
        active = {k for k, n in enumerate(node.inputs) if sweep.active[n.id]}
        return Flow(node, active, sweep.needed[node.id])


def _loop_needs(node: Node, active: set[int], wanted: set[int]) -> set[int]:
    flow = Flow(node, active, wanted)
    return {*flow.carried, *flow.operands}


@pullback_of("scan", needs=_loop_needs)
def scanned(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """Saved values are further ys; the backward scan runs in the other direction.

    Its carries are the cotangents of the carries and the sums of those of the invariants.
    """
    trace, body, attrs = sweep.trace, node.regions[0], node.attrs
    carries, xs, length = attrs["carries"], attrs["scanned"], attrs["length"]
    flow = Flow.of(sweep, node)
    first, count = carries + xs, len(body.results)
    wrt = [*flow.carried, *flow.operands]
    whole = joint(body, wrt, [*flow.carried, *flow.results], sweep.note)
    part = split(whole, len(body.params), count, range(carries, len(body.params)))
    own = new_stacks(trace, part.stacks)
    forward = _stacked(part, carries, len(body.params), count)
    values = [*operands[:carries], *own, *operands[carries:]]
    stacks = len(own)
    made = apply(
        trace,
        "scan",
        values,
        [forward],
        carries=carries + stacks,
        scanned=xs,
        length=length,
        reverse=attrs["reverse"],
    )
    tops, saved = made[carries : carries + stacks], made[count + stacks :]
    results = [*made[:carries], *made[carries + stacks : count + stacks]]

    def pullback(cotangents: Cotangents) -> Values:
        kinds = [r.node.type for r in results]
        starts = [or_zeros(trace, cotangents[k], kinds[k]) for k in flow.carried]
        before, sums = _parted(flow.operands, first)
        totals = [zeros(trace, node.inputs[k].type) for k in sums]
        seeds = [or_zeros(trace, cotangents[k], kinds[k]) for k in flow.results]
        walked, fixed = _parted(part.kept, first)
        outer = [operands[k] for k in walked + fixed]
        inputs = [*starts, *totals, *tops, *seeds, *saved, *outer]
        loops = len(starts) + len(totals) + stacks
        moving = len(seeds) + len(saved) + len(walked)
        step = _backward_step(part, flow, sums, walked, fixed)
        region = region_of(
            f"{body.name}_gradient", scan_operands(types_of(inputs), loops, moving, length), step
        )
        found = apply(
            trace,
            "scan",
            inputs,
            [region],
            carries=loops,
            scanned=moving,
            length=length,
            reverse=not attrs["reverse"],
        )
        gradients: dict[int, Value] = dict(zip(flow.carried, found))
        gradients |= zip(sums, found[len(starts) :])
        gradients |= zip(before, found[loops:])
        return [gradients.get(k) for k in range(len(operands))]

    return results, pullback


def _parted(places: Sequence[int], first: int) -> tuple[list[int], list[int]]:
    """The places before `first`, and the others."""
    return [k for k in places if k < first], [k for k in places if k >= first]


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


@pullback_of("while", needs=_loop_needs)
def repeated(sweep: Sweep, node: Node, operands: Values) -> tuple[Values, Pullback]:
    """The forward loop counts its trips and pushes what a step saves; the backward loop pops."""
    trace, (test, body) = sweep.trace, node.regions
    carries = node.attrs["carries"]
    flow = Flow.of(sweep, node)
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
