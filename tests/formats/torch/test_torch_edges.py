"""Operators of ATen where PyTorch and plain formulas part: elements and gradients at edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from graphc.formats.torch.operators import special  # noqa: E402


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr"])
def test_slopes_of_tails(name: str) -> None:
    """Where a series meets what it continues, and at 0, either gives the whole slope."""
    x = torch.tensor([-20.0, 0.0, 1.0, 20.0, -20 * 2**0.5], dtype=torch.float64, requires_grad=True)
    getattr(torch.special, name)(x).sum().backward()
    function: Callable[..., Any] = getattr(special, name)
    slope = gc.grad(lambda x: function(x).sum())(x.detach().numpy())
    np.testing.assert_allclose(slope, x.grad.numpy(), rtol=1e-9)
