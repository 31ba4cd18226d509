"""write_through: what is written into a view and put back is written into what it is a view of.

    %1 = gather(%x, %i)                 row = x[i]
    %2 = slice_update(%1, %v, %j)       row[j] = v            ->   slice_update(%x, %v, %i, %j)
    %3 = slice_update(%x, %2, %i)       and so x[i] = row

    %1 = transpose(%x)                  y = x.T
    %2 = slice_update(%1, %v, %j)       y[j] = v              ->   slice_update(%x, %v^T, %j)
    %3 = transpose(%2)                  and so x = y.T

Traced as on the left, a write would cost the view.  A view is followed axis by axis: element i of
an axis is element start + step * i of some axis of the array; on the array's other axes it has one
position, known or computed.
"""

from __future__ import annotations

import math
from typing import Any

from graphc.base.record import record
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter
from graphc.ir.op import OPS
from graphc.ir.types import Type
from graphc.passes.normalise.rules import by_op

MOST_VIEWS = 32  # one of another
Position = int | Node
Along = tuple[int, int, int]  # an axis of the array, start and step


@record(frozen=True)
class View:
    """`axes[k]` is what axis k of the view runs along, None for a new axis of extent 1; `fixed` are
    the positions on the other axes of the array."""

    base: Node
    axes: tuple[Along | None, ...]
    fixed: dict[int, Position]

    def position(self, axis: int) -> Position | None:
        """Where an axis of the array begins in the view."""
        if axis in self.fixed:
            return self.fixed[axis]
        return next((along[1] for along in self.axes if along and along[0] == axis), None)


def write_through(graph: Graph, config: Config) -> Graph:
    """The graph with updates of arrays in place of updates of views."""
    if not any(node.op.traits.writes_slice for node in graph.nodes):
        return graph
    return by_op(graph, dict.fromkeys(("slice", "slice_update", "transpose"), (array_update,)))


def array_update(node: Node, r: Rewriter) -> Node | None:
    """The update of an array itself, in place of that of a view which is then put back."""
    shown = node.inputs[1] if node.op.traits.writes_slice else node
    seen = behind(shown, ("slice_update",))
    if seen is None or seen.base is shown or any(seen.fixed.values()):
        return None
    update = seen.base
    array = node.inputs[0] if node.op.traits.writes_slice else None
    view = behind(update.inputs[0], (), array)
    if view is None or view.base is update.inputs[0] or (array or view.base).type is not node.type:
        return None
    whole: list[tuple[Position, int]] = [(0, 1)] * len(dims_of(view.base))
    written = box_of(node) if array is not None else whole
    if (array is not None and view.base is not array) or not fits(seen, view, written, shown):
        return None
    return moved(update, view, r)


def dims_of(node: Node) -> tuple[int, ...]:
    assert isinstance(node.type, Type)
    return node.type.dims


def box_of(update: Node) -> list[tuple[Position, int]]:
    """Where an update begins on each axis, and its steps."""
    begins: list[Position] = list(update.attrs["starts"])
    for axis, place in zip(update.attrs["axes"], update.inputs[2:], strict=True):
        begins[axis] = place
    return list(zip(begins, update.attrs["steps"], strict=True))


def fits(seen: View, view: View, written: list[tuple[Position, int]], shown: Node) -> bool:
    """Is what is put back, in the order in which it is put back, all that the view showed?"""
    if math.prod(dims_of(shown)) != math.prod(dims_of(seen.base)):
        return False
    for axis, (begin, step) in enumerate(written):
        along = seen.axes[axis]
        inner = view.axes[along[0]] if along is not None else None
        if dims_of(shown)[axis] == 1:
            if view.position(axis) != begin:
                return False
            continue
        if along is None or inner is None or inner[0] != axis:
            return False
        if (inner[1] + inner[2] * along[1], inner[2] * along[2]) != (begin, step):
            return False
    return True


def moved(update: Node, view: View, r: Rewriter) -> Node | None:
    """An update of a view as one of the array."""
    if 0 in dims_of(update.inputs[1]):
        return None
    rank, whole = len(dims_of(view.base)), dims_of(view.base)
    begins: list[Position] = [view.fixed.get(axis, 0) for axis in range(rank)]
    steps, dims, order = [1] * rank, [1] * rank, []
    for k, (begin, step) in enumerate(box_of(update)):
        along = view.axes[k]
        if along is None:
            if isinstance(begin, Node):
                return None
            continue
        axis, first, stride = along
        order.append((axis, k))
        dims[axis] = dims_of(update.inputs[1])[k]
        if isinstance(begin, Node):
            if (first, stride, dims_of(update)[k]) != (0, 1, whole[axis]):
                return None
            begins[axis] = begin
        else:
            begins[axis], steps[axis] = first + stride * begin, stride * step
    perm = [k for _, k in sorted(order)]
    perm = [k for k in range(len(view.axes)) if k not in perm] + perm  # new axes, of extent 1
    updates = update.inputs[1]
    if perm != sorted(perm):
        updates = r.emit(OPS["transpose"], (updates,), {"perm": tuple(perm)})
    if dims_of(updates) != tuple(dims):
        updates = r.emit(OPS["reshape"], (updates,), {"dims": tuple(dims)})
    axes = tuple(axis for axis, begin in enumerate(begins) if isinstance(begin, Node))
    starts = tuple(0 if isinstance(begin, Node) else begin for begin in begins)
    places = [begin for begin in begins if isinstance(begin, Node)]
    attrs = {"starts": starts, "steps": tuple(steps), "axes": axes}
    return r.emit(update.op, (view.base, updates, *places), attrs, loc=update.loc)


# ------------------------------------------------------------------------------------ following


def behind(node: Node, ends: tuple[str, ...], array: Node | None = None) -> View | None:
    """What a value is a view of: `array`, or what one of the ops `ends` made, or whatever is no
    view; None where it cannot be followed."""
    if not isinstance(node.type, Type) or not node.type.is_static:
        return None
    view = View(node, tuple((k, 0, 1) for k in range(len(dims_of(node)))), {})
    for _ in range(MOST_VIEWS):
        if view.base is array or view.base.op.name in ends:
            return view
        follow = _FOLLOW.get(view.base.op.name)
        if follow is None or view.base.after:
            return None if ends else view
        found = follow(view)
        if found is None:
            return None
        view = found
    return None


def _through_slice(view: View) -> View | None:
    attrs, source = view.base.attrs, view.base.inputs[0]
    starts, steps = attrs["starts"], attrs["steps"]
    fixed: dict[int, Position] = {}
    for axis, place in view.fixed.items():
        whole = (starts[axis], steps[axis]) == (0, 1)
        if isinstance(place, Node) and (not whole or view.base.type is not source.type):
            return None
        fixed[axis] = place if isinstance(place, Node) else starts[axis] + steps[axis] * place
    axes = tuple(
        along and (k := along[0], starts[k] + steps[k] * along[1], steps[k] * along[2])
        for along in view.axes
    )
    return View(source, axes, fixed)


def _through_transpose(view: View) -> View | None:
    perm, source = view.base.attrs["perm"], view.base.inputs[0]
    axes = tuple(along and (perm[along[0]], along[1], along[2]) for along in view.axes)
    return View(source, axes, {perm[axis]: place for axis, place in view.fixed.items()})


def _through_reshape(view: View) -> View | None:
    """Only axes of extent 1 come and go."""
    source = view.base.inputs[0]
    before, after = dims_of(source), dims_of(view.base)
    old = [axis for axis, extent in enumerate(before) if extent != 1]
    new = [axis for axis, extent in enumerate(after) if extent != 1]
    if [before[axis] for axis in old] != [after[axis] for axis in new]:
        return None
    place_of = dict(zip(new, old, strict=True))
    axes = tuple(
        (place_of[along[0]], along[1], along[2]) if along and along[0] in place_of else None
        for along in view.axes
    )
    fixed: dict[int, Position] = {place_of[a]: p for a, p in view.fixed.items() if a in place_of}
    if any(isinstance(p, Node) for a, p in view.fixed.items() if a not in place_of):
        return None
    return View(source, axes, fixed | {a: 0 for a, extent in enumerate(before) if extent == 1})


def _through_gather(view: View) -> View | None:
    """Single elements of some axes, at computed positions."""
    node = view.base
    indexed = node.attrs["axes"]
    scalar = all(isinstance(n.type, Type) and not n.type.shape for n in node.inputs[1:])
    if not scalar or node.attrs["mode"] != "raise":
        return None
    rest = [axis for axis in range(len(dims_of(node.inputs[0]))) if axis not in indexed]
    axes = tuple(along and (rest[along[0]], along[1], along[2]) for along in view.axes)
    fixed: dict[int, Any] = {rest[axis]: place for axis, place in view.fixed.items()}
    return View(node.inputs[0], axes, fixed | dict(zip(indexed, node.inputs[1:], strict=True)))


_FOLLOW = {
    "slice": _through_slice,
    "transpose": _through_transpose,
    "reshape": _through_reshape,
    "gather": _through_gather,
}
