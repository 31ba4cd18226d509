"""LSTM and GRU against NumPy formulas; scans against loops; layouts; PyTorch where installed."""

from __future__ import annotations

import numpy as np
import pytest
from nn_helpers import KEY, both, close, draw

import graphc as gc
from graphc.frontend.trace.tree import flatten
from graphc.learn import nn
from graphc.learn.nn import layouts

# ------------------------------------------------------------------------------- recurrences


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_formula(x, h, c, kernel, recurrent, bias):
    """[batch, time, hidden]; gates i f g o along the last axis, as PyTorch and Keras have them."""
    made = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        made.append(h)
    return np.stack(made, 1), h, c


def keras_gru_formula(x, h, kernel, recurrent, bias):
    """keras.layers.GRU: gates z r n; bias of rank 2 with reset_after, else of rank 1."""
    width, made = h.shape[-1], []
    for t in range(x.shape[1]):
        if bias.ndim == 2:
            xz, xr, xn = np.split(x[:, t] @ kernel + bias[0], 3, axis=-1)
            hz, hr, hn = np.split(h @ recurrent + bias[1], 3, axis=-1)
            z, r = sigmoid(xz + hz), sigmoid(xr + hr)
            n = np.tanh(xn + r * hn)
        else:
            xz, xr, xn = np.split(x[:, t] @ kernel + bias, 3, axis=-1)
            z = sigmoid(xz + h @ recurrent[:, :width])
            r = sigmoid(xr + h @ recurrent[:, width : 2 * width])
            n = np.tanh(xn + (r * h) @ recurrent[:, 2 * width :])
        h = z * h + (1 - z) * n
        made.append(h)
    return np.stack(made, 1), h


def test_lstm():
    layer, x = nn.LSTM(3, 4), draw(2, 5, 3)
    params = layer.init(KEY)
    close(params["bias"], np.repeat([0, 1, 0, 0], 4))
    params["bias"] = draw(16)
    arrays = [params[name] for name in ("input", "recurrent", "bias")]
    zero, h, c = np.zeros((2, 4), np.float32), draw(2, 4), draw(2, 4)
    want = lstm_formula(x, zero, zero, *arrays)[0]
    close(both(layer, params, x), want)
    close(both(nn.LSTM(3, 4, sequences=False), params, x), want[:, -1])
    first = nn.LSTM(3, 4, time_first=True)
    close(both(first, params, x.swapaxes(0, 1)), want.swapaxes(0, 1))
    ys, (last, cell) = layer.run(params, x, (h, c))
    want, *carry = lstm_formula(x, h, c, *arrays)
    close(ys, want)
    close(last, carry[0])
    close(cell, carry[1])


@pytest.mark.parametrize("reset_after", [True, False])
def test_gru_in_the_convention_of_keras(reset_after):
    kernel, recurrent = draw(3, 12), draw(4, 12)
    bias = draw(2, 12) if reset_after else draw(12)
    layer, x, h = nn.GRU(3, 4, reset_after=reset_after), draw(2, 5, 3), draw(2, 4)
    params = layouts.gru_from_keras(kernel, recurrent, bias)
    assert {k: v.shape for k, v in params.items()} == {
        k: v.shape for k, v in layer.init(KEY).items()
    }
    close(both(layer, params, x), keras_gru_formula(x, h * 0, kernel, recurrent, bias)[0])
    want = keras_gru_formula(x, h, kernel, recurrent, bias)
    for got, expected in zip(layer.run(params, x, h), want, strict=True):
        close(got, expected)


RECURRENCES = [nn.LSTM(3, 4), nn.GRU(3, 4), nn.GRU(3, 4, reset_after=False)]


@pytest.mark.parametrize("layer", RECURRENCES, ids=repr)
def test_scan_equals_unrolled_bit_for_bit(layer):
    options = {"reset_after": layer.reset_after} if isinstance(layer, nn.GRU) else {}
    loop = type(layer)(3, 4, unroll=True, **options)
    params, x = layer.init(KEY), draw(3, 6, 3)
    params["bias"] = draw(*params["bias"].shape)
    run = [gc.compile(a.run, fast_math=False)(params, x) for a in (layer, loop)]
    for a, b in zip(flatten(run[0])[0], flatten(run[1])[0], strict=True):
        np.testing.assert_array_equal(a, b)
    operations = [node.op.name for node in gc.compile(layer.run).graph(params, x).nodes]
    assert operations.count("scan") == 1


@pytest.mark.parametrize("layer", RECURRENCES, ids=repr)
def test_step_by_step(layer):
    params, x = layer.init(KEY), draw(2, 4, 3)
    carry, step = layer.carry(2), gc.compile(layer.step)
    for t, want in enumerate(np.swapaxes(layer(params, x), 0, 1)):
        carry, h = step(params, carry, x[:, t])
        close(h, want)


def test_recurrence_without_bias_and_of_other_dtypes():
    for layer in RECURRENCES:
        params = layer.init(KEY, "f64")
        bare = {name: params[name] for name in ("input", "recurrent")}
        made = layer({**bare, "bias": np.zeros_like(params["bias"])}, draw(2, 3, 3))
        assert made.dtype == np.float64
        close(both(layer, bare, draw(2, 3, 3) * 0), made * 0)


# ------------------------------------------------------------------------------- layouts


def same_bits(a, b):
    assert sorted(a) == sorted(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
        assert a[name].dtype == b[name].dtype


def test_layouts_there_and_back_are_exact():
    torch_gates = [draw(12, 3), draw(12, 4), draw(12), draw(12)]
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for there, back in (
        (layouts.lstm_from_torch, layouts.lstm_to_torch),
        (layouts.gru_from_torch, layouts.gru_to_torch),
    ):
        same_bits(back(there(*torch_gates)), dict(zip(names, torch_gates)))
        same_bits(back(there(*torch_gates[:2])), dict(zip(names, torch_gates[:2])))
    for bias in (draw(2, 12), draw(12)):
        keras = {"kernel": draw(3, 12), "recurrent_kernel": draw(4, 12), "bias": bias}
        same_bits(layouts.gru_to_keras(layouts.gru_from_keras(*keras.values())), keras)
    same_bits(layouts.lstm_to_keras(layouts.lstm_from_keras(*keras.values())), keras)
    linear = {"weight": draw(20, 10), "bias": draw(20)}
    same_bits(layouts.dense_to_torch(layouts.dense_from_torch(**linear)), linear)
    for window in ((3,), (3, 2), (2, 3, 4)):
        conv = {"kernel": draw(*window, 5, 6), "bias": draw(6)}
        assert layouts.conv_from_keras(**conv)["weight"].shape == (6, 5, *window)
        same_bits(layouts.conv_to_keras(layouts.conv_from_keras(**conv)), conv)
    packed = {"in_proj_weight": draw(24, 8), "out_proj_weight": draw(8, 8)}
    same_bits(layouts.attention_to_torch(layouts.attention_from_torch(**packed)), packed)
    packed |= {"in_proj_bias": draw(24), "out_proj_bias": draw(8)}
    same_bits(layouts.attention_to_torch(layouts.attention_from_torch(**packed)), packed)


def test_a_single_lstm_bias_becomes_two_and_two_add_up():
    params = {"input": draw(3, 16), "recurrent": draw(4, 16), "bias": draw(16)}
    split = layouts.lstm_from_torch(**layouts.lstm_to_torch(params))
    layer, x = nn.LSTM(3, 4), draw(2, 3, 3)
    np.testing.assert_array_equal(layer(split, x), layer(params, x))
    twice = {**params, "bias": np.stack([params["bias"], params["bias"]])}
    close(layouts.lstm_to_keras(twice)["bias"], 2 * params["bias"])


# ------------------------------------------------------------------------------- PyTorch


def arrays(module):
    return [p.detach().numpy() for p in module.parameters()]


def test_equal_to_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    def check(theirs, layer, params, *xs):
        made = theirs(*map(torch.tensor, xs))
        made = made[0] if isinstance(made, tuple) else made
        ours = layer(params, *xs) if len(xs) == 1 else layer.attend(params, *xs[:2])
        np.testing.assert_allclose(ours, made.detach().numpy(), rtol=1e-5, atol=1e-6)

    linear = torch.nn.Linear(10, 20)
    check(linear, nn.Dense(10, 20), layouts.dense_from_torch(*arrays(linear)), draw(4, 10))
    conv = torch.nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2)
    layer = nn.Conv(4, 6, (3, 2), stride=2, padding=1, groups=2)
    check(conv, layer, dict(zip(("weight", "bias"), arrays(conv))), draw(2, 4, 9, 8))
    lstm = torch.nn.LSTM(10, 12, batch_first=True)
    check(lstm, nn.LSTM(10, 12), layouts.lstm_from_torch(*arrays(lstm)), draw(3, 7, 10))
    gru = torch.nn.GRU(10, 12, batch_first=True)
    check(gru, nn.GRU(10, 12), layouts.gru_from_torch(*arrays(gru)), draw(3, 7, 10))
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        for p in attention.parameters():
            p.normal_(std=0.3)
    packed = {n.replace(".", "_"): p.detach().numpy() for n, p in attention.named_parameters()}
    params = layouts.attention_from_torch(**packed)
    context = draw(3, 6, 8)
    check(attention, nn.MultiHeadAttention(8, 2), params, draw(3, 5, 8), context, context)
    pool = torch.nn.MaxPool2d(3, 2, 1)
    check(pool, nn.MaxPool(3, 2, 1), None, draw(2, 3, 9, 8))
    check(torch.nn.AvgPool2d(2), nn.AvgPool(2), None, draw(2, 3, 8, 6))


def test_batch_norm_trains_as_in_torch():
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.BatchNorm2d(3), nn.BatchNorm(3)
    params, state = ours.init(KEY), ours.state()
    for _ in range(3):
        x = draw(4, 3, 5, 2) * 2 + 1
        y, state = ours.apply(params, x, state, training=True)
        np.testing.assert_allclose(y, theirs(torch.tensor(x)).detach(), rtol=1e-5, atol=1e-5)
    theirs.eval()
    close(state["mean"], theirs.running_mean.numpy())
    close(state["variance"], theirs.running_var.numpy())
    close(ours(params, x, state), theirs(torch.tensor(x)).detach().numpy(), 1e-5)
