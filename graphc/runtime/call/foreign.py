"""Arrays of other libraries as arrays of NumPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from graphc.errors import FeedError, GraphError


def foreign_array(value: Any) -> np.ndarray[Any, Any]:
    """What has `__array__` or `__dlpack__` as an array, without a copy where that can be.

    Raises FeedError with the words of its library for what gives none, as a tensor of PyTorch that
    takes part in a gradient.
    """
    try:
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # a type that NumPy lacks
            import ml_dtypes

            bits: np.ndarray[Any, Any] = value.view(sys.modules["torch"].int16).numpy()
            return bits.view(ml_dtypes.bfloat16)
        made: np.ndarray[Any, Any]
        made = np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
        return made
    except (GraphError, AttributeError):  # traced, or nothing that turns into an array
        raise
    except Exception as error:
        kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        raise FeedError(f"a {kind} gives no NumPy array: {error}") from error
