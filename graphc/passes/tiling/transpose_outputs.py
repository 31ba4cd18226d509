"""transpose_outputs: products are stored the way a transpose shows them.

%7 = fused(%0, %1) matmul : f32[4,8,128,64]            %9 = fused(%0, %1) matmul, transpose
%9 = fused(%7) transpose : f32[4,128,8,64]       ->         : f32[4,128,8,64]

Only the strides of the result change.  It comes after `block`, whose blocks are rows of one head.
"""

from __future__ import annotations

from graphc.codegen.lowering.contraction import arrangement, form_of, params_beside, reduces
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Builder, Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS
from graphc.ir.rewrites import permitted
from graphc.ir.sizes import hint_of
from graphc.ir.types import Type
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def transpose_outputs(graph: Graph, config: Config) -> Graph:
    """The graph with products that only a transpose reads stored as that shows them; on a GPU what
    has a template, which stores by strides."""
    if config.backend not in ("llvm", "cuda") or config.parity or not config.merges:
        return graph
    shown = is_attention_shown if config.backend == "cuda" else is_product_shown
    readers: dict[Node, int] = {}
    for node in (*graph.results, *(n for m in graph.nodes for n in (*m.inputs, *m.after))):
        readers[node] = readers.get(node, 0) + 1
    made: dict[int, tuple[Node, Node, Graph]] = {}
    for node in graph.nodes:
        loop = node.op.traits.kernel and node.attrs["kind"] == "loop" and not node.after
        if not loop or not isinstance(node.type, Type):
            continue
        for source in node.inputs:
            if readers[source] == 1 and (region := shown(source, node, config)) and permitted(node):
                made[node.id] = source, node, region
                break
    if not made:
        return graph

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.id not in made:
            return None
        source, old, region = made[node.id]
        inputs = tuple(r.new(n) for n in operands(source, old))
        fused = node.replace(inputs=inputs, attrs=source.attrs, regions=(region,))
        explain(node.id, f"%{source.id} is stored as it is shown here")
        r.nodes.append(fused)
        return fused

    grown = rebuild(graph, rewrite, each=False)
    gone = {source.id for source, _, _ in made.values()}
    names = {name: id for name, id in grown.names.items() if id not in gone}
    return grown.replace(nodes=[n for n in grown.nodes if n.id not in gone], names=names)


def is_attention_shown(source: Node, node: Node, config: Config) -> Graph | None:
    """The region of a template and of what does nothing but transpose its result; None where the
    GPU runs it by loops."""
    from graphc.codegen.gpu.specs import template_launches  # which loads Numba

    kernel = source.op.traits.kernel and source.attrs["kind"] == "nest" and not source.after
    (last, *others) = node.regions[0].nodes
    if not kernel or others or not last.op.traits.permutes or not isinstance(source.type, Type):
        return None
    if last.attrs["perm"][-1] != source.type.rank - 1:
        return None
    return one_region(source, node) if template_launches(source.regions[0], config) else None


def is_product_shown(source: Node, node: Node, config: Config) -> Graph | None:
    """The region of a product and of what shows it across, if it pays to store it so."""
    if not is_product(source):
        return None
    region = one_region(source, node)
    return region if pays(source, node, arrangement(region)) else None


def is_product(node: Node) -> bool:
    """A kernel of a contraction with one result."""
    kernel = node.op.traits.kernel and node.attrs["kind"] == "contract" and not node.after
    return kernel and isinstance(node.type, Type) and not reduces(node.regions[0])


def pays(product: Node, reader: Node, shown: tuple[int, ...] | None) -> bool:
    """Can the product be stored so, and is all else that is read then read in order?"""
    if shown is None or list(shown) == sorted(shown) or has_pixels_in_rows(product.regions[0]):
        return False
    region, after = product.regions[0], reader.regions[0]
    place = reader.inputs.index(product)
    across = [n.inputs[0] for n in after.nodes if n.op.traits.permutes]
    across = [n for n in across if n in after.params and n is not after.params[place]]
    if shown[-1:] != (len(shown) - 1,):
        if hint_of(tensor_type(reader).dims[-1]) < tuned.transposed_row:
            return False
        across += params_beside(region, form_of(region))
    whole = hint_of(tensor_type(product).size)
    return all(hint_of(tensor_type(n).size) < whole for n in across)


def has_pixels_in_rows(region: Graph) -> bool:
    """Does a product read windows in place, which it could not with pixels along vectors?"""
    return any(node.op.traits.channels_last for node in region.nodes)


def operands(product: Node, reader: Node) -> list[Node]:
    """What the kernels read, each value once."""
    return list(dict.fromkeys(n for n in (*product.inputs, *reader.inputs) if n is not product))


def one_region(product: Node, reader: Node) -> Graph:
    """One region for a product and what alone reads it."""
    op = OPS["param"]
    made: dict[Node, Node] = {}
    params = []
    for k, operand in enumerate(operands(product, reader)):
        params.append(Node(k, op, (), op.coerce({"name": f"p{k}"}), operand.type))
        made[operand] = params[-1]
    builder = Builder(len(params))
    for kernel in (product, reader):
        (region,) = kernel.regions
        inside = {p: made[n] for p, n in zip(region.params, kernel.inputs, strict=True)}
        for node in region.nodes:
            inputs = [inside[n] for n in node.inputs]
            inside[node] = builder.emit(node.op, inputs, node.attrs, loc=node.loc)
        made[kernel] = inside[region.results[0]]
    return Graph("f", tuple(params), builder.nodes, (made[reader],))
