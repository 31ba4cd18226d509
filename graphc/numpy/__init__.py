"""`graphc.numpy`: NumPy's namespace, on arrays and on traced values alike.

    import graphc.numpy as gnp

    gnp.tanh(np.ones(3))                         # an ndarray
    gc.compile(lambda x: gnp.tanh(x))(x)         # a node of the graph

What graphc has a function for is that function, with its checks and its dtypes; constants, dtypes
and what only asks about them are NumPy's own.  A function of NumPy that graphc lacks works on
arrays and says so on traced values.  The names of the array API standard (2024.12) are all here,
`linalg`, `fft` and `__array_namespace_info__` among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy import *  # noqa: F403
else:
    from graphc.numpy import fft, linalg  # noqa: F401

__array_api_version__ = np.__array_api_version__
__array_namespace_info__ = np.__array_namespace_info__  # type: ignore[misc]


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    from graphc.frontend.trace.namespace import function_of

    found = globals()[name] = function_of("graphc.numpy", name, np)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(np)})
