"""constrain: what the caller says about places becomes constraints of nodes.

constraints=["h=cpu:1"]     %2 = tanh(%0)  name h = %2     ->     %2 = tanh(%0) @cpu:1
"""

from __future__ import annotations

from graphc.base.hints import meant
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.place import Constraint, Spec, parse_spec
from graphc.runtime.devices.registry import check_device


def constrain(graph: Graph, config: Config) -> Graph:
    """The graph with the constraints of `config`. Raises GraphError for names that it does not
    have, and for devices that there cannot be."""
    if not config.constraints:
        return graph
    asked: dict[int, Spec] = {}
    ids = {f"%{n.id}": n.id for n in graph.nodes} | graph.names
    for text in config.constraints:
        name, equals, spec = text.partition("=")
        if not equals:
            raise GraphError(f"{text!r} is no constraint", hint="write for example h=cpu:1")
        if name not in ids:
            listed = ", ".join([*graph.names][:8])
            hint = f"names are {listed}" if listed else "no value has a name: gc.name gives one"
            raise GraphError(f"no value is named {name!r}", hint=meant(name, ids) or hint)
        asked[ids[name]] = check_spec(parse_spec(spec))

    def ask(node: Node, r: Rewriter) -> Node | None:
        if node.id not in asked:
            return None
        group = node.place.group if isinstance(node.place, Constraint) else None
        made = node.replace(place=Constraint(asked[node.id], group))
        r.nodes.append(made)
        return made

    return rebuild(graph, ask)


def check_spec(spec: Spec) -> Spec:
    """The spec, if a device can be meant. Raises GraphError for a type or index that none has."""
    if spec.type is not None:
        check_device(spec.type, spec.index or 0)
    return spec
