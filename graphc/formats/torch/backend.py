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
from graphc.errors import GraphError
from graphc.formats.torch.decompositions import of_graphs, with_right_losses
from graphc.formats.torch.live import torch_package
from graphc.formats.torch.parts import PartedGraph

# What torch.compile may be asked to spend on a compilation: programs here are the same in each.
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@refusing
def torch_backend(
    module: Any, examples: Sequence[Any], *, mode: str | None = None, **options: Any
) -> Callable[..., Any]:
    """The backend: `torch.compile(model, backend=gc.torch_backend)`, or backend="graphc".

    `torch.compile(..., options={...})` are options of gc.compile; every `mode` of torch.compile is
    taken, and makes the same programs.  Operators that cannot be imported are run by PyTorch, each
    told once by a GraphHint.
    """
    torch_package()
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    if mode not in _MODES:
        known = ", ".join(map(repr, _MODES[1:]))
        raise GraphError(f"torch.compile has no mode {mode!r}", hint=f"modes are {known}")
    config = Config.create(**(options.pop("options", None) or {}), **options)

    def compiler(graph: Any, inputs: Sequence[Any], shares: bool = True) -> Callable[..., Any]:
        return make_boxed_func(PartedGraph(graph, config, shares))  # type: ignore[no-any-return]

    # What is cheap the backward pass computes again, inside of its kernels: fewer tensors wait for
    # it.  Gradients share no memory: PyTorch adds to one in place where it believes to hold it
    # alone.
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=partial(compiler, shares=False),
        decompositions=of_graphs,
        partition_fn=min_cut_rematerialization_partition,
    )(with_right_losses(module), examples)
    return made
