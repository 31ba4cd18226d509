"""accumulate_after_loop: what a loop only adds up is added up after it.

    scan:  dw = dw + x[t]^T dy[t]          ->     scan:  dy[t]
           dy[t] = ...                            dw = dw + sum over t of x[t]^T dy[t]

The gradient of every weight that a step reads is such a total.  In the loop each step would read
and write all of it to add a thin product; afterwards it is one contraction over all steps.  What
the products read of a step, and is not stacked yet, becomes a further result of the loop: steps
write that instead of the total, so it pays where it is smaller.
"""

from __future__ import annotations

from collections import Counter

from graphc.codegen.gemm.hardware import host_target
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import Type, leaves
from graphc.ops.linalg.einsum import LETTERS
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def accumulate_after_loop(graph: Graph, config: Config) -> Graph:
    """The graph with totals of scans as contractions over all of their steps."""
    if config.strict or not any(node.op.traits.counted for node in graph.nodes):
        return graph
    return rebuild(graph, without_totals)


def without_totals(loop: Node, r: Rewriter) -> Node | None:
    """What stands for a scan with totals, or None if it has none worth moving."""
    if not loop.op.traits.counted or loop.after or not isinstance(loop.attrs["length"], int | Size):
        return None
    totals = _Totals(loop)
    if not totals.terms:
        return None
    explain(loop.id, f"{len(totals.terms)} totals are added up after the loop")
    return totals.emit(r)


def is_view(node: Node) -> bool:
    return node.op.traits.permutes or node.op.traits.reshapes


class _Totals:
    """The totals of a scan: `terms[k]` are the sums of products added to carry k in a step."""

    def __init__(self, loop: Node) -> None:
        self.loop = loop
        self.body: Graph = loop.regions[0]
        self.carries: int = loop.attrs["carries"]
        self.end = self.carries + loop.attrs["scanned"]
        body = self.body
        self.reads = Counter(n for node in body.nodes for n in (*node.inputs, *node.after))
        self.reads.update(body.results)
        slices = body.params[self.carries : self.end]
        self.slices = dict(zip(slices, loop.inputs[self.carries : self.end], strict=True))
        self.stacked = dict.fromkeys(body.results[self.carries :])  # further results, in order
        self.given = len(self.stacked)
        self.invariant = set(body.params[self.end :])
        self.added: set[Node] = set()
        self.terms: dict[int, list[Node]] = {}
        order = sorted(range(self.carries), key=lambda k: -body.results[k].nbytes)
        for k in order:
            self.consider(k)

    # -- which totals

    def consider(self, k: int) -> None:
        """Take total k out of the loop if its steps then write less."""
        total, param = self.body.results[k], self.body.params[k]
        if total.op.name != "add" or param not in total.inputs or total.after:
            return
        if self.reads[total] != 1 or self.reads[param] != 1 or total.type is not param.type:
            return
        added = [total]
        terms = self.products(next(n for n in total.inputs if n is not param), added)
        bases = {b: None for term in terms for n in term.inputs if (b := self.base(n)) is not None}
        more = [b for b in bases if b not in self.slices and b not in self.stacked]
        cost = sum(n.nbytes for n in more)
        if not terms or cost >= 2 * total.nbytes or self.is_too_much(cost):
            return
        self.terms[k] = terms
        self.stacked |= dict.fromkeys(more)
        self.added.update(added, terms)

    def products(self, node: Node, added: list[Node]) -> list[Node]:
        """The terms of what a step adds, or none if some term is of another kind."""
        found, pending = [], [node]
        while pending:
            term = pending.pop()
            if self.reads[term] != 1 or term.after:
                return []
            if term.op.name == "add" and all(n.type is term.type for n in term.inputs):
                added.append(term)
                pending += term.inputs
            elif term.op.name in ("einsum", "sum") and None not in map(self.base, term.inputs):
                found.append(term)
            else:
                return []
        return found

    def base(self, node: Node) -> Node | None:
        """What has to be stacked for an operand: what it is a view of; None for an invariant."""
        while is_view(node) and self.reads[node] == 1 and not node.after:
            node = node.inputs[0]
        fixed = node in self.invariant or node.op.traits.constant
        return None if fixed or not isinstance(node.type, Type) else node

    def is_too_much(self, cost: int) -> bool:
        """Would more wait for the end of the loop than does so anyway?"""
        held = sum(hint_of(leaf.nbytes) for n in self.slices.values() for leaf in leaves(n.type))
        length: int = hint_of(self.loop.attrs["length"])
        most: float = max(tuned.stacked_share * host_target().l3, held)
        return length * cost > most

    # -- emission

    def emit(self, r: Rewriter) -> Node:
        """The loop without the totals, the totals, and all results as one tuple."""
        kept = [k for k in range(self.carries) if k not in self.terms]
        made = self.narrowed(kept, r)
        count = len(kept) + len(self.stacked)
        items = [made]
        if count > 1:
            items = [r.emit(OPS["item"], (made,), {"index": k}) for k in range(count)]
        rows = dict(zip(self.stacked, items[len(kept) :], strict=True)) | self.slices
        finals = dict(zip(kept, items, strict=False))
        for k, terms in self.terms.items():
            finals[k] = self.loop.inputs[k]
            for term in terms:
                whole = _over_all(term, [_view(n, rows, r) for n in term.inputs], r)
                finals[k] = r.emit(OPS["add"], (finals[k], whole))
        results = [finals[k] for k in range(self.carries)]
        results += items[len(kept) : len(kept) + len(self.body.results) - self.carries]
        return results[0] if len(results) == 1 else r.emit(OPS["tuple"], results)

    def narrowed(self, kept: list[int], r: Rewriter) -> Node:
        body, loop = self.body, self.loop
        region = body.replace(
            params=(*(body.params[k] for k in kept), *body.params[self.carries :]),
            nodes=[n for n in body.nodes if n not in self.added],
            results=(*(body.results[k] for k in kept), *self.stacked),
            result_names=(),
        )
        inputs = (*(loop.inputs[k] for k in kept), *loop.inputs[self.carries :])
        attrs = {**loop.attrs.values_dict, "carries": len(kept)}
        return r.emit(OPS["scan"], inputs, attrs, regions=(region,))


def _view(node: Node, rows: dict[Node, Node], r: Rewriter) -> Node:
    """All steps' values of a node, stacked along a new first axis."""
    views = []
    while node not in rows:
        views.append(node)
        node = node.inputs[0]
    made = rows[node]
    for view in reversed(views):
        length = made.type.dims[0] if isinstance(made.type, Type) else 0
        if view.op.traits.permutes:
            attrs = {"perm": (0, *(axis + 1 for axis in view.attrs["perm"]))}
        else:
            attrs = {"dims": (length, *view.attrs["dims"])}
        made = r.emit(view.op, (made,), attrs, loc=view.loc)
    return made


def _over_all(term: Node, operands: list[Node], r: Rewriter) -> Node:
    """The sum of a term over all steps, from operands that are stacked."""
    if term.op.name == "sum":
        axes = (0, *(axis + 1 for axis in term.attrs["axes"]))
        total = r.emit(term.op, operands, {"axes": axes, "keepdims": False}, loc=term.loc)
        if total.type is term.type:
            return total
        assert isinstance(term.type, Type)
        return r.emit(OPS["reshape"], (total,), {"dims": term.type.dims}, loc=term.loc)
    inputs, _, result = term.attrs["equation"].partition("->")
    step = next(letter for letter in LETTERS if letter not in inputs)
    equation = ",".join(step + part for part in inputs.split(",")) + "->" + result
    return r.emit(term.op, operands, {"equation": equation}, loc=term.loc)
