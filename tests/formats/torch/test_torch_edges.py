"""Operators of ATen where PyTorch and plain formulas part: elements and gradients at edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import slow

import graphc as gc
from benchmarks import torch_cases

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from graphc.formats.torch.live import array_of, from_exported  # noqa: E402
from graphc.formats.torch.model import TorchModel  # noqa: E402
from graphc.formats.torch.operators import products, special  # noqa: E402


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr"])
def test_slopes_of_tails(name: str) -> None:
    """Where a series meets what it continues, and at 0, either gives the whole slope."""
    x = torch.tensor([-20.0, 0.0, 1.0, 20.0, -20 * 2**0.5], dtype=torch.float64, requires_grad=True)
    getattr(torch.special, name)(x).sum().backward()
    function: Callable[..., Any] = getattr(special, name)
    slope = gc.grad(lambda x: function(x).sum())(x.detach().numpy())
    np.testing.assert_allclose(slope, x.grad.numpy(), rtol=1e-9)


NAN, INF = float("nan"), float("inf")


def gradient(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    def backward(x: Any, *rest: Any) -> list[Any]:
        x = x.detach().requires_grad_(True)
        made = function(x, *rest)
        weights = torch.arange(1, made.numel() + 1, dtype=made.dtype).reshape(made.shape)
        return list(torch.autograd.grad((made * weights).sum(), x))

    return backward


def agrees(function: Callable[..., Any], *tensors: Any, draws: bool = False) -> None:
    def listed(*values: Any) -> list[Any]:
        made = function(*values)
        return list(made) if isinstance(made, tuple | list) else [made]

    case = torch_cases.Case("edge", "edge", listed, list(tensors), draws)
    assert torch_cases.outcome(case) == ("agrees", "")


def short(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.bfloat16)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("reduce", ["mean", "amax", *map(slow, ("amin", "prod", "sum"))])
@pytest.mark.parametrize("include_self", [True, False])
def test_reduced_rows_of_bfloat16(reduce: str, include_self: bool) -> None:
    """They are floats, though NumPy does not count them among those."""
    x, index = short(3, -1, 0.5, 7), torch.tensor([0, 0, 1, 0])
    source = short(-2, 1.5, 4, 1)
    for name in ("scatter_reduce", "index_reduce"):
        if (name, reduce) != ("index_reduce", "sum"):
            agrees(
                lambda x, at, new, name=name: getattr(x, name)(
                    0, at, new, reduce, include_self=include_self
                ),
                *(x, index, source),
            )


def test_nan_of_bfloat16() -> None:
    x = short(2, NAN, -1, 4, NAN)
    agrees(lambda x: [torch.sign(x), torch.sgn(x)], x)
    agrees(lambda x: [x.median(), *x.median(0), x.nanmedian(), *x.nanmedian(0)], x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_rms_norm_without_an_epsilon(dtype: str) -> None:
    x, layer = torch.arange(1, 9).reshape(2, 4) / 4096, torch.nn.RMSNorm(4)
    x, layer = (v.to(getattr(torch, dtype)) for v in (x, layer))
    agrees(layer, x)
    model = TorchModel(from_exported(torch.export.export(layer, (x,)), "norm"))
    (made,) = model.run([array_of(x)])
    wanted = layer(x).detach().float().numpy()
    np.testing.assert_allclose(made.astype(np.float32), wanted, rtol=2e-2)


def test_running_sums_of_exponentials() -> None:
    """The beginning of a row counts, however far below its maximum it is."""

    def run(x: Any) -> Any:
        return torch.logcumsumexp(x, -1)

    rows = torch.tensor([[-1000.0, 0, 1000, -1000], [3, 1, -2000, 4], [-INF, -2000, -1, 5]])
    agrees(run, rows)
    agrees(run, rows.double())
    agrees(gradient(run), rows)
    agrees(run, short(1, 2, 3, -1, 0.5))
    ends = [[-INF, INF, 1, -INF], [INF, INF, NAN, 1], [NAN, -INF, 1, 2], [INF, -INF, INF, NAN]]
    agrees(run, torch.tensor(ends))
    long = torch.cos(torch.arange(100.0)) * 300
    agrees(run, long)
    agrees(gradient(run), long)
    agrees(run, torch.zeros(3, 0))
    agrees(gradient(run), torch.cos(torch.arange(1000.0)))
    case = torch_cases.Case("", "", lambda x: [run(x)], [torch.ones(3) * 1j], False)
    assert torch_cases.outcome(case)[0] == "refused"


def test_places_of_running_extremes_among_nan() -> None:
    for row in ([1, NAN, 2, NAN, 3], [NAN, 1, NAN], [3, 1, NAN, 1], [INF, NAN, INF], [1, 3, 3, 2]):
        for x in (torch.tensor(row, dtype=torch.float32), short(*row)):
            agrees(lambda x: [*x.cummax(0), *x.cummin(0)], x)


def test_a_bound_of_0_leaves_the_share_of_the_largest_singular_value() -> None:
    pinv = torch.linalg.pinv
    one = torch.outer(torch.arange(1.0, 4), torch.arange(2.0, 5))
    two = torch.stack([one, one + torch.diag(torch.tensor([0, 0, 1e-3]))])
    agrees(lambda x: [pinv(x, atol=0.0), pinv(x, atol=0.1), pinv(x)], one)
    agrees(lambda x, a: pinv(x, atol=a), one, torch.tensor(0.0))
    agrees(lambda x, a: pinv(x, atol=a), two, torch.tensor([0.0, 0.1]))
    bounds = torch.tensor([1e-2, 1e-5], dtype=torch.float64)
    agrees(lambda x, a: pinv(x, atol=a, rtol=a), two.double(), bounds)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (2, 3, 0), (2, 0, 3)])
def test_factors_of_empty_matrices(shape: tuple[int, ...]) -> None:
    agrees(torch.linalg.lu_factor_ex, torch.zeros(shape))


@pytest.mark.parametrize("left", [True, False])
def test_empty_systems_broadcast(left: bool) -> None:
    packed, pivots = torch.zeros(2, 0, 0), torch.zeros(2, 0, dtype=torch.int32)
    for stack in ((1,), (2,), (3, 1)):
        right = torch.zeros(*stack, *((0, 3) if left else (3, 0)))
        agrees(lambda a, p, b: torch.linalg.lu_solve(a, p, b, left=left), packed, pivots, right)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("alone", [False, slow(True)])
def test_queries_that_see_no_key_give_0(floats: bool, alone: bool) -> None:
    """As padding in a window of its own: there is nothing that they could be the mean of."""
    q, k, v = (
        torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 3)
    )
    mask = torch.ones(2, 1, 5, 5).tril().bool()
    mask[0, :, 3:] = False
    mask = torch.where(mask, 0.5, -INF) if floats else mask
    if alone:
        q, k, v, mask = (x[0] for x in (q, k, v, mask))
    attention = torch.nn.functional.scaled_dot_product_attention
    agrees(attention, q, k, v, mask)
    agrees(gradient(lambda x, k, v: attention(x, k, v, mask)), q, k, v)
    agrees(gradient(lambda x, q, v: attention(q, x, v, mask)), k, q, v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bool])
def test_without_keys_queries_give_0(causal: bool, dtype: Any) -> None:
    q, k, v = torch.ones(2, 3, 5, 4), torch.ones(2, 3, 0, 4), torch.ones(2, 3, 0, 7)
    mask = None if dtype is None or causal else torch.zeros(5, 0, dtype=dtype)

    class Attention(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

    for given in ((q, k, v), (q[0], k[0], v[0]), (q[:1], k, v)):
        model = TorchModel(from_exported(torch.export.export(Attention(), given), "attention"))
        (made,) = model.run([array_of(x) for x in given])
        np.testing.assert_array_equal(made, Attention()(*given).numpy())


def test_sums_of_queries_that_see_no_key_are_0() -> None:
    q = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(2, 1, 5, 5)
    mask[0, :, 3:] = -INF
    mask[1, :, :, 2] = -INF
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    for how in ({"attn_mask": mask}, {"attn_mask": mask[0, 0]}, {"is_causal": True}, {}):
        given = {k: v.numpy() if torch.is_tensor(v) else v for k, v in how.items()}
        compiled = gc.compile(lambda q, given=given: products.flash_attention(q, q, q, **given))
        for made, wanted in zip(compiled(q.numpy()), attention(q, q, q, **how), strict=True):
            np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_a_mask_of_nan_is_seen() -> None:
    q, nan = torch.ones(1, 2, 4), float("nan")
    mask = torch.tensor([[nan, nan], [-INF, nan]])
    agrees(torch.nn.functional.scaled_dot_product_attention, q, q, q, mask)


def test_all_and_any_of_flags() -> None:
    for held in ([True, True], [True, False], [False, False]):
        agrees(torch.ops.aten._is_all_true, torch.tensor(held))
        agrees(torch.ops.aten._is_any_true, torch.tensor(held))


def test_reductions_of_runs_of_rows() -> None:
    """Empty runs among them; for each what they start from, too."""
    x, lengths = torch.randn(7, 3), torch.tensor([2, 0, 4, 1])
    offsets = torch.tensor([0, 2, 2, 6, 7])
    for reduce in ("sum", "mean", "max", "min", "prod"):
        for initial in (None, 0.5):
            agrees(
                lambda x, n, at, how=reduce, first=initial: [
                    torch.segment_reduce(x, how, lengths=n, initial=first),
                    torch.segment_reduce(x[:, 0], how, offsets=at, initial=first),
                ],
                *(x, lengths, offsets),
            )


def test_rows_that_no_segment_holds() -> None:
    """Those before the first offset and behind the last count for nothing."""
    x = torch.randn(6, 2)
    for offsets in ([1, 3, 6], [2, 2, 2], [0, 0, 3], [6, 6], [1, 1, 4, 5], [2]):
        for reduce in ("sum", "mean", "max", "min", "prod"):
            agrees(
                lambda x, at, how=reduce: torch.segment_reduce(x[:, 0], how, offsets=at),
                *(x, torch.tensor(offsets)),
            )
