"""pack_constants: constants are stored as they are read.

%3 = pack() {value=..., k=[768, 1], n=[3072, 768], ...} : f32[2409984]
%5 = fused(%2, %3, %9) ...            its region begins with an `unpack` of the panels

Contractions read panels, again and again.  A kernel of constants alone, say one that turns the
weights of a loop, runs now and not in every call, where what it makes is no larger than they are.
"""

from __future__ import annotations

from graphc.codegen.gemm.packed import layout_of, packable
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.literal import literal
from graphc.ir.liveness import root
from graphc.ir.op import OPS
from graphc.ir.sizes import is_open
from graphc.ir.types import Type
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.fold import is_finite
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def pack_constants(graph: Graph, config: Config) -> Graph:
    """The graph with packed constants where that pays; equal panels are made once."""
    packs: dict[object, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.kernel:
            return None
        if is_of_constants(node):
            return evaluated(node, config, r)
        if config.backend != "llvm" or node.attrs["kind"] not in ("contract", "staged"):
            return None
        made = with_panels(node, config, r, packs)
        if made is node:
            return None
        r.nodes.append(made)
        return made

    packed = rebuild(graph, rewrite)
    return graph if packed is graph else swept(packed)


def is_of_constants(kernel: Node) -> bool:
    """Does a kernel move constants about, or compute little with them?"""
    if kernel.attrs["kind"] != "loop" or kernel.after or not kernel.inputs:
        return False
    if not isinstance(kernel.type, Type) or is_open(kernel.type.dims):
        return False
    constants = [n for n in kernel.inputs if n.op.traits.constant]
    read = sum(n.type.nbytes for n in constants if isinstance(n.type, Type))
    small = kernel.type.nbytes <= min(read, tuned.evaluated_bytes)
    return small and len(constants) == len(kernel.inputs)


def evaluated(kernel: Node, config: Config, r: Rewriter) -> Node | None:
    """What a kernel of constants makes, as a constant; None where it fails, which is its run's."""
    try:
        operands = [n.attrs["value"].array for n in kernel.inputs]
        (value,) = interpret(kernel.regions[0], operands)
    except GraphError:
        return None
    if config.check_finite and not is_finite([value]) and is_finite(operands):
        return None
    assert isinstance(kernel.type, Type)
    explain(kernel.id, "of constants alone: it has run")
    made = {"value": literal(value, kernel.type.dtype)}
    return r.emit(OPS["const"], (), made, place=kernel.place)


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
        explain(packs[key].id, f"constant %{node.inputs[position].id} packed for %{node.id}")
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
