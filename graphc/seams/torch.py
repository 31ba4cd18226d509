"""PyTorch: the names of an operator's arguments, by which graphs of torch.export have them too."""

from __future__ import annotations

from typing import Any


def argument_names(function: Any) -> list[str]:
    """The names of an operator's positional arguments; none of what is no operator.

    It buys no time.  Where `_schema` is gone, arguments have their positions alone.
    """
    schema = getattr(function, "_schema", None)
    return [] if schema is None else [argument.name for argument in schema.arguments]


def decompositions() -> dict[Any, Any]:
    """What operators become that are not among the core ones; else what PyTorch exports with."""
    import torch

    try:
        from torch._decomp import core_aten_decompositions
    except ImportError:
        return dict(torch.export.default_decompositions())
    return dict(core_aten_decompositions())
