"""The first value of a variable: from an array, a spec, or a function called when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import TraceError, TypeRuleError
from graphc.frontend.compile.signature import as_array
from graphc.ir.types import DType, Type, dtype, tensor
from graphc.ir.user_lines import locate
from graphc.ops.record.value import _ACTIVE, Value


def initial_value(
    init: Any, element: DType | None
) -> tuple[Type | None, Callable[[], np.ndarray[Any, Any]] | None]:
    """The type and the initial value that `init` stands for, where they are known."""
    if isinstance(init, Type):
        kind = init if element is None else tensor(element, init.shape)
        return tensor(kind.dtype, kind.dims), None  # raises where a dimension is symbolic
    if isinstance(init, Value):
        raise TraceError(
            "a variable cannot start as a traced array",
            location=locate(3),
            hint="make it outside the traced function and assign to it inside",
        )
    if callable(init) and not hasattr(init, "__array__"):
        return None, lambda: outside(lambda: array_of(init(), element))
    array = outside(lambda: array_of(init, element))
    return tensor(dtype(array.dtype), array.shape), lambda: array


def array_of(value: Any, element: DType | None) -> np.ndarray[Any, Any]:
    try:
        array = as_array(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except ValueError as error:
        raise TypeRuleError(str(error), location=locate(3)) from None
    element = element or dtype(array.dtype)
    return array.astype(element.numpy, copy=False)


def outside(function: Callable[[], Any]) -> Any:
    """Call a function with no trace active: initial values are computed, not traced."""
    held, _ACTIVE.stack = _ACTIVE.stack, []
    try:
        return function()
    finally:
        _ACTIVE.stack = held
