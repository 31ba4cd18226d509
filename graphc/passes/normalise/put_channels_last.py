"""put_channels_last: between products of few bits, images hold a pixel's channels side by side.

    conv(x, w)                %3 = transpose(x) {perm=[0, 2, 3, 1]}
    relu              ->      %4 = conv_last(%3, w as [kh, kw, c, o])
    conv                      %5 = relu(%4)
                              %6 = conv_last(%5, ...)         and only then a transpose back

There a window is runs of neighbours in memory, of which two, or four bytes, are multiplied at once,
so tiles read it where it lies; as planes of channels each window would be copied in pairs first.
What is computed element by element between such convolutions follows them, and so do depthwise
ones, pads, pools, parts, joins, and images resized by picking rows and columns of others.  Images
that something else makes or reads are turned, which has to cost less than is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

import numpy as np

from graphc.codegen.gemm.packed import hardware_for
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Contraction, Loops, Reduction, Scalar
from graphc.ir.readers import readers_of
from graphc.ir.sizes import hint_of
from graphc.ir.types import DTYPES, F32, I8, U8, Type
from graphc.passes.fusion.widening import behind_views, narrow_type
from graphc.passes.normalise.rules import on_gpus_alone
from graphc.passes.reasons import explain, summarise
from graphc.passes.tuning import tuned

BF16 = DTYPES["bf16"]
Layout = Callable[[Node, Rewriter], Node]  # what emits weights as a convolution reads them
Bundles = dict[tuple[object, ...], int]  # types of an image and weights -> how many are multiplied
MANY = 8  # an operand of fewer elements than results, by so much, is turned for next to nothing


def put_channels_last(graph: Graph, config: Config) -> Graph:
    """The graph with chains of convolutions on images with channels last, where that pays."""
    if on_gpus_alone(config) or config.parity:
        return graph
    hardware = hardware_for(config)
    bundles: Bundles = {(BF16, BF16): 2} if hardware.brain else {}
    if hardware.fast_bytes:
        bundles[U8, I8] = 4
    found = frozenset(n for n in graph.nodes if may_be_last(n, bundles))
    if not found:
        return graph
    chosen: set[Node] = set()
    for chain in chains_of(graph, found):
        taken = chain.without_ends(found.intersection(chain.nodes))
        if chain.gain(taken) > 0:
            chosen |= chain.following(taken)
    count = len(chosen & found)
    summarise(f"{count} of {len(found)} convolutions on channels last")
    return turned(graph, {n.id for n in chosen}) if chosen else graph


def may_be_last(node: Node, bundles: Bundles) -> bool:
    """Is a node a convolution of one group, whose windows are bundles of numbers of such types?"""
    if not node.op.traits.convolution or node.op is not OPS["conv"] or node.after:
        return False
    if node.attrs["groups"] != 1:
        return False
    image = node.inputs[0]
    assert isinstance(image.type, Type)
    together = bundles.get(tuple(narrow_type(behind_views(n)) for n in node.inputs))
    channels = image.type.shape[1]
    if together is None or not isinstance(channels, int) or channels % together:
        return False
    return not is_row(image)


# ------------------------------------------------------------------------------------ which ones


class Chain:
    """Nodes that convolutions on channels last could take with them, in order, and who reads them:
    None is who called.  `saved` is what each convolution saves, in multiplications, and `needed`
    what is known of `images_if_last`.
    """

    def __init__(
        self,
        nodes: list[Node],
        readers: Mapping[Node, list[Node | None]],
        saved: Mapping[Node, int],
        needed: dict[Node, frozenset[Node] | None],
    ) -> None:
        self.nodes = nodes
        self.readers = readers
        self.saved = saved
        self.needed = needed

    def following(self, taken: frozenset[Node]) -> set[Node]:
        """Those convolutions and what can follow them; at the ends they are rounded as planes."""
        inside: set[Node] = set()
        for node in self.nodes:
            if node in taken:
                inside.add(node)
            elif not inside.isdisjoint(node.inputs):
                if node not in self.needed:
                    self.needed[node] = images_if_last(node)
                images = self.needed[node]
                if images is not None and images <= inside:
                    inside.add(node)
        for node in reversed(self.nodes):
            if node.op.traits.casts and inside.isdisjoint(self.readers[node]):
                inside.discard(node)
        return inside

    def gain(self, taken: frozenset[Node]) -> float:
        """What convolutions on channels last save, less what it costs to turn what comes in and
        goes out, in multiplications.
        """
        inside = self.following(taken)
        crossing = {n for n in inside if not inside.issuperset(self.readers[n])}
        crossing |= {behind_moves(n.inputs[0]) for n in taken} - inside
        cost = sum(elements_of(n) for n in crossing if not is_row(n)) * tuned.turned_image
        return sum(self.saved[n] for n in taken) - cost

    def without_ends(self, taken: frozenset[Node]) -> frozenset[Node]:
        """The convolutions less those, from either end, that save less than they cost."""
        best, changed = self.gain(taken), True
        while changed:
            changed = False
            for conv in self.ends(taken):
                made = self.gain(taken - {conv})
                if made >= best:
                    best, taken, changed = made, taken - {conv}, True
        return taken

    def ends(self, taken: frozenset[Node]) -> list[Node]:
        """The convolutions whose image is turned before them, or whose result behind them."""
        inside = self.following(taken)
        first = [n for n in self.nodes if n in taken and behind_moves(n.inputs[0]) not in inside]
        leaving: set[Node] = set()
        for node in reversed(self.nodes):
            near = {n for n in self.readers[node] if n not in taken}
            if node in inside and not near <= inside - leaving:
                leaving.add(node)
        return first + [n for n in self.nodes if n in taken & leaving and n not in first]


def chains_of(graph: Graph, found: frozenset[Node]) -> list[Chain]:
    """What the convolutions could take with them, apart where they share no image."""
    readers = readers_of(graph)
    needed: dict[Node, frozenset[Node] | None] = {}
    saved = {conv: products_of(conv) for conv in found}
    inside = Chain(graph.nodes, readers, saved, needed).following(found)
    next_of = {node: node for node in inside}  # on the way to what stands for a chain

    def root(node: Node) -> Node:
        while next_of[node] is not node:
            next_of[node] = node = next_of[next_of[node]]
        return node

    for node in inside:
        for source in inside.intersection(node.inputs):
            next_of[root(source)] = root(node)
    chains: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node in inside:
            chains.setdefault(root(node), []).append(node)
    return [Chain(nodes, readers, saved, needed) for nodes in chains.values()]


def behind_moves(node: Node) -> Node:
    """What is rounded and padded."""
    while node.op.traits.casts or node.op.traits.pads:
        node = node.inputs[0]
    return node


def images_of(node: Node) -> list[Node]:
    """The operands of a node that are as large as its result, or of the size of an image."""
    alone = isinstance(node.op.lower, Contraction | Reduction | Loops) or len(node.inputs) == 1
    if alone or resizes(node):
        return [*node.inputs[:1]]
    size = elements_of(node)
    return [n for n in node.inputs if elements_of(n) * MANY > size]


def images_if_last(node: Node) -> frozenset[Node] | None:
    """The images that have to have channels last for a node to be computed on such, less those that
    are the same either way; None if it cannot be.
    """
    if node.after or not isinstance(node.type, Type) or node.type.rank < 3:
        return None
    images, rank = images_of(node), node.type.rank
    if any(rank_of(n) != rank for n in images) or any(rank_of(n) > rank for n in node.inputs):
        return None
    if isinstance(node.op.lower, Reduction):
        can = bool(node.attrs.get("keepdims")) and not {0, 1} & set(node.attrs["axes"])
    elif node.op.traits.windows:
        can = is_depthwise(node)
    else:
        can = isinstance(node.op.lower, Scalar) or move_of(node) is not same
    return frozenset(n for n in images if not is_row(n)) if can else None


def is_depthwise(node: Node) -> bool:
    """Has each channel of windows a result of its own, of the type of their numbers or bytes?"""
    x, w = node.inputs
    assert isinstance(x.type, Type)
    assert isinstance(w.type, Type)
    alike = x.type.dtype in (w.type.dtype, I8, U8)
    return alike and x.type.dims[1] == w.type.dims[0] == node.attrs["groups"]


def resizes(node: Node) -> bool:
    """Does a node pick places along one axis of space, or images?"""
    if not node.op.traits.checks or node.op is not OPS["gather"]:
        return False
    axes, (_, index) = node.attrs["axes"], node.inputs[:2]
    return len(axes) == 1 != axes[0] == node.attrs["position"] and rank_of(index) == 1


def products_of(conv: Node) -> int:
    """Products that a convolution adds up."""
    assert isinstance(conv.op.lower, Contraction)
    return prod(hint_of(extent) for _, extent, *_ in conv.op.lower.dims(conv))


def elements_of(node: Node) -> int:
    return int(hint_of(node.type.size)) if isinstance(node.type, Type) else 0


def rank_of(node: Node) -> int:
    return node.type.rank if isinstance(node.type, Type) else 0


def is_row(node: Node) -> bool:
    """Do its elements lie in the same order with channels last?"""
    assert isinstance(node.type, Type)
    return is_kept(node.type.shape, last_axes(node.type.rank))


# ------------------------------------------------------------------------------------ rewriting


def turned(graph: Graph, chosen: set[int]) -> Graph:
    """The graph in which the nodes of these ids are computed on images with channels last."""
    last: dict[tuple[Node, int], Node] = {}  # images and operands, each of the rank that is read
    weights: dict[tuple[Node, Layout], Node] = {}  # an image may be weights, too

    def image(node: Node, rank: int, r: Rewriter) -> Node:
        """An operand with channels last; what is rounded and padded is turned as it is made."""
        if rank_of(node) == 0:
            return node
        if (node, rank) in last:
            return last[node, rank]
        if node.op.traits.casts or (node.op.traits.pads and rank_of(node) == rank):
            inner = tuple(image(n, rank, r) for n in node.inputs)
            made = move_of(node)(node, inner, r)
        else:
            assert isinstance(node.type, Type)
            dims = (1,) * (rank - node.type.rank) + node.type.shape
            whole = node if len(dims) == node.type.rank else reshaped(node, dims, r)
            if node.type.dtype is BF16:  # stored as it is turned: products widen no views
                wide = r.emit(OPS["cast"], (whole,), {"dtype": F32})
                wide = permuted(wide, last_axes(rank), r)
                made = r.emit(OPS["narrow"], (wide,), {"dtype": BF16})
            else:
                made = permuted(whole, last_axes(rank), r)
        last[node, rank] = made
        return made

    def weight(node: Node, layout: Layout, r: Rewriter) -> Node:
        if (node, layout) not in weights:
            weights[node, layout] = layout(node, r)
        return weights[node, layout]

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.id not in chosen:
            return None
        assert isinstance(node.type, Type)
        rank = node.type.rank
        if node.op.traits.convolution:
            attrs = {k: node.attrs[k] for k in ("stride", "dilation")}
            x, w = node.inputs
            operands = image(x, rank, r), weight(w, of_channels, r)
            made = r.emit(OPS["conv_last"], operands, attrs)
            explain(made.id, "on channels last")
        elif node.op.traits.windows:
            attrs = {k: node.attrs[k] for k in ("stride", "dilation", "low", "out", "zero")}
            x, w = node.inputs
            operands = image(x, rank, r), weight(w, of_windows, r)
            made = r.emit(OPS["conv_windows_last"], operands, attrs)
        elif isinstance(node.op.lower, Reduction):
            axes = tuple(k - 1 for k in node.attrs["axes"])
            x = image(node.inputs[0], rank, r)
            made = r.emit(node.op, (x,), {**node.attrs, "axes": axes})
        else:
            read = node.inputs[:1] if resizes(node) else node.inputs
            made = move_of(node)(node, tuple(image(n, rank, r) for n in read), r)
        shown = permuted(made, first_axes(rank), r)
        last[shown, rank] = made
        return shown

    return swept(rebuild(graph, rewrite, each=False))


def of_channels(w: Node, r: Rewriter) -> Node:
    """Weights [o, c, *window] as [*window, c, o], through the cast that widens them."""
    assert isinstance(w.type, Type)
    perm = (*range(2, w.type.rank), 1, 0)
    if w.op.traits.casts and w.inputs[0].op.traits.constant:
        value = w.inputs[0].attrs["value"]
        array = np.ascontiguousarray(value.array.transpose(perm))
        constant = r.emit(OPS["const"], (), {"value": literal(array, value.type.dtype)})
        return r.emit(w.op, (constant,), w.attrs)
    return r.emit(OPS["transpose"], (w,), {"perm": perm})


def of_windows(w: Node, r: Rewriter) -> Node:
    """Weights [c, 1, *window] of single channels as [*window, c]."""
    assert isinstance(w.type, Type)
    dims = w.type.dims
    if w.op.traits.constant:
        value = w.attrs["value"]
        array = np.ascontiguousarray(np.moveaxis(value.array[:, 0], 0, -1))
        return r.emit(OPS["const"], (), {"value": literal(array, value.type.dtype)})
    flat = reshaped(w, (dims[0], *dims[2:]), r)
    return r.emit(OPS["transpose"], (flat,), {"perm": (*range(1, len(dims) - 1), 0)})


def same(node: Node, operands: tuple[Node, ...], r: Rewriter) -> Node:
    return r.emit(node.op, operands, node.attrs)


def pad(node: Node, operands: tuple[Node, ...], r: Rewriter) -> Node:
    names = "low", "high", "interior"
    return r.emit(node.op, operands, {k: at_last(node.attrs[k]) for k in names})


def part(node: Node, operands: tuple[Node, ...], r: Rewriter) -> Node:
    names = "starts", "stops", "steps"
    return r.emit(node.op, operands, {k: at_last(node.attrs[k]) for k in names})


def join(node: Node, operands: tuple[Node, ...], r: Rewriter) -> Node:
    axis = first_axes(rank_of(node))[node.attrs["axis"]]
    return r.emit(node.op, operands, {"axis": axis})


def pick(node: Node, operands: tuple[Node, ...], r: Rewriter) -> Node:
    axis = last_axes(rank_of(node)).index(node.attrs["axes"][0])
    attrs = {**node.attrs, "axes": (axis,), "position": axis}
    return r.emit(node.op, (*operands, *node.inputs[1:]), attrs)


def pool(node: Node, operands: tuple[Node, ...], r: Rewriter) -> Node:
    """Windows along space, of one channel."""
    window = node.attrs["window"]
    stride, dilation = (node.attrs.get(k, of) for k, of in (("stride", window), ("dilation", ())))
    sizes = {"window": window, "stride": stride, "dilation": dilation or (1,) * len(window)}
    attrs = {k: (*v, 1) for k, v in sizes.items()}
    return r.emit(OPS["pool"], operands, {"kind": node.attrs["kind"], **attrs})


def move_of(node: Node) -> Callable[[Node, tuple[Node, ...], Rewriter], Node]:
    """What emits a node on images with channels last; `same` where its attributes name no axes."""
    traits = node.op.traits
    if traits.pads:
        return pad
    if traits.slices:
        return part
    if traits.joins:
        return join
    if resizes(node):
        return pick
    return pool if traits.pools and node.op in (OPS["pool"], OPS["tile_pool"]) else same


def last_axes(rank: int) -> tuple[int, ...]:
    """Where the axes of an image with channels last lie in one with them behind the batch."""
    return (0, *range(2, rank), 1)


def first_axes(rank: int) -> tuple[int, ...]:
    """The way back."""
    return (0, rank - 1, *range(1, rank - 1))


def at_last(counts: tuple[int, ...]) -> tuple[int, ...]:
    """What is said of each axis, in the order of those with channels last."""
    return tuple(counts[k] for k in last_axes(len(counts))) if counts else counts


def permuted(node: Node, perm: tuple[int, ...], r: Rewriter) -> Node:
    """The axes in another order; only a new shape where the elements stay in place."""
    assert isinstance(node.type, Type)
    shape = node.type.shape
    if is_kept(shape, perm):
        return reshaped(node, tuple(shape[k] for k in perm), r)
    return r.emit(OPS["transpose"], (node,), {"perm": perm})


def is_kept(shape: Iterable[object], perm: tuple[int, ...]) -> bool:
    """Does an order of axes leave the elements in place?"""
    wide = [k for k in perm if [*shape][k] != 1]
    return wide == sorted(wide)


def reshaped(node: Node, dims: tuple[object, ...], r: Rewriter) -> Node:
    return r.emit(OPS["reshape"], (node,), {"dims": dims})
