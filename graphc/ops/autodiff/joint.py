"""A region and its pullback as one graph, and how that is cut into a forward and a backward region.

    joint      params, cotangents ──> results, gradients
    forward    params             ──> results, saved            what no cotangent reaches
    backward   kept, saved, cotangents ──> gradients            the rest

Only what the backward part reads is saved.  Constants, and views of what is there anyway, are made
again instead, and so is what follows from other saved values element by element; parameters that
the backward part can have in another way (`kept`) are not saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.base.record import record
from graphc.ir.graph import Builder, Graph, Node, node_effect
from graphc.ir.op import Effect, Scalar
from graphc.ir.size_answers import by_example
from graphc.ir.types import AnyType, StackType, Type, leaves
from graphc.ops.autodiff.vjp import Note, differentiate, zeros
from graphc.ops.control.control import param_node
from graphc.ops.math.comparison import compares_values
from graphc.ops.record.value import Trace, Value, tracing
from graphc.ops.tuning import tuned

# Made again on the backward pass where they are read: no work, or less than saving them.
REMADE = ("const", "iota", "broadcast", "reshape", "transpose", "stack")


def joint(region: Graph, wrt: Sequence[int], seeded: Sequence[int], note: Note | None) -> Graph:
    """(params, cotangents of the seeded results) -> (results, gradients of the wrt params)."""
    kinds = [*region.signature[0], *(region.results[k].type for k in seeded)]
    params = tuple(param_node(k, kind) for k, kind in enumerate(kinds))
    trace = Trace(Builder(len(params)))
    with tracing(trace):
        values = [trace.wrap(p) for p in params]
        count = len(region.params)
        results, pullback = differentiate(
            trace, region, values[:count], set(wrt), set(seeded), note
        )
        seeds: list[Value | None] = [None] * len(results)
        for number, value in zip(seeded, values[count:], strict=True):
            seeds[number] = value
        found = pullback(seeds)
        gradients = [found[k] if k in found else zeros(trace, kinds[k]) for k in wrt]
        nodes = tuple(v.node for v in (*results, *gradients))
    return Graph(region.name, params, trace.builder.nodes, nodes, next_id=trace.builder.next_id)


@record(frozen=True)
class Split:
    """A joint graph in two parts.

    kept    numbers of the parameters that the backward region reads; they come first
    saved   types of the further results of the forward region, which come next
    stacks  how many stacks both regions thread through: the forward region takes them after its
            parameters and returns them last; the backward region takes them before the cotangents
            and returns them last
    """

    forward: Graph
    backward: Graph
    kept: tuple[int, ...]
    saved: tuple[Type, ...]
    stacks: tuple[AnyType, ...]


def split(graph: Graph, params: int, results: int, kept: Iterable[int]) -> Split:
    """Cut a joint graph with this many own parameters and results."""
    late = [False] * graph.next_id  # does a cotangent reach it?
    for param in graph.params[params:]:
        late[param.id] = True
    for node in graph.nodes:
        late[node.id] = any(late[n.id] for n in node.inputs)
    cut = _Cut(graph, late, {graph.params[k].id: k for k in kept})
    cut.need(graph.results[results:])
    cut.thin()
    numbers = sorted(cut.kept)
    saved = [n for n in cut.saved if not isinstance(n.type, StackType)]
    stacks = [Thread(graph, late, n) for n in cut.saved if isinstance(n.type, StackType)]
    entries = [param_node(graph.next_id + k, t.origin.type) for k, t in enumerate(stacks)]
    forward = section(
        graph.replace(next_id=graph.next_id + len(entries)),
        (*graph.params[:params], *entries),
        (*graph.results[:results], *saved, *(t.top for t in stacks)),
        {t.origin.id: entry for t, entry in zip(stacks, entries, strict=True)},
        [n for n in graph.nodes if not late[n.id] and node_effect(n) > Effect.READ],
    )
    tops = [param_node(t.top.id, t.top.type) for t in stacks]
    inputs = {n.id: param_node(n.id, n.type) for n in saved}
    inputs |= {n.id: n for n in tops}
    backward = section(
        graph,
        (
            *(graph.params[k] for k in numbers),
            *(inputs[n.id] for n in saved),
            *tops,
            *graph.params[params:],
        ),
        (*graph.results[results:], *(t.end for t in stacks)),
        inputs,
    )
    return Split(
        forward,
        backward,
        tuple(numbers),
        tuple(n.type for n in saved if isinstance(n.type, Type)),
        tuple(t.origin.type for t in stacks),
    )


class _Cut:
    """Which early values the backward part reads."""

    def __init__(self, graph: Graph, late: list[bool], kept: dict[int, int]) -> None:
        self.graph = graph
        self.late = late
        self.may_keep = kept
        self.kept: set[int] = set()
        self.saved: dict[Node, None] = {}
        self.seen: set[int] = set()

    def need(self, nodes: Iterable[Node]) -> list[Node]:
        """Save these nodes, or what they are made of; what was looked at for the first time."""
        pending, looked_at = list(nodes), []
        while pending:
            node = pending.pop()
            if node.id in self.seen:
                continue
            self.seen.add(node.id)
            looked_at.append(node)
            if self.late[node.id]:
                pending.extend(node.inputs)
            elif node.id in self.may_keep:
                self.kept.add(self.may_keep[node.id])
            elif node.op.name in REMADE and not node.after:
                pending.extend(node.inputs)
            else:
                self.saved[node] = None
        return looked_at

    def thin(self) -> None:
        """Drop the saved values that follow, in few operations, from others or from less, at the
        sizes at hand: for any others it is right, too.
        """
        with by_example():
            self._thin()

    def _thin(self) -> None:
        for node in reversed(self.graph.nodes):
            if node not in self.saved or not is_light(node):
                continue
            looked_at = self.need(node.inputs)
            more = [n for n in looked_at if n in self.saved]
            if sum(n.nbytes for n in more) < node.nbytes and all(n.nbytes for n in more):
                del self.saved[node]
                continue
            self.seen.difference_update(n.id for n in looked_at)
            self.kept.difference_update(self.may_keep.get(n.id, -1) for n in looked_at)
            for n in more:
                del self.saved[n]


def is_light(node: Node) -> bool:
    """Is the node element-wise, of few operations for each element?"""
    if not isinstance(node.op.lower, Scalar) or node.after or not node.nbytes:
        return False
    if compares_values(node):
        return False
    cost = node.op.cost
    assert isinstance(node.type, Type)
    return cost is None or cost(node)[0] <= tuned.light_node * node.type.size


class Thread:
    """A stack that the forward part grows and the backward part empties.

    An op returns the stacks it is given: a loop as its carries, a branch last and in order.
    """

    def __init__(self, graph: Graph, late: list[bool], top: Node) -> None:
        self.top = top
        node, leaf = top, 0
        while node.op.name != "stack":
            if node.op.traits.item:
                node, leaf = node.inputs[0], node.attrs["index"]
                continue
            if node.op.traits.branch:
                leaf += len(node.inputs) - len(leaves(node.type))
            node, leaf = node.inputs[leaf], 0
        self.origin = node
        readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            if late[node.id]:
                for source in node.inputs:
                    readers.setdefault(source.id, []).append(node)
        self.end = top
        while (after := _left_by(self.end, readers)) is not None:
            self.end = after


def _left_by(stack: Node, readers: dict[int, list[Node]]) -> Node | None:
    """The stack that the reader of this one leaves behind."""
    for node in readers.get(stack.id, ()):
        if isinstance(node.type, StackType):
            return node
        leaf = node.inputs.index(stack)
        if node.op.traits.branch:
            leaf -= len(node.inputs) - len(leaves(node.type))
        for item in readers.get(node.id, ()):
            if item.attrs["index"] == leaf:
                return item
    return None


def section(
    graph: Graph,
    params: Sequence[Node],
    results: Sequence[Node],
    replaced: dict[int, Node],
    acting: Sequence[Node] = (),
) -> Graph:
    """The part of a graph that computes these results from these parameters.

    `replaced` maps ids to the parameters that stand for nodes; `acting` nodes run for what they do.
    """
    mapped = {p.id: p for p in params} | replaced
    needed: set[int] = set()
    pending = [*results, *acting]
    while pending:
        node = pending.pop()
        if node.id not in needed and node.id not in mapped:
            needed.add(node.id)
            pending.extend(node.inputs)
    nodes = []
    for node in graph.nodes:
        if node.id in needed:
            inputs = tuple(mapped[n.id] for n in node.inputs)
            after = tuple(mapped[n.id] for n in node.after if n.id in mapped)
            same = inputs == node.inputs and after == node.after
            made = node if same else node.replace(inputs=inputs, after=after)
            mapped[node.id] = made
            nodes.append(made)
    return Graph(
        graph.name,
        tuple(params),
        nodes,
        tuple(mapped[r.id] for r in results),
        next_id=graph.next_id,
    )
