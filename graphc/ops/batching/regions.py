"""How ops with regions batch: branches, loops, marked regions, gradients, calls of Python.

A branch or a loop that all lanes take alike stays what it is, with wider regions.  Where the lanes
differ, all of them compute and each keeps what is its own:

    cond     both branches run, a select chooses lane by lane
    while    as long as any lane goes on; a lane that is done keeps its values

Lanes that do not take part compute on the operands of one that does: what they compute is never
seen, raises nothing, ends when that lane ends, and has a gradient that is as finite as its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, node_effect
from graphc.ir.op import Effect
from graphc.ops.autodiff.region_gradients import apply, region_of, types_of
from graphc.ops.autodiff.vjp import expand_grad, has_gradient, zeros
from graphc.ops.batching.batch_region import Batcher, Lane, batched_by, chosen, unmapped, widened
from graphc.ops.record.value import Trace, Value, emit, functions

Lanes = list[Lane]


def flags(lanes: Sequence[Lane]) -> list[bool]:
    return [lane.mapped for lane in lanes]


def values_of(lanes: Sequence[Lane]) -> list[Value]:
    return [lane.value for lane in lanes]


def merged(*several: Sequence[bool]) -> list[bool]:
    """Whether any of some says so, one by one."""
    return [any(column) for column in zip(*several, strict=True)]


# ------------------------------------------------------------------------------------ one region


@batched_by("call")
def batch_call(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    return batcher.run(node.regions[0], inputs)


@batched_by("checkpoint")
def batch_checkpoint(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    region, mapped = batcher.region(node.regions[0], flags(inputs))
    made = apply(batcher.trace, "checkpoint", values_of(inputs), [region], **node.attrs)
    return list(map(Lane, made, mapped))


@batched_by("phased")
def batch_phased(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    """Each lane finds sizes of its own: one after the other."""
    return batcher.looped(node, inputs)


@batched_by("host")
def batch_outside(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    """Python is called for one lane after the other; the token goes from one to the next."""
    count = int(node.attrs["threaded"])
    split = len(inputs) - count
    for lane in inputs[split:]:
        unmapped(lane, f"{node.op.name} runs once for all")
    return batcher.looped(node, inputs[:split], inputs[split:])


@batched_by("custom_grad")
def batch_custom(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    """The gradient of what all lanes have in common is the sum of those of the lanes."""
    forward, backward = node.regions
    count = node.attrs["results"]
    ahead, mapped = batcher.region(forward, flags(inputs), [True] * count)
    saved = mapped[count:]
    own = [lane.mapped for lane in inputs if has_gradient(lane.value.node.type)]
    entering = [*saved, *(True,) * count]

    def write(trace: Trace, values: list[Value]) -> list[Value]:
        inner = Batcher(trace, batcher.size, batcher.name)
        made = map(inner.spread, inner.run(backward, list(map(Lane, values, entering))))
        return [
            lane.value if keeps else emit("sum", lane.value, axes=(0,), keepdims=False)
            for lane, keeps in zip(made, own, strict=True)
        ]

    pairs = zip(backward.params, entering, strict=True)
    kinds = [widened(p.type, batcher.size) if m else p.type for p, m in pairs]
    back = region_of(backward.name, kinds, write)
    made = apply(batcher.trace, "custom_grad", values_of(inputs), [ahead, back], results=count)
    return [Lane(value, True) for value in made]


@batched_by("grad")
def batch_gradient(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    """The gradient graph of one lane, for all lanes.

    A loop of unknown length keeps what its backward loop reads on a stack, which lanes that stop at
    different times cannot share: there the lanes come first, and what is differentiated by is
    repeated for each of them.
    """
    region, wrt, count = node.regions[0], node.attrs["wrt"], len(node.regions[0].params)
    if "tested" not in region.traits:  # each loop in it has a known number of steps
        kinds = [source.type for source in node.inputs]
        write = lambda trace, values: expand_grad(trace, node, values)  # noqa: E731
        return batcher.run(region_of(region.name, kinds, write), inputs)
    given = [batcher.spread(x) if k in wrt else x for k, x in enumerate(inputs[:count])]
    seeds = list(map(batcher.spread, inputs[count:]))
    wide, mapped = batcher.region(region, flags(given), [True] * len(seeds))
    made = apply(batcher.trace, "grad", values_of([*given, *seeds]), [wide], **node.attrs)
    return list(map(Lane, made, [*mapped, *(True,) * len(wrt)]))


# ------------------------------------------------------------------------------------ branches


@batched_by("cond")
def batch_cond(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    first, *rest = inputs
    if not first.mapped:
        found = merged(*(batcher.region(region, flags(rest))[1] for region in node.regions))
        regions = [batcher.region(region, flags(rest), found)[0] for region in node.regions]
        made = apply(batcher.trace, "cond", values_of(inputs), regions)
        return list(map(Lane, made, found))
    require_apart(node, batcher, "a branch that slices take differently")
    masks = (first.value, functions.logical_not(first.value))
    sides = [take_branch(batcher, region, rest, mask) for region, mask in zip(node.regions, masks)]
    return [chosen(first.value, a, b, batcher.size) for a, b in zip(*sides, strict=True)]


def take_branch(batcher: Batcher, region: Graph, operands: Lanes, mask: Value) -> Lanes:
    """The results of a branch, of use in the lanes of the mask."""
    ready = stand_ins(batcher, operands, mask)
    if not may_stop(region):
        return batcher.run(region, ready)
    wide, mapped = batcher.region(region, flags(ready))
    kinds = types_of(values_of(ready))
    nothing = region_of(
        "nobody", kinds, lambda trace, values: [zeros(trace, r.type) for r in wide.results]
    )
    made = apply(batcher.trace, "cond", [any_lane(mask), *values_of(ready)], [wide, nothing])
    return list(map(Lane, made, mapped))


def any_lane(mask: Value) -> Value:
    """Whether any lane is in the mask."""
    return emit("any", mask, axes=(0,), keepdims=False)  # type: ignore[no-any-return]


def stand_ins(batcher: Batcher, operands: Lanes, mask: Value) -> Lanes:
    """Operands that are those of a lane in the mask where a lane is not in it itself."""
    if batcher.size == 0 or not any(flags(operands)):
        return operands
    place = functions.argmax(mask)
    made = []
    for x in operands:
        if x.mapped:
            row = emit("gather", x.value, place, axes=(0,), position=0, mode="clip")
            x = chosen(mask, x, Lane(row, False), batcher.size)
        made.append(x)
    return made


def may_stop(region: Graph) -> bool:
    """May a region stop the run, or never end, on operands that were not meant for it?"""
    return any(
        node.op.traits.tested or node.op.traits.checks or any(map(may_stop, node.regions))
        for node in region.nodes
    )


def require_apart(node: Node, batcher: Batcher, where: str) -> None:
    """Each lane on its own way can neither call Python nor meet the others."""
    if node_effect(node) > Effect.READ:
        raise GraphError(
            f"vmap: gc.print, gc.assert_ or gc.callback in {where}",
            hint="call it outside of the branch or loop, on a value that np.where has chosen",
        )
    if batcher.is_of_lanes(node):
        raise GraphError(
            f"vmap: the slices of {batcher.name!r} are combined in {where}",
            hint="not all of them come there: combine them before or behind it",
        )


# ------------------------------------------------------------------------------------ loops


@batched_by("scan")
def batch_scan(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    """A carry is mapped as soon as one step makes it so."""
    carries, walked = node.attrs["carries"], node.attrs["scanned"]
    body, end = node.regions[0], carries + walked
    xs = [Lane(_steps_first(x.value), True) if x.mapped else x for x in inputs[carries:end]]
    rest = [*xs, *inputs[end:]]
    carried = flags(inputs[:carries])
    while True:
        _, found = batcher.region(body, [*carried, *flags(rest)], carried)
        more = merged(carried, found[:carries])
        if more == carried:
            break
        carried = more
    region, found = batcher.region(body, [*carried, *flags(rest)], carried)
    start = [batcher.spread(x) if m else x for x, m in zip(inputs, carried)]
    made = apply(batcher.trace, "scan", values_of([*start, *rest]), [region], **node.attrs)
    ends = list(map(Lane, made[:carries], carried))
    ys = zip(made[carries:], found[carries:], strict=True)
    return [*ends, *(Lane(_steps_first(y) if mapped else y, mapped) for y, mapped in ys)]


def _steps_first(x: Value) -> Value:
    """The first two axes, lanes and steps, the other way round."""
    return emit("transpose", x, perm=(1, 0, *range(2, x.ndim)))  # type: ignore[no-any-return]


@batched_by("while")
def batch_while(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    test, body = node.regions
    carries = node.attrs["carries"]
    fixed = flags(inputs[carries:])
    carried, differs = flags(inputs[:carries]), False
    while True:
        differs = batcher.region(test, [*carried, *fixed])[1][0]
        found = batcher.region(body, [*carried, *fixed], carried)[1]
        more = [True] * carries if differs else merged(carried, found)
        if more == carried:
            break
        carried = more
    start = [batcher.spread(x) if m else x for x, m in zip(inputs, carried)]
    ready = [*start, *inputs[carries:]]
    if differs:
        require_apart(node, batcher, "a loop that slices leave at different times")
        return _while_any(batcher, node, ready)
    regions = [
        batcher.region(test, flags(ready))[0],
        batcher.region(body, flags(ready), carried)[0],
    ]
    made = apply(batcher.trace, "while", values_of(ready), regions, carries=carries)
    return list(map(Lane, made, carried))


def _while_any(batcher: Batcher, node: Node, inputs: Lanes) -> Lanes:
    """The loop of all lanes; one more carry says which of them go on."""
    test, body = node.regions
    carries, mapped = node.attrs["carries"], flags(inputs)
    risky = may_stop(body)

    def step(trace: Trace, values: list[Value]) -> list[Value]:
        inner = Batcher(trace, batcher.size, batcher.name)
        mask, *given = values
        lanes = list(map(Lane, given, mapped))
        made = inner.run(body, stand_ins(inner, lanes, mask) if risky else lanes)
        kept = [chosen(mask, new, old, batcher.size) for new, old in zip(made, lanes)]
        (verdict,) = inner.run(test, [*kept, *lanes[carries:]])
        return [functions.logical_and(mask, inner.spread(verdict).value), *values_of(kept)]

    (going,) = batcher.run(test, inputs)
    values = [batcher.spread(going).value, *values_of(inputs)]
    kinds = types_of(values)
    regions = [
        region_of(test.name, kinds, lambda trace, inner: [any_lane(inner[0])]),
        region_of(body.name, kinds, step),
    ]
    made = apply(batcher.trace, "while", values, regions, carries=carries + 1)
    return [Lane(value, True) for value in made[1:]]
