"""Rewriting node by node: rules of one signature, tried in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.place import parse_device
from graphc.passes.reasons import explain

Rule = Callable[[Node, Rewriter], Node | None]
Rules = Mapping[str, tuple[Rule, ...]]  # by op name


def by_rules(graph: Graph, rules_of: Callable[[Node], tuple[Rule, ...]]) -> Graph:
    """The graph with each node replaced by what the first rule that applies to it makes."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        for rule in rules_of(node):
            if (better := rule(node, r)) is not None:
                explain(node.id, rule.__name__.replace("_", " "))
                return better
        return None

    return rebuild(graph, rewrite)


def by_op(graph: Graph, rules: Rules) -> Graph:
    """The same with rules by op name."""
    if not any(node.op.name in rules for node in graph.nodes):
        return graph
    return by_rules(graph, lambda node: rules.get(node.op.name, ()))


def on_gpus_alone(config: Config) -> bool:
    """Does everything run on GPUs, in whatever way is fastest there?"""
    return not config.parity and all(parse_device(d).type == "gpu" for d in config.devices)
