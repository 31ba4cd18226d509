"""Arguments that are already where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.frontend.compile.signature import as_array
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.runtime.call.array import Array, array_on
from graphc.runtime.cuda.interop import adopted
from graphc.runtime.devices.registry import local_name


@refusing
def to_device(value: Any, device: str) -> Any:
    """The arrays of any nesting as `gc.Array` in the memory of a device ("gpu:0"); what else is in
    it stays as it is.

    Weights that a compiled function gets in every call are so copied to the GPU once.  Raises
    GraphError for a device that there is not, LimitError where its memory does not suffice.
    """
    name = local_name(device)
    leaves, tree = flatten(value)
    return unflatten(tree, [_there(leaf, name) for leaf in leaves])


def _there(leaf: Any, device: str) -> Any:
    is_array = isinstance(leaf, np.ndarray | np.generic | Array)
    if not is_array and hasattr(leaf, "__cuda_array_interface__"):
        return array_on(device, adopted(leaf).numpy())
    if is_array or hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__"):
        return array_on(device, as_array(leaf))
    return leaf
