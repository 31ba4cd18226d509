"""Cases of PyTorch's operator database; all of them: `python -m benchmarks.torch_cases`."""

from typing import Any

import pytest

from benchmarks import torch_cases

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs expecttest")

FAMILIES = (
    r"^(mode|nanmedian|kthvalue|topk|cummax|softmax|sign|angle)\b",
    r"^(index_reduce|put|take|diagonal_scatter|masked_scatter|unique|unique_consecutive)\b",
    r"^nn.functional.(embedding_bag|interpolate|grid_sample|multi.*margin_loss|pad)\b",
    r"^(linalg.pinv|pinverse|cholesky_solve|cholesky_inverse|histogram|frexp|quantile)\b",
)


@pytest.mark.slow
@pytest.mark.parametrize("match", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_operators_agree_with_eager_pytorch(match: str) -> None:
    outcomes = {
        case.name: torch_cases.outcome(case) for case in torch_cases.cases("float32", 2, match)
    }
    assert sum(kind == "agrees" for kind, _ in outcomes.values()) > 0.8 * len(outcomes) > 10
    assert not {name: why for name, (kind, why) in outcomes.items() if kind == "wrong"}


def test_what_differs_is_told() -> None:
    x = torch.tensor([1.0, 2.0, float("inf")])
    assert torch_cases.difference(x, x.clone()) == ""
    assert "float64" in torch_cases.difference(x.double(), x)
    assert torch_cases.difference(x + torch.tensor([0.0, 1e-2, 0.0]), x) == "off by 5.0e-03"
    assert torch_cases.difference(-x, x) == "infinities differ"
    assert torch_cases.difference(x / x, x / x + 0) == ""
    assert torch_cases.difference(torch.tensor([float("nan")]), torch.ones(1)) == "1 NaN for 0"
    assert torch_cases.difference(torch.tensor([1, 2]), torch.tensor([1, 3])) == "1 elements differ"
    assert torch_cases.difference(torch.rand(3), torch.rand(3), draws=True) == ""


def test_what_depends_on_random_numbers_is_known() -> None:
    def dropped(x: Any) -> list[Any]:
        torch.manual_seed(3)  # as the database's own functions do
        return [torch.nn.functional.dropout(x, 0.5)]

    assert torch_cases._draws(dropped, [torch.ones(9)])
    assert not torch_cases._draws(lambda x: [torch.sin(x)], [torch.ones(9)])


def test_what_cancels_may_differ_as_much_as_pytorchs_own() -> None:
    def cancels(x: Any) -> list[Any]:
        return [(x / 3 * 3 - x).sum()]

    case = torch_cases.Case("c", "c", cancels, [torch.linspace(1, 2, 9)], draws=False)
    exact = torch.tensor(0.0)
    assert torch_cases._is_as_near([exact + 1e-7], [exact + 2e-8], case)
    assert not torch_cases._is_as_near([exact + 1e-4], [exact + 2e-8], case)
