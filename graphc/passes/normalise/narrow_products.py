"""narrow_products: with precision="bf16", products read operands of 16 bits and sum in f32.

    %3 = matmul(%0, %1)     ->     %4 = cast(%0) {bf16}   %5 = cast(%4) {f32}
                                   %6 = cast(%1) {bf16}   %7 = cast(%6) {f32}
                                   %3 = matmul(%5, %7)

The casts back cost nothing: a contraction widens while it reads, or multiplies pairs of such
numbers at once (fusion/widening).  Constants are rounded here; what is computed is rounded by the
kernel that stores it, and what was widened from 16 bits is read as it was.  A product is narrowed
where that saves more than rounding costs; with a sample and an error budget only as many as the
budget allows, those that save most per error first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from math import prod

from graphc.codegen.gemm.packed import hardware_for
from graphc.codegen.lowering.operands import can_fold_view
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Contraction
from graphc.ir.readers import readers_of
from graphc.ir.regions import is_control_flow, map_inside
from graphc.ir.sizes import hint_of
from graphc.ir.types import DTYPES, F32, Type
from graphc.ops.reference.interpreter import interpret
from graphc.passes.fusion.widening import behind_views, is_view, narrow_type
from graphc.passes.measured_error import affordable, check_sample, result_error, variables_of
from graphc.passes.normalise.choose_convolution import without_padding
from graphc.passes.normalise.rules import on_gpus_alone
from graphc.passes.reasons import explain, summarise
from graphc.passes.tuning import tuned

BF16 = DTYPES["bf16"]


def narrow_products(graph: Graph, config: Config) -> Graph:
    """The graph with narrow products, if the configuration asks for them.

    Raises FeedError for a sample that does not fit the parameters.
    """
    if config.precision == "f32":
        return graph
    if config.precision == "tf32":
        where = "" if on_gpus_alone(config) else ", and this program is not on GPUs alone"
        summarise(f"GPUs with sm_90 multiply by the first 10 bits of fractions (tf32){where}")
        return graph
    if not (on_gpus_alone(config) or hardware_for(config).brain):
        summarise("this CPU does not multiply pairs of bf16: all products stay f32")
        return graph
    found = {node: saved(node) for node in products(graph)}
    gains = {node: gain for node, gain in found.items() if gain > 0}
    taken, texts, measured = chosen(graph, gains, config)
    for node in gains:
        made = "narrow" if node in taken else "stays f32"
        explain(node.id, f"{made}: saves {gains[node]:.2g} operations{texts.get(node, '')}")
    summarise(f"{len(taken)} of {len(found)} products in bf16{measured}")
    return narrowed(graph, taken)


# ------------------------------------------------------------------------------------ which ones


def products(graph: Graph) -> Iterator[Node]:
    """Contractions of f32 that no one has narrowed, also those inside regions."""
    for node in graph.nodes:
        if is_control_flow(node):
            for region in node.regions:
                yield from products(region)
        elif isinstance(node.op.lower, Contraction) and may_be_narrow(node):
            yield node


def may_be_narrow(product: Node) -> bool:
    """An operand is not narrow yet, and neither has to be read in full or is of another type."""
    if not is_f32(product) or product.after or any(map(is_exact, product.inputs)):
        return False
    return {narrow_type(behind_views(n)) for n in product.inputs} in ({None}, {None, BF16})


def is_exact(operand: Node) -> bool:
    """Is it marked to be read in full?"""
    while is_view(operand) and not operand.op.traits.wide:
        operand = operand.inputs[0]
    return operand.op.traits.wide


def saved(node: Node) -> float:
    """Operations that a narrow product saves, less those that rounding its operands is worth, and
    pairing elements one by one."""
    lower = node.op.lower
    assert isinstance(lower, Contraction)
    dims = lower.dims(node)
    spent = 0.0
    for source, strides in zip(sources_of(node), ((d[2] for d in dims), (d[3] for d in dims))):
        if costs_nothing(source):
            continue
        own = [(hint_of(d[1]), stride) for d, stride in zip(dims, strides) if stride != 0]
        spent += tuned.narrowed_operations * elements_of(source)
        if not any(stride in (1, 2) and extent >= tuned.paired_run for extent, stride in own):
            spent += tuned.paired_operations * prod(extent for extent, _ in own)
    return float(prod(hint_of(extent) for _, extent, *_ in dims)) - spent


def sources_of(node: Node) -> list[Node]:
    """What is rounded of the operands: what lies deepest behind views that the product can read
    through and is not larger."""
    found = []
    for position, operand in enumerate(node.inputs):
        source = behind = operand
        while is_view(behind):
            behind = behind.inputs[0]
            near = costs_nothing(behind) or elements_of(behind) <= elements_of(operand)
            if near and is_f32(behind) and reads_through(node, position, behind):
                source = behind
        found.append(source)
    return found


def costs_nothing(source: Node) -> bool:
    """Is a value rounded before the program runs, or was it of 16 bits all along?"""
    return source.op.traits.constant or narrow_type(source) is BF16


def reads_through(node: Node, position: int, source: Node) -> bool:
    """Can a product read the source of an operand itself, whatever views lie between?"""
    return can_fold_view(node, position, lambda n: n is source)


def elements_of(node: Node) -> int:
    assert isinstance(node.type, Type)
    return int(hint_of(node.type.size))


def is_f32(node: Node) -> bool:
    return isinstance(node.type, Type) and node.type.dtype is F32


def chosen(
    graph: Graph, gains: Mapping[Node, float], config: Config
) -> tuple[frozenset[Node], Mapping[Node, str], str]:
    """The products to narrow, a text for each, and what the sample says of all."""
    if config.sample is None or not gains:
        return frozenset(gains), {}, ""
    check_sample(graph.params, config.sample)
    state = variables_of(graph)

    def results(value: Graph) -> list[object]:
        return interpret(value, config.sample or (), state=dict(state))

    def error(nodes: Iterable[Node]) -> float:
        made = results(narrowed(graph, frozenset(nodes)))
        return max(map(result_error, exact, made), default=0.0)

    try:
        exact = results(graph)
    except GraphError as cause:  # for example a variable that has no value yet
        return frozenset(), {}, f": the sample cannot be run ({cause.message})"
    taken, texts = affordable(gains, error, config.error_budget)
    each = [result_error(*pair) for pair in zip(exact, results(narrowed(graph, frozenset(taken))))]
    told = ", ".join(f"{e:.2g}" for e in each)
    return (
        frozenset(taken),
        {node: f"; {text}" for node, text in texts.items()},
        f"; with them the results of the sample differ by {told} of their largest magnitude",
    )


# ------------------------------------------------------------------------------------ rewriting


def narrowed(graph: Graph, chosen: frozenset[Node]) -> Graph:
    """The graph in which the chosen products, at any depth, read operands of 16 bits."""
    here = {node.id for node in graph.nodes if node in chosen}
    inner = map_inside(graph, lambda region: narrowed(region, chosen))
    moved = moved_for(inner, here)
    made: dict[Node, Node] = {}  # what stands for sources and their views

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.id not in here:
            return None
        for source in sources_of(node):
            if source not in made:
                made[source] = source if narrow_type(source) is BF16 else rounded(source, moved, r)
        return r.emit(node.op, tuple(seen(n, made, r) for n in node.inputs), node.attrs)

    return swept(rebuild(inner, rewrite))


def moved_for(graph: Graph, products: Set[int]) -> frozenset[int]:
    """Nodes that put elements elsewhere, for products alone: so what they read is rounded."""
    if not any(map(moves, graph.nodes)):
        return frozenset()
    readers, found = readers_of(graph), set(products)
    for node in reversed(graph.nodes):
        if moves(node) and all(n is not None and n.id in found for n in readers[node]):
            found.add(node.id)
    return frozenset(found - products)


def moves(node: Node) -> bool:
    """Is a node a join, zeros around an array, or places that are picked of one?"""
    if node.after or not is_f32(node):
        return False
    picks = node.op.traits.checks and node.op is OPS["gather"]
    return picks or node.op.traits.joins or without_padding(node)[0] is not node


def rounded(source: Node, moved: Set[int], r: Rewriter) -> Node:
    """A value rounded to 16 bits, as f32; zeros around it are not rounded with it."""
    return r.emit(OPS["cast"], (narrow_of(source, moved, r),), {"dtype": F32})


def narrow_of(source: Node, moved: Set[int], r: Rewriter) -> Node:
    """A value of 16 bits, rounded before it is moved."""
    inner, _ = without_padding(source)
    if inner is not source:
        zero = r.emit(OPS["const"], (), {"value": literal(0.0, BF16)})
        return r.emit(source.op, (narrow_of(inner, moved, r), zero), source.attrs)
    if source.op.traits.constant:
        value = literal(source.attrs["value"].array, BF16)
        return r.emit(OPS["const"], (), {"value": value})
    if source.id in moved:
        images = source.inputs if source.op.traits.joins else source.inputs[:1]
        narrow = tuple(narrow_of(n, moved, r) for n in images)
        return r.emit(source.op, (*narrow, *source.inputs[len(images) :]), source.attrs)
    return r.emit(OPS["narrow"], (source,), {"dtype": BF16})


def seen(operand: Node, made: dict[Node, Node], r: Rewriter) -> Node:
    """An operand, seen through the views between it and what was rounded."""
    if operand not in made:
        inner = seen(operand.inputs[0], made, r)
        same = inner is operand.inputs[0]
        made[operand] = operand if same else r.emit(operand.op, (inner,), operand.attrs)
    return made[operand]
