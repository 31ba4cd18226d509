"""Public functions of neural networks against plain NumPy formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphc.errors import GraphError
from graphc.ops.record.value import PUBLIC

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6, 5)).astype(np.float32)


def same(got, want, rtol=2e-6):
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def normed(x, axes, epsilon=1e-5):
    x = x.astype(np.float64)
    spread = np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    return (x - x.mean(axis=axes, keepdims=True)) / spread


def test_softmax_of_integers_is_f64():
    made = PUBLIC["softmax"](np.array([1, 2, 3]))
    assert made.dtype == np.float64
    same(made.sum(), 1.0)
    same(PUBLIC["softmin"](np.array([1, 2, 3])), made[::-1])


def test_layer_norm_weights_follow_their_axes():
    w, b = RNG.normal(size=(2, 6, 5)).astype(np.float32)
    same(PUBLIC["layer_norm"](X, w, b, axis=(1, 2)), normed(X, (1, 2)) * w + b)
    same(PUBLIC["layer_norm"](X, bias=b[0]), normed(X, 2) + b[0])
    w6 = w[:, 0]
    same(PUBLIC["layer_norm"](X, w6, axis=1), normed(X, 1) * w6[:, None])
    with pytest.raises(GraphError, match="rank"):
        PUBLIC["layer_norm"](X, w)


def test_rms_norm():
    wide = X.astype(np.float64)
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
    same(PUBLIC["rms_norm"](X, epsilon=1e-6), want)


def test_group_norm():
    w, b = RNG.normal(size=(2, 6)).astype(np.float32)
    want = normed(X.reshape(4, 3, 10), 2).reshape(X.shape) * w[:, None] + b[:, None]
    same(PUBLIC["group_norm"](X, 3, w, b), want)
    same(PUBLIC["instance_norm"](X), normed(X, 2))
    with pytest.raises(GraphError, match="groups"):
        PUBLIC["group_norm"](X, 4)


def test_batch_norm():
    w, b = RNG.normal(size=(2, 6)).astype(np.float32)
    own = normed(X, (0, 2))
    same(PUBLIC["batch_norm"](X), own)
    mean, variance = X.mean((0, 2)), X.var((0, 2))
    same(PUBLIC["batch_norm"](X, mean, variance, w, b), own * w[:, None] + b[:, None], 1e-5)
    same(PUBLIC["batch_norm"](X, mean, variance, bias=b), own + b[:, None], 1e-5)
    with pytest.raises(GraphError, match="both"):
        PUBLIC["batch_norm"](X, mean)


def test_activations_by_name():
    x = np.linspace(-3, 3, 7)
    same(PUBLIC["gelu"](x), [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    same(PUBLIC["gelu"](x, tanh=True), PUBLIC["gelu"](x), 5e-3)
    same(PUBLIC["silu"](x), x / (1 + np.exp(-x)))
    same(PUBLIC["leaky_relu"](x, slope=0.2), np.where(x > 0, x, 0.2 * x))
    same(PUBLIC["elu"](x, alpha=2.0), np.where(x > 0, x, 2 * np.expm1(x)))
    assert PUBLIC["relu"](np.array([-1, 2])).dtype == np.int64
    gate = X[:, 3:]
    same(PUBLIC["glu"](X, axis=1), X[:, :3] / (1 + np.exp(-gate)))
    with pytest.raises(GraphError, match="odd"):
        PUBLIC["glu"](X)


def test_cross_entropy():
    labels = np.array([[0, 1, 2, 3, 4]] * 4)
    losses = np.log(np.exp(X).sum(1)) - np.take_along_axis(X, labels[:, None], 1)[:, 0]
    same(PUBLIC["cross_entropy"](X, labels, axis=1), losses.mean())
    same(PUBLIC["cross_entropy"](X, labels, axis=1, reduction="sum"), losses.sum())
    same(PUBLIC["cross_entropy"](X, labels, axis=1, reduction="none"), losses)
    log_p = PUBLIC["log_softmax"](X, axis=1)
    same(PUBLIC["nll"](log_p, labels, axis=1), losses.mean())
    one_hot = (np.arange(6)[:, None] == labels[:, None]).astype(np.float32)
    same(PUBLIC["cross_entropy"](X, one_hot, axis=1), losses.mean())
    with pytest.raises(GraphError, match="reduction"):
        PUBLIC["cross_entropy"](X, labels, axis=1, reduction="median")


def test_other_losses():
    y = X[::-1]
    same(PUBLIC["mse"](X, y), ((X - y) ** 2).mean())
    same(PUBLIC["mae"](X, y), np.abs(X - y).mean())
    size = np.abs(X - y)
    same(PUBLIC["huber"](X, y), np.where(size <= 1, size**2 / 2, size - 0.5).mean())
    p = 1 / (1 + np.exp(-X.astype(np.float64)))
    target = (y > 0).astype(np.float64)
    want = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()
    same(PUBLIC["binary_cross_entropy"](p, target), want)
    same(PUBLIC["binary_cross_entropy_with_logits"](X.astype(np.float64), target), want)
    assert np.isfinite(PUBLIC["binary_cross_entropy"](np.zeros(2), np.ones(2)))
    q = np.array([0.5, 0.5, 0.0])
    same(PUBLIC["kl_divergence"](np.log(np.array([0.25, 0.5, 0.25])), q), 0.5 * np.log(2))


def test_attention():
    q, k, v = RNG.normal(size=(3, 2, 4, 5, 8))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    same(PUBLIC["attention"](q, k, v), weights @ v)
    causal = PUBLIC["attention"](q, k, v, causal=True)
    same(causal[..., 0, :], v[..., 0, :])
    same(causal[..., -1, :], (weights @ v)[..., -1, :])
    shared = PUBLIC["attention"](q, k[:, :2], v[:, :2])
    same(shared, PUBLIC["attention"](q, k[:, :2].repeat(2, 1), v[:, :2].repeat(2, 1)))
    with pytest.raises(GraphError, match="broadcast"):
        PUBLIC["attention"](q, k, v, np.ones((3, 3), bool))
