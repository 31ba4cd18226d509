"""`gc.device` and `gc.colocate`: where the nodes of a function may run.

    with gc.device("gpu"):                   any gpu
        h = x @ w
        with gc.device("/task:17"):          any gpu of that task: an inner name adds to the outer
            h = np.tanh(h)
    with gc.colocate(v):                     where the variable v lives
        y = h + v

Both end up as constraints in the graph, which `place` obeys.  Outside of a trace nothing happens,
so a model runs on plain arrays, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from graphc.errors import GraphError
from graphc.frontend.trace import FunctionTrace, locate
from graphc.frontend.tree import flatten
from graphc.frontend.variable import Variable
from graphc.ir.graph import Node
from graphc.ir.place import Constraint, Spec, parse_spec, variable_group
from graphc.ops.value import Trace, Value, current


def device(name: str | None) -> AbstractContextManager[None]:
    """Nodes traced inside run on a device of this name, any part of which may be left open.

    "/job:worker/task:17", "gpu" and "cpu:1" are such names; None lifts the constraint of the blocks
    around.  Raises GraphError for what is no device name.
    """
    try:
        inner = None if name is None else parse_spec(name)
    except (GraphError, TypeError):
        raise GraphError(
            f"{name!r} is not a device name",
            location=locate(),
            hint='write for example "cpu:1", "gpu" or "/job:worker/task:17"',
        ) from None
    trace = current()
    if trace is None:
        return nullcontext()
    outer = _constraint(trace.builder.place)
    spec = None if inner is None else inner if outer.spec is None else _narrowed(outer.spec, inner)
    return _placing(trace, Constraint(spec, outer.group))


def colocate(*values: Any) -> AbstractContextManager[None]:
    """The values (arrays or variables, any nesting) run on one device, wherever that is.

    As a context manager it adds the nodes traced inside, `with gc.colocate(v): ...`, and what the
    blocks around colocate.
    """
    trace = current()
    if trace is None:
        return nullcontext()
    leaves = [leaf for leaf in flatten(values)[0] if isinstance(leaf, Value | Variable)]
    if not leaves:
        raise GraphError(
            "colocate takes traced arrays or variables",
            location=locate(),
            hint="constants and plain numbers are wherever they are read",
        )
    return _beside(trace, leaves, _group(trace, leaves))


@contextmanager
def _beside(trace: Trace, leaves: list[Any], group: str) -> Iterator[None]:
    around = _constraint(trace.builder.place)
    if around.group not in (None, group):
        group = _group(trace, leaves, around.group)
    with _placing(trace, Constraint(around.spec, group)):
        yield


@contextmanager
def _placing(trace: Trace, place: Constraint) -> Iterator[None]:
    before = trace.builder.place
    trace.builder.place = place if place.spec or place.group else None
    try:
        yield
    finally:
        trace.builder.place = before


def _constraint(place: Any) -> Constraint:
    return place if isinstance(place, Constraint) else Constraint()


def _narrowed(outer: Spec, inner: Spec) -> Spec:
    """The inner name where it says something, the outer one where it does not.

    A task belongs to its job and an index to its type: they are not taken over alone.
    """
    return Spec(
        inner.job or outer.job,
        inner.task if inner.task is not None or inner.job else outer.task,
        inner.type or outer.type,
        inner.index if inner.index is not None or inner.type else outer.index,
    )


def _group(trace: Trace, leaves: list[Any], outer: str | None = None) -> str:
    """One colocation group for all, `outer` if given; groups that some are in become one."""
    fixed = [variable_group(v.container, v.name) for v in leaves if isinstance(v, Variable)]
    nodes = [v.node for v in leaves if isinstance(v, Value)]
    others = leaves if outer else leaves[1:]
    nodes += [v.read(trace).node for v in others if isinstance(v, Variable)]
    fixed[:0] = [outer] if outer else []
    known = dict.fromkeys(filter(None, (_constraint(n.place).group for n in nodes)))
    group = fixed[0] if fixed else next(iter(known), None) or _fresh(trace)
    for node in nodes:
        _join(node, group)
    for other in trace.builder.nodes if known.keys() - {group} else ():
        if _constraint(other.place).group in known:
            _join(other, group)
    return group


def _join(node: Node, group: str) -> None:
    # Nodes do not change once a graph is made of them; these are still being traced.
    node.place = Constraint(_constraint(node.place).spec, group)


def _fresh(trace: Trace) -> str:
    """A group name that the function around all regions has not used."""
    while isinstance(outer := getattr(trace, "outer", None), Trace):
        trace = outer
    assert isinstance(trace, FunctionTrace)
    trace.groups += 1
    return f"g{trace.groups - 1}"
