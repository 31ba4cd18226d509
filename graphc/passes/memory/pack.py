"""pack: constants that contractions read again and again are stored as the panels they read.

%3 = pack() {value=..., k=[768, 1], n=[3072, 768], ...} : f32[2409984]
%5 = fused(%2, %3, %9) ...            its region begins with an `unpack` of the panels
"""

from __future__ import annotations

from graphc.codegen.gemm.packed import layout_of, packable
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.liveness import root
from graphc.ir.op import OPS
from graphc.passes.reasons import record


def pack(graph: Graph, config: Config) -> Graph:
    """The graph with packed constants where that pays; equal panels are made once."""
    if config.backend != "llvm":
        return graph
    packs: dict[object, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.kernel or node.attrs["kind"] not in ("contract", "staged"):
            return None
        made = with_panels(node, config, r, packs)
        if made is node:
            return None
        r.nodes.append(made)
        return made

    packed = rebuild(graph, rewrite)
    return swept(packed) if packs else graph


def with_panels(node: Node, config: Config, r: Rewriter, packs: dict[object, Node]) -> Node:
    """The kernel with a constant operand as panels, where that pays."""
    found = packable(node, config)
    if found is None:
        return node
    position, panels = found
    layout = layout_of(panels)
    value = root(node.inputs[position]).attrs["value"]
    key = (value, *layout.values())
    if key not in packs:
        packs[key] = r.emit(OPS["pack"], (), {"value": value, **layout}, place=node.place)
        record(packs[key].id, f"constant %{node.inputs[position].id} packed for %{node.id}")
    inputs = list(node.inputs)
    inputs[position] = packs[key]
    grown = unpacking(node.regions[0], position, packs[key], layout)
    return node.replace(inputs=tuple(inputs), regions=(grown,))


def unpacking(region: Graph, position: int, panels: Node, layout: dict[str, object]) -> Graph:
    """The region with a parameter given as panels."""
    old, op = region.params[position], OPS["unpack"]
    param = old.replace(id=region.next_id, type=panels.type)
    attrs = op.coerce({**layout, "shape": tensor_type(old).dims})
    unpack = Node(region.next_id + 1, op, (param,), attrs, old.type)
    mapped, nodes = {old: unpack}, [unpack]
    for node in region.nodes:
        made = node.replace(inputs=tuple(mapped.get(n, n) for n in node.inputs))
        mapped[node] = made
        nodes.append(made)
    params = (*region.params[:position], param, *region.params[position + 1 :])
    results = tuple(mapped.get(n, n) for n in region.results)
    return region.replace(params=params, nodes=nodes, results=results, next_id=region.next_id + 2)
