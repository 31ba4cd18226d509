"""`graphc.numpy.fft`: `numpy.fft`, on arrays and on traced values alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.fft import *  # noqa: F403


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    from graphc.frontend.trace.namespace import function_of

    found = globals()[name] = function_of("graphc.numpy.fft", name, np.fft)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(np.fft)})
