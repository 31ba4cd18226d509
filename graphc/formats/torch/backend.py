"""`torch.compile(model, backend="graphc")`: graphs of TorchDynamo, forward and backward.

AOT autograd makes a graph of the forward pass and one of the backward pass, in operators of ATen
without side effects; each becomes a program whose inputs are tensors.  What graphc does not
compute, PyTorch does, between programs.  Tensors go in and come out without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.formats.torch.decompositions import of_graphs, with_right_losses
from graphc.formats.torch.live import torch_package
from graphc.formats.torch.parts import PartedGraph


@refusing
def torch_backend(module: Any, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend: `torch.compile(model, backend=gc.torch_backend)`, or backend="graphc".

    `torch.compile(..., options={...})` are options of gc.compile.  Operators that cannot be
    imported are run by PyTorch, each told once by a GraphHint.
    """
    torch_package()
    from torch._dynamo.backends.common import aot_autograd

    config = Config.create(**(options.pop("options", None) or {}), **options)

    def compiler(graph: Any, inputs: Sequence[Any], shares: bool = True) -> Callable[..., Any]:
        from functorch.compile import make_boxed_func

        return make_boxed_func(PartedGraph(graph, config, shares))  # type: ignore[no-any-return]

    # Gradients share no memory: PyTorch adds to one in place where it believes to hold it alone.
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler, bw_compiler=partial(compiler, shares=False), decompositions=of_graphs
    )(with_right_losses(module), examples)
    return made
