"""PyTorch: the names of an operator's arguments, by which graphs of torch.export have them too."""

from __future__ import annotations

from typing import Any


def argument_names(function: Any) -> list[str]:
    """The names of an operator's positional arguments; none of what is no operator.

    It buys no time.  Where `_schema` is gone, arguments have their positions alone.
    """
    schema = getattr(function, "_schema", None)
    return [] if schema is None else [argument.name for argument in schema.arguments]


def core_decompositions() -> dict[Any, Any]:
    """What operators become that are not among the core ones; else what PyTorch exports with."""
    import torch

    try:
        from torch._decomp import core_aten_decompositions
    except ImportError:
        return dict(torch.export.default_decompositions())
    return dict(core_aten_decompositions())


def decompositions() -> dict[Any, Any]:
    """What every operator becomes that PyTorch can write in others, those in place left out.

    It buys operators that have no rule here.  Without it there are the core ones.
    """
    try:
        from torch._decomp import decomposition_table
    except ImportError:
        return core_decompositions()
    return {
        op: rule
        for op, rule in decomposition_table.items()
        if not getattr(getattr(op, "_schema", None), "is_mutable", True)
    }
