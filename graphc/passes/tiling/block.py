"""block: a chain of kernels with a large value between them runs block by block over its rows.

    scores = q k^T       [b, h, l, s]         for every block of rows:
    weights = softmax    [b, h, l, s]    ->       scores of the block, softmax of the block,
    out = weights v      [b, h, l, d]             its rows of out

Only one block of the large values ever exists, and it stays in the cache.  The chain becomes one
`blocked` node; what is read a row at a time is read through windows that move with the block.
"""

from __future__ import annotations

import math

from graphc.base.record import record as record_class
from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.kernels import region_key
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node, Rewriter, rebuild
from graphc.ir.liveness import root
from graphc.ir.op import OPS, Attrs
from graphc.ir.readers import readers_of
from graphc.ir.rewrites import permitted
from graphc.ir.sizes import Size, either, extent_of, far_of, greatest, least, parts_of
from graphc.ir.types import TupleType, Type, leaves
from graphc.ops.record.dims import row_major_strides
from graphc.passes.reasons import explain
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
from graphc.runtime.cuda.interface import ALIGNMENT


@record_class(frozen=True)
class Room:
    """What blocks are measured against: bytes of the smallest value that is worth them and of the
    memory that a block should stay in, fewest rows of one, what moves must be multiples of, and
    pairs of (bytes, how often blocks may read what they save): beyond all of them any number."""

    smallest: int
    cache: int
    fewest: int
    multiple: int
    again: tuple[tuple[int, int], ...]


def room_of(config: Config) -> Room:
    """Large values come from far away, and very large ones should not exist at all."""
    if config.backend == "cuda":
        return Room(
            tuned.block_value_on_gpu, tuned.block_on_gpu, 1, ALIGNMENT, ((tuned.block_memory, 2),)
        )
    host = host_target()
    again = (host.l3 // 2, 1), (tuned.block_memory, 2)
    return Room(int(tuned.block_value * host.l2), host.l2, tuned.block_rows, 1, again)


def block(graph: Graph, config: Config) -> Graph:
    """The graph with every chain that pays as one `blocked` node."""
    room = room_of(config)
    if not config.merges or not any(is_large(node, room) for node in graph.nodes):
        return graph
    made, gone = chosen(chains(graph, room), room)
    if not made:
        return graph

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        chain = made.get(node.id)
        return chain.emit(node, r) if chain is not None else None

    grown = rebuild(graph, rewrite, each=False)
    names = {name: id for name, id in grown.names.items() if id not in gone}
    return grown.replace(nodes=[n for n in grown.nodes if n.id not in gone], names=names)


# ------------------------------------------------------------------------------------ which chains


def chosen(found: list[list[Node]], room: Room) -> tuple[dict[int, Chain], set[int]]:
    """Chains that pay, by their last node, and the nodes that are gone with them.

    One of open sizes that had to leave kernels out comes after those that may need its kernels.
    """
    made: dict[int, Chain] = {}
    gone: set[int] = set()
    refused: set[object] = set()  # layers repeat: what does not pay in one does not in the others

    def take(chain: Chain) -> None:
        free = all(k.id not in gone and k.id not in made for k in chain.kernels)
        if free and permitted(chain.last):
            made[chain.last.id] = chain
            gone.update(node.id for node in (*chain.kernels[:-1], *chain.inside))

    waiting = []
    for kernels in found:
        key = signature(kernels)
        if key in refused or not gone.isdisjoint(k.id for k in kernels):
            continue
        chain = chain_of(kernels, room)
        if chain is None:
            refused.add(key)
        elif isinstance(chain.whole, Size) and len(chain.kernels) < len(kernels):
            waiting.append(chain)
        else:
            take(chain)
    for chain in waiting:
        take(chain)
    return made, gone


Readers = dict[Node, list[Node | None]]


def chains(graph: Graph, room: Room) -> list[list[Node]]:
    """Kernels with large values between them that nothing else reads, last ones first."""
    readers = readers_of(graph)
    found = []
    for last in reversed(graph.nodes):
        if may_block(last) and isinstance(last.type, Type):
            kernels = chain_before(last, readers, room)
            if len(kernels) > 1:
                found.append(kernels)
    return found


def is_large(node: Node, room: Room) -> bool:
    sizes = (far_of(kind.nbytes) for kind in tensors(node))
    return may_block(node) and max(sizes, default=0) >= room.smallest


def tensors(node: Node) -> list[Type]:
    return [kind for kind in leaves(node.type) if isinstance(kind, Type)]


def enough_for(last: Node, room: Room) -> int:
    """The fewest bytes of a value that is worth blocks of the chain that ends here."""
    return greatest(room.smallest, tuned.block_ratio * tensor_type(last).nbytes)  # type: ignore[no-any-return]


def may_block(node: Node) -> bool:
    """A kernel that waits for nothing, and whose operands and results have elements: so many."""
    kernel = node.op.traits.kernel and node.attrs["kind"] in ("loop", "contract")
    if not kernel or node.after:
        return False
    kinds = (kind for n in (node, *node.inputs) for kind in leaves(n.type))
    return all(not isinstance(k, Type) or k.nbytes for k in kinds)


def chain_before(last: Node, readers: Readers, room: Room) -> list[Node]:
    """The kernels whose large results only end up in `last`, in issue order, and `last`."""
    enough = far_of(enough_for(last, room))
    kernels, pending = [last], [last]
    while pending:
        for source in pending.pop().inputs:
            kernel = source.inputs[0] if source.op.traits.item else source
            if kernel in kernels or not may_block(kernel):
                continue
            values = values_of(kernel, readers)
            size = max((far_of(tensor_type(value).nbytes) for value in values), default=0)
            if size >= enough and all(set(readers[value]) <= set(kernels) for value in values):
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
        self.levels = self.worthwhile()
        self.check_moves()
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
        """How many rows make a block: as many as fit half of the second-level cache.

        For open sizes every loop is there, and runs once where they make one block.
        """
        dims, near = tensor_type(self.last).dims, self.room.cache // 2
        pays = self.saves()
        levels: list[Level] = []
        left = near + 1
        for depth, axis in enumerate(cut, 1):
            ones = tuple(Level(1, 1, dims[a]) for a in cut[:depth])
            one = self.nbytes(cut[:depth], ones)
            most = greatest(1, near // one)
            if depth == len(cut):
                most = either(left - near, self.rows(levels, cut, most, one), dims[axis])
            levels.append(level_of(dims[axis], either(pays, most, dims[axis])))
            left = one
        if isinstance(left, Size) and far_of(left) > near:
            raise Uncuttable("rows are long, and blocks of one may be too large")
        while levels and not isinstance(levels[-1].count, Size) and levels[-1].count == 1:
            levels.pop()
        return tuple(levels)

    def rows(self, outer: list[Level], cut: Cut, most: int, one: int) -> int:
        """How many rows along the last axis make a block: more where they share what they read."""
        extent = tensor_type(self.last).dims[cut[-1]]
        most = greatest(self.room.fewest, most)
        level = level_of(extent, most)
        shared = self.read_again((*outer, level)) * tuned.block_shared - one * level.size
        enough = least(tuned.block_rows_shared, tuned.block_most * self.room.cache // one)
        return either(shared, greatest(self.room.fewest, enough), most)

    def saves(self) -> int:
        """Positive where every kernel passes on a value that is large enough."""
        found = [greatest(*(k.nbytes for k in tensors(kernel))) for kernel in self.kernels[:-1]]
        spare: int = least(*found) - enough_for(self.last, self.room)
        return spare + 1

    def nbytes(self, cut: Cut, levels: tuple[Level, ...]) -> int:
        """The bytes of what the kernels pass on, for one block."""
        kinds = ((tensor_type(v), self.cuts[v][: len(cut)]) for v in self.inside)
        return sum(block_type(kind, cut, levels).nbytes for kind, cut in kinds)

    def worthwhile(self) -> tuple[Level, ...]:
        """The loops, which run once where blocks cost more than they save."""
        kept = self.nbytes(self.cuts[self.last], self.levels)
        again = self.read_again(self.levels)
        allowed = again
        for whole, times in reversed(self.room.again):
            allowed = either(whole + 1 - self.whole, times * kept, allowed)
        blocks = math.prod(level.count for level in self.levels)
        if not isinstance(blocks, Size) and blocks <= 1:
            raise Uncuttable("one block")
        pays = allowed + 1 - again
        if not isinstance(pays, Size) and pays <= 0:
            raise Uncuttable("blocks would read too much again")
        dims = tensor_type(self.last).dims
        levels = zip(self.levels, self.cuts[self.last], strict=True)
        return tuple(
            Level(
                extent_of(either(pays, level.size, dims[axis])),
                either(pays, level.step, dims[axis]),
                either(pays, level.count, 1),
            )
            for level, axis in levels
        )

    def check_moves(self) -> None:
        """Blocks lie where kernels may read vectors."""
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
        explain(node.id, self.reason())
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
    count = parts_of(extent, most, tuned.block_start)
    step = extent // count
    return Level(extent_of(extent - (count - 1) * step), step, count)
