"""How the tensors of a graph lie in memory, by the values that PyTorch made it with.

A tensor is dense where its axes, put in some order, are those of contiguous memory:

    shape (3, 4), strides (1, 3)   ->   order (1, 0): contiguous as its transpose

Sizes and strides are integers, or expressions of symbols that each call gives values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Order = tuple[int, ...]


def expression(number: Any) -> Any:
    """An integer, or the expression of one that is open."""
    return number if isinstance(number, int) else number.node.expr


def value_of(number: Any, symbols: Mapping[Any, int]) -> int:
    """The value of a size or stride for these values of its symbols."""
    held = expression(number)
    return held if isinstance(held, int) else int(held.subs(symbols))


def dense_order(tensor: Any) -> Order | None:
    """The order of its axes in which a tensor is contiguous: as they are, if that is one; None
    for a tensor that has gaps, or elements that share memory."""
    sizes, strides = [list(map(expression, held)) for held in (tensor.shape, tensor.stride())]
    plain = tuple(range(len(sizes)))
    if 0 in sizes or _is_contiguous(sizes, strides, plain):
        return plain
    examples = [example for example in map(_example, tensor.stride()) if example is not None]
    if len(examples) < len(plain):
        return None
    order = tuple(sorted(plain, key=lambda axis: -examples[axis]))
    return order if _is_contiguous(sizes, strides, order) else None


def inverse(order: Order) -> Order:
    return tuple(sorted(order, key=order.__getitem__))


def _is_contiguous(sizes: Sequence[Any], strides: Sequence[Any], order: Order) -> bool:
    expected: Any = 1
    for axis in reversed(order):
        if sizes[axis] != 1:
            if _plain(strides[axis]) != _plain(expected):
                return False
            expected = expected * sizes[axis]
    return True


def _plain(held: Any) -> Any:
    """An expression without the bounds that PyTorch puts around strides: n of Max(1, n)."""
    if isinstance(held, int) or not held.args:
        return held
    terms = [_plain(term) for term in held.args]
    rest = [term for term in terms if term != 1]
    if held.func.__name__ == "Max" and len(rest) == 1:
        return rest[0]
    return held.func(*terms).expand()


def _example(number: Any) -> int | None:
    """What an open number was when the graph was made; None for one that data decides."""
    if isinstance(number, int):
        return number
    hint = number.node.hint if number.node.has_hint() else None
    return None if hint is None else int(hint)
