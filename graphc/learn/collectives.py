"""Collectives of `gc.parallel`: what several devices do together, a value of each.

    sums = gc.parallel.all_reduce([a, b, c], ["cpu:0", "cpu:1", "cpu:2"])     # one for each device

Values are any nesting of arrays; number k of a list belongs to device k.  In a compiled function
they become messages along rings and trees (`passes/devices/route_collectives.py`); on plain arrays
they compute at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import GraphError
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.learn.batches import combined
from graphc.learn.trees import matched
from graphc.ops.control.collectives import WAYS
from graphc.ops.record.value import common_element, element_of, emit
from graphc.ops.record.value import functions as f


def all_reduce(values: Sequence[Any], devices: Sequence[str], combine: str = "sum") -> list[Any]:
    """The "sum", "mean", "max" or "min" of the values of all devices, once for each device.

    All get the same bits.  Raises GraphError for another way to combine or another number of values
    than of devices, TraceError for values of different structures, TypeRuleError for arrays of
    different types or shapes.
    """
    return _each(values, devices, lambda row, names: _emit("all_reduce", row, names, combine))


def reduce_to(values: Sequence[Any], devices: Sequence[str], combine: str = "sum") -> Any:
    """What `all_reduce` gives, on the first device alone."""
    team = _team(values, devices)
    return combined(values, lambda row: _emit("reduce_to", row, team, combine))


def broadcast(value: Any, devices: Sequence[str]) -> list[Any]:
    """A value once for each device. Raises GraphError for a list without devices."""
    team = _team(None, devices)
    leaves, tree = flatten(value, keep_order=True)
    rows = [emit("to_all", f.astype(leaf, element_of(leaf)[0]), devices=team) for leaf in leaves]
    return [unflatten(tree, [row[k] for row in rows]) for k in range(len(team))]


def all_gather(values: Sequence[Any], devices: Sequence[str]) -> list[Any]:
    """The rows of all devices' arrays one after the other, once for each device.

    Arrays may have different numbers of rows.  Raises what `all_reduce` raises.
    """
    return _each(values, devices, lambda row, names: emit("all_gather", *row, devices=names))


def reduce_scatter(
    values: Sequence[Any], devices: Sequence[str], combine: str = "sum"
) -> list[Any]:
    """Of what `all_reduce` gives, to each device as many rows, in their order.

    Raises what `all_reduce` raises, and TypeRuleError where the rows do not divide by the devices.
    """
    return _each(values, devices, lambda row, names: _emit("reduce_scatter", row, names, combine))


def all_to_all(values: Sequence[Any], devices: Sequence[str]) -> list[Any]:
    """Device k gets part k of every device's rows, in the order of the devices.

    Raises what `reduce_scatter` raises.
    """
    return _each(values, devices, lambda row, names: emit("all_to_all", *row, devices=names))


def _emit(op: str, row: Sequence[Any], devices: tuple[str, ...], combine: str) -> Any:
    if combine not in WAYS:
        raise GraphError(f"values of devices are combined by {', '.join(WAYS)}, not by {combine!r}")
    return emit(op, *row, devices=devices, combine=combine)


def _each(
    values: Sequence[Any],
    devices: Sequence[str],
    function: Callable[[Sequence[Any], tuple[str, ...]], Any],
) -> list[Any]:
    """A collective of the arrays that have one place in every value."""
    team = _team(values, devices)
    first, tree = flatten(values[0], keep_order=True)
    others = [matched(tree, value, "values of another device") for value in values[1:]]
    rows = [function(_of_one_type(row), team) for row in zip(first, *others, strict=True)]
    return [unflatten(tree, [row[k] for row in rows]) for k in range(len(team))]


def _of_one_type(row: Sequence[Any]) -> list[Any]:
    element = common_element(*row)[0]
    return [f.astype(x, element) for x in row]


def _team(values: Sequence[Any] | None, devices: Sequence[str]) -> tuple[str, ...]:
    team = (devices,) if isinstance(devices, str) else tuple(devices)
    if not team or not all(isinstance(name, str) for name in team):
        raise GraphError("collectives take a list of device names, one or more")
    if values is not None and len(values) != len(team):
        raise GraphError(f"{len(team)} devices take as many values, got {len(values)}")
    return team
