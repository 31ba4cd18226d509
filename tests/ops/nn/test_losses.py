"""Losses refuse what would be silently wrong: labels that are no classes, shapes that broadcast."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from effort import crossed

import graphc as gc

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=(4, 3))
LABELLED = {
    "cross_entropy": gc.cross_entropy,
    "smooth": lambda z, y, **options: gc.cross_entropy(z, y, label_smoothing=0.1, **options),
    "axis 0": lambda z, y, **options: gc.cross_entropy(z.T, y, axis=0, **options),
    "nll": lambda z, y, **options: gc.nll(gc.log_softmax(z), y, **options),
}
WAYS = {
    "eager": lambda f: f,
    "compiled": gc.compile,
    "gradient": lambda f: gc.compile(gc.grad(lambda z, y: f(z, y).sum())),
    "constant labels": lambda f: lambda z, y: gc.compile(lambda z: f(z, y))(z),
}


@pytest.mark.parametrize(
    ("case", "dtype"), crossed(product(LABELLED, WAYS), ["i1", "i4", "i8", "u1", "u8"])
)
def test_labels_that_are_no_classes_are_refused(case: tuple[str, str], dtype: str) -> None:
    name, way = case
    run = WAYS[way](LABELLED[name])
    run(LOGITS, np.array([0, 1, 2, 0], dtype))
    for bad in (3, 127, -1, -100):
        if bad < 0 and dtype[0] == "u":
            bad = np.iinfo(dtype).max
        labels = np.array([0, 1, bad, 2]).astype(dtype) if bad < 2**63 else np.array([bad] * 4)
        with pytest.raises(gc.GraphError) as caught:
            run(LOGITS, labels)
        assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    ("case", "element"), crossed(product(["mean", "sum", "none"], LABELLED), ["f2", "f4", "f8"])
)
def test_rows_that_are_ignored(case: tuple[str, str], element: str) -> None:
    """As if they were not there; in the mean they do not count."""
    reduction, name = case
    loss, z = LABELLED[name], LOGITS.astype(element)
    labels, kept = np.array([0, -100, 2, -100]), np.array([0, 2])
    of_all = lambda z: loss(z, labels, ignore_index=-100, reduction=reduction)
    of_kept = lambda z: loss(z, labels[kept], reduction=reduction)
    made, wanted = gc.compile(of_all)(z), of_kept(z[kept])
    assert made.dtype == wanted.dtype
    if reduction == "none":
        assert np.all(made[[1, 3]] == 0)
        made = made[kept]
    tolerance = {"f2": 1e-2, "f4": 1e-5, "f8": 1e-12}[element]
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance)
    slopes = gc.grad(lambda z: of_all(z).sum())(z)
    assert np.all(slopes[[1, 3]] == 0)
    wanted = gc.grad(lambda z: of_kept(z).sum())(z[kept])
    np.testing.assert_allclose(slopes[kept], wanted, rtol=tolerance, atol=tolerance)


def test_other_labels_are_refused_beside_ignored_ones() -> None:
    with pytest.raises(IndexError):
        gc.compile(lambda z, y: gc.cross_entropy(z, y, ignore_index=-100))(
            LOGITS, np.array([0, -100, -1, 2])
        )
    assert np.isnan(gc.cross_entropy(LOGITS, np.full(4, 9), ignore_index=9))
    with pytest.raises(gc.GraphError, match="integer labels"):
        gc.cross_entropy(LOGITS, gc.softmax(LOGITS), ignore_index=1)


def test_labels_of_nll_must_fit() -> None:
    for labels in (np.zeros(3, int), np.zeros((4, 1), int), np.zeros(4), np.array(0)):
        with pytest.raises(gc.GraphError, match="do not fit"):
            gc.nll(LOGITS, labels)


COMPARING: dict[str, Any] = {
    "mse": gc.mse,
    "mae": gc.mae,
    "huber": gc.huber,
    "kl_divergence": gc.kl_divergence,
    "binary_cross_entropy": gc.binary_cross_entropy,
    "binary_cross_entropy_with_logits": gc.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("name", COMPARING)
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    loss = COMPARING[name]
    x = np.full((8, 1), 0.25, np.float32)
    shapes = [(8,), (1, 8), (8, 8), (1,), (8, 1, 1)]
    for y in [np.full(shape, 0.5, np.float32) for shape in shapes]:
        for run in (loss, gc.compile(loss), gc.compile(gc.grad(lambda x, y: loss(x, y).sum()))):
            with pytest.raises(gc.GraphError, match="compare every row"):
                run(x, y)
    assert loss(x, x).shape == gc.compile(loss)(x, x).shape
    loss(x, 0.5)
    gc.compile(lambda x: loss(x, 0.5))(x)
