"""The smallest graph and input that still fail, for any test of what failing is.

    nodes     halves, quarters ... of the nodes go; what is left reads their values as arguments
    results   those go that are not needed to fail
    bypass    a node goes in favour of an operand of its type, in regions, too
    sizes     every extent becomes 1 or 2 wherever it stands
    values    arguments and variables become zeros, ones or round numbers

Each step is repeated until none of them makes the graph smaller: delta debugging after Zeller and
Hildebrandt, "Simplifying and isolating failure-inducing input" (2002).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from graphc.base.record import replace
from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node, Rewriter, canonical, swept
from graphc.ir.literal import Literal, literal
from graphc.ir.op import OPS
from graphc.ir.types import TupleType, Type, tensor
from graphc.passes.trial import Trial

Fails = Callable[[Trial], bool]
SECONDS = 60.0
SIZED = ("dims", "stops", "out", "length", "shape", "sizes", "type")  # attributes that hold extents
MOST_BYPASSES = 400  # that are tried in one round


def reduced(trial: Trial, fails: Fails, seconds: float = SECONDS) -> Trial:
    """The smallest trial that was found to fail, too, within some seconds.

    Raises GraphError for one that does not fail, or that is partitioned over devices.
    """
    if not isinstance(trial.value, Graph):
        raise GraphError(
            "a program that is partitioned over devices is not reduced",
            hint="reduce the graph that it was made of",
        )
    if not fails(trial):
        raise GraphError("nothing fails", hint="--when says what failing is")
    return _Reducer(fails, time.monotonic() + seconds).run(trial)


class _Reducer:
    """`fails` is asked until the time is over."""

    def __init__(self, fails: Fails, end: float) -> None:
        self.fails, self.end = fails, end

    def run(self, trial: Trial) -> Trial:
        steps = (self.nodes, self.results, self.bypasses, self.sizes, self.values)
        left = None
        while left != (left := complexity(trial)) and time.monotonic() < self.end:
            for step in steps:
                trial = step(trial)
        plain = replace(trial, value=canonical(_graph(trial)))
        return plain if self.holds(plain) else trial

    def holds(self, trial: Trial | None) -> bool:
        if trial is None or time.monotonic() > self.end:
            return False
        try:
            return self.fails(trial)
        except Exception:  # noqa: BLE001  a candidate may be anything
            return False

    def first(self, trial: Trial, candidates: Iterable[Trial | None]) -> Trial:
        """The first candidate that fails, or the trial itself."""
        for candidate in candidates:
            if candidate is not None and self.holds(candidate):
                return candidate
        return trial

    # -- steps

    def nodes(self, trial: Trial) -> Trial:
        graph = _graph(trial)
        kept = [node.id for node in graph.nodes]
        known = _values(trial)
        size = len(kept)
        while size > 1:
            size = -(-size // 2)
            start = 0
            while start < len(kept) and len(kept) > 1:
                fewer = kept[:start] + kept[start + size :]
                made = cut(trial, set(fewer), known) if fewer else None
                if self.holds(made):
                    kept = fewer
                else:
                    start += size
        found = cut(trial, set(kept), known)
        if found is None or len(found.value) >= len(graph):
            return trial
        return found

    def results(self, trial: Trial) -> Trial:
        for k in reversed(range(len(_graph(trial).results))):
            graph = _graph(trial)
            left = [n for number, n in enumerate(graph.results) if number != k]
            if left:
                trial = self.first(trial, [_with_graph(trial, _returning(graph, left))])
        return trial

    def bypasses(self, trial: Trial) -> Trial:
        for _ in range(MOST_BYPASSES):
            made = self.first(trial, (_with_graph(trial, g) for g in bypassed(_graph(trial))))
            if made is trial:
                break
            trial = made
        return trial

    def sizes(self, trial: Trial) -> Trial:
        for extent in sorted(_extents(trial), reverse=True):
            smaller = sorted({1, 2, 3, extent // 2} & set(range(1, extent)))
            trial = self.first(trial, (resized(trial, extent, other) for other in smaller))
        return trial

    def values(self, trial: Trial) -> Trial:
        for k in range(len(trial.arrays)):
            for made in plainer(trial.arrays[k]):
                arrays = [*trial.arrays[:k], made, *trial.arrays[k + 1 :]]
                if self.holds(candidate := replace(trial, arrays=arrays)):
                    trial = candidate
                    break
        for key in trial.state:
            candidates = (
                replace(trial, state={**trial.state, key: a}) for a in plainer(trial.state[key])
            )
            trial = self.first(trial, candidates)
        return trial


def complexity(trial: Trial) -> tuple[int, ...]:
    """How much there is to a trial: nodes, regions included, results, elements, bytes that are not
    zero."""
    graphs, nodes = [_graph(trial)], 0
    while graphs:
        graph = graphs.pop()
        nodes += len(graph)
        graphs += [region for node in graph.nodes for region in node.regions]
    arrays = [np.asarray(a) for a in (*trial.arrays, *trial.state.values())]
    content = sum(len(a.tobytes().replace(b"\0", b"")) for a in arrays)
    return nodes, len(trial.value.results), sum(a.size for a in arrays), content


def _graph(trial: Trial) -> Graph:
    assert isinstance(trial.value, Graph)
    return trial.value


def _values(trial: Trial) -> dict[int, Any]:
    """What every node computes, parameters included; nothing where it cannot be interpreted."""
    try:
        known = trial.values(trial.value)
    except Exception:  # noqa: BLE001  a graph that crashes the interpreter, too
        known = {}
    return known | {p.id: a for p, a in zip(_graph(trial).params, trial.arrays, strict=True)}


def _with_graph(trial: Trial, graph: Graph | None) -> Trial | None:
    """The trial with another graph, of the same parameters or some of them."""
    if graph is None:
        return None
    read = {n.id for node in graph.nodes for n in node.inputs} | {n.id for n in graph.results}
    pairs = zip(graph.params, trial.arrays, strict=True)
    kept = [(param, array) for param, array in pairs if param.id in read]
    graph = graph.replace(params=tuple(param for param, _ in kept))
    ids = {n.id for n in (*graph.params, *graph.nodes)}
    names = {name: id for name, id in graph.names.items() if id in ids}
    return replace(trial, value=graph.replace(names=names), arrays=[array for _, array in kept])


def _returning(graph: Graph, results: list[Node]) -> Graph:
    return swept(graph.replace(results=tuple(results), result_names=()))


# ------------------------------------------------------------------------------------ nodes


def cut(trial: Trial, keep: set[int], known: Mapping[int, Any]) -> Trial | None:
    """Some nodes of a graph, which read the values of the others as arguments and return what the
    others read; None where a value is needed that is no array, or is not known."""
    graph = _graph(trial)
    made: dict[Node, Node] = {}
    params: list[Node] = []
    arrays: list[Any] = []
    builder = Builder(graph.next_id)

    def argument(node: Node) -> Node | None:
        if node.id not in known or not isinstance(node.type, Type):
            return None
        name = node.attrs["name"] if node.op.traits.parameter else f"v{node.id}"
        param = Node(node.id, OPS["param"], (), OPS["param"].coerce({"name": name}), node.type)
        params.append(param)
        arrays.append(known[node.id])
        return param

    read_outside = set(graph.results)
    for node in graph.nodes:
        if node.id not in keep:
            read_outside.update(node.inputs)
            continue
        for source in node.inputs:
            if source not in made and (param := argument(source)) is not None:
                made[source] = param
        if any(source not in made for source in node.inputs):
            return None
        inputs = tuple(made[source] for source in node.inputs)
        after = tuple(made[n] for n in node.after if n.id in keep)
        made[node] = node.replace(inputs=inputs, after=after)
        builder.nodes.append(made[node])
    inside = {n for node in builder.nodes for n in node.inputs}
    last = [n for n in graph.nodes if n.id in keep and (n in read_outside or made[n] not in inside)]
    results = [part for node in last for part in _parts(made[node], builder)]
    kept = {n.id for n in (*params, *builder.nodes)}
    return replace(
        trial,
        value=Graph(
            graph.name,
            tuple(params),
            builder.nodes,
            tuple(dict.fromkeys(results)),
            names={name: id for name, id in graph.names.items() if id in kept},
            next_id=builder.next_id,
            device=graph.device,
        ),
        arrays=arrays,
    )


def _parts(node: Node, builder: Builder) -> Iterator[Node]:
    """The arrays of a value: itself, or items of it."""
    if isinstance(node.type, Type):
        yield node
    elif isinstance(node.type, TupleType):
        for k, kind in enumerate(node.type.elements):
            if isinstance(kind, Type):
                yield builder.emit(OPS["item"], (node,), {"index": k})


# ------------------------------------------------------------------------------------ bypasses


def bypassed(graph: Graph) -> Iterator[Graph]:
    """The graph with one node less, or with one less in a region of one of its nodes: its readers
    read an operand of its type instead, in regions any value before it."""
    for node in reversed(graph.nodes):
        for other in dict.fromkeys(n for n in node.inputs if n.type is node.type):
            yield _instead(graph, node, other)
    for node in graph.nodes:
        for k, region in enumerate(node.regions):
            for smaller in _smaller_regions(region):
                regions = (*node.regions[:k], smaller, *node.regions[k + 1 :])
                yield _replaced(graph, node, node.replace(regions=regions))


def _smaller_regions(region: Graph) -> Iterator[Graph]:
    for position, node in enumerate(region.nodes):
        before = (*node.inputs, *region.params, *region.nodes[:position])
        other = next((n for n in before if n.type is node.type), None)
        if other is not None:
            yield _instead(region, node, other)
    yield from bypassed(region)


def _instead(graph: Graph, node: Node, other: Node) -> Graph:
    """The graph whose nodes read another value instead of a node's."""
    r = Rewriter(graph)
    for old in graph.nodes:
        if old is node:
            r.mapped[old.id] = r.new(other)
            r.changed = True
            continue
        r.mapped[old.id] = r.copy(old)
        r.nodes.append(r.new(old))
    return swept(r.finish())


def _replaced(graph: Graph, node: Node, by: Node) -> Graph:
    """The graph with another node of the same id in place of one."""
    r = Rewriter(graph)
    for old in graph.nodes:
        made = r.copy(old) if old is not node else r.copy(by)
        r.mapped[old.id] = made
        r.nodes.append(made)
    r.changed = True
    return r.finish()


# ------------------------------------------------------------------------------------ sizes


def _extents(trial: Trial) -> set[int]:
    graph = _graph(trial)
    kinds = [n.type for n in (*graph.params, *graph.nodes) if isinstance(n.type, Type)]
    return {d for kind in kinds for d in kind.shape if isinstance(d, int) and d > 1}


def resized(trial: Trial, extent: int, other: int) -> Trial | None:
    """The trial with a smaller extent in place of another one, everywhere; None if that does not
    type."""

    def array(value: Any) -> Any:
        return value[tuple(slice(other) if d == extent else slice(None) for d in value.shape)]

    try:
        graph = _resized(_graph(trial), extent, other)
    except GraphError:
        return None
    except (ValueError, TypeError, IndexError, KeyError, AssertionError):  # a rule of an op
        return None
    state = {key: array(value) for key, value in trial.state.items()}
    return replace(trial, value=graph, arrays=[array(a) for a in trial.arrays], state=state)


def _resized(graph: Graph, extent: int, other: int) -> Graph:
    def size(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(size, value))
        if isinstance(value, Type):
            return tensor(value.dtype, size(value.shape))
        return other if value == extent and not isinstance(value, bool) else value

    def attribute(name: str, value: Any) -> Any:
        if isinstance(value, Literal) and value.has_data:
            kept = tuple(slice(other) if d == extent else slice(None) for d in value.array.shape)
            return literal(np.ascontiguousarray(value.array[kept]))
        return size(value) if name in SIZED else value

    builder = Builder(graph.next_id)
    made: dict[Node, Node] = {}
    for param in graph.params:
        made[param] = param.replace(type=size(param.type))
    for node in graph.nodes:
        attrs = {name: attribute(name, value) for name, value in node.attrs.items()}
        new = builder.emit(
            node.op,
            [made[n] for n in node.inputs],
            attrs,
            after=tuple(made[n] for n in node.after),
            regions=tuple(_resized(region, extent, other) for region in node.regions),
            loc=node.loc,
            place=node.place,
        )
        made[node] = builder.nodes[-1] = new.replace(id=node.id)
    return graph.replace(
        params=tuple(made[p] for p in graph.params),
        nodes=builder.nodes,
        results=tuple(made[r] for r in graph.results),
    )


# ------------------------------------------------------------------------------------ values


def plainer(value: Any) -> Iterator[Any]:
    """Simpler arrays of the same type, the simplest first; none for one that is as simple."""
    array = np.asarray(value)
    if not array.any():
        return
    yield np.zeros_like(array)
    ones = np.ones_like(array)
    if np.array_equal(array, ones):
        return
    yield ones
    count = np.arange(1, array.size + 1).reshape(array.shape).astype(array.dtype)
    if np.array_equal(array, count):
        return
    yield count
    if array.dtype.kind in "fc":
        for digits in (0, 1):
            rounded = np.round(array, digits).astype(array.dtype)
            if np.array_equal(rounded, array):
                return
            yield rounded
