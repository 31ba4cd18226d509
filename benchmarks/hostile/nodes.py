"""Changes of a graph's nodes, after which every type is worked out again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.hostile.texts import KINDS, NUMBERS
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, infer
from graphc.ir.op import OPS, Scalar
from graphc.ir.place import Buffer
from graphc.ir.types import F32, TupleType, Type, tensor

FLAT = tensor(F32, (8,))


class Retyped:
    """A copy of a graph with one node changed; every type after it is worked out again."""

    def __init__(self, draw: random.Random, graph: Graph) -> None:
        self.draw = draw
        self.graph = graph
        self.next_id = graph.next_id
        self.nodes: list[Node] = []
        self.mapped: dict[Node, Node] = {p: p for p in graph.params}
        self.more: list[Node] = []  # results that kernels have now and had not

    def made(self, types: Sequence[Any] = ()) -> Graph:
        """The graph, for parameters of these types."""
        graph, draw = self.graph, self.draw
        params = list(graph.params)
        if types:
            params = [p.replace(type=kind) for p, kind in zip(params, types, strict=True)]
        elif draw.random() < 0.1 and params:
            k = draw.randrange(len(params))
            params[k] = params[k].replace(type=draw.choice([*(p.type for p in params), FLAT]))
        self.mapped = dict(zip(graph.params, params, strict=True))
        target = -1 if types or not graph.nodes else draw.randrange(len(graph.nodes))
        for k, node in enumerate(graph.nodes):
            self.append(node, self.changed(node) if k == target else self.copy(node))
            if k == target and draw.random() < 0.4:
                self.wrap(node)
        return self.finished(tuple(params), bool(types))

    def finished(self, params: tuple[Node, ...], faithful: bool) -> Graph:
        draw, nodes = self.draw, self.nodes
        results = [self.mapped[r] for r in self.graph.results]
        if not faithful and draw.random() < 0.1:
            draw.shuffle(nodes)
        if not faithful and draw.random() < 0.2 and results and nodes:
            results[draw.randrange(len(results))] = draw.choice([*params, *nodes])
        if not faithful and draw.random() < 0.3 and nodes:
            results.append(draw.choice(nodes))
        results += self.more
        names = self.graph.result_names
        names = (*names, *(f"more{k}" for k in range(len(results) - len(names))))
        return self.graph.replace(
            params=params,
            nodes=nodes,
            results=tuple(results),
            result_names=names,
            next_id=self.next_id,
        )

    def append(self, old: Node, node: Node) -> None:
        """What stands for the old node; a kernel with more results than it had is taken apart."""
        self.nodes.append(node)
        parts = node.type.elements if isinstance(node.type, TupleType) else ()
        if parts and not isinstance(old.type, TupleType):
            items = []
            for k in range(len(parts)):
                attrs = OPS["item"].coerce({"index": k})
                one = Node(self.next_id, OPS["item"], (node,), attrs, None, place=node.place)
                self.next_id += 1
                items.append(typed(one))
            self.nodes += items
            self.more += items[1:]
            node = items[0]
        self.mapped[old] = node

    def wrap(self, old: Node) -> None:
        """What stands for a node under another name: of a tuple, of another shape, behind a
        barrier."""
        value, other = self.mapped[old], self.draw.choice([*self.mapped.values()])
        kind = self.draw.choice(("tuple", "barrier", "reshape"))
        if kind == "tuple":
            both = self.add("tuple", (value, other), {})
            self.mapped[old] = self.add("item", (both,), {"index": 0})
            if self.draw.random() < 0.5:
                self.more.append(self.add("item", (both,), {"index": 1}))
        elif kind == "barrier":
            self.mapped[old] = self.add("barrier", (value, other), {})
        elif isinstance(value.type, Type):
            flat = self.add("reshape", (value,), {"dims": (value.type.size,)})
            self.mapped[old] = self.add("reshape", (flat,), {"dims": value.type.dims})

    def add(self, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
        place = inputs[0].place
        place = place.device if isinstance(place, Buffer) else place
        given = OPS[op].coerce(attrs)
        made = typed(Node(self.next_id, OPS[op], inputs, given, None, place=place))
        self.next_id += 1
        self.nodes.append(made)
        return made

    def copy(self, node: Node) -> Node:
        inputs = tuple(self.mapped[n] for n in node.inputs)
        after = tuple(self.mapped[n] for n in node.after)
        return typed(self.fitted(node.replace(inputs=inputs, after=after)))

    def fitted(self, node: Node) -> Node:
        """A kernel whose region takes what the operands are now."""
        types = [n.type for n in node.inputs]
        if node.op.name not in ("fused", "blocked"):
            return node
        region = node.regions[0]
        if types == [p.type for p in region.params] or len(types) != len(region.params):
            return node
        return node.replace(regions=(Retyped(self.draw, region).made(types),))

    def changed(self, node: Node) -> Node:
        draw, made = self.draw, self.copy(node)
        known = [*self.mapped.values()]
        if made.regions and draw.random() < 0.7:
            return typed(self.inside(made))
        kind = draw.random()
        if kind < 0.4 and made.inputs:
            inputs = list(made.inputs)
            inputs[draw.randrange(len(inputs))] = draw.choice(known)
            return typed(self.fitted(made.replace(inputs=tuple(inputs))))
        if kind < 0.7 and (others := scalars(made)):
            return typed(made.replace(op=draw.choice(others), attrs=None))
        if kind < 0.8 and len(made.inputs) > 1:
            shuffled = tuple(draw.sample(made.inputs, len(made.inputs)))
            return typed(self.fitted(made.replace(inputs=shuffled)))
        return typed(made.replace(attrs=None), self.attributes(made))

    def inside(self, node: Node) -> Node:
        regions = list(node.regions)
        k = self.draw.randrange(len(regions))
        regions[k] = Retyped(self.draw, regions[k]).made()
        if self.draw.random() < 0.2 and regions[k].params:
            return self.with_param(node, regions, k)
        return node.replace(regions=tuple(regions))

    def with_param(self, node: Node, regions: list[Graph], k: int) -> Node:
        """One operand more, which the region may read or return."""
        region, operand = regions[k], self.draw.choice([*self.mapped.values()])
        param = region.params[0].replace(id=region.next_id, type=operand.type)
        grown = region.replace(params=(*region.params, param), next_id=region.next_id + 1)
        results = list(grown.results)
        results[self.draw.randrange(len(results))] = self.draw.choice([param, *grown.nodes])
        regions[k] = grown.replace(results=tuple(results))
        return node.replace(inputs=(*node.inputs, operand), regions=tuple(regions))

    def attributes(self, node: Node) -> dict[str, Any]:
        values = dict(node.attrs.values_dict)
        for name in self.draw.sample(list(values), min(1, len(values))):
            values[name] = self.value(values[name])
        return values

    def value(self, old: Any) -> Any:
        draw = self.draw
        if isinstance(old, bool):
            return not old
        if isinstance(old, int):
            return draw.choice((old + 1, old - 1, 2 * old, *NUMBERS))
        if isinstance(old, tuple) and old:
            k = draw.randrange(len(old))
            return (*old[:k], self.value(old[k]), *old[k + 1 :])
        return draw.choice(KINDS) if isinstance(old, str) else old


def scalars(node: Node) -> list[Any]:
    """The ops that could stand in an element-wise node's place."""
    return ops_of(len(node.inputs)) if isinstance(node.op.lower, Scalar) else []


@cache
def ops_of(arity: int) -> list[Any]:
    """Element-wise ops that take so many operands."""
    found = []
    for op in OPS.values():
        if isinstance(op.lower, Scalar) and not op.attrs:
            kinds = tuple([tensor(F32, (2,))] * arity)
            try:
                op.result_type(kinds, op.coerce({}))
            except (GraphError, TypeError, AssertionError):
                continue
            found.append(op)
    return found


def typed(node: Node, attrs: dict[str, Any] | None = None) -> Node:
    """The node with the type that its rule gives. Raises GraphError."""
    given = node.attrs if node.attrs is not None and attrs is None else node.op.coerce(attrs or {})
    kind = infer(node.op, tuple(n.type for n in node.inputs), given, node.regions)
    return node.replace(attrs=given, type=kind)
