"""Value numbers: equal ones for values that are the same expression of a graph's parameters.

    before                       after `fuse`                              number
    %2 = mul(%0, %1)             %5 = fused(%0, %1) {                      mul(0, 1)            2
    %3 = tanh(%2)                  %2 = mul(%0, %1)   %3 = tanh(%2) }      tanh(2)              3

What only says where and when something is computed has no number of its own: a kernel is the nodes
that are in it, a recv what was sent, a barrier its first operand, and workspace is no operand.  So
a stage that moves, merges, drops, places or groups nodes leaves every result with the number that
it had, and one that wires up something else does not.  Nothing is run.

Value numbering is of Alpern, Wegman and Zadeck, Detecting equality of variables in programs (POPL
1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from graphc.base.record import record
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import Effect, Op
from graphc.ir.place import device_of
from graphc.ir.verify import graphs_of
from graphc.ops.record.structural import moves_of

Key = tuple[object, ...]  # what computes a value, and the numbers of what it reads
WORKSPACE = -1  # in place of a number


@record(frozen=True)
class Numbered:
    """The numbers of a graph's results, in order, and of what it does besides, sorted."""

    results: tuple[int, ...]
    effects: tuple[int, ...]


class ValueNumbers:
    """One numbering for the graphs of several stages.

    `keys[n]` says what number n is, `first[n]` is the first node with it, and `parts[n]` are the
    numbers in a tuple.  Nodes never change, so what is in two stages is numbered once.
    """

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}
        self.keys: list[Key] = []
        self.first: list[Node] = []
        self.parts: dict[int, tuple[int, ...]] = {}
        self.inside: dict[Key, Numbered] = {}  # what a region makes of what it is given
        self.known: dict[Node, int] = {}  # of the last graph
        self.last: tuple[object, Numbered | None] = (None, None)

    def of(self, value: Graph | Program) -> Numbered | None:
        """Number all nodes; None where a branch or loop is on several devices, in parts that may be
        any share of it."""
        if self.last[0] is not value:
            try:
                self.last = (value, self._of(value))
            except _InParts:
                self.last = (value, None)
        return self.last[1]

    def _of(self, value: Graph | Program) -> Numbered:
        sweep = _Sweep(self, self.known)
        graphs = graphs_of(value)
        params = value.params
        sweep.bind(params, [self.number(("param", k), p) for k, p in enumerate(params)])
        lists, pending = [graph.nodes for graph in graphs], [0] * len(graphs)
        while any(start < len(nodes) for nodes, start in zip(lists, pending)):
            went = [sweep.walk(nodes, start) for nodes, start in zip(lists, pending)]
            if went == pending:
                raise _InParts  # what they wait for is sent inside of a region
            pending = went
        self.known = sweep.found
        return sweep.numbered(value.results)

    def number(self, key: Key, node: Node) -> int:
        found = self.numbers.setdefault(key, len(self.keys))
        if found == len(self.keys):
            self.keys.append(key)
            self.first.append(node)
        return found

    def tuple_of(self, inside: tuple[int, ...], node: Node) -> int:
        found = self.number(("tuple", None, inside), node)
        self.parts[found] = inside
        return found

    def innermost(self, one: int, other: int) -> tuple[Node, Node, Node | None]:
        """Where two expressions part: a node of each, and what reads the one of the other."""
        reader: Node | None = None
        while True:
            (op, *more), (another, *others) = self.keys[one], self.keys[other]
            alike = op is another and more[:1] == others[:1] and len(more) == len(others) > 1
            pairs = zip(more[1], others[1]) if alike else ()  # type: ignore[call-overload]
            apart = next((pair for pair in pairs if pair[0] != pair[1]), None)
            if apart is None:
                return self.first[one], self.first[other], reader
            reader = self.first[other]
            one, other = apart


@cache
def is_plain(op: Op) -> bool:
    """Is a node of this op no more than its op, attributes and operands?"""
    traits = op.traits
    passes_on = traits.idle and not traits.constant
    return op.effect is Effect.PURE and not (
        op.regions or passes_on or traits.opaque or traits.distinct
    )


class _InParts(Exception):
    """A branch or loop is on several devices."""


class _Sweep:
    """One walk over nodes: the numbers found, what was sent, and what has effects."""

    def __init__(self, numbers: ValueNumbers, known: dict[Node, int]) -> None:
        self.numbers = numbers
        self.known = known
        self.found: dict[Node, int] = {}
        self.sent: dict[str, int] = {}
        self.effects: list[int] = []

    def bind(self, params: Sequence[Node], numbers: Sequence[int]) -> None:
        self.found.update(zip(params, numbers, strict=True))

    def numbered(self, results: Sequence[Node]) -> Numbered:
        return Numbered(tuple(self.found[r] for r in results), tuple(sorted(self.effects)))

    def walk(self, nodes: Sequence[Node], start: int = 0) -> int:
        """Number nodes from a position on; where it ended, before a recv of what is not sent."""
        found, known, number = self.found, self.known, self.numbers.number
        for k in range(start, len(nodes)):
            node = nodes[k]
            op = node.op
            if not is_plain(op):
                if op.traits.recv and node.attrs["channel"] not in self.sent:
                    return k
                found[node] = made = self.number_of(node)
                if made != known.get(node, made):
                    self.known = known = {}  # what reads a message or region may be another value
                if op.effect in (Effect.WRITE, Effect.IO):
                    self.effects.append(made)
            elif node in known:
                found[node] = known[node]
            else:
                inputs = tuple([found[n] for n in node.inputs])
                if op.commutative:
                    inputs = tuple(sorted(inputs))
                found[node] = number((op, node.attrs, inputs), node)
        return len(nodes)

    def number_of(self, node: Node) -> int:
        """The number of a node that is not plain."""
        inputs = tuple([self.found[n] for n in node.inputs])
        same = self._looked_through(node, inputs)
        if same is not None:
            return same
        key: Key = (node.op, node.attrs, inputs)
        if node.op.traits.distinct:
            key = (*key, node.id)
        if node.regions:
            if len({device_of(n.place) for region in node.regions for n in region.nodes}) > 1:
                raise _InParts
            key = (*key, *(self._region(g, self._kinds(g.params)) for g in node.regions))
        return self.numbers.number(key, node)

    def _looked_through(self, node: Node, inputs: tuple[int, ...]) -> int | None:
        """The number of a value that the node only passes on."""
        traits = node.op.traits
        if traits.send:
            channel = node.attrs["channel"]
            self.sent[channel] = (
                inputs[0] if inputs else self.numbers.number(("word", channel), node)
            )
            return self.sent[channel]
        if traits.recv:
            return self.sent[str(node.attrs["channel"])]
        if traits.kernel:
            return self._kernel(node, inputs)
        if traits.workspace:
            return WORKSPACE
        if traits.blocks:
            return self._blocks(node, inputs)
        if traits.opaque:
            return inputs[0]
        if traits.makes_tuple:
            return self.numbers.tuple_of(inputs, node)
        parts = self.numbers.parts.get(inputs[0]) if traits.item else None
        return parts[node.attrs["index"]] if parts is not None else None

    def _kernel(self, node: Node, inputs: tuple[int, ...]) -> int:
        made = self._region(node.regions[0], inputs)
        self.effects += made.effects
        results = made.results
        return results[0] if len(results) == 1 else self.numbers.tuple_of(results, node)

    def _blocks(self, node: Node, inputs: tuple[int, ...]) -> int:
        """Kernels that run block by block, by where their blocks of each operand lie."""
        dims, counts, steps = (node.attrs[name] for name in ("dims", "counts", "steps"))
        result, *moves = moves_of(counts, steps)
        places = tuple([m for n, m in zip(inputs, moves, strict=True) if n != WORKSPACE])
        read = tuple([n for n in inputs if n != WORKSPACE])
        region = node.regions[0]
        kinds = iter(self._kinds(region.params[: len(read)]))
        bound = [WORKSPACE if n == WORKSPACE else next(kinds) for n in inputs]
        does = self._region(region, bound)
        return self.numbers.number((node.op, (dims, counts, result, places), read, does), node)

    def _kinds(self, params: Sequence[Node]) -> list[int]:
        """Numbers for what a closed region is given."""
        return [self.numbers.number(("inner", k), param) for k, param in enumerate(params)]

    def _region(self, region: Graph, bound: Sequence[int]) -> Numbered:
        """What a region does with its parameters, which have these numbers."""
        key = region, *bound
        found = self.numbers.inside.get(key)
        if found is None:
            inner = _Sweep(self.numbers, {})
            inner.bind(region.params, bound)
            if inner.walk(region.nodes) < len(region.nodes):
                raise _InParts
            found = self.numbers.inside[key] = inner.numbered(region.results)
        return found
