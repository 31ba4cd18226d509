"""Reflections, factors of matrices that are not square, and pools of drawn windows beside eager
PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
from effort import slow

from benchmarks import torch_cases

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def agrees(function: Any, *tensors: Any) -> None:
    def listed(*values: Any) -> list[Any]:
        made = function(*values)
        return list(made) if isinstance(made, tuple | list) else [made]

    case = torch_cases.Case("case", "case", listed, list(tensors), False)
    assert torch_cases.outcome(case) == ("agrees", "")


def drawn(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (0, 3), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_matrices_are_packed_as_reflections(shape: Any, dtype: Any) -> None:
    x = drawn(*shape, dtype=dtype)
    x[..., 1:, :1] = 0  # a column that has nothing below the diagonal
    agrees(torch.geqrf, x)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("32", 1e25), slow("32", 1e-25), slow("64", 1e200), ("64", 1e-200), slow("64", 1e-170)],
)
@pytest.mark.parametrize("is_complex", [False, True])
def test_reflections_of_small_and_large_numbers(dtype: str, size: float, is_complex: bool) -> None:
    """Their squares are none of the dtype's; results are compared at the size of x."""
    width = int(dtype) * (2 if is_complex else 1)
    kind = getattr(torch, f"complex{width}" if is_complex else f"float{width}")

    def packed(x: Any) -> Any:
        made, tau = torch.geqrf(x)
        return made.triu() * (1 / size), made.tril(-1), tau

    agrees(packed, drawn(4, 3, dtype=kind) * size)
    agrees(packed, torch.stack([drawn(3, 2, dtype=kind), drawn(3, 2, dtype=kind) * size]))


@pytest.mark.parametrize("first", [1.0, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_reflections_where_little_lies_below_the_diagonal(first: float, dtype: Any) -> None:
    """What is not 0 is reflected, even where it vanishes beside the diagonal."""
    agrees(torch.geqrf, torch.tensor([[first, 2.0], [1e-25, 3.0], [0.0, 1e-30]], dtype=dtype))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_products_with_reflections(left: bool, transpose: bool, dtype: Any) -> None:
    packed, tau = torch.geqrf(drawn(2, 5, 3, dtype=dtype))
    other = drawn(2, 5, 4, dtype=dtype, seed=1)
    other = other if left else other.mT.contiguous()
    agrees(lambda x, t, y: torch.ormqr(x, t, y, left, transpose), packed, tau, other)
    agrees(torch.linalg.householder_product, packed, tau)


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (4, 4)])
def test_factors_of_any_matrix_are_unpacked(shape: Any) -> None:
    agrees(torch.lu_unpack, *torch.linalg.lu_factor(drawn(*shape)))


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("pivots", [True, False])
def test_what_is_not_unpacked_is_empty(data: bool, pivots: bool) -> None:
    def unpacked(packed: Any, order: Any) -> Any:
        return torch.lu_unpack(packed, order, data, pivots)

    agrees(unpacked, *torch.linalg.lu_factor(drawn(2, 4, 3)))


@pytest.mark.parametrize("shape", [(2, 3, 9, 7), slow((3, 9, 7)), slow((1, 2, 6, 9, 7))])
def test_windows_begin_where_draws_tell(shape: tuple[int, ...]) -> None:
    """Places of the largest, too, and what goes back to them."""
    rank = 3 if len(shape) == 5 else 2
    pool = (torch.nn.functional.fractional_max_pool2d, torch.nn.functional.fractional_max_pool3d)
    outer = shape[:-rank] if len(shape) > 3 else (1, *shape[:-rank])
    draws = torch.rand(*outer, rank, generator=torch.Generator().manual_seed(1))
    for wanted in ((4,) * rank, (4, 1, 3)[:rank], (2, 4, 5)[-rank:]):

        def pooled(x: Any, draws: Any, wanted: Any = wanted) -> Any:
            return pool[rank - 2](x, 2, wanted, return_indices=True, _random_samples=draws)

        def slope(x: Any, draws: Any, pooled: Any = pooled) -> Any:
            x = x.detach().requires_grad_(True)
            made = pooled(x, draws)[0]
            weights = torch.arange(1.0, made.numel() + 1).reshape(made.shape)
            return torch.autograd.grad((made * weights).sum(), x)

        agrees(pooled, drawn(*shape), draws)
        agrees(slope, drawn(*shape), draws)
