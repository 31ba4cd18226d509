"""Reverse-mode differentiation of a region: a forward copy and a pullback.

The chain rule runs backwards over the nodes that lie on a path from a wanted parameter to a seeded
result (TensorFlow white paper, section 4.1).  Cotangents that reach one value over several edges
are summed as they arrive.

    region   x ──> a ──> b ──> y           forward copy, emitted first
    pullback x' <── a' <── b' <── y'       rule of each op, emitted when the pullback is called

Region ops have a rule of their own in `PULLBACKS`: what their backward pass reads has to be made
by their forward pass, so both are emitted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, inline, rebuild
from graphc.ir.op import OPS, Composite
from graphc.ir.types import AnyType, StackType, TupleType, Type, leaves
from graphc.ops.autodiff.accumulate import Arrivals
from graphc.ops.autodiff.adjoints import sum_to
from graphc.ops.record.value import Trace, Value, emit, functions, tracing

Cotangents = Sequence[Value | None]
Note = Callable[[Node, Node], None]  # (gradient node, the forward node whose rule made it)
Pullback = Callable[[Cotangents], Sequence[Value | None]]
RegionRule = Callable[["Sweep", Node, list[Value]], tuple[list[Any], Pullback]]
PULLBACKS: dict[str, RegionRule] = {}
Needs = Callable[[Node, set[int], set[int]], set[int]]  # (node, active, wanted) -> operands
STACK_NEEDS: dict[str, Needs] = {}  # which operands of a region op that takes stacks are needed
MOST_ROUNDS = 100


def pullback_of(*names: str, needs: Needs | None = None) -> Callable[[RegionRule], RegionRule]:
    """Register how region ops are differentiated: rule(sweep, node, operands).

    The rule emits the forward op and returns its results, one per leaf, and a pullback from their
    cotangents to those of the operands.  `needs` says which operands of an op that takes stacks
    reach the results that are wanted.
    """

    def register(rule: RegionRule) -> RegionRule:
        for name in names:
            PULLBACKS[name] = rule
            if needs is not None:
                STACK_NEEDS[name] = needs
        return rule

    return register


# ---------------------------------------------------------------------------------------- activity


def has_gradient(kind: AnyType) -> bool:
    """Whether some leaf of a value can have a cotangent: floats, complex numbers, stacks of them.

    A boolean or an integer is a constant to the chain rule.
    """
    for leaf in leaves(kind):
        element = leaf.element if isinstance(leaf, StackType) else leaf
        if isinstance(element, Type) and element.dtype.kind in "fc":
            return True
    return False


def active_nodes(region: Graph, wrt: Iterable[int]) -> list[bool]:
    """By id: does the value depend differentiably on one of these parameters?"""
    active = [False] * region.next_id
    for number in wrt:
        active[region.params[number].id] = has_gradient(region.params[number].type)
    for node in region.nodes:
        if node.op.differentiable and has_gradient(node.type):
            active[node.id] = any(active[n.id] for n in node.inputs)
    return active


def takes_stacks(node: Node) -> bool:
    return any(isinstance(n.type, StackType) for n in node.inputs)


def needed_leaves(region: Graph, results: Iterable[int], active: list[bool]) -> list[set[int]]:
    """By id: which leaves of an active value reach one of these results.

    It may say too much of an array, whose missing cotangent is zero.  It is exact for stacks: what
    popped from one pushes its cotangents, so that what pushed on it finds as many as it pops.
    """
    needed: list[set[int]] = [set() for _ in range(region.next_id)]
    for number in results:
        node = region.results[number]
        needed[node.id].update(range(len(leaves(node.type))))
    for node in reversed(region.nodes):
        if not needed[node.id] or not active[node.id]:
            continue
        if node.op.name == "item":
            needed[node.inputs[0].id].add(node.attrs["index"])
            continue
        reaching: Iterable[int] = range(len(node.inputs))
        if node.op.name == "tuple":
            reaching = needed[node.id]
        elif node.op.name in STACK_NEEDS and takes_stacks(node):
            alive = {k for k, n in enumerate(node.inputs) if active[n.id]}
            reaching = STACK_NEEDS[node.op.name](node, alive, needed[node.id])
        for position in reaching:
            source = node.inputs[position]
            if active[source.id]:
                needed[source.id].update(range(len(leaves(source.type))))
    return needed


def prepared(region: Graph, wrt: set[int], note: Note | None) -> Graph:
    """The region with calls inlined, inner `grad` nodes expanded and composite ops without a rule
    of their own written out where a gradient flows through them."""
    for _ in range(MOST_ROUNDS):
        active = active_nodes(region, wrt)

        def rewrite(node: Node, r: Rewriter, active: list[bool] = active) -> Node | None:
            if node.op.name == "call":
                return tupled(r, inline(r, node.regions[0], node.inputs, node.after))
            if node.op.name == "grad":
                return written_out(node, r, lambda trace, values: expand_grad(trace, node, values))
            is_open = isinstance(node.op.lower, Composite) and node.op.gradient is None
            if not is_open or node.op.name in PULLBACKS or not active[node.id]:
                return None
            expand, attrs = node.op.lower.expand, dict(node.attrs.values_dict)  # type: ignore[union-attr]
            if node.regions:
                attrs["regions"] = node.regions
            return written_out(node, r, lambda trace, values: expand(*values, **attrs))

        made = rebuild(region, rewrite)
        if made is region:
            return region
        region = made
    raise GraphError(f"@{region.name} does not settle while it is differentiated")


def written_out(node: Node, r: Rewriter, write: Callable[[Trace, list[Value]], Any]) -> Node:
    """What `write` emits for a node, as one node."""
    trace = Trace(r)
    with tracing(trace):
        made = write(trace, [trace.wrap(n) for n in node.inputs])
    return tupled(r, [v.node for v in (made if isinstance(made, tuple | list) else [made])], node)


def tupled(r: Rewriter, results: Sequence[Node], like: Node | None = None) -> Node:
    bare = len(results) == 1 and not (like is not None and isinstance(like.type, TupleType))
    return results[0] if bare else r.emit(OPS["tuple"], results)


# ---------------------------------------------------------------------------------------- the sweep


class Sweep:
    """The differentiation of one region into a trace."""

    def __init__(
        self, trace: Trace, region: Graph, wrt: set[int], wanted: set[int], note: Note | None = None
    ) -> None:
        self.trace = trace
        self.region = prepared(region, wrt, note)
        self.note = note
        self.active = active_nodes(self.region, wrt)
        self.needed = needed_leaves(self.region, wanted, self.active)
        self.values: dict[int, Any] = {}  # by id: a Value, or a tuple of Values
        self.pullbacks: dict[int, Pullback] = {}

    # -- forward

    def forward(self, operands: Sequence[Value]) -> list[Any]:
        """Emit the forward copy; returns what the region's results became."""
        for param, operand in zip(self.region.params, operands, strict=True):
            self.values[param.id] = operand
        builder = self.trace.builder
        outside = builder.loc, builder.place
        for node in self.region.nodes:
            builder.loc, builder.place = node.loc or outside[0], node.place or outside[1]
            self.values[node.id] = self.copy(node)
        builder.loc, builder.place = outside
        return [self.values[r.id] for r in self.region.results]

    def copy(self, node: Node) -> Any:
        inputs = [self.values[n.id] for n in node.inputs]
        if node.op.name == "item":
            return inputs[0][node.attrs["index"]]
        if node.op.name == "tuple":
            return tuple(inputs)
        rule = PULLBACKS.get(node.op.name)
        if rule is not None and self.active[node.id] and self.needed[node.id]:
            made, self.pullbacks[node.id] = rule(self, node, inputs)
            return tuple(made) if isinstance(node.type, TupleType) else made[0]
        after = tuple(self.single(self.values[n.id]) for n in node.after)
        nodes = tuple(map(self.single, inputs))
        return self.trace.emit(node.op, nodes, node.attrs, after=after, regions=node.regions)

    def single(self, value: Value | Sequence[Value]) -> Node:
        """The node of a value; several are gathered in a tuple."""
        if isinstance(value, Value):
            return value.node
        return self.trace.builder.emit(OPS["tuple"], [self.single(v) for v in value])

    # -- backward

    def backward(self, seeds: Cotangents) -> dict[int, Value]:
        """The cotangents of the parameters, by number, from those of the results."""
        found: dict[int, Any] = {}
        for result, seed in zip(self.region.results, seeds, strict=True):
            self.arrive(found, result, seed)
        builder = self.trace.builder
        outside = builder.loc, builder.place
        for node in reversed(self.region.nodes):
            cotangent = found.pop(node.id, None)
            if cotangent is None:
                if node.id not in self.pullbacks or not takes_stacks(node):
                    continue
                cotangent = (None,) * len(leaves(node.type))  # zeros still belong on its stacks
            builder.loc, builder.place = node.loc or outside[0], node.place or outside[1]
            first = len(builder.nodes)
            cotangent = cotangent.total() if isinstance(cotangent, Arrivals) else cotangent
            for source, made in zip(node.inputs, self.pulled(node, cotangent), strict=True):
                self.arrive(found, source, made)
            if self.note is not None:
                for emitted in builder.nodes[first:]:
                    self.note(emitted, node)
        builder.loc, builder.place = outside
        numbers = {param.id: number for number, param in enumerate(self.region.params)}
        return {
            numbers[id]: made.total() if isinstance(made, Arrivals) else made
            for id, made in found.items()
        }

    def arrive(self, found: dict[int, Any], node: Node, cotangent: Any) -> None:
        """Add a cotangent to those that reached a value so far."""
        if cotangent is None or not self.active[node.id] or not self.needed[node.id]:
            return
        before = found.get(node.id)
        if isinstance(node.type, TupleType):
            parts = before or (None,) * len(node.type.elements)
            found[node.id] = tuple(map(total, parts, cotangent))
        elif isinstance(node.type, StackType):
            found[node.id] = cotangent  # linear: it is read once
        else:
            found.setdefault(node.id, Arrivals()).add(fitted(cotangent, node))

    def pulled(self, node: Node, cotangent: Any) -> Sequence[Any]:
        """The cotangents of a node's operands."""
        if node.op.name == "item":
            parts: list[Any] = [None] * len(node.inputs[0].type.elements)  # type: ignore[union-attr]
            parts[node.attrs["index"]] = cotangent
            return [tuple(parts)]
        if node.op.name == "tuple":
            return list(cotangent)
        pullback = self.pullbacks.get(node.id)
        if pullback is not None:
            return pullback(cotangent if isinstance(cotangent, tuple) else [cotangent])
        if node.op.gradient is None:
            raise GraphError(
                f"the op {node.op.name} has no gradient rule",
                location=node.loc,
                details=node.describe(),
                hint="wrap the computation in gc.custom_grad, or its operand in gc.stop_gradient",
            )
        values = [self.values[n.id] for n in node.inputs]
        result = self.values[node.id]
        made = node.op.gradient(cotangent, result, *values, **node.attrs.values_dict)
        assert len(made) == len(values), f"the rule of {node.op.name} gave {len(made)} cotangents"
        return list(made)


def total(first: Any, second: Any) -> Any:
    """The sum of two cotangents, either of which may be absent."""
    if first is None or second is None:
        return second if first is None else first
    return emit("add", first, second)


def fitted(cotangent: Value, node: Node) -> Value:
    """A cotangent in the shape of its value: summed over the axes the value was broadcast along."""
    kind = node.type
    assert isinstance(kind, Type)
    cotangent = sum_to(cotangent, kind.shape)
    if kind.dtype.kind == "f" and cotangent.element.is_complex:
        cotangent = functions.real(cotangent)
    assert cotangent.element is kind.dtype, f"a {cotangent.element} cotangent for {node!r}"
    return cotangent


def differentiate(
    trace: Trace,
    region: Graph,
    operands: Sequence[Value],
    wrt: set[int],
    wanted: set[int],
    note: Note | None = None,
) -> tuple[list[Any], Callable[[Cotangents], dict[int, Value]]]:
    """Emit a region into a trace; returns its results and its pullback.

    wrt, wanted    numbers of the parameters and of the results that cotangents flow between
    pullback       cotangents of all results (None: zero) -> {number of parameter: its cotangent}

    Raises GraphError, with the user's line, for an op on the path that has no gradient rule.
    """
    sweep = Sweep(trace, region, wrt, wanted, note)
    return sweep.forward(operands), sweep.backward


def zeros(trace: Trace, kind: AnyType) -> Value:
    """A zero cotangent of this type."""
    if isinstance(kind, StackType):
        return trace.emit(OPS["stack"], (), {"type": kind.element})  # type: ignore[no-any-return]
    assert isinstance(kind, Type)
    zero = trace.constant(np.zeros((), kind.dtype.numpy))
    if not kind.shape:
        return zero
    return trace.emit(OPS["broadcast"], (zero.node,), {"dims": kind.shape})  # type: ignore[no-any-return]


def expand_grad(
    trace: Trace, node: Node, inputs: Sequence[Value], note: Note | None = None
) -> list[Any]:
    """The results and gradients of a `grad` node, emitted into a trace."""
    region, wrt = node.regions[0], node.attrs["wrt"]
    count, seeds = len(region.params), len(node.inputs) - len(region.params)
    results, pullback = differentiate(
        trace, region, inputs[:count], set(wrt), set(range(seeds)), note
    )
    found = pullback([*inputs[count:], *[None] * (len(results) - seeds)])
    return [
        *results,
        *(found[k] if k in found else zeros(trace, region.params[k].type) for k in wrt),
    ]
