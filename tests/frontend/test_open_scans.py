"""Scans compiled for rows that change in number: also none, where nothing is read of what they
begin at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import case

import graphc as gc
from graphc.frontend.trace.tree import flatten
from graphc.ops.reference.interpreter import interpret


def last_row_first(x: Any) -> Any:
    return gc.scan(lambda c, row: (c + row, 0.0), np.zeros(3), x, reverse=True)[0]


def kept(x: Any) -> Any:
    return gc.scan(lambda c, row: (c * 0.5 + row, c * row), np.ones(3), x, reverse=True)


def counted(x: Any) -> Any:
    return gc.scan(lambda c, _: (c / 2, c + 1), np.ones(3), length=len(x), reverse=True)[1]


def in_each_other(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        return gc.scan(lambda c, each: (c * 0.5 + each * row, c), c, x, reverse=True)

    return gc.scan(outer, np.ones(3), x, reverse=True)


def along_columns(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        last, ys = gc.scan(lambda c, v: (c * 0.5 + v, c * v), c, row, reverse=True)
        return last, ys

    return gc.scan(outer, np.float64(1), x.T, reverse=True)


def slope(x: Any) -> Any:
    return gc.grad(
        lambda x: gc.scan(lambda c, row: (np.sin(c) * row, c * row), np.ones(3), x)[1].sum()
    )(x)


def slope_reversed(x: Any) -> Any:
    def loss(x: Any) -> Any:
        last, ys = gc.scan(lambda c, row: (np.sin(c) * row, c * row), np.ones(3), x, reverse=True)
        return last.sum() + (ys**2).sum()

    return gc.value_and_grad(loss)(x)


PROGRAMS = (last_row_first, kept, counted, in_each_other, along_columns, slope, slope_reversed)


@pytest.mark.slow
@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("function", PROGRAMS)
def test_scans_of_any_number_of_rows(function: Any, opt: int) -> None:
    compiled = gc.compile(function, opt=opt)
    rng = np.random.default_rng(0)
    for n in (6, 0, 1, 2, 9, 0):
        x = rng.standard_normal((n, 3))
        made, wanted = compiled(x), interpret(compiled.graph(x), [x])
        flat = flatten(made)[0]
        with case(n):
            for m, w in zip(flat, wanted, strict=True):
                np.testing.assert_allclose(m, w, rtol=1e-12)
    assert any("_" in repr(entry.signature) for entry in compiled.compiles)
