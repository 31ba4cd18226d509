"""block_images: a convolution by Winograd's method runs a few images at a time.

    transform of x -> products -> transform of the sums        for every few images: the same three

What lies between the three kernels is several times as large as x and the result together; for a
few images it stays in the cache.  The chain becomes one `blocked` node over windows of images.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS, Loops, Scalar
from graphc.ir.rewrites import permitted
from graphc.ir.size_answers import by_example
from graphc.ir.sizes import hint_of, is_open
from graphc.ir.types import Type
from graphc.passes.reasons import explain
from graphc.passes.tiling.block import level_of
from graphc.passes.tiling.chain_windows import Level
from graphc.passes.tuning import tuned

Chain = tuple[Node, Node, Node]


def block_images(graph: Graph, config: Config) -> Graph:
    """The graph with every chain of transforms that pays as one `blocked` node."""
    if config.opt == 0 or config.backend != "llvm":
        return graph
    reads = Counter(source for node in graph.nodes for source in node.inputs)
    reads.update(graph.results)
    chains = [chain for node in graph.nodes if (chain := chain_of(node, reads))]
    found = {chain[-1].id: chain for chain in chains if permitted(chain[-1])}
    if not found:
        return graph

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        return blocked(node, found[node.id], r) if node.id in found else None

    grown = rebuild(graph, rewrite, each=False)
    gone = {node.id for chain in found.values() for node in chain[:-1]}
    names = {name: id for name, id in grown.names.items() if id not in gone}
    return grown.replace(nodes=[n for n in grown.nodes if n.id not in gone], names=names)


# ------------------------------------------------------------------------------------ which chains


def chain_of(last: Node, reads: Counter[Node]) -> Chain | None:
    """The kernels that end in an output transform, if nothing else reads what is between them."""
    if not is_kernel(last, "nest", "winograd_output"):
        return None
    sums = last.inputs[operand_of(last, "winograd_output")]
    if not is_kernel(sums, "contract", "einsum") or len(sums.regions[0].nodes) != 1:
        return None
    points = sums.inputs[1]
    if not is_kernel(points, "nest", "winograd_input") or len(points.regions[0].nodes) != 1:
        return None
    if reads[points] != 1 or reads[sums] != 1:
        return None
    chain = (points, sums, last)
    return chain if level_of_images(chain) else None


def is_kernel(node: Node, kind: str, name: str) -> bool:
    """A kernel of one result around one op of a name; the rest of it is element-wise."""
    if not node.op.traits.kernel or node.attrs["kind"] != kind or node.after:
        return False
    names = [n.op.name for n in node.regions[0].nodes]
    plain = all(
        n.op.name in (name, "const") or isinstance(n.op.lower, Scalar)
        for n in node.regions[0].nodes
    )
    return plain and names.count(name) == 1 and isinstance(node.type, Type)


def operand_of(kernel: Node, name: str) -> int:
    """Which operand of a kernel an op of its region reads first."""
    region = kernel.regions[0]
    inner = next(n for n in region.nodes if n.op.name == name)
    return region.params.index(inner.inputs[0])


def level_of_images(chain: Chain) -> Level | None:
    """The images of each block, or None if all of them had better run together.

    As few as give enough tiles; weights that every block would fetch from memory forbid blocks.
    Of an open number of images, or of tiles, blocks overlap, as nothing certainly divides it.
    """
    points, sums, last = chain
    count, stored, hardware = tensor_type(last).dims[0], tensor_type(points).dims[-1], host_target()
    between, weights = points.nbytes + sums.nbytes, sums.inputs[0].nbytes
    if hint_of(between) <= 2 * hardware.l2 or 2 * hint_of(weights) > hardware.l3:
        return None
    tiles = stored // count
    if is_open((count, stored)):
        return level_of(count, 2 * -(-tuned.image_tiles // tiles) - 1)  # twice as many overlap less
    sizes = (size for size in range(1, count) if count % size == 0)
    size = next((size for size in sizes if size * tiles >= tuned.image_tiles), None)
    return Level(size, size, count // size) if size else None


# ------------------------------------------------------------------------------------ one block


def blocked(node: Node, chain: Chain, r: Rewriter) -> Node:
    """The blocked node that stands for a chain's last kernel."""
    level, total = level_of_images(chain), tensor_type(node).dims[0]
    assert level is not None
    windows: dict[Node, Node] = {}
    values: dict[Node, Node] = {}
    inside = set(chain[:-1])
    op = OPS["param"]
    for kernel in chain:
        for operand in kernel.inputs:
            if operand not in inside and operand not in windows:
                attrs = op.coerce({"name": f"p{len(windows)}"})
                windows[operand] = Node(len(windows), op, (), attrs, operand.type)
    builder = Builder(len(windows))
    for kernel in chain:
        inputs = [values[n] if n in inside else windows[n] for n in kernel.inputs]
        region = few_images(kernel, [n in inside for n in kernel.inputs], inputs, level.size, total)
        values[kernel] = builder.emit(
            kernel.op, inputs, kernel.attrs, regions=(region,), loc=kernel.loc
        )
    region = Graph("f", tuple(windows.values()), builder.nodes, (values[chain[-1]],))
    moves = [step_of(tensor_type(n), level.step, total) for n in (node, *windows)]
    loop = {"dims": tensor_type(node).dims, "counts": (level.count,), "steps": moves}
    made = node.replace(
        op=OPS["blocked"],
        inputs=tuple(r.new(n) for n in windows),
        attrs=OPS["blocked"].coerce(loop),
        regions=(region,),
    )
    explain(node.id, f"runs in {level.count} blocks of {level.size} image(s)")
    r.nodes.append(made)
    return made


def per_image(kind: Type, total: int) -> bool:
    """An array of one entry per image; a smaller one is broadcast along them."""
    return kind.rank == 4 and kind.dims[0] == total


def step_of(kind: Type, step: int, total: int) -> int:
    return step * math.prod(kind.dims[1:]) if per_image(kind, total) else 0


def few_images(
    kernel: Node, blocks: list[bool], inputs: list[Node], size: int, total: int
) -> Graph:
    """The region of a kernel for a block: arrays per image are sliced, what is in blocks is not."""
    region = kernel.regions[0]
    builder = Builder(len(region.params))
    made: dict[Node, Node] = {}
    params = []
    for param, is_block, given in zip(region.params, blocks, inputs, strict=True):
        params.append(param.replace(type=given.type))
        made[param] = params[-1]
        kind = tensor_type(given)
        if not is_block and per_image(kind, total):
            part = {"starts": (0,) * 4, "stops": (size, *kind.dims[1:]), "steps": (1,) * 4}
            with by_example():  # no block is larger than the whole
                made[param] = builder.emit(OPS["slice"], (params[-1],), part)
    for node in region.nodes:
        attrs: Any = node.attrs
        if isinstance(node.op.lower, Loops) and "images" in attrs:
            attrs = {**attrs, "images": size}
        made[node] = builder.emit(node.op, [made[n] for n in node.inputs], attrs, loc=node.loc)
    return Graph("f", tuple(params), builder.nodes, tuple(made[n] for n in region.results))
