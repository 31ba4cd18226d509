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

from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.frontend.session.variable import Variable
from graphc.frontend.trace.colocation import join, root_of, tie
from graphc.frontend.trace.tree import flatten
from graphc.ir.op import Effect
from graphc.ir.place import Constraint, Spec, parse_spec, variable_group
from graphc.ir.user_lines import locate
from graphc.ops.record.value import Trace, Value, current
from graphc.passes.placement.constrain import check_spec


@refusing
def device(name: str | None) -> AbstractContextManager[None]:
    """Nodes traced inside run on a device of this name, any part of which may be left open.

    "/job:worker/task:17", "gpu" and "cpu:1" are such names; None lifts the constraint of the blocks
    around.  Raises GraphError for what is no device name and for a type that no device has.
    """
    inner = None if name is None else _asked(name)
    trace = current()
    if trace is None:
        return nullcontext()
    outer = _constraint(trace.builder.place)
    spec = None if inner is None else inner if outer.spec is None else _narrowed(outer.spec, inner)
    return _placing(trace, Constraint(spec, outer.group))


def _asked(name: Any) -> Spec:
    """The devices of a name. Raises GraphError, with the user's line, if there can be none."""
    try:
        spec = parse_spec(name)
    except (GraphError, TypeError):
        raise GraphError(
            f"{name!r} is not a device name",
            location=locate(),
            hint='write for example "cpu:1", "gpu" or "/job:worker/task:17"',
        ) from None
    try:
        check_spec(spec)
    except GraphError as error:
        raise error.at(locate()) from None
    return spec


@refusing
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
    return _beside(trace, _group(trace, leaves))


@contextmanager
def _beside(trace: Trace, group: str) -> Iterator[None]:
    with _placing(trace, _constraint(trace.builder.place).beside(group)):
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


def _group(trace: Trace, leaves: list[Any]) -> str:
    """The colocation group that all are in from here on: one that some are in, or a new one."""
    nodes = [leaf.node for leaf in leaves if isinstance(leaf, Value)]
    keys = [(leaf.container, leaf.name) for leaf in leaves if isinstance(leaf, Variable)]
    keys += [(n.attrs["container"], n.attrs["name"]) for n in nodes if n.op.effect is Effect.READ]
    groups = [variable_group(*key) for key in keys]
    groups += [group for node in nodes for group in _constraint(node.place).groups]
    group = groups[0] if groups else _fresh(trace)
    for node in nodes:
        join(node, group)
    for key in keys:
        if variable_group(*key) != group:
            tie(trace, key, group)
    return group


def _fresh(trace: Trace) -> str:
    """A group name that the function around all regions has not used."""
    root = root_of(trace)
    root.groups += 1
    return f"g{root.groups - 1}"
