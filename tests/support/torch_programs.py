"""Functions of PyTorch as exported programs, which the reference interpreter runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from graphc.formats.model import Compiled
from graphc.formats.torch.live import array_of, from_exported
from graphc.formats.torch.model import TorchModel


class Interpreted(TorchModel):
    """A program on the reference interpreter: nothing is compiled."""

    def _compiled(self, graph: Any) -> Any:
        return graph

    def _execute(self, compiled: Compiled, arrays: Any) -> list[Any]:
        from graphc.ops.reference.interpreter import interpret

        return interpret(compiled.built, arrays)  # type: ignore[arg-type]


class Functions(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], *modules: Any) -> None:
        super().__init__()
        self.function = function
        self.parts = torch.nn.ModuleList(modules)

    def forward(self, *values: Any) -> Any:
        return self.function(*self.parts, *values)


def interpreted(function: Callable[..., Any], *values: Any) -> list[Any]:
    """The results of a function that was exported with these values, on them."""
    exported = torch.export.export(Functions(function), values)
    return Interpreted(from_exported(exported, "m")).run([array_of(v) for v in values])


def agrees(function: Callable[..., Any], *values: Any, near: float = 0) -> None:
    """Whether results have PyTorch's types, shapes and elements."""
    wanted = function(*(v.clone() for v in values))
    wanted = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    made = interpreted(function, *values)
    assert len(made) == len(wanted)
    for k, (one, tensor) in enumerate(zip(made, wanted)):
        other = array_of(tensor)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), k
        np.testing.assert_allclose(one, other, rtol=near, atol=near, err_msg=str(k))
