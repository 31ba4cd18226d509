"""Specialise: a graph with symbolic dimensions becomes one with numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, infer, rebuild
from graphc.ir.op import Op
from graphc.ir.sizes import USUAL_COUNT, Scope, alike, scope_of
from graphc.ir.types import substitute, substitute_dim


def specialise(graph: Graph, binding: Mapping[str, int]) -> Graph:
    """The graph with every dimension symbol replaced by its value; types are inferred anew.

    Raises TypeRuleError where an equality that could not be decided symbolically turns out false,
    GraphError for a symbol without a value.
    """

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        attrs = _attributes(node.op, node.attrs, binding)
        known = with_own_sizes(node, binding) if node.op.traits.phased else binding
        regions = tuple(specialise(region, known) for region in node.regions)
        try:
            kind = infer(node.op, tuple(n.type for n in node.inputs), attrs, regions)
        except GraphError as error:
            raise error.at(node.loc, node.describe()) from None
        if kind is node.type and attrs is node.attrs and regions == node.regions:
            return None
        made = node.replace(attrs=attrs, type=kind, regions=regions)
        r.nodes.append(made)
        return made

    params = tuple(p.replace(type=substitute(p.type, binding)) for p in graph.params)
    if any(new.type is not old.type for new, old in zip(params, graph.params)):
        graph = graph.replace(params=params)
    return rebuild(graph, rewrite)


def with_own_sizes(node: Node, binding: Mapping[str, int]) -> Mapping[str, int]:
    """The sizes that a region knows which counts some of its own: those stay open."""
    scope = scope_of(binding.values()) or Scope()
    scope.inner |= set(node.attrs["counts"])
    made = scope.symbols
    return {
        **binding,
        **{n: made[n] if n in made else scope.symbol(n, USUAL_COUNT) for n in node.attrs["counts"]},
    }


_SUBSTITUTE: dict[str, Callable[[Any, Mapping[str, int]], Any]] = {
    "dim": lambda value, binding: substitute_dim(value, binding),
    "dims": lambda value, binding: tuple(substitute_dim(d, binding) for d in value),
    "type": lambda value, binding: substitute(value, binding),
}


def _attributes(op: Op, attrs: Any, binding: Mapping[str, int]) -> Any:
    changed = {}
    for attr in op.attrs:
        value = attrs[attr.name]
        change = _SUBSTITUTE.get(attr.kind)
        if change is not None and value is not None:
            made = change(value, binding)
            if not alike(*((v if isinstance(v, tuple) else (v,)) for v in (made, value))):
                changed[attr.name] = made
    return op.coerce({**attrs.values_dict, **changed}) if changed else attrs
