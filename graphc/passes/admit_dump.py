"""admit_dump: what is taken from a graph that a file or a program holds, whatever stage it is of.

A dumped stage comes from anybody.  What it says about memory is dropped: offsets, base registers,
sizes of buffers, scratch memory and workspace.  How it is fused is kept, because that decides the
bits of results, and checked kernel by kernel (`graphc.codegen.lowering.check_kernels`); only where
rows have one element or none, a product and what finishes its rows become two kernels.

    %9 = workspace() {nbytes=16} @cpu:0[0:16]                   %5 = fused(%2) @cpu:0
    %5 = fused(%2, %9) @cpu:0[64:32]                      ->    is planned anew, for these threads
"""

from __future__ import annotations

from graphc.codegen.lowering.check_kernels import check_blocked, check_kernel
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import Buffer
from graphc.ir.regions import has_workspace, holds_kernels, is_kernel, scheduled_graphs
from graphc.ir.types import Type
from graphc.ir.verify import broken, graphs_of
from graphc.passes.fusion.split_short_rows import split_short_rows


def admit_dump(value: Graph | Program) -> Graph | Program:
    """The graph without any memory; the same object if it is of a stage before there are kernels.

    Raises VerifyError for what is no kernel, and where scratch memory is read as a value.
    """
    first, *others = graphs_of(value)
    for graph in others:
        if graph.params or graph.results:
            raise broken(graph, None, "only the first device takes and returns values")
    late = any(map(is_late, graphs_of(value)))
    for result in first.results if late or isinstance(value, Program) else ():
        if not isinstance(result.type, Type):
            raise broken(first, result, f"the result %{result.id} is no tensor")
    if not late:
        return value
    made = value.map(bare) if isinstance(value, Program) else bare(value)
    for graph in graphs_of(made):
        for inner in scheduled_graphs(graph):
            for node in inner.nodes:
                check(node)
    return made


def check(node: Node) -> None:
    """Raise VerifyError for a kernel, or blocks, that cannot run so."""
    if node.op.traits.kernel:
        check_kernel(node, node.regions[0])
    elif node.op.traits.blocks:
        check_blocked(node)


def is_late(graph: Graph) -> bool:
    """Does a graph hold kernels or memory?"""
    return any(
        isinstance(node.place, Buffer) or is_kernel(node) or node.op.traits.workspace
        for inner in scheduled_graphs(graph)
        for node in (*inner.params, *inner.nodes)
    )


def bare(graph: Graph) -> Graph:
    """The graph without places in memory and without workspace."""
    mapped = {param: placed(param) for param in graph.params}
    nodes = []
    for node in graph.nodes:
        if not node.op.traits.workspace:
            mapped[node] = remade(graph, node, mapped)
            nodes.append(mapped[node])
    kept = {node.id for node in mapped}
    made = graph.replace(
        params=tuple(mapped[p] for p in graph.params),
        nodes=nodes,
        results=tuple(known(graph, r, mapped) for r in graph.results),
        names={name: id for name, id in graph.names.items() if id in kept},
    )
    return split_short_rows(made)


def known(graph: Graph, node: Node, mapped: dict[Node, Node]) -> Node:
    found = mapped.get(node)
    if found is None:
        raise broken(graph, node, f"%{node.id} is scratch memory: it holds no value")
    return found


def remade(graph: Graph, node: Node, mapped: dict[Node, Node]) -> Node:
    node = without_workspace(graph, node)
    return node.replace(
        inputs=tuple(known(graph, n, mapped) for n in node.inputs),
        after=tuple(known(graph, n, mapped) for n in node.after),
        regions=tuple(map(bare, node.regions)) if holds_kernels(node) else node.regions,
        place=place_of(node),
    )


def placed(node: Node) -> Node:
    return node.replace(place=place_of(node))


def place_of(node: Node) -> object:
    return node.place.device if isinstance(node.place, Buffer) else node.place


def without_workspace(graph: Graph, node: Node) -> Node:
    """A kernel, or blocks, without the scratch memory that is their last operand."""
    if not is_kernel(node) or not has_workspace(node):
        return node
    (region,) = node.regions
    spare = region.params[-1]
    if spare in region.results or any(spare in n.inputs or spare in n.after for n in region.nodes):
        raise broken(graph, node, f"%{node.id} reads its scratch memory as a value")
    attrs = node.attrs
    if node.op.traits.blocks:
        attrs = node.op.coerce({**attrs, "steps": attrs["steps"][: -len(attrs["counts"])]})
    grown = region.replace(params=region.params[:-1])
    return node.replace(inputs=node.inputs[:-1], attrs=attrs, regions=(grown,))
