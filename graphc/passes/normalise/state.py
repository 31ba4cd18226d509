"""state: every variable is read once, at the start, and assigned once, at the end.

    %1 = read {v}   %3 = assign(%2) {v} after %1   %4 = read {v} after %3   %6 = assign(%5) {v}
    %1 = read {v}                                      (%4 is %2 from here on)   %6 = assign(%5) {v}

In between a variable is a value like any other, so every later pass may reorder, differentiate and
fuse freely.  A region op takes the values its body reads as operands and returns the values its
body leaves behind as further results; a loop makes a variable that it writes a carry.

What calls Python reads and writes a token in the same way, which begins as a constant and which
nobody reads in the end: the calls are in line as the values of a variable are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Program, Rewriter
from graphc.ir.literal import literal
from graphc.ir.op import OPS, STATE, Effect
from graphc.ir.place import Constraint, Place
from graphc.ir.regions import choosers, holds_kernels
from graphc.ir.types import TupleType, Type, leaves
from graphc.ir.verify import broken, graphs_of
from graphc.ops.control.host_calls import TOKEN, is_loose
from graphc.ops.record.effects import OUTSIDE, Key, accesses, is_token, token_of
from graphc.passes.reasons import explain


def state(graph: Graph, config: Config) -> Graph:
    """The graph with at most one read and one assign per variable, none of them in regions.

    Raises GraphError for one variable of two types, and for state where it cannot be threaded.
    """
    if _problem(graph) is None:
        return graph
    sweep = _Sweep(graph, {})
    sweep.run()
    return sweep.closed()


def state_is_threaded(value: Graph | Program) -> None:
    """What the pass ensures. Raises VerifyError."""
    for graph in graphs_of(value):
        found = _problem(graph)
        if found is not None:
            raise broken(graph, *found)


def _problem(graph: Graph) -> tuple[Node, str] | None:
    """The first node that is not in normal form, and why."""
    read: dict[Key, Node] = {}
    written: dict[Key, Node] = {}
    stateful = [n for n in graph.nodes if n.regions or n.op.effect is not Effect.PURE]
    for node in graph.nodes if any(n.op.effect is Effect.WRITE for n in stateful) else ():
        if any(source.op.effect is Effect.WRITE for source in (*node.inputs, *node.after)):
            return node, f"%{node.id} reads or waits for an assign"
    for node in stateful:
        if holds_kernels(node) and touched(node):
            return node, f"%{node.id} holds state in a region"
        if is_loose(node.op, node.attrs):
            return node, f"%{node.id} calls Python without a token"
        if node.op.effect not in STATE:
            continue
        key = key_of(node)
        known = read if node.op.effect is Effect.READ else written
        if key in known or (node.op.effect is Effect.READ and key in written):
            return node, f"%{node.id} is not the only {node.op.name} of variable {key[1]!r}"
        known[key] = node
        if known is written and key in read and read[key] not in node.after:
            return node, f"%{node.id} assigns {key[1]!r}, and does not wait until it is read"
    for result in graph.results:
        if result.op.effect is Effect.WRITE:
            return result, f"%{result.id} is a result"
    return None


def key_of(node: Node) -> Key:
    """The variable of a read or assign."""
    return node.attrs["container"], node.attrs["name"]


# ------------------------------------------------------------------------------------ what is used


@record(frozen=True)
class Touch:
    """How a region op uses a variable: whether its value is needed, whether it changes."""

    type: Type
    needed: bool
    written: bool


def touched(node: Node) -> dict[Key, Touch]:
    """The variables that the regions of a node use; those it writes come first."""
    found: dict[Key, Touch] = {}
    effects = accesses(node.op, node.attrs, node.regions)
    for key, effect in sorted(effects.items(), key=lambda pair: -pair[1]):
        if key != OUTSIDE:
            needed = not node.op.traits.once or _reads_first(node.regions[0], key)
            found[key] = Touch(_type_of(node.regions, key), needed, effect is Effect.WRITE)
    return found


def _type_of(regions: Iterable[Graph], key: Key) -> Type:
    if is_token(key):
        return TOKEN
    pending = list(regions)
    while True:
        for node in pending.pop().nodes:
            pending.extend(node.regions)
            if node.op.effect in STATE and key_of(node) == key:
                assert isinstance(node.type, Type)
                return node.type


def _reads_first(region: Graph, key: Key) -> bool:
    """Does the region use the value the variable has before it?"""
    for node in region.nodes:
        if key not in accesses(node.op, node.attrs, node.regions):
            continue
        if node.op.traits.once:
            return _reads_first(node.regions[0], key)
        return node.op.effect is not Effect.WRITE
    return False


# ------------------------------------------------------------------------------------ region ops


@record(frozen=True)
class Layout:
    """Where a region op takes and returns variables.

    Region operands start at input `first`.  A variable that is written goes in at operand
    `enters` and comes out at result `leaves` of the region; the op gives all of these but the first
    `hidden`.  `counter` is the attribute that counts operands that are written.
    Variables that are only read follow the region's operands.
    """

    first: int
    enters: int
    leaves: int
    counter: str | None = None
    hidden: int = 0


def layout_of(node: Node) -> Layout:
    """Raises GraphError for an op whose regions cannot hold state."""
    last = node.regions[0]
    traits = node.op.traits
    if traits.phased:  # the sizes that it counts are the region's own
        counts = len(node.attrs["counts"])
        return Layout(choosers(node), len(last.params), len(last.results), hidden=counts)
    if traits.once or traits.branch or traits.lanes:
        return Layout(choosers(node), len(last.params), len(last.results))
    if traits.loop:
        carries = node.attrs["carries"]
        return Layout(0, carries, carries, "carries")
    if traits.custom_gradient:
        return Layout(0, len(last.params), node.attrs["results"], "results")
    raise GraphError(
        f"{node.op.name} cannot hold reads and writes of variables", details=node.describe()
    ).at(node.loc)


def check_region(node: Node, number: int) -> None:
    """A loop's test decides only, and a custom gradient gets what it needs from its forward."""
    region = node.regions[number]
    traits = node.op.traits
    asks = "calls Python" if region.effect is Effect.IO else None
    if traits.tested and number == 0 and region.effect >= Effect.WRITE:
        raise GraphError(
            f"the test of a while loop {asks or 'assigns to a variable'}",
            location=node.loc,
            hint="do it in the body",
        )
    if traits.custom_gradient and number == 1 and region.effect >= Effect.READ:
        raise GraphError(
            f"the backward function of a custom gradient {asks or 'uses a variable'}",
            location=node.loc,
            hint="do it in the forward function and keep what the backward function needs",
        )


def insert(items: Sequence[Any], position: int, more: Iterable[Any]) -> tuple[Any, ...]:
    return (*items[:position], *more, *items[position:])


# ------------------------------------------------------------------------------------ the sweep


class _Sweep(Rewriter):
    """Copies one graph; `values` is what each variable holds at this point."""

    def __init__(self, graph: Graph, values: Mapping[Key, Node]) -> None:
        super().__init__(graph)
        self.values = dict(values)
        self.reads: dict[Key, Node] = {}
        self.written: dict[Key, Node] = {}
        self.parts: dict[Node, list[Node]] = {}  # a node with more results now -> its old results

    def run(self) -> None:
        for node in self.graph.nodes:
            self.visit(node)

    def closed(self) -> Graph:
        """The graph of the program itself, with the assigns at its end."""
        self.changed = True
        op = OPS["assign"]
        results = self.finish()
        for key, node in self.written.items():
            if is_token(key):
                continue
            value, first = self.values[key], self.reads.get(key)
            if value is first:
                continue
            attrs = {"name": key[1], "container": key[0]}
            after, place = (first,) if first else (), place_of(node, Effect.WRITE, key)
            made = self.emit(op, (value,), attrs, after=after, loc=node.loc, place=place)
            explain(made.id, f"the value that {key[1]!r} has in the end")
        return results.replace(nodes=self.nodes, next_id=self.next_id)

    def new(self, old: Node) -> Node:
        if self.mapped[old.id] is None and old in self.parts:
            self.mapped[old.id] = self.emit(OPS["tuple"], self.parts[old], place=old.place)
        return super().new(old)

    def visit(self, node: Node) -> None:
        if node.op.effect is Effect.READ:
            self.mapped[node.id] = self.value(key_of(node), node.attrs["type"], node)
        elif node.op.effect is Effect.WRITE:
            self.mapped[node.id] = self.values[key_of(node)] = self.new(node.inputs[0])
            self.written[key_of(node)] = node
        elif node.op.traits.item and node.inputs[0] in self.parts:
            self.mapped[node.id] = self.parts[node.inputs[0]][node.attrs["index"]]
        elif node.regions and (used := touched(node)):
            self.region_node(node, used)
        elif is_loose(node.op, node.attrs):
            self.outside(node)
        else:
            made = self.copy(without_state(node))
            self.nodes.append(made)
            self.mapped[node.id] = made

    def outside(self, node: Node) -> None:
        """What calls Python takes the token and returns one after its results."""
        key = token_of(node.attrs)
        operands = (*map(self.new, node.inputs), self.value(key, TOKEN, node))
        attrs = {**node.attrs, "threaded": True}
        made = self.emit(node.op, operands, attrs, loc=node.loc, place=node.place)
        self.split(node, made, len(leaves(node.type)), [key])

    def value(self, key: Key, kind: Type, node: Node) -> Node:
        """What the variable holds; read here if it has not been used yet."""
        found = self.values.get(key)
        if found is None:
            if is_token(key):
                found = self.emit(OPS["const"], (), {"value": literal(np.zeros((), np.uint8))})
            elif node.op.effect is Effect.READ:
                found = node.replace(after=())
                self.nodes.append(found)
            else:
                attrs = {"name": key[1], "container": key[0], "type": kind}
                place = place_of(node, Effect.READ, key)
                found = self.emit(OPS["read"], (), attrs, loc=node.loc, place=place)
            self.values[key] = self.reads[key] = found
        if found.type is not kind:
            raise GraphError(
                f"variable {key[1]!r} has type {found.type} and is used as {kind}",
                details=node.describe(),
                location=node.loc,
            )
        return found

    def region_node(self, node: Node, used: dict[Key, Touch]) -> None:
        layout = layout_of(node)
        written = [key for key, touch in used.items() if touch.written]
        given = [key for key, touch in used.items() if touch.needed]
        entering = [self.value(key, used[key].type, node) for key in given if key in written]
        following = [self.value(key, used[key].type, node) for key in given if key not in written]
        count, first = len(node.regions[0].params), layout.first
        inputs = [self.new(n) for n in node.inputs]
        operands = (*insert(inputs[first : first + count], layout.enters, entering), *following)
        regions = []
        for number in range(len(node.regions)):
            check_region(node, number)
            regions.append(threaded(node, number, layout, used))
        attrs = dict(node.attrs)
        if layout.counter:
            attrs[layout.counter] += len(written)
        made = self.emit(
            node.op,
            (*inputs[:first], *operands, *inputs[first + count :]),
            attrs,
            regions=tuple(regions),
            after=self.copy(without_state(node).replace(inputs=())).after,
            loc=node.loc,
            place=node.place,
        )
        self.split(node, made, layout.leaves - layout.hidden, written)

    def split(self, old: Node, made: Node, position: int, written: list[Key]) -> None:
        """Let each result of a region op stand where it stood, and the values of variables."""
        if not written:
            self.mapped[old.id] = made
            return
        count = len(made.type.elements) if isinstance(made.type, TupleType) else 1
        items = [made]
        if isinstance(made.type, TupleType):
            items = [
                self.emit(OPS["item"], (made,), {"index": k}, loc=old.loc, place=old.place)
                for k in range(count)
            ]
        for key, value in zip(written, items[position:], strict=False):
            self.values[key] = value
            self.written[key] = old
        kept = items[:position] + items[position + len(written) :]
        if isinstance(old.type, TupleType):
            self.parts[old] = kept
        else:
            self.mapped[old.id] = kept[0]


def place_of(node: Node, effect: Effect, key: Key) -> Place | None:
    """Where a variable is asked to be: by the node, or by a read or assign in its regions, which
    belong to no group of the graph around but those of variables."""
    if node.op.effect is effect:
        own: Place | None = node.place
        return own
    found: list[Node] = []
    pending = list(node.regions[::-1])
    while pending:
        for inner in pending.pop().nodes:
            pending.extend(inner.regions)
            if inner.op.effect is effect and key_of(inner) == key:
                found.append(inner)
    place: Place | None = (
        (found[0] if effect is Effect.READ else found[-1]).place if found else None
    )
    if not isinstance(place, Constraint):
        return place
    groups = [group for group in place.groups if "." in group]
    made = Constraint(place.spec).beside(*groups)
    return made if made.spec or groups else None


def without_state(node: Node) -> Node:
    """The node without edges that only keep the order of variables: values keep it from here on."""
    if not node.after:
        return node
    kept = tuple(n for n in node.after if set(accesses(n.op, n.attrs, n.regions)) <= {OUTSIDE})
    return node.replace(after=kept)


def threaded(node: Node, number: int, layout: Layout, used: dict[Key, Touch]) -> Graph:
    """A region that takes variables as parameters and returns those that are written."""
    region = node.regions[number]
    if node.op.traits.custom_gradient and number == 1:
        return _wider_backward(node, used)
    sweep = _Sweep(region, {})
    entering: list[Node] = []
    following: list[Node] = []
    taken = {p.attrs["name"] for p in region.params}
    for key, touch in used.items():
        if touch.needed:
            param = sweep.values[key] = new_param(sweep, key, touch.type, taken)
            (entering if touch.written else following).append(param)
    sweep.run()
    results = [sweep.new(n) for n in region.results]
    if not (node.op.traits.tested and number == 0):
        left = [sweep.values[key] for key, touch in used.items() if touch.written]
        results = list(insert(results, layout.leaves, left))
    return Graph(
        region.name,
        (*insert(region.params, layout.enters, entering), *following),
        sweep.nodes,
        tuple(results),
        next_id=sweep.next_id,
    )


def new_param(r: Rewriter, key: Key, kind: Type, taken: set[str]) -> Node:
    """A parameter called after a variable, by a name that no other has."""
    numbered = (f"{key[1]}_{k}" if k else key[1] for k in count())
    name = next(n for n in numbered if n not in taken)
    taken.add(name)
    made = Node(r.next_id, OPS["param"], (), OPS["param"].coerce({"name": name}), kind)
    r.next_id += 1
    return made


def _wider_backward(node: Node, used: dict[Key, Touch]) -> Graph:
    """A backward region with cotangents of what is written, which it ignores, and no gradients of
    what is read."""
    region = node.regions[1]
    r = Rewriter(region)
    r.nodes = list(region.nodes)
    params, results = list(region.params), list(region.results)
    taken = {p.attrs["name"] for p in params}
    for key, touch in used.items():
        if touch.written:
            params.append(new_param(r, key, touch.type, taken))
        if touch.needed and touch.type.dtype.kind in "fc":
            zero = literal(np.zeros((), touch.type.dtype.numpy))
            made = r.emit(OPS["const"], (), {"value": zero})
            results.append(r.emit(OPS["broadcast"], (made,), {"dims": touch.type.shape}))
    return Graph(region.name, tuple(params), r.nodes, tuple(results), next_id=r.next_id)
