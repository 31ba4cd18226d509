"""block: a chain of kernels with a large value between them runs block by block over its rows.

    scores = q k^T       [b, h, l, s]         for every block of rows:
    weights = softmax    [b, h, l, s]    ->       scores of the block, softmax of the block,
    out = weights v      [b, h, l, d]             its rows of out

Only one block of the large values ever exists, and it stays in the cache.  The chain becomes one
`blocked` node; what is read a row at a time is read through windows that move with the block.
"""

from __future__ import annotations

import math

from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.kernels import region_key
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node, Rewriter, rebuild
from graphc.ir.liveness import root
from graphc.ir.op import OPS, Attrs
from graphc.ir.rewrites import permitted
from graphc.ir.sizes import hint_of, is_open
from graphc.ir.types import TupleType, Type, leaves
from graphc.ops.record.dims import row_major_strides
from graphc.passes.reasons import record
from graphc.passes.tiling.chain_windows import (
    Cut,
    Cutter,
    Demand,
    Level,
    Strides,
    Uncuttable,
    block_type,
)
from graphc.passes.tuning import tuned
from graphc.record import record as record_class
from graphc.runtime.cuda.interface import ALIGNMENT


@record_class(frozen=True)
class Room:
    """What blocks are measured against: bytes of the smallest value that is worth them and of the
    memory that a block should stay in, fewest rows of one, what moves must be multiples of, and
    pairs of (bytes, how often blocks may read what they save)."""

    smallest: int
    cache: int
    fewest: int
    multiple: int
    again: tuple[tuple[float, float], ...]


def room_of(config: Config) -> Room:
    """Large values come from far away, and very large ones should not exist at all."""
    if config.backend == "cuda":
        return Room(
            tuned.block_value_on_gpu,
            tuned.block_on_gpu,
            1,
            ALIGNMENT,
            ((tuned.block_memory, 2), (math.inf, math.inf)),
        )
    host = host_target()
    again = (host.l3 // 2, 1), (tuned.block_memory, 2), (math.inf, math.inf)
    return Room(int(tuned.block_value * host.l2), host.l2, tuned.block_rows, 1, again)


def block(graph: Graph, config: Config) -> Graph:
    """The graph with every chain that pays as one `blocked` node."""
    room = room_of(config)
    if not config.merges or not any(is_large(node, room) for node in graph.nodes):
        return graph
    made: dict[int, Chain] = {}
    gone: set[int] = set()
    refused: set[object] = set()  # layers repeat: what does not pay in one does not in the others
    for kernels in chains(graph, room):
        key = signature(kernels)
        if key in refused or not gone.isdisjoint(k.id for k in kernels):
            continue
        chain = chain_of(kernels, room)
        if chain is None:
            refused.add(key)
        elif permitted(kernels[-1]):
            made[kernels[-1].id] = chain
            gone.update(node.id for node in (*chain.kernels[:-1], *chain.inside))
    if not made:
        return graph

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        chain = made.get(node.id)
        return chain.emit(node, r) if chain is not None else None

    grown = rebuild(graph, rewrite, each=False)
    names = {name: id for name, id in grown.names.items() if id not in gone}
    return grown.replace(nodes=[n for n in grown.nodes if n.id not in gone], names=names)


# ------------------------------------------------------------------------------------ which chains

Readers = dict[Node, set[Node | None]]  # None: the caller


def chains(graph: Graph, room: Room) -> list[list[Node]]:
    """Kernels with large values between them that nothing else reads, last ones first."""
    readers: Readers = {}
    for node in graph.nodes:
        for source in (*node.inputs, *node.after):
            readers.setdefault(source, set()).add(node)
    for result in graph.results:
        readers.setdefault(result, set()).add(None)
    found = []
    for last in reversed(graph.nodes):
        if may_block(last) and isinstance(last.type, Type):
            kernels = chain_before(last, readers, room)
            if len(kernels) > 1:
                found.append(kernels)
    return found


def is_large(node: Node, room: Room) -> bool:
    sizes = (hint_of(kind.nbytes) for kind in leaves(node.type) if isinstance(kind, Type))
    return may_block(node) and max(sizes, default=0) >= room.smallest


def may_block(node: Node) -> bool:
    """A kernel that waits for nothing, and whose operands and results have elements: so many."""
    kernel = node.op.traits.kernel and node.attrs["kind"] in ("loop", "contract")
    if not kernel or node.after:
        return False
    kinds = (kind for n in (node, *node.inputs) for kind in leaves(n.type))
    return all(not isinstance(k, Type) or (k.nbytes and not is_open(k.dims)) for k in kinds)


def chain_before(last: Node, readers: Readers, room: Room) -> list[Node]:
    """The kernels whose large results only end up in `last`, in issue order, and `last`."""
    least = max(room.smallest, tuned.block_ratio * tensor_type(last).nbytes)
    kernels, pending = [last], [last]
    while pending:
        for source in pending.pop().inputs:
            kernel = source.inputs[0] if source.op.traits.item else source
            if kernel in kernels or not may_block(kernel):
                continue
            values = values_of(kernel, readers)
            size = max((tensor_type(value).nbytes for value in values), default=0)
            if size >= least and all(readers.get(value, set()) <= set(kernels) for value in values):
                kernels.insert(0, kernel)
                pending.append(kernel)
    return kernels


def values_of(kernel: Node, readers: Readers) -> list[Node]:
    """The nodes that stand for the results of a kernel: itself or its items; none if unknown."""
    if isinstance(kernel.type, Type):
        return [kernel]
    items = [r for r in readers[kernel] if r is not None and r.op.traits.item]
    return items if len(items) == len(readers[kernel]) else []


# ------------------------------------------------------------------------------------ one chain


def signature(kernels: list[Node]) -> object:
    """Equal for chains of equal kernels that read each other alike."""
    place = {kernel: k for k, kernel in enumerate(kernels)}
    return tuple(
        (region_key(kernel), tuple((place.get(root(n), -1), port(n)) for n in kernel.inputs))
        for kernel in kernels
    )


def port(node: Node) -> int:
    return node.attrs["index"] if node.op.traits.item else -1


def chain_of(kernels: list[Node], room: Room) -> Chain | None:
    """The chain, without its first kernels if those do not compute blocks; None if none is left."""
    dims = tensor_type(kernels[-1]).dims
    columns = kernels[-1].attrs["kind"] == "contract"  # its last axis comes from one operand only
    while dims and len(kernels) > 1:
        for depth in range(max(1, len(dims) - columns), 0, -1):
            try:
                return Chain(room, kernels, tuple(a for a in range(depth) if dims[a] != 1))
            except Uncuttable:
                continue
        kernels = kernels[1:]
    return None


class Chain:
    """Kernels that run block by block.  Raises Uncuttable when they cannot or it does not pay."""

    def __init__(self, room: Room, kernels: list[Node], cut: Cut) -> None:
        if not cut:
            raise Uncuttable("one row")
        self.room = room
        self.kernels = kernels
        self.last = kernels[-1]
        self.inside = self.values()
        self.whole = sum(tensor_type(value).nbytes for value in self.inside)
        self.cuts: dict[Node, Cut] = {}
        self.cutters: dict[Node, Cutter] = {}
        self.follow(cut)
        self.levels = self.sizes(cut)
        if len(self.levels) < len(cut):
            self.follow(cut[: len(self.levels)])
        self.check_worth()
        self.moving = self.windows()
        self.body = self.region()

    def values(self) -> frozenset[Node]:
        """What the kernels pass on: they themselves, or the items of those with several results."""
        earlier = set(self.kernels[:-1])
        read = {source for kernel in self.kernels for source in kernel.inputs}
        return frozenset(
            v for v in read if v in earlier or (v.op.traits.item and v.inputs[0] in earlier)
        )

    def leaves(self, kernel: Node) -> list[Node | None]:
        """The value that stands for each result of a kernel."""
        if kernel in self.inside or kernel is self.last:
            return [kernel]
        items = {v.attrs["index"]: v for v in self.inside if kernel in v.inputs}
        return [items.get(k) for k in range(len(kernel.regions[0].results))]

    def follow(self, cut: Cut) -> None:
        """The cut of every kernel's results, from the last kernel to the first."""
        self.cuts = {self.last: cut}
        for kernel in reversed(self.kernels):
            cuts = tuple(self.cuts[v] for v in self.leaves(kernel) if v in self.cuts)
            if len(cuts) != len(kernel.regions[0].results):
                raise Uncuttable("a result has no reader")
            cutter = self.cutters[kernel] = Cutter(kernel, cuts, self.inside)
            for operand, found in cutter.cuts().items():
                if self.cuts.setdefault(operand, found) != found or min(found) < 0:
                    raise Uncuttable("a large value is not cut by every loop")

    def sizes(self, cut: Cut) -> tuple[Level, ...]:
        """How many rows make a block: as many as fit half of the second-level cache."""
        dims = tensor_type(self.last).dims
        cache = self.room.cache
        left = self.whole
        outer: list[Level] = []
        for axis in cut[:-1]:
            one = left // dims[axis]
            if one <= cache // 2:
                return (*outer, level_of(dims[axis], cache // 2 // one))
            outer.append(Level(1, 1, dims[axis]))
            left = one
        extent = dims[cut[-1]]
        one = left // extent
        level = level_of(extent, max(self.room.fewest, cache // 2 // one))
        if self.read_again((*outer, level)) * tuned.block_shared > one * level.size:
            enough = min(tuned.block_rows_shared, tuned.block_most * cache // one)
            level = level_of(extent, max(self.room.fewest, enough))
        return (*outer, level) if level.count > 1 else tuple(outer)

    def check_worth(self) -> None:
        """Blocks must save more than they cost."""
        if math.prod(level.count for level in self.levels) <= 1:
            raise Uncuttable("one block")
        kept = sum(
            block_type(tensor_type(v), self.cuts[v], self.levels).nbytes for v in self.inside
        )
        most = next(times for whole, times in self.room.again if self.whole <= whole)
        if self.read_again(self.levels) > most * kept:
            raise Uncuttable("blocks would read too much again")
        if any(move * level.step % self.room.multiple for move, level in self.moves()):
            raise Uncuttable("what blocks read would not lie at whole vectors")

    def moves(self) -> list[tuple[int, Level]]:
        """How many bytes each loop moves the result and the windows in a step of a row."""
        dims, cut = tensor_type(self.last).dims, self.cuts[self.last]
        last = tensor_type(self.last), tuple(row_major_strides(dims)[axis] for axis in cut)
        found = [last, *((tensor_type(node), strides) for node, strides in self.windows())]
        return [
            (stride * kind.dtype.itemsize, level)
            for kind, strides in found
            for stride, level in zip(strides, self.levels, strict=False)
        ]

    def read_again(self, levels: tuple[Level, ...]) -> int:
        """Bytes of operands that neighbouring blocks share."""
        return sum(cutter.read_again(levels) for cutter in self.cutters.values())

    # -- emission

    def windows(self) -> list[tuple[Node, Strides]]:
        """What the blocks read from outside, each way of moving over it once."""
        pairs = [w for kernel in self.kernels for w in self.cutters[kernel].windows()]
        return list(
            dict.fromkeys((operand, move) for operand, (blocks, move) in pairs if not blocks)
        )

    def emit(self, node: Node, r: Rewriter) -> Node:
        """The blocked node that stands for the chain's last kernel."""
        made = node.replace(
            op=OPS["blocked"],
            inputs=tuple(r.new(operand) for operand, _ in self.moving),
            attrs=self.attrs([strides for _, strides in self.moving]),
            regions=(self.body,),
        )
        record(node.id, self.reason())
        r.nodes.append(made)
        return made

    def region(self) -> Graph:
        """The kernels of one block, over windows of what they read."""
        op = OPS["param"]
        made: dict[tuple[Node, Demand], Node] = {}
        for k, (operand, strides) in enumerate(self.moving):
            attrs = op.coerce({"name": f"p{k}"})
            made[operand, (False, strides)] = Node(k, op, (), attrs, operand.type)
        params = tuple(made.values())
        builder = Builder(len(params))
        for kernel in self.kernels:
            cutter = self.cutters[kernel]
            inputs = [made[window] for window in cutter.windows()]
            regions = (cutter.emit(self.levels),)
            fused = builder.emit(kernel.op, inputs, kernel.attrs, regions=regions, loc=kernel.loc)
            for k, value in enumerate(self.leaves(kernel)):
                assert value is not None
                one = fused
                if isinstance(fused.type, TupleType):
                    one = builder.emit(OPS["item"], (fused,), {"index": k}, loc=kernel.loc)
                made[value, (True, self.cuts[value])] = one
        return Graph("f", params, builder.nodes, (builder.nodes[-1],))

    def attrs(self, windows: list[Strides]) -> Attrs:
        """Loop counts, and how far the result and every window move."""
        dims = tensor_type(self.last).dims
        moves = [tuple(row_major_strides(dims)[axis] for axis in self.cuts[self.last]), *windows]
        steps = [
            stride * level.step
            for move in moves
            for stride, level in zip(move, self.levels, strict=True)
        ]
        counts = [level.count for level in self.levels]
        return OPS["blocked"].coerce({"dims": dims, "counts": counts, "steps": steps})

    def reason(self) -> str:
        blocks = math.prod(level.count for level in self.levels)
        ids = ", ".join(f"%{kernel.id}" for kernel in self.kernels)
        saved = f"{self.whole} bytes between them become {self.whole // blocks}"
        return f"{ids} run in {blocks} blocks: {saved}"


def level_of(extent: int, most: int) -> Level:
    """Blocks of at most about `most` that cover an extent with little overlap."""
    fewest = -(-extent // most)

    def cost(count: int) -> int:
        return count * (extent - (count - 1) * (extent // count) + tuned.block_start)

    count = min(range(fewest, min(extent, 2 * fewest) + 1), key=cost)
    step = extent // count
    return Level(extent - (count - 1) * step, step, count)
