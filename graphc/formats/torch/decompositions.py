"""What operators become before their graphs are read: PyTorch's own decompositions of gradients
and of what has no rule here, ours of what PyTorch computes along with its factors, or otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.formats.torch.table import find
from graphc.seams.torch import core_decompositions, decompositions

_KEPT = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_softmax",
    "as_strided_scatter",
    "linspace",
)


def of_graphs() -> Mapping[Any, Callable[..., Any]]:
    """What becomes simpler in graphs of torch.compile."""
    import torch

    import graphc.formats.torch.operators  # noqa: F401  (fills the table)

    made: dict[Any, Callable[..., Any]] = {}
    for op, rule in core_decompositions().items():
        known = find(str(op)) is not None
        if not (known and str(op).split(".")[1] in _KEPT):
            made[op] = rule
    made |= {op: rule for op, rule in decompositions().items() if find(str(op)) is None}
    ours: dict[str, Callable[..., Any]] = {
        "_linalg_det": _det,
        "_linalg_slogdet": _slogdet,
        "_linalg_solve_ex": _solve_ex,
    }
    for name, rule in ours.items():
        made[getattr(torch.ops.aten, name).default] = rule
    return made


def with_right_losses(module: Any) -> Any:
    """A graph of TorchDynamo, with ours in place of a loss that PyTorch takes apart into what
    gives other numbers."""
    import torch

    wrong = torch.nn.functional.multilabel_margin_loss
    found = [node for node in module.graph.nodes if node.target is wrong]
    for node in found:
        node.target = _multilabel_margin_loss
    if found:
        module.recompile()
    return module


def _multilabel_margin_loss(
    x: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    """How near each class comes to those that a row lists before its first -1, but for these."""
    import torch

    if size_average is not None or reduce is not None:
        reduction = torch.nn._reduction.legacy_get_string(size_average, reduce)
    listed = (target < 0).cumsum(-1) == 0
    labels = torch.where(listed, target, 0)
    hits = labels[..., None] == torch.arange(x.shape[-1], device=x.device)
    hits = hits & listed[..., None]
    over = 1 - x.gather(-1, labels)[..., None] + x[..., None, :]
    counts = listed[..., None] & ~hits.any(-2, keepdim=True)
    total = torch.where(counts, over.relu(), 0).sum((-2, -1)) / x.shape[-1]
    return {"none": total, "mean": total.mean(), "sum": total.sum()}[reduction]


def simplified(program: Any) -> Any:
    """A program of torch.export without the operators that have no rule, where PyTorch can, and
    with the casts of autocast in place of blocks that it holds for."""
    import torch

    import graphc.formats.torch.operators  # noqa: F401  (fills the table)

    kind = type(torch.ops.aten.add.Tensor)
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    unknown = {op for op in targets if isinstance(op, kind) and find(str(op)) is None}
    autocast = any(getattr(op, "__name__", "") == "wrap_with_autocast" for op in targets)
    if not unknown and not autocast:
        return program
    known = decompositions()
    return program.run_decompositions({op: known[op] for op in unknown if op in known})


# --------------------------------------------------------------------------------- factors
#
# Gradients read the factors: those of the transpose for determinants of matrices whose rows lie
# behind one another, which is part of the graph of the gradient, and of the matrix else.


def _factored(matrix: Any) -> tuple[Any, Any]:
    import torch

    turned = matrix.is_contiguous() and not matrix.is_complex()
    made: tuple[Any, Any] = torch.linalg.lu_factor_ex(matrix.mT if turned else matrix)[:2]
    return made


def _sign(pivots: Any, like: Any) -> Any:
    import torch

    places = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device, dtype=pivots.dtype)
    odd = (pivots != places).sum(-1) % 2
    return (1 - 2 * odd).to(like.dtype)


def _det(A: Any) -> tuple[Any, ...]:
    packed, pivots = _factored(A)
    diagonal = packed.diagonal(dim1=-2, dim2=-1)
    return diagonal.prod(-1) * _sign(pivots, diagonal), packed, pivots


def _slogdet(A: Any) -> tuple[Any, ...]:
    packed, pivots = _factored(A)
    diagonal = packed.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sgn().prod(-1) * _sign(pivots, diagonal)
    return sign, diagonal.abs().log().sum(-1), packed, pivots


def _solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    import torch

    packed, pivots, info = torch.linalg.lu_factor_ex(A)
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)
    right = B.unsqueeze(-1) if vector else B
    made = torch.linalg.lu_solve(packed, pivots, right, left=left)
    return made.squeeze(-1) if vector else made, packed, pivots, info
