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
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    if mode not in _MODES:
        known = ", ".join(map(repr, _MODES[1:]))
        raise GraphError(f"torch.compile has no mode {mode!r}", hint=f"modes are {known}")
    config = Config.create(**(options.pop("options", None) or {}), **options)

    def compiler(graph: Any, inputs: Sequence[Any], shares: bool = True) -> Callable[..., Any]:
        return make_boxed_func(PartedGraph(graph, config, shares))  # type: ignore[no-any-return]

    # Gradients share no memory: PyTorch adds to one in place where it believes to hold it alone.
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=partial(compiler, shares=False),
        decompositions=of_graphs,
        partition_fn=_parted,
    )(with_right_losses(module), examples)
    return made


def _parted(joint: Any, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[Any, Any]:
    """The graphs of the forward and the backward pass.

    What is cheap the backward pass computes again, inside of its kernels: fewer tensors wait for
    it.  From an input that the module changes in place nothing can be computed again: by then it
    holds what it was changed to.
    """
    from functorch.compile import default_partition, min_cut_rematerialization_partition

    changed = {_memory(node) for node in _changed(joint)}
    options["num_fwd_outputs"] = num_fwd_outputs
    made: tuple[Any, Any] = min_cut_rematerialization_partition(joint, inputs, **options)
    kept = made[0].graph.output_node().args[0][num_fwd_outputs:]
    if not changed or changed.isdisjoint(map(_memory, kept)):
        return made
    return default_partition(joint, inputs, **options)  # type: ignore[no-any-return]


def _changed(joint: Any) -> list[Any]:
    """The inputs that the module changes in place, whose new values the graph returns.

    Graphs inside of others have no descriptions, and change nothing.
    """
    told = joint.graph.output_node().meta.get("desc", ())
    changed = [result.mutated_input for result in told if hasattr(result, "mutated_input")]
    inputs = joint.graph.find_nodes(op="placeholder")
    return [node for node in inputs if node.meta.get("desc") in changed]


def _memory(node: Any) -> Any:
    """What tells the memory that a tensor of a graph lies in, shared by its views."""
    from torch.multiprocessing.reductions import StorageWeakRef

    value = node.meta.get("val")
    is_tensor = isinstance(value, torch_package().Tensor)
    return StorageWeakRef(value.untyped_storage()) if is_tensor else node
