"""What programs share of the kernels that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen import kernels
from graphc.codegen.llvm import kernel as llvm

X = np.random.default_rng(0).standard_normal((33, 17)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((17, 40)).astype(np.float32)


def pointwise(x: Any) -> Any:
    return np.exp(x) * 3.25 - x


def layer(x: Any) -> Any:
    return np.maximum(x @ W + 0.75, 0)


@pytest.mark.parametrize("function", [pointwise, layer])
def test_the_text_of_a_kernel_is_written_once(
    function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    emit = llvm.emit_module
    monkeypatch.setattr(kernels, "_SPECS", {})
    monkeypatch.setattr(
        llvm, "emit_module", lambda *args: written.append(emit(*args)) or written[-1]
    )
    first = gc.compile(function)
    wanted = first(X)
    known = len(written)
    assert known > 0
    again = gc.compile(function)
    np.testing.assert_array_equal(again(X), wanted)
    assert len(written) == known
    assert kernel_texts(again) == kernel_texts(first)
    np.testing.assert_allclose(gc.compile(function, opt=0)(X), wanted, rtol=1e-5, atol=1e-6)


def kernel_texts(function: Any) -> dict[str, str]:
    """The LLVM IR of what the latest call has run, by symbols."""
    texts: dict[str, str] = function._variants.newest.kernels.texts
    return texts


def test_a_kernel_is_the_same_whatever_else_its_program_multiplies() -> None:
    """The core is made of what all products of a program need; who calls it does not know."""
    alone, beside = gc.compile(layer), gc.compile(lambda x, v: (layer(x), v @ x))
    column = np.ascontiguousarray(X[:, 0])
    np.testing.assert_array_equal(beside(X, column)[0], alone(X))
    np.testing.assert_allclose(beside(X, column)[1], column @ X, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(gc.compile(layer)(X), alone(X))
    texts = [kernel_texts(f) for f in (alone, beside)]
    assert texts[0].items() < texts[1].items()
