"""`gc.linalg`: products of matrices, norms, factors and solvers."""

from __future__ import annotations

from graphc.base.hints import missing
from graphc.base.refusing import refuse_all
from graphc.ops.linalg.products import *  # noqa: F403
from graphc.ops.linalg.products import __all__ as __all__

refuse_all(__all__, globals())


def __getattr__(name: str) -> object:
    raise missing("graphc.linalg", name, __all__)
