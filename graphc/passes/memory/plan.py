"""plan: give every value its memory, so that a warm call allocates nothing but its results.

    params      the caller's arrays      pK          constants   one blob          c
    results     fresh arrays             rK          the rest    one static arena  offsets
    variables   memory of their own      vK

What a result puts in a row lies there from the beginning, so that nothing is left to copy.

Offsets are chosen best fit over the issue order: the smallest free gap that is large enough, so
memory is reused as soon as its last reader has run.  Who takes it has to wait for that reader, and
for the messages of other devices that it needs.  So that a message that is late holds nothing else,
memory is kept for nodes that need the same ones, unless they should be there long since or memory
is limited.  Where several threads share each kernel, values of like sizes follow each other in
slots instead (`Centred`), so that a thread writes where it wrote before: a line of memory that the
other one has read since has to be asked for, and prefetching does not help that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.codegen.table.carries import scratch_bytes
from graphc.codegen.table.copies import copied_by
from graphc.codegen.table.donation import (
    Copies,
    Leaf,
    Times,
    donations,
    stays_in_place,
    times_of,
    updated,
    variables,
    with_updates,
    written_in_place,
    written_operand,
)
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Reads, map_nodes
from graphc.ir.liveness import last_reads, memory, root, roots
from graphc.ir.op import Alias, Attrs, Effect
from graphc.ir.place import Buffer, Device, Region, device_of
from graphc.ir.regions import holds_kernels
from graphc.ir.rewrites import counting, is_counting, permitted
from graphc.ir.sizes import Size, greatest, hint_of
from graphc.ir.types import UNIT, AnyType, TupleType, leaves
from graphc.ir.verify import broken
from graphc.passes.devices.recv_sets import recv_sets
from graphc.passes.memory.arena import ALIGNMENT, Arena, Centred
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def plan(graph: Graph, config: Config) -> Graph:
    """The graph with a Buffer as the place of every value that holds data."""
    if all(map(is_planned, (*graph.params, *graph.nodes))):
        return graph
    made = by_halves(graph, config) or whole(graph, config)
    explain_copies(made, donations(made, config.donate))
    return made


def explain_copies(graph: Graph, donated: tuple[int, ...]) -> None:
    """Note why an array is copied that is only changed in places."""
    copies = Copies(graph)
    taken = {f"r{result}": param for result, param in enumerate(donated) if param >= 0}
    for kernel in graph.nodes:
        for region in kernel.regions if kernel.op.traits.loop else ():
            explain_carries(region, kernel.attrs["carries"])
        held = written_operand(kernel)
        if held is None or not isinstance(kernel.place, Buffer):
            continue
        (source, part), home = memory(held), kernel.place.regions[0]
        assert isinstance(source.place, Buffer)
        given = home.base in taken and graph.params[taken[home.base]] is source
        if not given and home != source.place.regions[part]:
            explain(kernel.id, copies.reason(kernel, held))


def explain_carries(body: Graph, count: int) -> None:
    """The same for what a loop carries from one run of its body to the next."""
    copies = Copies(body)
    for carry, (result, param) in enumerate(zip(body.results[:count], body.params, strict=False)):
        kernel = root(result)
        held = written_operand(kernel)
        if held is not None and root(held) is param and not stays_in_place(body, carry):
            explain(kernel.id, copies.reason(kernel, held))


def is_planned(node: Node) -> bool:
    """Does the node have all the memory that it and its regions need?"""
    return isinstance(node.place, Buffer) or (node.type is UNIT and not holds_kernels(node))


def whole(graph: Graph, config: Config, arena: Arena | None = None) -> Graph:
    """The graph with memory for its values, of an arena or a new one."""
    planner = _Planner(graph, graph.device, Constants(), arena or Arena())
    if config.memory_limit is None:
        planner.recv_sets = recv_sets(graph)
    planner.add_variables(in_place=not config.check_finite)
    return planner.run()


def by_halves(graph: Graph, config: Config) -> Graph | None:
    """The same where threads have halves of values in the same places; None where there is one
    thread, or where that takes much more memory.
    """
    is_open = any(isinstance(size, Size) for n in graph.nodes for size in sizes_of(n.type))
    on_cpu = graph.device is None or graph.device.type == "cpu"
    if config.thread_count == 1 or config.memory_limit is not None or is_open or not on_cpu:
        return None
    arena = Centred()
    with counting():  # by themselves: which plan it is must not depend on how many may happen
        made = whole(graph, config, arena)
    if sum(arena.sizes) > tuned.slot_memory * arena.most:
        return None
    return whole(graph, config, Centred()) if is_counting() else made


def plan_block(node: Node, device: Device | None) -> Graph:
    """The region of a blocked node with its memory: offsets into the node's scratch operand."""
    return _Planner(node.regions[0], device, Constants(), Arena()).run()


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def planned(nbytes: int) -> int:
    """The bytes that a block takes in the plan: those of the sizes at hand, and some where these
    are none but others may be."""
    return hint_of(nbytes) or (ALIGNMENT if isinstance(nbytes, Size) else 0)


def sizes_of(kind: AnyType) -> list[int]:
    return [leaf.nbytes for leaf in leaves(kind)]


class Constants:
    """Where the constants of a graph and of its regions lie: equal ones once."""

    def __init__(self) -> None:
        self.top = 0
        self.offsets: dict[Attrs, int] = {}

    def take(self, node: Node) -> Region:
        nbytes = sizes_of(node.type)[0]
        if node.attrs not in self.offsets:
            self.offsets[node.attrs] = self.top
            self.top += aligned(nbytes)
        return Region("c", self.offsets[node.attrs], nbytes)


def opened(blocks: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The offsets for all sizes of blocks that are planned at offsets for one: by those."""
    ordered = sorted(blocks, key=lambda block: block[0])
    ends = sorted(
        ((at + planned(nbytes), at, nbytes) for at, nbytes in ordered), key=lambda e: e[0]
    )
    starts: dict[int, int] = {}
    for start, _ in ordered:
        if start in starts:
            continue
        below = [(at, nbytes) for end, at, nbytes in ends if end <= start]
        highest = max((at for at, _ in below), default=0)
        edge = [starts[at] + nbytes for at, nbytes in below if at + planned(nbytes) > highest]
        starts[start] = greatest(0, *edge) if edge else 0
    return starts


class _Planner:
    """Plans one graph; the memory of a region's values lies in its node's scratch memory."""

    def __init__(
        self, graph: Graph, device: Device | None, constants: Constants, arena: Arena
    ) -> None:
        self.graph = graph
        self.device = device
        self.constants = constants
        self.regions: dict[Node, tuple[Region, ...]] = {}
        self.scratch: dict[Node, Region] = {}
        self.inside: dict[Node, tuple[Graph, ...]] = {}  # the planned regions of a node
        self.arena = arena
        self.recv_sets = [0] * graph.next_id  # the messages that a node needs
        self.there = 0  # messages that make no difference any more
        self.users: dict[Node, int] = {}  # the messages that the users of a value need
        self.passed_on: set[Leaf] = set()  # values in whose memory another one lies by now
        self.times: Times | None = None
        self.homes = self.result_memory()
        self.parts = self.result_parts()

    def result_memory(self) -> dict[Leaf, str]:
        """The leaves that lie in the memory of a result (of the first, where there are several)."""
        found: dict[Leaf, str] = {}
        for number, result in enumerate(self.graph.results):
            node, leaf = memory(result)
            if not (node.op.traits.parameter or node.op.traits.idle):
                found.setdefault((node, leaf), f"r{number}")
        return found

    def result_parts(self) -> dict[Leaf, Region]:
        """The leaves that lie in the memory of a result that is made of copies of them."""
        found: dict[Leaf, Region] = {}
        for (node, _), home in self.homes.items():
            offset = 0
            for number, nbytes in copied_by(node):
                kernel, leaf = memory(node.inputs[number])
                whole = kernel.op.traits.kernel and sizes_of(kernel.type)[leaf] == nbytes
                if whole and (kernel, leaf) not in self.homes and offset % ALIGNMENT == 0:
                    found.setdefault((kernel, leaf), Region(home, offset, nbytes))
                offset += nbytes
        return found

    def add_variables(self, in_place: bool) -> None:
        """Variables lie in their own memory, and so do new values that may be written there.

        A variable that gets the value of another needs room for the case that they change places.
        """
        for number, nodes in enumerate(variables(self.graph).values()):
            for node in nodes.values():
                self.homes[node, 0] = f"v{number}"
            stored = nodes.get("assign")
            if stored is not None and root(stored.inputs[0]).op.effect is Effect.READ:
                nbytes = aligned(sizes_of(stored.type)[0])
                self.scratch[stored] = Region("arena", self.arena.take(planned(nbytes)), nbytes)
        if in_place:  # where a kernel may fail, a variable keeps its value
            found = written_in_place(self.graph)
            self.homes |= {leaf: home for leaf, home in found.items() if permitted(leaf[0])}

    def run(self) -> Graph:
        graph = self.graph
        for number, param in enumerate(graph.params):
            nbytes = sizes_of(param.type)
            self.regions[param] = tuple(Region(f"p{number}", 0, n) for n in nbytes)
        self.homes = with_updates(graph, self.homes)
        self.place_all()
        if isinstance(self.arena, Centred):
            self.move(self.arena.places())
        self.open_offsets()
        return map_nodes(graph, self.placed)

    def open_offsets(self) -> None:
        """Where blocks lie whose sizes are open: each begins where the last one below it ends.

        What lies apart in the plan, which is one for the sizes at hand, lies apart for all sizes;
        what shares memory there shares it here.
        """
        lists = (*self.regions.values(), *((region,) for region in self.scratch.values()))
        found = {r for regions in lists for r in regions if r.base == "arena" and r.nbytes}
        if not any(isinstance(region.nbytes, Size) for region in found):
            return
        self.move(opened({(region.offset, aligned(region.nbytes)) for region in found}))

    def move(self, starts: Mapping[int, int]) -> None:
        """Put each block where `starts` says."""

        def moved(region: Region) -> Region:
            if region.base != "arena" or not region.nbytes:
                return region
            return Region("arena", starts[region.offset], region.nbytes)

        self.regions = {n: tuple(map(moved, regions)) for n, regions in self.regions.items()}
        self.scratch = {n: moved(region) for n, region in self.scratch.items()}

    def place_all(self) -> None:
        last = last_reads(self.graph)
        dying: list[list[Node]] = [[] for _ in range(len(self.graph.nodes) + 1)]
        for node, position in last.items():
            dying[position].append(node)
        for position, node in enumerate(self.graph.nodes):
            needs = self.recv_sets[node.id]
            if needs.bit_length() > self.there.bit_length() + 2 * tuned.late_messages:
                self.there = (1 << needs.bit_length() - tuned.late_messages) - 1
                self.arena.settle(self.there)
            self.regions[node] = self.allocate(node)
            for user in (node, *(m for source in node.inputs for m in roots(source))):
                self.users[user] = self.users.get(user, 0) | needs
            scratch = self.scratch.get(node)
            if scratch is not None and node.op.effect is not Effect.WRITE:  # that copies at the end
                self.give(scratch, needs)
            for dead in dying[position]:
                self.release(dead)

    def allocate(self, node: Node) -> tuple[Region, ...]:
        if isinstance(node.op.lower, Alias) or node.op.traits.push:
            return self.regions[node.inputs[0]]
        if holds_kernels(node):
            self.plan_regions(node)
        if node.op.traits.item:
            return (self.regions[node.inputs[0]][node.attrs["index"]],)
        if node.op.traits.makes_tuple:
            if any(isinstance(source.type, TupleType) for source in node.inputs):
                raise broken(self.graph, node, f"%{node.id} is a tuple in a tuple")
            return tuple(r for source in node.inputs for r in self.regions[source])
        if node.op.traits.stored:
            return (self.constants.take(node),)
        made: list[Region] = []
        for leaf, nbytes in enumerate(sizes_of(node.type)):
            if leaf == 0 and node.op.traits.pop:
                made += self.regions[node.inputs[0]]
            elif (home := self.homes.get((node, leaf))) is not None:
                made.append(Region(home, 0, nbytes))
            elif (part := self.parts.get((node, leaf))) is not None:
                made.append(part)
            elif nbytes and (region := self.taken_over((node, leaf))) is not None:
                made.append(region)
            else:
                offset = self.take(node, aligned(nbytes)) if nbytes else 0
                made.append(Region("arena", offset, nbytes))
        return tuple(made)

    def taken_over(self, leaf: Leaf) -> Region | None:
        """The memory of the value that a node updates, where nothing reads that afterwards."""
        if self.times is None:
            self.times = times_of(self.graph)
        found = updated(leaf, self.times)
        region = self.regions[found[0]][found[1]] if found is not None else None
        if found is None or region is None or region.base != "arena" or found in self.passed_on:
            return None
        if not permitted(leaf[0]):
            return None
        self.passed_on.add(found)
        self.users[leaf[0]] = self.users.get(leaf[0], 0) | self.users.get(found[0], 0)
        return region

    def plan_regions(self, node: Node) -> None:
        """Memory inside the regions of a node, and the memory that they need while it runs."""
        device = device_of(node.place) or self.device
        self.inside[node] = tuple(
            _Planner(r, device, self.constants, Arena()).run() for r in node.regions
        )
        nbytes = aligned(scratch_bytes(node, self.inside[node]))
        if nbytes and not node.op.traits.blocks:  # whose last operand is its scratch memory
            self.scratch[node] = Region("arena", self.take(node, nbytes), nbytes)

    def take(self, node: Node, nbytes: int) -> int:
        messages = self.recv_sets[node.id] | self.there
        return self.arena.take(planned(nbytes), messages, lambda: permitted(node))

    def release(self, node: Node) -> None:
        first = 1 if node.op.traits.pop else 0  # the rest of a stack is not the pop's
        if (root(node) is not node and not first) or node.op.traits.makes_tuple:
            return
        for leaf, region in enumerate(self.regions.get(node, ())[first:], first):
            mine = (node, leaf) not in self.passed_on
            if region.base == "arena" and region.nbytes and mine:
                self.give(region, self.users[node])

    def give(self, region: Region, needs: int) -> None:
        self.arena.give(region.offset, planned(aligned(region.nbytes)), needs & ~self.there)

    def placed(self, node: Node, reads: Reads) -> Node:
        device = device_of(node.place) or self.device
        if device is None:
            raise broken(self.graph, node, f"%{node.id} is on no device, and has memory nowhere")
        scratch = self.scratch.get(node)
        bare = node.type is UNIT and scratch is None
        place = device if bare else Buffer(device, self.regions[node], scratch)
        regions = self.inside.get(node, node.regions)
        inputs, after = reads
        return node.replace(regions=regions, inputs=inputs, after=after, place=place)
