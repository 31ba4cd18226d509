"""`gc.random`: random numbers as pure functions of an explicit key.

key = gc.random.key(7)                      u32[2]
a, b = gc.random.split(key)                 two keys that know nothing of each other
x = gc.random.normal(a, (3, 4))             equal key, shape and dtype give equal numbers
"""

from __future__ import annotations

from graphc.base.hints import missing
from graphc.base.refusing import refuse_all
from graphc.ops.random.random import *  # noqa: F403
from graphc.ops.random.random import __all__ as __all__

refuse_all(__all__, globals())


def __getattr__(name: str) -> object:
    raise missing("graphc.random", name, __all__)
