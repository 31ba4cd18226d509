"""np.multiply.at(x, indices, values): x[i] = x[i] * v, one index after the other.

An element that is named twice changes twice.  Where none is, all change at once; else a loop does
what NumPy's does.  NumPy itself is asked, by arrays of one element, what it refuses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.frontend.trace.operands import is_basic, leaves
from graphc.ops.record.value import NUMPY, Value, as_value, element_of, functions, is_python_number


def update_at(ufunc: np.ufunc, target: Any, index: Any, operands: tuple[Any, ...]) -> None:
    """Change the elements of a traced array. Raises what NumPy raises for such operands."""
    # Here Python's numbers are arrays to NumPy: they do not take the dtype of the other operand.
    operands = tuple(np.asarray(x) if is_python_number(x) else as_value(x) for x in operands)
    with np.errstate(all="ignore"):
        ufunc.at(np.ones(1, target.element.numpy), [0], *map(_one, operands))
    step = NUMPY[ufunc]
    if isinstance(index, Value) and index.element.kind == "b":
        target.assign(_where(ufunc, index, target, operands))
        return
    if is_basic(index):
        target[index] = step(target[index], *operands)
        return
    places = _places(target, index)
    if isinstance(places, np.ndarray) and len(np.unique(places)) == places.size:
        target[index] = step(target[index], *operands)
        return
    from graphc.frontend.transforms.control import scan

    def body(flat: Any, row: tuple[Any, ...]) -> Any:
        place, *given = row
        made = functions.astype(step(flat[place], *given), target.element)
        return functions.index_update(flat, place, made), ()

    given = (functions.broadcast_to(each, places.shape) for each in operands)
    rows = tuple(functions.reshape(each, -1) for each in (places, *given))
    flat, _ = scan(body, functions.reshape(target, -1), rows)
    target.assign(functions.reshape(flat, target.shape))


def _one(operand: Any) -> Any:
    return np.ones(1, element_of(operand)[0].numpy)


def _where(ufunc: np.ufunc, mask: Value, target: Any, operands: tuple[Any, ...]) -> Any:
    """The array with its elements at a traced mask changed, all by the same operands."""
    more = target.ndim - mask.ndim
    if more < 0 or any(each.ndim > more for each in operands):
        raise TraceError(
            f"np.{ufunc.__name__}.at at a traced mask takes one value (or row) for all places",
            hint="use np.where(mask, values, x) with values in the shape of x",
        )
    wide = functions.reshape(mask, (*mask.shape, *(1,) * more))
    made = functions.astype(NUMPY[ufunc](target, *operands), target.element)
    return functions.where(wide, made, target)


def _places(target: Any, index: Any) -> Any:
    """Where the elements of x[index] stand in flat x: known, unless the index is traced."""
    shape = target.shape
    known = not any(isinstance(leaf, Value) for leaf in leaves(index))
    if known and all(isinstance(extent, int) for extent in shape):
        return np.arange(math.prod(shape)).reshape(shape)[index]
    return functions.reshape(functions.arange(target.size), shape)[index]
