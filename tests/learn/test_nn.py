"""Layers against plain NumPy formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from nn_helpers import KEY, RNG, both, close, draw

import graphc as gc
from graphc.errors import GraphError
from graphc.frontend.trace.tree import flatten
from graphc.learn import nn

# ------------------------------------------------------------------------------- models


def test_takion_sample_network():
    model = nn.Sequential(
        nn.Dense(200, 100), nn.relu, nn.Dense(100, 25), nn.relu, nn.Dense(25, 3), nn.relu
    )
    params = model.init(KEY)
    assert nn.parameter_count(params) == 22703
    x = draw(10, 200)
    want = x
    for layer in params[::2]:
        want = np.maximum(want @ layer["weight"] + layer["bias"], 0)
    close(both(model, params, x), want)


def test_model_shows_what_it_is():
    model = nn.Sequential(nn.Dense(3, 4, bias=False), nn.gelu, nn.Residual(nn.LayerNorm(4)))
    shown = "Sequential(Dense(3, 4, bias=False), gelu, Residual(LayerNorm(4)))"
    assert repr(model) == shown


@pytest.mark.slow
def test_init_is_traceable_and_typed():
    model = nn.Sequential(nn.Conv(1, 2, 3), nn.relu, nn.Flatten(), nn.Dense(8, 4), nn.LSTM(3, 2))
    for dtype in ("f32", "f64", "f16"):
        plain = model.init(KEY, dtype)
        traced = gc.compile(lambda key, dtype=dtype: model.init(key, dtype))(KEY)
        for a, b in zip(flatten(plain)[0], flatten(traced)[0], strict=True):
            assert a.dtype == b.dtype == {"f32": "f4", "f64": "f8", "f16": "f2"}[dtype]
            close(a, b, 1e-3 if dtype == "f16" else 2e-6)


def test_layers_of_one_kind_start_differently():
    first, second = nn.Sequential(nn.Dense(5, 5), nn.Dense(5, 5)).init(KEY)
    assert not np.allclose(first["weight"], second["weight"])


def test_residual_adds():
    model = nn.Residual(nn.Dense(4, 4), nn.tanh)
    params, x = model.init(KEY), draw(3, 4)
    close(both(model, params, x), x + np.tanh(x @ params[0]["weight"]))


def test_layer_of_ones_own():
    class Scale(nn.Layer):
        def init(self, key, dtype="f32"):
            return {"factor": np.full(3, 2.0, dtype="f4")}

        def forward(self, params, x):
            return x * params["factor"]

    model = nn.Sequential(Scale(), np.tanh)
    x = draw(2, 3)
    close(both(model, model.init(KEY), x), np.tanh(2 * x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.Sequential(nn.Dense), "made of layers and functions"),
        (lambda: nn.Dense(2, 3)(None, draw(1, 2)), r"Dense\(2, 3\) has a parameter weight"),
        (lambda: nn.Sequential(nn.Flatten())([], draw(1, 2)), "parameters of a model of 1 parts"),
        (lambda: nn.Dropout(0.5)(None, draw(2), training=True), "needs a random key"),
        (lambda: nn.dropout(draw(2), 1.0, KEY), "rate of 1.0"),
        (lambda: nn.BatchNorm(2)({}, draw(3, 2)), "running statistics"),
        (lambda: nn.Embedding(3, 2)({"weight": draw(3, 2)}, draw(2)), "by integers"),
        (lambda: nn.MultiHeadAttention(6, 4).init(KEY), "do not divide"),
        (lambda: nn.LSTM(2, 3)(nn.LSTM(2, 3).init(KEY), draw(4, 2)), "rank 3"),
        (lambda: nn.Conv(3, 4, 3, groups=2).init(KEY), "do not divide"),
        (lambda: nn.init.orthogonal()(KEY, (3,), "f32"), "orthogonal matrix"),
        (lambda: nn.Conv(3, 4, 3, groups=0).init(KEY), "groups must be"),
        (lambda: nn.Flatten()(None, np.float32(1)), "flatten takes"),
        (lambda: nn.accuracy(draw(3, 2), np.zeros((3, 1), int)), "labels of shape"),
        (lambda: nn.Layer()(None, draw(2)), "neither forward nor apply"),
    ],
)
def test_errors(call, message):
    with pytest.raises(GraphError, match=message):
        call()


# ------------------------------------------------------------------------------- initialisers


def test_fans_of_dense_and_conv():
    assert nn.init.fans((7, 5)) == (7, 5)
    assert nn.init.fans((16, 3, 5, 5)) == (75, 400)


@pytest.mark.parametrize(
    ("initialiser", "variance"),
    [
        (nn.init.glorot_uniform(), 2 / (300 + 100)),
        (nn.init.glorot_normal(), 2 / (300 + 100)),
        (nn.init.he_uniform(), 2 / 300),
        (nn.init.he_normal(), 2 / 300),
        (nn.init.normal(0.3), 0.09),
        (nn.init.uniform(0.3), 0.03),
        (nn.init.zeros(), 0.0),
    ],
)
def test_variance_of_initialisers(initialiser, variance):
    made = np.asarray(gc.compile(lambda key: initialiser(key, (300, 100), "f32"))(KEY))
    assert made.dtype == np.float32
    assert abs(made.mean()) < 4 * math.sqrt(variance / made.size) + 1e-12
    np.testing.assert_allclose(made.var(), variance, rtol=0.05)


@pytest.mark.parametrize("shape", [(6, 6), (5, 20), (20, 5), (4, 3, 2)])
def test_orthogonal(shape):
    matrix = nn.init.orthogonal(2.0)(KEY, shape, "f64").reshape(shape[0], -1)
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    close(gram, 4 * np.eye(len(gram)), 1e-13)


# ------------------------------------------------------------------------------- without time


def test_dense_without_bias():
    layer, x = nn.Dense(4, 3, bias=False), draw(2, 5, 4)
    params = layer.init(KEY)
    assert list(params) == ["weight"]
    close(both(layer, params, x), x @ params["weight"])


def test_embedding():
    layer = nn.Embedding(10, 4)
    params, ids = layer.init(KEY), np.array([[1, 9], [0, 1]])
    close(both(layer, params, ids), params["weight"][ids])


def test_flatten():
    assert both(nn.Flatten(), None, draw(2, 3, 4)).shape == (2, 12)
    assert both(nn.Flatten(), None, draw(0, 3, 4)).shape == (0, 12)
    assert both(nn.Flatten(), None, draw(5)).shape == (5, 1)


def test_dropout():
    layer, x = nn.Dropout(0.25), np.ones((200, 100), np.float32)
    assert layer(None, x) is x
    made = both(layer, None, x, key=KEY, training=True)
    np.testing.assert_array_equal(np.unique(made), np.float32([0, 1 / 0.75]))
    assert abs((made == 0).mean() - 0.25) < 0.02
    model = nn.Sequential(layer, layer)
    twice = model([None, None], x, key=KEY, training=True)
    assert abs((twice == 0).mean() - (1 - 0.75**2)) < 0.02


def test_norms():
    x = draw(3, 4, 6)
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    params = {"weight": draw(6), "bias": draw(6)}
    close(both(nn.LayerNorm(6), params, x), normed * params["weight"] + params["bias"])
    assert list(nn.LayerNorm(6, bias=False).init(KEY)) == ["weight"]
    size = np.sqrt((x**2).mean((1, 2), keepdims=True) + 1e-5)
    close(both(nn.RMSNorm((4, 6)), nn.RMSNorm((4, 6)).init(KEY), x), x / size)


@pytest.mark.parametrize("compiled", [False, True])
def test_batch_norm_keeps_running_statistics(compiled):
    layer = nn.BatchNorm(5, momentum=0.2)
    apply = lambda params, x, state: layer.apply(params, x, state, training=True)
    apply = gc.compile(apply) if compiled else apply
    params, state = {"weight": draw(5), "bias": draw(5)}, layer.state()
    mean, variance = np.zeros(5), np.ones(5)
    for _ in range(3):
        x = draw(4, 5, 3, 2) * 3 + 1
        y, state = apply(params, x, state)
        mean = 0.8 * mean + 0.2 * x.mean((0, 2, 3))
        variance = 0.8 * variance + 0.2 * x.var((0, 2, 3), ddof=1)
    close(state["mean"], mean)
    close(state["variance"], variance, 1e-5)
    shape = lambda v: np.reshape(v, (5, 1, 1))
    spread = np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    batch = (x - x.mean((0, 2, 3), keepdims=True)) / spread
    close(y, batch * shape(params["weight"]) + shape(params["bias"]), 1e-5)
    running = (x - shape(mean)) / np.sqrt(shape(variance) + 1e-5)
    want = running * shape(params["weight"]) + shape(params["bias"])
    close(both(layer, params, x, state=state), want, 1e-5)


def test_sequential_passes_state_on():
    model = nn.Sequential(nn.Dense(4, 3), nn.BatchNorm(3), nn.relu)
    params, state = model.init(KEY), model.state()
    assert [part is None for part in state] == [True, False, True]
    y, after = model.apply(params, draw(8, 4), state, training=True)
    assert y.shape == (8, 3)
    assert not np.allclose(after[1]["mean"], state[1]["mean"])
    assert nn.Sequential(nn.Dense(4, 3)).state() is None
    with pytest.raises(GraphError, match="one value per channel"):
        model.apply(params, draw(1, 4), state, training=True)


def test_accuracy():
    logits = np.float32([[1, 2], [3, 0], [0, 1], [5, 4]])
    assert nn.accuracy(logits, np.array([1, 0, 0, 0])) == np.float32(0.75)
    assert nn.binary_accuracy(np.float32([0.2, 0.9, 0.6]), np.array([0, 1, 0])) == np.float32(2 / 3)


# ------------------------------------------------------------------------------- attention


def attention_formula(params, x, context, heads, visible):
    def split(part, value):
        made = value @ params[part]["weight"] + params[part]["bias"]
        return made.reshape(*made.shape[:2], -1, x.shape[-1] // heads).swapaxes(1, 2)

    q, k, v = split("query", x), split("key", context), split("value", context)
    k, v = (np.repeat(a, heads // a.shape[1], 1) for a in (k, v))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    powers = np.exp(scores) * visible
    made = powers / powers.sum(-1, keepdims=True) @ v
    made = made.swapaxes(1, 2).reshape(x.shape)
    return made @ params["output"]["weight"] + params["output"]["bias"]


@pytest.mark.parametrize("shared", [None, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(shared, causal):
    layer = nn.MultiHeadAttention(8, 4, causal=causal, shared_heads=shared)
    params, x, context = layer.init(KEY), draw(2, 5, 8), draw(2, 7, 8)
    for part in params.values():
        part["bias"] = draw(*part["bias"].shape)
    visible = np.tri(5) if causal else np.ones((5, 5))
    close(both(layer, params, x), attention_formula(params, x, x, 4, visible), 1e-5)
    if not causal:
        mask = RNG.random((2, 1, 5, 7)) < 0.7
        mask[..., 0] = True
        want = attention_formula(params, x, context, 4, mask)
        close(layer.attend(params, x, context, mask), want, 1e-5)
