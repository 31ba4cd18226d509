"""batch_scan_dots: all slices of a scan are multiplied by an invariant matrix at once.

    scan:  y[t] = x[t] w + ...           ->     z = x w;  scan:  y[t] = z[t] + ...

A product of few rows reads the whole matrix for little work; that of all steps reads it once.  Most
of a GPU is idle in a product of one step, and all of it busy in that of all.
"""

from __future__ import annotations

from functools import partial

from graphc.codegen.gemm.hardware import host_target
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import Type
from graphc.ops.control.control import param_node
from graphc.ops.linalg.einsum import LETTERS
from graphc.passes.loops.hoist_transposes import letters
from graphc.passes.normalise.rules import on_gpus_alone
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def batch_scan_dots(graph: Graph, config: Config) -> Graph:
    """The graph with products of few rows in front of the scans that would make them."""
    if config.strict or not any(node.op.traits.counted for node in graph.nodes):
        return graph
    return rebuild(graph, partial(multiplied_ahead, config=config))


def multiplied_ahead(loop: Node, r: Rewriter, config: Config) -> Node | None:
    """The scan with the products of few rows among its scanned operands."""
    if not loop.op.traits.counted or loop.after:
        return None
    length, body = loop.attrs["length"], loop.regions[0]
    if not isinstance(length, int | Size) or hint_of(length) < tuned.batched_dot_steps:
        return None
    first = loop.attrs["carries"]
    end = first + loop.attrs["scanned"]
    outside = dict(zip(body.params[first:], loop.inputs[first:], strict=True))
    slices = frozenset(body.params[first:end])
    worth = partial(is_worth, slices=slices, outside=outside, config=config)
    found = {n: t for n in body.nodes if (t := terms_of(n)) and worth(n, t)}
    if not found:
        return None
    ahead = [all_steps(node, terms, slices, outside, r) for node, terms in found.items()]
    explain(loop.id, f"multiplied before the loop: {', '.join(f'%{n.id}' for n in found)}")
    made = loop.replace(
        inputs=(*loop.inputs[:end], *ahead, *loop.inputs[end:]),
        attrs=loop.op.coerce({**loop.attrs, "scanned": end - first + len(ahead)}),
        regions=(with_slices(body, list(found), end),),
    )
    r.nodes.append(made)
    return made


def terms_of(node: Node) -> list[str]:
    """The letters of a product's operands and result; none for another op."""
    if node.op.name == "einsum":
        return letters(node)
    plain = all(isinstance(n.type, Type) and n.type.rank == 2 for n in node.inputs)
    return ["ik", "kj", "ij"] if node.op.name == "matmul" and plain else []


def is_worth(
    node: Node, terms: list[str], slices: frozenset[Node], outside: dict[Node, Node], config: Config
) -> bool:
    """A slice of few rows times an invariant, whose products for all steps take little memory."""
    a, b = node.inputs
    known = all(n in outside or n.op.traits.stored for n in (a, b))
    if node.after or not known or (a in slices) == (b in slices):
        return False
    position = 0 if a in slices else 1
    kind, whole = node.inputs[position].type, outside[node.inputs[position]].type
    if not isinstance(kind, Type) or not isinstance(whole, Type) or not isinstance(node.type, Type):
        return False
    rows = 1
    for letter, extent in zip(terms[position], kind.dims, strict=True):
        rows *= extent if letter in terms[2] else 1
    nbytes: int = hint_of(node.type.nbytes * whole.dims[0])
    if on_gpus_alone(config):
        few: bool = hint_of(rows) <= tuned.batched_dot_rows_on_gpu
        return few and nbytes <= tuned.batched_dot_on_gpu
    few = hint_of(rows) <= tuned.batched_dot_rows
    return few and nbytes <= tuned.batched_dot_share * host_target().l3


def all_steps(
    node: Node, terms: list[str], slices: frozenset[Node], outside: dict[Node, Node], r: Rewriter
) -> Node:
    """The products of all steps, stacked."""
    step = next(letter for letter in LETTERS if letter not in "".join(terms))
    sides = [step + t if n in slices else t for n, t in zip(node.inputs, terms, strict=False)]
    attrs = {"equation": f"{','.join(sides)}->{step}{terms[2]}"}
    operands = [outside.get(n) or r.emit(n.op, (), n.attrs, loc=n.loc) for n in node.inputs]
    return r.emit(OPS["einsum"], operands, attrs, loc=node.loc)


def with_slices(body: Graph, products: list[Node], end: int) -> Graph:
    """The body with further slices in place of products."""
    fresh = [
        param_node(body.next_id + k, node.type, f"ahead{k}") for k, node in enumerate(products)
    ]
    by_id = {node.id: made for node, made in zip(products, fresh, strict=True)}
    params = (*body.params[:end], *fresh, *body.params[end:])
    grown = body.replace(params=params, next_id=body.next_id + len(fresh))
    return rebuild(grown, lambda node, r: by_id.get(node.id))
