"""The state of a loop, whose types and sizes its body settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import TraceError
from graphc.frontend.trace.counted_results import (
    Classes,
    FoundSizes,
    Room,
    changed_axes,
    classes_of,
    guessed,
    key_of,
    most_of_carries,
)
from graphc.frontend.trace.region import Operands, Region, RegionTrace, adapts
from graphc.frontend.trace.trace import Parameter
from graphc.frontend.trace.tree import TreeDef, unflatten
from graphc.ir.size_ceilings import Extent
from graphc.ir.sizes import Size
from graphc.ir.types import DType
from graphc.ops.record.value import Value, cast_value

MOST_ROUNDS = 4  # retraces until the dtypes of carries settle


class Carry:
    """The state of a loop: its leaves as operands, with types that the body must keep.

    The dtype of an initial Python number is settled by what the body makes of it, and so is the
    room for leaves whose sizes it finds.  `part` is the position of the state in what the body
    returns, None if it is all of that; `steps` is how many there are, if that is known.
    """

    def __init__(
        self, name: str, init: Any, part: int | None = None, steps: Extent | None = None
    ) -> None:
        self.name, self.part, self.steps = name, part, steps
        self.given = Operands(init)
        self.tree: TreeDef = self.given.tree
        self.values = list(self.given.values)
        self.classes: Classes | None = None  # of the axes whose extents the body finds
        self.sizes: list[Size] = []  # of a trace that finds out what becomes of them
        self.room: Room | None = None
        if len(self.given.leaves) > len(self.values):
            raise TraceError(
                f"{name}: a carry holds arrays and numbers only", hint="close over everything else"
            )

    @property
    def parameters(self) -> list[Parameter]:
        """Those of the body."""
        pairs = zip(self.given.parameters, self.values)
        own = [Parameter(p.name, v.type, v.weak) for p, v in pairs]
        return own if self.room is None else self.room.parameters(own)

    def operands(self) -> list[Value]:
        """What the loop begins with."""
        return self.values if self.room is None else self.room.held(self.values)

    @property
    def targets(self) -> list[DType]:
        return [v.element for v in self.values]

    def shown(self, held: Sequence[Any]) -> Any:
        """The state as the user's functions see it, from parameters or results of the loop."""
        if self.room is not None:
            held = self.room.shown(held)
        elif self.classes is not None:
            kinds = [value.type for value in self.values]
            held, self.sizes = guessed(self.classes, kinds)
        return unflatten(self.tree, held)

    def kept(self, values: list[Value], tree: TreeDef, trace: RegionTrace) -> list[Value]:
        """What the body hands on. Raises TraceError for another nesting, and FoundSizes where it is
        to be traced again."""
        self.require_tree(tree)
        count = len(self.values)
        own, rest = values[:count], values[count:]
        if self.room is not None:
            return [*self.room.held(own), *rest]
        found = FoundSizes(own, tree, trace)
        found.axes |= changed_axes([[value.type for value in self.values], found.types])
        if self.classes is not None or found.axes:
            raise found
        return values

    def require_tree(self, tree: TreeDef) -> None:
        """Raise TraceError unless the body returns the state in its nesting."""
        if self.part is not None:
            tree = tree.children[self.part] if len(tree.children) == 2 else tree
        if tree is not self.tree:
            raise TraceError(
                f"{self.name}: the carry is {self.tree!r} but the body returns {tree!r} for it",
                hint="the body returns the carry in the same nesting of containers",
            )

    def settle(self, trace: Callable[[], Region]) -> Region:
        """Trace a body until the types of its carries settle; they are its first results.

        Raises TraceError naming the carry that does not keep its type.
        """
        for _ in range(MOST_ROUNDS + 2 * sum(value.ndim for value in self.values)):
            try:
                region = trace()
            except FoundSizes as found:
                self.find_room(found)
                continue
            pairs = list(zip(self.parameters, region.types))
            if all(param.type is kind for param, kind in pairs):
                return region
            for k, (param, kind) in enumerate(pairs):
                if param.type is not kind:
                    self.values[k] = self.adapted(k, param, kind)
        raise TraceError(f"{self.name}: the types of the carries do not settle")

    def adapted(self, k: int, param: Parameter, kind: Any) -> Value:
        """The initial value as what the body makes of it. Raises TraceError."""
        own = param.type
        if param.weak and own.shape == kind.shape and adapts(own.dtype, kind.dtype):
            return cast_value(self.values[k], kind.dtype)
        raise TraceError(
            f"{self.name}: the carry {param.name} is {own} but the body returns {kind} for it",
            hint="a carry keeps its dtype and shape: cast or broadcast the initial value",
        )

    def find_room(self, found: FoundSizes) -> None:
        """Learn from a trace which extents the body finds; when that is known, how many elements
        there may be."""
        given = [value.shape for value in self.values]
        for k, kind in enumerate(found.types):
            if kind.rank != len(given[k]):
                self.adapted(k, self.parameters[k], kind)
        before = self.classes or tuple((None,) * len(shape) for shape in given)
        keys = [
            [
                (key_of(first), number, key_of(after))
                if number is not None or (k, axis) in found.axes
                else None
                for axis, (first, number, after) in enumerate(zip(*shapes, strict=True))
            ]
            for k, shapes in enumerate(zip(given, before, found.shapes, strict=True))
        ]
        classes = classes_of(keys)
        if classes != self.classes:
            self.classes = classes
            return
        plan = Room(classes, tuple(self.sizes))
        first, after = plan.first_of(given), plan.first_of(found.shapes)
        most = most_of_carries(first, after, self.sizes, found.most, self.steps)
        if (unknown := next((k for k, room in enumerate(most) if room is None), None)) is not None:
            leaf = next(k for k, axes in enumerate(classes) if unknown in axes)
            name = self.given.parameters[leaf].name
            raise TraceError(
                f"{self.name}: nothing says how large the carry {name} can become, which is"
                f" {found.types[leaf]} behind a step",
                location=found.location,
                hint="cut it to what it is at most (y[:n]), or give it a size (size=)",
            )
        self.room = Room(classes, tuple(room for room in most if room is not None))
