"""sink: the part of `simplify` that moves constants into the regions of control flow.

There they are numbers of the kernels, take part in the other rules, and are packed ahead of time.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Rewriter


def sink(node: Node, r: Rewriter) -> Node | None:
    """A branch or loop whose regions hold the constants among its invariant operands."""
    if node.op.name not in ("cond", "while", "scan"):
        return None
    first = 1 if node.op.name == "cond" else node.attrs["carries"]
    if node.op.name == "scan":
        first += node.attrs["scanned"]
    offset = 1 if node.op.name == "cond" else 0  # the flag has no parameter
    gone = [k for k in range(first, len(node.inputs)) if node.inputs[k].op.name == "const"]
    if not gone:
        return None
    constants = {k - offset: node.inputs[k] for k in gone}
    made = node.replace(
        inputs=tuple(n for k, n in enumerate(node.inputs) if k not in gone),
        regions=tuple(with_constants(region, constants) for region in node.regions),
    )
    r.nodes.append(made)
    return made


def with_constants(region: Graph, constants: dict[int, Node]) -> Graph:
    """The region with constants in place of the parameters of these numbers."""
    r = Rewriter(region)
    for k, constant in constants.items():
        made = constant.replace(id=r.next_id, after=())
        r.next_id += 1
        r.nodes.append(made)
        r.mapped[region.params[k].id] = made
    for node in region.nodes:
        copied = r.copy(node)
        r.nodes.append(copied)
        r.mapped[node.id] = copied
    params = tuple(p for k, p in enumerate(region.params) if k not in constants)
    return r.finish().replace(params=params)
