"""The nodes of one pipeline: what `expand_pipelines` puts in place of its node."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Node, Rewriter, node_effect
from graphc.ir.op import OPS, Effect
from graphc.ir.place import Constraint, parse_spec
from graphc.ops.autodiff.vjp import zeros
from graphc.ops.control.pipelined import layout_of
from graphc.ops.record.value import Trace, tracing
from graphc.passes.pipelining.assemble import Chunk, assemble
from graphc.passes.pipelining.decide import Plan, check_bytes, losses_of, options_of
from graphc.passes.reasons import explain


def expanded(node: Node, r: Rewriter, config: Config) -> Node:
    """What stands for a pipeline. Raises GraphError with its line."""
    try:
        with tracing(Trace(r)) as trace:
            return _Expansion(node, trace, config).made()
    except GraphError as error:
        raise error.at(node.loc) from None


class _Expansion:
    """One pipeline on its way into the graph."""

    def __init__(self, node: Node, trace: Trace, config: Config) -> None:
        self.node = node
        self.trace = trace
        self.layout = layout_of(node.regions, node.attrs)
        self.options = options_of(node.attrs)
        self.losses = losses_of(node.regions, node.attrs)
        self.shapes: Sequence[int] = node.attrs["shapes"]
        counts = node.attrs["counts"]
        self.plan = Plan(self.losses[self.shapes[0]], self.options, counts[0], config)
        self.cells = {k: self.plan.cells(self.losses[k]) for k in dict.fromkeys(self.shapes)}

    def made(self) -> Node:
        """Results and gradients, in one tuple that waits for what has effects."""
        planned = self.plan.planned(self.cells[self.shapes[0]])
        check_bytes(planned.bytes, self.options.memory_limit)
        first = len(self.trace.builder.nodes)
        results: list[Node] = []
        sums: dict[int, list[Node]] = {}
        start = 0
        for devices, count in zip(self.options.groups, self.node.attrs["counts"], strict=True):
            if count:
                chunks = [self.chunk(k) for k in range(start, start + count)]
                places = [Constraint(parse_spec(name)) for name in devices]
                table, fenced = self.plan.table(count), self.options.fenced
                made, found = assemble(self.trace, table, chunks, places, fenced, self.node.after)
                results += [result for row in made for result in row]
                for parameter, total in found.items():
                    sums.setdefault(parameter, []).append(total)
            start += count
        slopes = [self.total(k, sums.get(k, [])) for k in self.node.attrs["wrt"]]
        for line in str(planned).splitlines():
            explain(self.node.id, line)
        nodes = self.trace.builder.nodes[first:]
        after = tuple(n for n in nodes if node_effect(n) is not Effect.PURE)
        return self.trace.builder.emit(OPS["tuple"], (*results, *slopes), after=after)

    def chunk(self, number: int) -> Chunk:
        """What the assembly needs of one chunk."""
        shape = self.shapes[number]
        graph = self.losses[shape].graph
        operands = self.layout.of_chunk(self.node.inputs, number)
        first = self.layout.cotangents
        seed = self.node.inputs[first + number] if self.options.trains else None
        names = {graph.params[k]: k for k in self.node.attrs["wrt"]}
        own = dict(zip(graph.params, operands, strict=True))
        return Chunk(self.cells[shape], own, graph.results, seed, names)

    def total(self, parameter: int, parts: Sequence[Node]) -> Node:
        """The gradient summed over pipelines, where those of the first are; zeros if none came."""
        if not parts:
            return zeros(self.trace, self.losses[0].graph.params[parameter].type).node
        total = parts[0]
        for part in parts[1:]:
            total = self.trace.builder.emit(OPS["add"], (total, part), place=total.place)
        return total
