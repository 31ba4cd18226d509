"""What is known of indices where loops run over a part of an axis only."""

from __future__ import annotations

from graphc.loops.nest import Expr, Scalars

Interval = tuple[int, int]  # both ends included


def interval(b: Scalars, index: Expr) -> Interval | None:
    """The values an index may take, or None if nothing is known."""
    if index.op == "const":
        return index.data, index.data
    if index in b.known or index.op not in ("add", "sub", "mul"):
        found: Interval | None = b.known.get(index)
        return found
    left, right = (interval(b, arg) for arg in index.args)
    if left is None or right is None:
        return None
    if index.op == "mul":
        return _multiple(left, right)
    if index.op == "sub":
        right = -right[1], -right[0]
    return left[0] + right[0], left[1] + right[1]


def _multiple(left: Interval, right: Interval) -> Interval | None:
    """The values of a product with a number that is not below zero."""
    if left[0] != left[1]:
        left, right = right, left
    factor = left[0]
    if not (isinstance(factor, int) and factor == left[1] and factor >= 0):
        return None
    return right[0] * factor, right[1] * factor


def decided(b: Scalars, condition: Expr) -> bool | None:
    """Whether a condition on indices holds always or never; None if that is not known."""
    if not b.known:
        return None
    if condition.op == "and":
        parts = [decided(b, arg) for arg in condition.args]
        return False if False in parts else None if None in parts else True
    if condition.op not in ("lt", "ge"):
        return None
    left, right = (interval(b, arg) for arg in condition.args)
    if left is None or right is None:
        return None
    below = True if left[1] < right[0] else False if left[0] >= right[1] else None
    return below if below is None or condition.op == "lt" else not below
