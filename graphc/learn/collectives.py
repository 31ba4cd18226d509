"""Collectives of `gc.parallel`: what several devices do together, a value of each.

    sums = gc.parallel.all_reduce([a, b, c], ["cpu:0", "cpu:1", "cpu:2"])     # one for each device

Values are any nesting of arrays; number k of a list belongs to device k.  In a compiled function
they become messages along rings and trees (`passes/devices/route_collectives.py`); on plain arrays
they compute at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.frontend.trace.tree import flatten, unflatten
from graphc.learn.arguments import refuse, team
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
    names = _team(values, devices)
    return combined(values, lambda row: _emit("reduce_to", row, names, combine))


def broadcast(value: Any, devices: Sequence[str]) -> list[Any]:
    """A value once for each device. Raises GraphError for a list without devices."""
    names = team(devices, "broadcast")
    leaves, tree = flatten(value, keep_order=True)
    rows = [emit("to_all", f.astype(leaf, element_of(leaf)[0]), devices=names) for leaf in leaves]
    return [unflatten(tree, [row[k] for row in rows]) for k in range(len(names))]


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
        raise refuse(f"values of devices are combined by {', '.join(WAYS)}, not by {combine!r:.80}")
    return emit(op, *row, devices=devices, combine=combine)


def _each(
    values: Sequence[Any],
    devices: Sequence[str],
    function: Callable[[Sequence[Any], tuple[str, ...]], Any],
) -> list[Any]:
    """A collective of the arrays that have one place in every value."""
    names = _team(values, devices)
    first, tree = flatten(values[0], keep_order=True)
    others = [matched(tree, value, "values of another device") for value in values[1:]]
    rows = [function(_of_one_type(row), names) for row in zip(first, *others, strict=True)]
    return [unflatten(tree, [row[k] for row in rows]) for k in range(len(names))]


def _of_one_type(row: Sequence[Any]) -> list[Any]:
    element = common_element(*row)[0]
    return [f.astype(x, element) for x in row]


def _team(values: Any, devices: Sequence[str]) -> tuple[str, ...]:
    """The devices of these values, which may be the rows of an array."""
    names = team(devices, "a collective")
    if not isinstance(values, Sequence) and not np.ndim(values):
        raise refuse(f"values of devices come as a list, one for each, got {values!r:.80}")
    if len(values) != len(names):
        raise refuse(
            f"there are {len(values)} values for {len(names)} device(s): {', '.join(names)[:80]}",
            'each device has one value: gc.parallel.all_reduce([a, b], ["cpu:0", "cpu:1"])',
        )
    return names
