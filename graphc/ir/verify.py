"""The invariants of graphs, checked after every pass.

`verify` looks at structure and types of the nodes that are new since the last stage; the
predicates at the end are what stages promise (`ensures=` in the pipeline) and are re-checked after
every later stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter

from graphc.errors import GraphError, VerifyError
from graphc.ir.graph import Graph, Node, Program, infer, node_effect
from graphc.ir.linear_stacks import broken_stacks
from graphc.ir.op import STATE, Alias, Composite, Effect, Op, Structural
from graphc.ir.place import Buffer, Device, Region, device_of
from graphc.ir.regions import scheduled_graphs
from graphc.ir.types import UNIT, TupleType, leaves

UNIQUE = ("barrier", "workspace", "stack")  # equal nodes of these are still different values


def graphs_of(value: Graph | Program) -> tuple[Graph, ...]:
    return value.graphs if isinstance(value, Program) else (value,)


def with_blocks(value: Graph | Program) -> Iterator[Graph]:
    """Every graph and every region whose kernels run block by block."""
    for graph in graphs_of(value):
        yield from scheduled_graphs(graph)


def broken(graph: Graph, node: Node | None, message: str) -> VerifyError:
    """An error that names the graph, the node with its inputs and the user's line."""
    if node is None:
        return VerifyError(f"graph @{graph.name}: {message}")
    error = VerifyError(f"graph @{graph.name}: {message}", details=node.describe())
    error.location = node.loc
    return error


def verify(value: Graph | Program, known: set[Node] | None = None) -> set[Node]:
    """Check structure and types; returns the set of nodes seen, to pass as `known` next time.

    Every use is preceded by its definition (so the graph is acyclic, `after` included), ids are
    unique and below next_id, operand counts and attributes fit the op, the type re-infers
    identically, regions are closed, names point to nodes.  Raises VerifyError.
    """
    known = set() if known is None else known
    seen: set[Node] = set()
    for graph in graphs_of(value):
        verify_graph(graph, known, seen)
    return seen


def verify_graph(graph: Graph, known: set[Node], seen: set[Node], in_kernel: bool = False) -> None:
    defined: list[Node | None] = [None] * graph.next_id
    for param in graph.params:
        if not param.op.traits.parameter:
            raise broken(graph, param, f"parameter %{param.id} is not a param node")
        if not 0 <= param.id < graph.next_id or defined[param.id] is not None:
            raise _ill_numbered(graph, param)
        defined[param.id] = param
    for node in graph.nodes:
        for source in node.inputs:
            if defined[source.id] is not source:
                raise broken(graph, node, f"%{node.id} reads %{source.id}, which is not before it")
        for source in node.after:
            if defined[source.id] is not source:
                raise broken(graph, node, f"%{node.id} waits for %{source.id}, not before it")
        if 0 <= node.id < graph.next_id and defined[node.id] is None:
            defined[node.id] = node
        else:
            raise _ill_numbered(graph, node)
        if node not in known:
            _check_type(graph, node)
            if node.op.in_kernels and not in_kernel:
                raise broken(graph, node, f"%{node.id} stands outside of a kernel")
        if node.regions:
            for region in node.regions:
                if known.issuperset(region.nodes):
                    seen.update(region.nodes)
                else:
                    verify_graph(region, known, seen, node.op.traits.kernel)
    seen.update(graph.nodes)
    _check_results(graph, defined)
    for node, message in broken_stacks(graph):
        raise broken(graph, node, message)


def _ill_numbered(graph: Graph, node: Node) -> VerifyError:
    if not 0 <= node.id < graph.next_id:
        return broken(graph, node, f"id %{node.id} is outside 0..{graph.next_id - 1}")
    return broken(graph, node, f"%{node.id} is defined twice")


def _check_type(graph: Graph, node: Node) -> None:
    if node.op.traits.parameter:
        raise broken(graph, node, f"%{node.id} is a param among the nodes")
    if not node.op.owns(node.attrs):
        raise broken(graph, node, f"the attributes of %{node.id} are not those of {node.op.name}")
    try:
        kind = infer(node.op, tuple([n.type for n in node.inputs]), node.attrs, node.regions)
    except GraphError as error:
        raise broken(graph, node, f"%{node.id} is ill typed: {error.message}") from None
    if kind is not node.type:
        raise broken(graph, node, f"%{node.id} has type {node.type}, its rule gives {kind}")


def _check_results(graph: Graph, defined: list[Node | None]) -> None:
    if len(graph.result_names) != len(graph.results):
        raise broken(graph, None, "result names and results differ in number")
    for result in graph.results:
        if result.id >= graph.next_id or defined[result.id] is not result:
            raise broken(graph, None, f"result %{result.id} is not a node of the graph")
    for name, id in graph.names.items():
        if id >= graph.next_id or defined[id] is None:
            raise broken(graph, None, f"name {name!r} points to %{id}, which is not a node")


# ------------------------------------------------------------------------------------ predicates


def no_trait(value: Graph | Program, trait: str, message: str) -> None:
    """Raise for the first node outside of regions whose op has the trait."""
    if trait in value.traits:
        no_op(graphs_of(value), message, attrgetter(f"traits.{trait}"))


def no_op(graphs: Iterable[Graph], message: str, is_meant: Callable[[Op], bool]) -> None:
    """Raise for the first node of the graphs (regions excluded) whose op is meant."""
    for graph in graphs:
        bad = set(filter(is_meant, graph.ops))
        for node in graph.nodes if bad else ():
            if node.op in bad:
                raise broken(graph, node, f"%{node.id} {message}")


def no_composites(value: Graph | Program) -> None:
    no_op(graphs_of(value), "is still a composite op", _is_composite)


@cache
def _is_composite(op: Op) -> bool:
    return isinstance(op.lower, Composite) or op.traits.call


def no_collectives(value: Graph | Program) -> None:
    no_trait(value, "collective", "is still an op of several devices")


def no_gradients(value: Graph | Program) -> None:
    no_trait(value, "asks_gradient", "still asks for gradients")


def no_pipelines(value: Graph | Program) -> None:
    no_trait(value, "in_stages", "is still in stages")


def no_lanes(value: Graph | Program) -> None:
    no_trait(value, "lanes", "still runs lanes")


def no_phased(value: Graph | Program) -> None:
    no_op(graphs_of(value), "still counts sizes of its own", attrgetter("traits.phased"))


def no_duplicates(value: Graph | Program) -> None:
    """No two pure nodes compute the same thing (commutative operands in any order)."""
    for graph in graphs_of(value):
        table: dict[object, Node] = {}
        for node in graph.nodes:
            if node.regions or node_effect(node) > Effect.READ or node.op.traits.distinct:
                continue
            key = merge_key(node)
            if key in table:
                raise broken(graph, node, f"%{node.id} duplicates %{table[key].id}")
            table[key] = node


def merge_key(node: Node) -> object:
    """Two nodes with one key compute the same value: op, type, operands, order, attributes,
    device.  A constant that has a device is on every other one, too.
    """
    inputs = [n.id for n in node.inputs]
    if node.op.commutative:
        inputs.sort()
    after = tuple(sorted([n.id for n in node.after])) if node.after else ()
    everywhere = node.op.traits.stored and isinstance(node.place, Device)
    place = None if everywhere else node.place
    return node.op, node.type, tuple(inputs), after, node.attrs, place


def every_node_placed(value: Graph | Program) -> None:
    """Every node has a device, but for region ops whose regions have some."""
    for graph in graphs_of(value):
        for node in graph.nodes:
            if device_of(node.place) is None and not _placed_inside(node):
                raise broken(graph, node, f"%{node.id} has no device")


def _placed_inside(node: Node) -> bool:
    inside = (device_of(n.place) for region in _regions_of(node) for n in region.nodes)
    return any(device is not None for device in inside)


def _regions_of(node: Node) -> Iterator[Graph]:
    for region in node.regions:
        yield from scheduled_graphs(region)


def one_device_per_graph(value: Graph | Program) -> None:
    """No cross-device edge is left: every node of a graph, and what its regions place, is on the
    graph's device."""
    for graph in graphs_of(value):
        for number, part in enumerate(scheduled_graphs(graph)):
            for node in part.nodes:
                device = device_of(node.place)
                if device != graph.device and (device is not None or number == 0):
                    raise broken(graph, node, f"%{node.id} is not on {graph.device}")


def only_kernels(value: Graph | Program) -> None:
    """What is left runs as one kernel each, or takes no work at all."""
    no_op(with_blocks(value), "is in no kernel", _needs_kernel)


@cache
def _needs_kernel(op: Op) -> bool:
    free = op.traits.kernel or isinstance(op.lower, Alias | Structural)
    return op.traits.unpacks or not free


def every_buffer_assigned(value: Graph | Program) -> None:
    """Every value that holds data has a buffer, one region per leaf, as big as the leaf.

    Regions lie inside what they are offsets into, and only arguments and constants are read there.
    """
    for graph in with_blocks(value):
        sizes = _base_sizes(graph)
        for node in (*graph.params, *graph.nodes):
            if node.type is UNIT:
                continue
            if not isinstance(node.place, Buffer):
                raise broken(graph, node, f"%{node.id} has no buffer")
            kinds = leaves(node.type)
            if len(kinds) != len(node.place.regions):
                raise broken(graph, node, f"%{node.id} needs {len(kinds)} buffer region(s)")
            for kind, region in zip(kinds, node.place.regions, strict=True):
                if region.nbytes != kind.nbytes:
                    raise broken(graph, node, f"%{node.id} needs {kind.nbytes} bytes")
                written = not _borrows(node) and region.base[0] in "cp"
                end = region.offset + region.nbytes
                if region.base != "arena" and (written or end > sizes.get(region.base, -1)):
                    raise broken(graph, node, f"%{node.id} cannot lie at {region}")
            if node.place.regions != _inherited(node):
                raise broken(graph, node, f"%{node.id} does not lie where its operand lies")


def _borrows(node: Node) -> bool:
    """Does the node write nothing where its value lies (or only what is a stack already)?"""
    traits = node.op.traits
    gathers = traits.item or traits.makes_tuple or traits.push or traits.pop
    return traits.parameter or traits.stored or gathers or isinstance(node.op.lower, Alias)


def _inherited(node: Node) -> tuple[Region, ...]:
    """Where a value that is another name for its operand's memory lies; any other: where it is."""
    assert isinstance(node.place, Buffer)
    source = node.inputs[0] if node.inputs else None
    if source is None or not isinstance(source.place, Buffer):
        return node.place.regions
    if isinstance(node.op.lower, Alias) or node.op.traits.push:
        return source.place.regions
    if node.op.traits.pop:
        return (*source.place.regions, *node.place.regions[1:])
    if not node.op.traits.item or not isinstance(source.type, TupleType):
        return node.place.regions
    first = sum(len(leaves(kind)) for kind in source.type.elements[: node.attrs["index"]])
    return source.place.regions[first : first + len(leaves(node.type))]


def _base_sizes(graph: Graph) -> dict[str, int]:
    """The bytes behind every base register but the arena."""
    sizes = {f"r{k}": _nbytes(result) for k, result in enumerate(graph.results)}
    sizes |= {f"p{k}": _nbytes(param) for k, param in enumerate(graph.params)}
    for node in graph.nodes:
        if node.op.traits.stored and isinstance(node.place, Buffer):
            for region in node.place.regions:
                sizes["c"] = max(sizes.get("c", 0), region.offset + region.nbytes)
        elif node.op.effect in STATE and isinstance(node.place, Buffer):
            sizes[node.place.regions[0].base] = _nbytes(node)
    return sizes


def _nbytes(node: Node) -> int:
    return sum(kind.nbytes for kind in leaves(node.type))
