"""Operators that PyTorch makes of others: what shares memory, types of sums, points on edges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch_programs import Functions, agrees, interpreted  # noqa: E402

COPIES: dict[str, Callable[[Any], Any]] = {
    "alias": torch.alias_copy,
    "as_strided": lambda x: torch.as_strided_copy(x, (2, 2), (1, 2), 1),
    "detach": torch.detach_copy,
    "diagonal": torch.diagonal_copy,
    "expand": lambda x: torch.expand_copy(x, (2, 1, 3, 4)),
    "narrow": lambda x: torch.narrow_copy(x, 1, 0, 3),
    "permute": lambda x: torch.permute_copy(x, (1, 2, 0)),
    "select": lambda x: torch.select_copy(x, 2, 1),
    "slice": lambda x: torch.slice_copy(x, 1, 0, 2),
    "split": lambda x: torch.split_copy(x, 2, 1)[0],
    "split_with_sizes": lambda x: torch.split_with_sizes_copy(x, [1, 2], 1)[1],
    "squeeze": torch.squeeze_copy,
    "squeeze_axis": lambda x: torch.squeeze_copy(x, 0),
    "t": lambda x: torch.t_copy(x[0]),
    "transpose": lambda x: torch.transpose_copy(x, 0, 1),
    "unbind": lambda x: torch.unbind_copy(x, 1)[2],
    "unfold": lambda x: torch.unfold_copy(x, 2, 2, 2),
    "unsqueeze": lambda x: torch.unsqueeze_copy(x, 0),
    "view": lambda x: torch.view_copy(x, (-1,)),
    "view_as_complex": lambda x: torch.view_as_complex_copy(x.view(3, 2, 2)).real,
    "view_as_dtype": lambda x: torch.view_copy(x, dtype=torch.int32),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_shares_no_memory(name: str) -> None:
    def write(a: Any) -> Any:
        x = a.clone()
        made = COPIES[name](x)
        made.add_(1)
        return x, made

    agrees(write, torch.arange(12, dtype=torch.float32).reshape(1, 3, 4))


def test_views_of_other_types_share_memory() -> None:
    def write(a: Any) -> Any:
        x, y, z = a.clone(), torch.complex(a, -a), a.clone()
        torch.view_as_complex(x.view(3, 2, 2)).mul_(1j)
        torch.view_as_real(y)[..., 1].add_(3)
        z.view(torch.int32).add_(1)
        return x, y, z

    agrees(write, torch.arange(12, dtype=torch.float32).reshape(3, 4))


@pytest.mark.slow
def test_lists_among_the_results_of_a_saved_node(tmp_path: Path) -> None:
    def counted(p: Any) -> list[Any]:
        counts, edges = torch.histogramdd(p, [3, 4])
        return [counts, *edges]

    points = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    torch.export.save(torch.export.export(Functions(counted), (points,)), tmp_path / "net.pt2")
    made = gc.load(tmp_path / "net.pt2")(points.numpy())
    for one, other in zip(made.values(), counted(points), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)


def test_more_elements_are_refused_of_what_may_be_a_part() -> None:
    def of_view(a: Any) -> Any:
        return a.clone()[:1].resize_(2, 4)

    def of_shrunk(a: Any) -> Any:
        return a.clone().resize_(2, 2).resize_(3, 4)

    values = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for function in (of_view, of_shrunk):
        with pytest.raises(gc.GraphError, match="may be a part of another"):
            interpreted(function, values)
    agrees(lambda a: a.new_empty(0).resize_(3, 4).copy_(a), values)
    agrees(lambda a: a.clone().resize_(5, 4)[:3], values)


WHOLE = (torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", [*WHOLE, torch.float16, torch.float32])
def test_sums_and_powers_of_whole_numbers_have_64_bits(dtype: Any) -> None:
    def made(x: Any) -> list[Any]:
        sums = [x.sum_to_size(shape) for shape in ((2, 3), (1, 3), (3,), (1,), (2, 1))]
        return [*sums, torch.vander(x[1]), torch.vander(x[1], 2, increasing=True)]

    agrees(made, torch.tensor([[1, 0, 90], [1, 1, 100]]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.float32])
@pytest.mark.parametrize("places", [torch.int64, torch.float16, torch.float32])
def test_integrals_and_slopes_have_promoted_types(dtype: Any, places: Any) -> None:
    def made(y: Any, x: Any) -> list[Any]:
        integrals = torch.trapezoid, torch.cumulative_trapezoid
        rows = [f(y, at) for f in integrals for at in (x, x.expand(2, 4))]
        return [*rows, *(f(y, dx=0.5) for f in integrals), *torch.gradient(y, spacing=(x,), dim=1)]

    y = torch.tensor([[1, 2, 4, 7], [3, 3, 1, 0]]).to(dtype)
    agrees(made, y, torch.tensor([0, 1, 3, 4]).to(places), near=1e-3)


def test_zero_points_that_are_floats_are_rounded_with_what_they_shift() -> None:
    def made(x: Any, scale: Any, zero: Any) -> Any:
        return torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7)

    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    agrees(made, x, torch.tensor([0.1, 0.25, 0.03]), torch.tensor([0.5, -1.3, 2.0]), near=1e-6)


@pytest.mark.parametrize("bins", [1, 7, 10, 33])
def test_points_on_edges_are_counted_as_by_edges_of_their_type(bins: int) -> None:
    def made(p: Any) -> list[Any]:
        flat = p[:, 0].contiguous()
        pairs = [
            torch.histogramdd(p, [bins, 10], range=[-0.5, 0.5, -0.5, 0.5]),
            torch.histogramdd(p, bins),
        ]
        some = [torch.histogram(flat, bins, range=(-0.5, 0.5)), torch.histogram(flat, bins)]
        return [v for counts, edges in pairs for v in (counts, *edges)] + [
            v for h in some for v in h
        ]

    points = (torch.randn(200, 2, generator=torch.Generator().manual_seed(0)) * 3).round() * 0.1
    agrees(made, points)
