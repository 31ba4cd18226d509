"""How ops batch: what `vmap` makes of a node some of whose operands have one more axis, the lanes.

A rule is called with the op, what is known of the lanes and the operands; those that are mapped
have the lanes as their first axis, and so has what it returns.

    rule(op, lanes, *values, **attrs) -> a Value, a tuple of them, or NotImplemented

What is the same for all lanes is returned as `Same(value)`.  NotImplemented says that there is no
rule for these operands: a composite op is then written out, another runs lane by lane in a `scan`.
One rule serves one way of lowering; few ops need a rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphc.errors import GraphError
from graphc.ir.op import Composite, Lowering, Op, Reduction, Scalar
from graphc.ir.sizes import alike
from graphc.ir.types import Dimension
from graphc.ops.record.value import Value, emit

Rule = Callable[..., Any]


class Same(NamedTuple):
    """A result that all lanes have in common: it has no axis for them."""

    value: Value


class Lanes(NamedTuple):
    """How many lanes there are, the name of their axis and which operands have it."""

    size: Dimension
    name: str
    mapped: Sequence[bool]

    def spread(self, values: Sequence[Value]) -> list[Value]:
        """All operands with the lanes first; what they have in common is repeated."""
        pairs = zip(values, self.mapped, strict=True)
        return [x if mapped else repeated(x, self.size) for x, mapped in pairs]

    def aligned(self, values: Sequence[Value]) -> list[Value]:
        """The operands so that they broadcast: their lanes stand before the axes of all."""
        ranks = [x.ndim - mapped for x, mapped in zip(values, self.mapped, strict=True)]
        most = max(ranks)
        return [
            reshaped(x, (x.shape[0], *(1,) * (most - rank), *x.shape[1:])) if mapped else x
            for x, rank, mapped in zip(values, ranks, self.mapped)
        ]


def reshaped(x: Value, dims: Sequence[Dimension]) -> Value:
    """The elements of x under another shape; x itself if that is its own."""
    return x if alike(dims, x.shape) else emit("reshape", x, dims=tuple(dims))


def repeated(x: Value, size: Dimension) -> Value:
    """x once for each of `size` lanes."""
    return emit("broadcast", x, dims=(size, *x.shape))  # type: ignore[no-any-return]


def moved(x: Value, source: int, target: int) -> Value:
    """x with one axis in another place, the others in their order."""
    order = [axis for axis in range(x.ndim) if axis != source]
    order.insert(target, source)
    plain = order == list(range(x.ndim))
    return x if plain else emit("transpose", x, perm=tuple(order))


# ------------------------------------------------------------------------------------ ways to batch


def elementwise(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """Operands that broadcast against one another, axes counted from the last one."""
    return emit(op, *lanes.aligned(values), **attrs)


def leading(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """An op of the last axes, which does the same for all axes before them."""
    return emit(op, *lanes.spread(values), **attrs)


def rows_of_first(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """An op of the last axes of its first operand, and of others that all lanes have in common."""
    return NotImplemented if any(lanes.mapped[1:]) else emit(op, *values, **attrs)


def along(*names: str) -> Rule:
    """An op of the axes that these attributes name: each of them is one further back."""

    def rule(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
        return emit(op, *lanes.spread(values), **behind(attrs, names))

    return rule


def onto(count: int, *names: str) -> Rule:
    """An op of whole operands, the first `count`, and of others that broadcast to them; axes as in
    `along`."""

    def rule(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
        whole = lanes._replace(mapped=lanes.mapped[:count]).spread(values[:count])
        mapped = (*(True,) * count, *lanes.mapped[count:])
        ready = lanes._replace(mapped=mapped).aligned([*whole, *values[count:]])
        return emit(op, *ready, **behind(attrs, names))

    return rule


def behind(attrs: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The attributes, those that name axes by one further back."""
    moved_on = {
        name: axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)
        for name, axes in attrs.items()
        if name in names
    }
    return {**attrs, **moved_on}


def shaped(op: Op, lanes: Lanes, x: Value, dims: Sequence[Dimension]) -> Any:
    """An op whose attribute is the shape of its result."""
    return emit(op, x, dims=(lanes.size, *dims))


def lane_by_lane(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """No rule: written out if the op is made of others, else a loop over the lanes."""
    return NotImplemented


def refused(reason: str) -> Rule:
    """The rule of an op that cannot differ from lane to lane."""

    def rule(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
        raise GraphError(f"vmap: {op.name} cannot differ from slice to slice: {reason}")

    return rule


def by_the_sweep(op: Op, lanes: Lanes, *values: Value, **attrs: Any) -> Any:
    """The rule of what is no function of arrays alone: `ops/batching` has it."""
    raise AssertionError(f"{op.name} is batched by the sweep itself")


constant = refused("it has no operand that could be mapped")
late = refused("later stages of the compiler make it")


def rule_for(lower: Lowering) -> Rule | None:
    """What a way of lowering says of batching by itself."""
    if isinstance(lower, Scalar):
        return elementwise
    if isinstance(lower, Composite):
        return lane_by_lane
    return along("axes") if isinstance(lower, Reduction) else None
