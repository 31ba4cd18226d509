"""check_memory_plan: does every node of a planned graph find the values that it reads?

The plan is carried out on paper.  Memory is stretches of bytes, each of which holds what was
written there last; a node reads all its operands, spoils its scratch memory and writes its results,
in issue order, as the step table will.  Nothing here asks which values are live, or why they lie
where they do: that is the planner's, and this judges it.

    %4 = fused(%2) @[0:64]      0:64 %4.0
    %5 = fused(%4) @[64:64]     0:64 %4.0   64:128 %5.0
    %6 = fused(%5) @[0:64]      0:64 %6.0   64:128 %5.0
    %7 = fused(%4, %6)          does not find %4

Regions are judged alone, once each.  Their parameters and results lie behind bases of their own, of
which two are one where a loop or a branch works in place; what is left in memory of an earlier run
of a body holds no value, so that what holds for one run holds for all.  The node itself reads,
spoils and writes like any other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from graphc.codegen.table.carries import Carry, layout_of
from graphc.codegen.table.copies import copied_by
from graphc.codegen.table.donation import may_overwrite, variables
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.liveness import peak_bytes
from graphc.ir.op import Alias, Effect, Host, Op
from graphc.ir.place import Buffer, Region
from graphc.ir.regions import choosers, scheduled_graphs
from graphc.ir.types import TupleType, Type, leaves
from graphc.ir.verify import broken, graphs_of

VERDICT = 8  # bytes at the beginning of a while's scratch memory that its test may write


class Content(NamedTuple):
    """Bytes of a value from `within` on; those of None are anything."""

    value: object
    within: int
    nbytes: int


class Span(NamedTuple):
    """Bytes behind a base register."""

    base: str
    start: int
    end: int

    def meets(self, other: Span) -> bool:
        return self.base == other.base and self.start < other.end and other.start < self.end


class Stretches:
    """What lies behind one base register: stretches that do not overlap, in order."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.found: dict[int, tuple[int, object, int]] = {}  # start -> end, value, within

    def write(self, start: int, content: Content) -> None:
        end = start + content.nbytes
        if start not in self.found or self.found[start][0] != end:
            self._clear(start, end)
            self.starts.insert(bisect_left(self.starts, start), start)
        self.found[start] = end, content.value, content.within

    def _clear(self, start: int, end: int) -> None:
        first = bisect_left(self.starts, start)
        if first and self.found[self.starts[first - 1]][0] > start:
            first -= 1
        last = bisect_left(self.starts, end)
        kept = []
        for begin in self.starts[first:last]:
            stop, value, within = self.found.pop(begin)
            if begin < start:
                kept.append((begin, (start, value, within)))
            if stop > end:
                kept.append((end, (stop, value, within + end - begin)))
        self.starts[first:last] = [begin for begin, _ in kept]
        self.found.update(kept)

    def holds(self, start: int, content: Content) -> bool:
        value, within, nbytes = content
        end = start + nbytes
        if self.found.get(start) == (end, value, within):
            return True  # as written, which is nearly always
        position = bisect_right(self.starts, start) - 1
        while start < end:
            if not 0 <= position < len(self.starts):
                return False
            begin = self.starts[position]
            stop, there, at = self.found[begin]
            if there != value or not begin <= start < stop or at + start - begin != within:
                return False
            within, start, position = within + stop - start, stop, position + 1
        return True


Contents = tuple[Content, ...]  # of one leaf, one after another


class Access(NamedTuple):
    """A node, or the end of the graph, reads or writes some bytes."""

    node: Node | None
    span: Span
    is_write: bool


def every_value_is_found(value: Graph | Program) -> None:
    """Every read of a planned graph finds the value that it names, and every write stays inside
    memory that is the graph's to write.

    Raises VerifyError.
    """
    for graph in graphs_of(value):
        check_memory_plan(graph, ())


def check_memory_plan(graph: Graph, donated: Sequence[int]) -> None:
    """The same for one graph; result k takes over the memory of parameter `donated[k]`, if that is
    not -1.
    """
    run = _carried_out(graph, donated)
    if run.extent > peak_bytes(graph):
        raise broken(graph, None, f"its values need {run.extent} bytes of the arena")


def accesses(graph: Graph, donated: Sequence[int]) -> Sequence[Access]:
    """What the nodes of a graph read and write, in issue order. Raises VerifyError."""
    return _carried_out(graph, donated).accesses


def _carried_out(graph: Graph, donated: Sequence[int]) -> _Run:
    constants = Stretches()
    for inner in scheduled_graphs(graph):
        for node in inner.nodes:
            if node.op.traits.stored:
                (region,) = places_of(inner, node)
                if region.nbytes:
                    constants.write(region.offset, constant(node))
    same = {f"r{k}": f"p{param}" for k, param in enumerate(donated) if param >= 0}
    run = _Run(graph, same, constants, is_outermost=True)
    run.all()
    return run


def constant(node: Node) -> Content:
    return Content((node.op.name, node.attrs), 0, leaves(node.type)[0].nbytes)


def places_of(graph: Graph, node: Node) -> tuple[Region, ...]:
    if not isinstance(node.place, Buffer):
        raise broken(graph, node, f"%{node.id} has no buffer")
    return node.place.regions


class _Run:
    """One run of a graph.  `same` are the bases that lie where another one does."""

    def __init__(
        self,
        graph: Graph,
        same: Mapping[str, str],
        constants: Stretches,
        is_outermost: bool = False,
    ) -> None:
        self.graph = graph
        self.same = same
        self.is_outermost = is_outermost
        self.memory: defaultdict[str, Stretches] = defaultdict(Stretches, c=constants)
        self.values: dict[Node, tuple[Contents, ...]] = {}
        self.sent: list[tuple[Node, Node]] = []
        self.lies: dict[Node, list[Span]] = {}
        self.accesses: list[Access] = []
        self.now: Node | None = None  # who does what is done
        self.extent = 0  # bytes of the arena
        self.variables = variables(graph)
        self.homes = {n: f"v{k}" for k, d in enumerate(self.variables.values()) for n in d.values()}
        self.sizes = {f"p{k}": nbytes_of(node) for k, node in enumerate(graph.params)}
        self.sizes |= {f"r{k}": nbytes_of(node) for k, node in enumerate(graph.results)}
        self.sizes |= {base: nbytes_of(node) for node, base in self.homes.items()}

    def all(self) -> None:
        for k, param in enumerate(self.graph.params):
            self.begin_with(param, f"p{k}")
        for node, base in self.homes.items():
            if node.op.effect is Effect.READ:
                self.begin_with(node, base)
        for node in self.graph.nodes:
            act = action(node.op)
            if act is None:
                raise broken(self.graph, node, f"%{node.id} is nothing that runs")
            self.now = node
            act(self, node)
        self.now = None
        self.leave()

    def begin_with(self, node: Node, base: str) -> None:
        """A value that is there from the beginning; parameters of one place have one value."""
        home, nbytes = self.same.get(base, base), nbytes_of(node)
        self.values[node] = (content,) = ((Content(home, 0, nbytes),),)
        if nbytes:
            self.memory[home].write(0, content[0])

    # -------------------------------------------------------------------------------- memory

    def span(self, node: Node, region: Region) -> Span:
        """Where a region lies. Raises VerifyError for one that leaves its memory."""
        base, start, nbytes = region.base, region.offset, region.nbytes
        if base == "arena":
            if start + nbytes > self.extent:
                self.extent = start + nbytes
        elif base != "c" and start + nbytes > self.sizes.get(base, -1):
            raise broken(self.graph, node, f"%{node.id} leaves {base}: {region}")
        return Span(self.same.get(base, base), start, start + nbytes)

    def spans(self, node: Node) -> list[Span]:
        """Where the leaves of a value lie."""
        found = self.lies.get(node)
        if found is None:
            found = self.lies[node] = self._spans(node)
        return found

    def _spans(self, node: Node) -> list[Span]:
        regions, kind = places_of(self.graph, node), node.type
        if isinstance(kind, Type):
            fits = len(regions) == 1 and regions[0].nbytes == kind.nbytes
        else:
            fits = [region.nbytes for region in regions] == [k.nbytes for k in leaves(kind)]
        if not fits:
            raise broken(self.graph, node, f"%{node.id} has memory of another size")
        return [self.span(node, region) for region in regions]

    def operands(self, node: Node) -> list[Span]:
        """Where the operands lie, each of which is found there; scratch memory is none."""
        found = []
        for source in node.inputs:
            if isinstance(source.type, TupleType) and leaves(source.type):
                raise broken(self.graph, node, f"%{source.id} is read as one value")
            if not source.op.traits.workspace:
                found += self.read(node, source)
        return found

    def read(self, node: Node | None, source: Node) -> list[Span]:
        spans = self.spans(source)
        for span, contents in zip(spans, self.values[source], strict=True):
            if not self.holds(span, contents):
                reader = "the end" if node is None else f"%{node.id}"
                raise broken(self.graph, node or source, f"{reader} does not find %{source.id}")
            self.accesses.append(Access(self.now, span, False))
        return spans

    def holds(self, span: Span, contents: Contents) -> bool:
        start, memory = span.start, self.memory[span.base]
        for content in contents:
            if not memory.holds(start, content):
                return False
            start += content.nbytes
        return True

    def scratch(self, node: Node) -> list[Span]:
        """What a node uses while it runs: nothing of value lies there afterwards."""
        found = [self.spans(n)[0] for n in node.inputs if n.op.traits.workspace]
        if isinstance(node.place, Buffer) and node.place.scratch is not None:
            found.append(self.span(node, node.place.scratch))
        if any(span.base != "arena" for span in found):
            raise broken(self.graph, node, f"%{node.id} has its scratch memory elsewhere")
        return [span for span in found if span.start < span.end]

    def targets(self, node: Node) -> list[Span]:
        """Where a node writes its results. Raises VerifyError for memory of others."""
        if not leaves(node.type):
            return []
        if any(region.base[0] in "pc" and region.nbytes for region in places_of(self.graph, node)):
            raise broken(self.graph, node, f"%{node.id} writes to an argument or a constant")
        return self.spans(node)

    def write(self, span: Span, contents: Iterable[Content]) -> None:
        self.accesses.append(Access(self.now, span, True))
        start = span.start
        for content in contents:
            if content.nbytes:
                self.memory[span.base].write(start, content)
            start += content.nbytes

    def make(self, node: Node, targets: list[Span]) -> None:
        """New values of a node."""
        made = []
        for leaf, span in enumerate(targets):
            made.append((Content((node, leaf), 0, span.end - span.start),))
            self.write(span, made[-1])
        self.values[node] = tuple(made)

    def compute(
        self, node: Node, operands: list[Span], may_share: Callable[[int, list[int]], bool]
    ) -> None:
        """Read, spoil, write.  `may_share(leaf, numbers)` tells whether a result may lie just where
        these operands do."""
        targets, scratch = self.targets(node), self.scratch(node)
        for leaf, target in enumerate(targets):
            if any(map(target.meets, (*targets[:leaf], *scratch))):
                raise broken(self.graph, node, f"the results of %{node.id} overlap")
            met = [k for k, operand in enumerate(operands) if target.meets(operand)]
            if met and not (all(operands[k] == target for k in met) and may_share(leaf, met)):
                raise broken(self.graph, node, f"%{node.id} overwrites what it reads")
        for span in scratch:
            if any(map(span.meets, operands)):
                raise broken(self.graph, node, f"%{node.id} spoils what it reads")
            self.write(span, (Content(None, 0, span.end - span.start),))
        self.make(node, targets)

    # -------------------------------------------------------------------------------- nodes

    def alias(self, node: Node) -> None:
        self.values[node] = self.values[node.inputs[0]]

    def host(self, node: Node) -> None:
        """Python is given copies, before anything is written."""
        self.compute(node, self.operands(node), lambda leaf, numbers: True)

    def known(self, node: Node) -> None:
        if node.op.traits.stored:
            self.values[node] = ((constant(node),),)
        self.read(node, node)

    def nothing(self, node: Node) -> None:
        self.values[node] = ()

    def gather(self, node: Node) -> None:
        self.values[node] = tuple(part for n in node.inputs for part in self.values[n])

    def pick(self, node: Node) -> None:
        (source,) = node.inputs
        assert isinstance(source.type, TupleType)
        first = sum(len(leaves(kind)) for kind in source.type.elements[: node.attrs["index"]])
        self.values[node] = self.values[source][first : first + len(leaves(node.type))]

    def receive(self, node: Node) -> None:
        self.make(node, self.targets(node))

    def send(self, node: Node) -> None:
        """What a graph sends stays where it is until the end, for a receiver that is late; what a
        region or a variable sends is kept elsewhere."""
        self.values[node] = ()
        for span in self.operands(node):
            kept = span.base[0] == "v" or (span.base[0] == "p" and bool(self.same))
            if self.is_outermost and not kept:
                self.sent.append((node, node.inputs[0]))

    def assign(self, node: Node) -> None:
        self.operands(node)
        self.values[node] = self.values[node.inputs[0]]

    def stack(self, node: Node) -> None:
        """The stack changes where it lies, and a pop writes what it takes."""
        handle = self.operands(node)[0]
        targets = self.spans(node)
        if targets[0] != handle or any(map(handle.meets, targets[1:])):
            raise broken(self.graph, node, f"%{node.id} does not lie where its stack does")
        self.make(node, targets)

    def kernel(self, node: Node) -> None:
        if pieces := copied_by(node):
            self.copies(node, pieces)
            return
        params = [
            p
            for p, n in zip(node.regions[0].params, node.inputs, strict=True)
            if not n.op.traits.workspace
        ]

        def in_place(leaf: int, met: list[int]) -> bool:
            return may_overwrite(node, leaf, {params[k] for k in met})

        self.compute(node, self.operands(node), in_place)

    def copies(self, node: Node, pieces: tuple[tuple[int, int], ...]) -> None:
        """One operand after another is copied, where it does not lie in the result already: that
        part of the result is still the operand, too."""
        (target,) = self.targets(node)
        made: list[Content] = []
        start, stays = target.start, False
        for number, nbytes in pieces:
            (source,) = self.read(node, node.inputs[number])
            piece = Span(target.base, start, start + nbytes)
            contents = self.values[node.inputs[number]][0]
            if source != piece:
                if source.meets(piece) or source.end - source.start != nbytes:
                    raise broken(self.graph, node, f"%{node.id} copies what it overwrites")
                self.write(piece, contents)
            stays |= source == piece
            made += contents
            start += nbytes
        if start != target.end or not self.holds(target, tuple(made)):
            raise broken(self.graph, node, f"the results of %{node.id} overlap")
        if stays:
            self.values[node] = (tuple(made),)
        else:
            self.make(node, [target])

    # -------------------------------------------------------------------------------- regions

    def inside(self, graph: Graph, same: Mapping[str, str] | None = None) -> int:
        """Judge a region; the bytes that it needs."""
        run = _Run(graph, same or {}, self.memory["c"])
        run.all()
        return run.extent

    def blocks(self, node: Node) -> None:
        given = sum(nbytes_of(n) for n in node.inputs if n.op.traits.workspace)
        self.room(node, self.inside(node.regions[0]), given)
        self.compute(node, self.operands(node), lambda leaf, met: False)

    def room(self, node: Node, needed: int, given: int) -> None:
        if needed > given:
            raise broken(self.graph, node, f"%{node.id} needs {needed} bytes while it runs")

    def scratch_bytes(self, node: Node) -> int:
        scratch = node.place.scratch if isinstance(node.place, Buffer) else None
        return scratch.nbytes if scratch is not None else 0

    def branch(self, node: Node) -> None:
        """One of the regions; a result may lie where an operand does, if all allow for it."""
        operands, first = self.operands(node), choosers(node)
        given, same = operands[first:], {}
        for leaf, target in enumerate(self.targets(node)):
            lies = [k for k, span in enumerate(given) if span == target and span.meets(span)]
            bases = [*(f"p{k}" for k in lies), f"r{leaf}"]
            same.update(dict.fromkeys(bases[1:], bases[0]))
        needed = max(self.inside(region, same) for region in node.regions)
        self.room(node, needed, self.scratch_bytes(node))
        self.compute(node, operands, lambda leaf, met: min(met) >= first)

    def loop(self, node: Node) -> None:
        """The test and the body, which leaves a carry where its next run reads it."""
        layout = layout_of(node, node.regions)
        self.layout(node, layout.spare, layout.inside)
        same = {}
        for k, kind in enumerate(layout.carries):
            if kind in IN_ONE_PLACE:
                same[f"r{k}"] = f"p{k}"
            elif kind is Carry.FOLLOWS:
                same[f"r{k}"] = f"r{layout.follows[k]}"
        *tests, body = node.regions
        needed = max(self.inside(body, same), *map(self.inside, tests), 0)
        self.room(node, layout.inside + needed, self.scratch_bytes(node))

        def stays(leaf: int, met: list[int]) -> bool:
            carries = layout.carries
            return met == [leaf] and leaf < len(carries) and carries[leaf] in IN_ONE_PLACE

        self.compute(node, self.operands(node), stays)

    def layout(self, node: Node, spare: Sequence[int], inside: int) -> None:
        """The verdict and the second buffers of carries lie side by side, before the values."""
        buffers = [(0, VERDICT)] if node.op.traits.tested else []
        kinds = zip(spare, leaves(node.type), strict=False)
        buffers += [(start, start + kind.nbytes) for start, kind in kinds if start >= 0]
        buffers.sort()
        ends = [0, *(end for _, end in buffers)]
        starts = [*(start for start, _ in buffers), inside]
        if any(end > start for end, start in zip(ends, starts, strict=True)):
            raise broken(self.graph, node, f"the carries of %{node.id} overlap")

    # -------------------------------------------------------------------------------- the end

    def leave(self) -> None:
        """Results and variables are copied to where they belong, and are all there in the end."""
        graph = self.graph
        homes = [
            (n, self.span(n, Region(f"r{k}", 0, nbytes_of(n))))
            for k, n in enumerate(graph.results)
            if not isinstance(n.type, TupleType)
        ]
        for result, home in homes:
            self.move(result, home)
        stored = [nodes["assign"] for nodes in self.variables.values() if "assign" in nodes]
        for node in stored:
            self.exchange(node, stored)
        for node in stored:
            self.write(self.home(node), self.values[node][0])
        for result, home in homes:
            if not self.holds(home, self.values[result][0]):
                raise broken(graph, result, f"the result %{result.id} is overwritten")
        for nodes in self.variables.values():
            if "assign" not in nodes:
                self.read(None, nodes["read"])
        for node, source in self.sent:
            self.read(node, source)

    def move(self, node: Node, home: Span) -> None:
        (source,) = self.read(None, node)
        if source != home:
            if source.meets(home):
                raise broken(self.graph, node, f"%{node.id} is copied to where it lies")
            self.write(home, self.values[node][0])

    def home(self, node: Node) -> Span:
        return self.span(node, Region(self.homes[node], 0, nbytes_of(node)))

    def exchange(self, node: Node, stored: Sequence[Node]) -> None:
        """A new value lies in its variable, in another one as a whole (the variables then change
        places through scratch memory), or where no variable lies."""
        (value,) = self.read(None, node.inputs[0])
        if [self.home(node)] != self.spans(node):
            raise broken(self.graph, node, f"%{node.id} does not lie in its variable")
        waits = self.scratch(node)
        for other in stored:
            home = self.home(other)
            if value.meets(home) and other is not node and not (value == home and waits):
                raise broken(self.graph, node, f"%{node.id} needs memory to change places")
            if any(map(value.meets, self.scratch(other))):
                raise broken(self.graph, other, f"%{other.id} spoils %{node.inputs[0].id}")
        for span in waits:
            self.write(span, (Content(None, 0, span.end - span.start),))


@cache
def action(op: Op) -> Callable[[_Run, Node], None] | None:
    """What a node of an op does to memory; None for what does not run."""
    traits, lower = op.traits, op.lower
    choices = (
        (isinstance(lower, Alias), _Run.alias),
        (isinstance(lower, Host), _Run.host),
        (traits.kernel, _Run.kernel),
        (traits.blocks, _Run.blocks),
        (traits.branch, _Run.branch),
        (traits.loop, _Run.loop),
        (traits.push or traits.pop, _Run.stack),
        (traits.makes_stack or traits.recv, _Run.receive),
        (traits.send, _Run.send),
        (op.effect is Effect.WRITE, _Run.assign),
        (traits.makes_tuple, _Run.gather),
        (traits.item, _Run.pick),
        (traits.workspace, _Run.nothing),
        (traits.resident, _Run.known),
    )
    return next((act for holds, act in choices if holds), None)


IN_ONE_PLACE = (Carry.STILL, Carry.IN_PLACE)


def nbytes_of(node: Node) -> int:
    kind = node.type
    return kind.nbytes if isinstance(kind, Type) else sum([k.nbytes for k in leaves(kind)])
