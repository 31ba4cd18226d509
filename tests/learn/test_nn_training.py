"""Models that train: gradients of layers against PyTorch, and whole steps in one function."""

from __future__ import annotations

import numpy as np
import pytest
from nn_helpers import KEY, close, draw

import graphc as gc
from graphc import nn, optim
from graphc.frontend.trace.tree import flatten
from graphc.learn.nn import layouts


def stepper(model, loss, optimiser):
    @gc.compile
    def step(params, state, x, y):
        value, gradients = gc.value_and_grad(lambda p: loss(model(p, x), y))(params)
        return value, *optimiser.update(gradients, state, params)

    return step


def train(model, loss, optimiser, x, y, steps):
    """The loss before every step, and the parameters afterwards."""
    step, params = stepper(model, loss, optimiser), model.init(KEY)
    state, losses = optimiser.init(params), []
    for _ in range(steps):
        value, params, state = step(params, state, x, y)
        losses.append(value)
    return np.array(losses), params


def takion():
    return nn.Sequential(
        nn.Dense(200, 100), nn.relu, nn.Dense(100, 25), nn.relu, nn.Dense(25, 3), nn.relu
    )


def test_takion_sample_trains():
    x, y = draw(10, 200), np.abs(draw(10, 3))
    losses, params = train(takion(), nn.mse, optim.sgd(1e-5), x, y, 200)
    assert (np.diff(losses[::20]) < 0).all()
    assert nn.parameter_count(params) == 22703
    assert all(leaf.dtype == np.float32 for leaf in flatten(params)[0])


def test_rate_zero_leaves_the_loss_bitwise_constant():
    for optimiser in (optim.sgd(0.0), optim.adam(0.0), optim.adamw(0.0)):
        losses, _ = train(takion(), nn.mse, optimiser, draw(10, 200), draw(10, 3), 20)
        assert len(set(losses.tolist())) == 1


@pytest.mark.parametrize(
    "optimiser",
    [
        optim.sgd(0.5),
        optim.momentum(0.1),
        optim.nesterov(0.1).clipped(1.0),
        optim.adam(optim.warm_up(optim.cosine(0.02, 100), 10)),
        optim.adamw(0.02),
        optim.adagrad(0.1),
        optim.rmsprop(0.005),
    ],
)
def test_classification_is_learnt(optimiser):
    model = nn.Sequential(nn.Dense(5, 16), nn.tanh, nn.Dense(16, 3))
    x = draw(60, 5)
    labels = np.argmax(x[:, :3], axis=1)
    losses, params = train(model, nn.cross_entropy, optimiser, x, labels, 100)
    assert losses[-1] < losses[0] / 3
    assert nn.accuracy(model(params, x), labels) > 0.9


def test_dropout_and_batch_norm_train_in_one_function():
    model = nn.Sequential(
        nn.Conv(1, 4, 3),
        nn.BatchNorm(4),
        nn.relu,
        nn.MaxPool(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Dense(36, 2),
    )
    optimiser = optim.adam(1e-2)

    @gc.compile
    def step(params, state, statistics, key, x, labels):
        def loss(params):
            key_now = gc.random.fold_in(key, state["step"])
            logits, kept = model.apply(params, x, statistics, key=key_now, training=True)
            return nn.cross_entropy(logits, labels), kept

        (value, kept), gradients = gc.value_and_grad(loss, has_aux=True)(params)
        return value, *optimiser.update(gradients, state, params), kept

    x = np.random.default_rng(1).normal(size=(32, 1, 8, 8)).astype(np.float32)
    labels = (x[:, 0, :4].mean((1, 2)) > x[:, 0, 4:].mean((1, 2))).astype(int)
    params, statistics = model.init(KEY), model.state()
    state, losses = optimiser.init(params), []
    for _ in range(60):
        value, params, state, statistics = step(params, state, statistics, KEY, x, labels)
        losses.append(value)
    assert losses[-1] < 0.2 * losses[0]
    assert nn.accuracy(model(params, x, statistics), labels) > 0.95


# ------------------------------------------------------------------------------- gradients


def gradients(layer, params, x, weights, **options):
    """Of sum(layer(x) * weights): by the parameters and by x."""
    loss = lambda params, x: (layer(params, x) * weights).sum()
    return gc.compile(gc.grad(loss, wrt=(0, 1)), **options)(params, x)


def test_gradient_of_a_scanned_lstm_is_that_of_the_loop_bit_for_bit():
    for options in ({}, {"sequences": False}):
        layers = [nn.LSTM(3, 4, unroll=unroll, **options) for unroll in (False, True)]
        params, x = layers[0].init(KEY), draw(2, 6, 3)
        weights = draw(*layers[0](params, x).shape)
        scanned, looped = (
            flatten(gradients(layer, params, x, weights, fast_math=False))[0] for layer in layers
        )
        for a, b in zip(scanned, looped, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reset_after", [True, False])
def test_gradient_of_a_scanned_gru_is_that_of_the_loop(reset_after):
    layers = [nn.GRU(3, 4, unroll=u, reset_after=reset_after) for u in (False, True)]
    params, x, weights = layers[0].init(KEY), draw(2, 6, 3), draw(2, 6, 4)
    scanned, looped = (flatten(gradients(layer, params, x, weights))[0] for layer in layers)
    for a, b in zip(scanned, looped, strict=True):
        close(a, b)


def check_against_torch(theirs, layer, from_torch, to_torch, x):
    torch = pytest.importorskip("torch")
    names = [name.rsplit("_l0")[0].replace(".", "_") for name, _ in theirs.named_parameters()]
    held = dict(zip(names, (p.detach().numpy() for p in theirs.parameters())))
    if isinstance(theirs, torch.nn.MultiheadAttention):
        made = theirs(x_ := torch.tensor(x, requires_grad=True), x_, x_)
    else:
        made = theirs(x_ := torch.tensor(x, requires_grad=True))
    made = made[0] if isinstance(made, tuple) else made
    weights = draw(*made.shape)
    (made * torch.tensor(weights)).sum().backward()
    ours, by_x = gradients(layer, from_torch(**held), x, weights)
    np.testing.assert_allclose(by_x, x_.grad, rtol=1e-4, atol=1e-5)
    found = to_torch(ours)
    assert sorted(found) == sorted(held)
    for name, p in zip(names, theirs.parameters()):
        np.testing.assert_allclose(found[name], p.grad, rtol=1e-4, atol=2e-5, err_msg=name)


@pytest.mark.slow
def test_gradients_equal_those_of_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    same = lambda **params: params
    back = lambda params: params
    kinds = torch.nn
    for theirs, layer, there, to, shape in (
        (
            kinds.Linear(5, 4),
            nn.Dense(5, 4),
            layouts.dense_from_torch,
            layouts.dense_to_torch,
            (3, 5),
        ),
        (
            kinds.Conv2d(4, 6, (3, 2), 2, 1, groups=2),
            nn.Conv(4, 6, (3, 2), stride=2, padding=1, groups=2),
            same,
            back,
            (2, 4, 9, 8),
        ),
        (kinds.LayerNorm(6), nn.LayerNorm(6), same, back, (4, 6)),
        (
            kinds.LSTM(5, 4, batch_first=True),
            nn.LSTM(5, 4),
            layouts.lstm_from_torch,
            layouts.lstm_to_torch,
            (3, 6, 5),
        ),
        (
            kinds.GRU(5, 4, batch_first=True),
            nn.GRU(5, 4),
            layouts.gru_from_torch,
            layouts.gru_to_torch,
            (3, 6, 5),
        ),
        (
            kinds.MultiheadAttention(8, 2, batch_first=True),
            nn.MultiHeadAttention(8, 2),
            layouts.attention_from_torch,
            layouts.attention_to_torch,
            (3, 5, 8),
        ),
    ):
        check_against_torch(theirs, layer, there, to, draw(*shape))


def test_gradient_of_an_embedding_counts_repeated_rows():
    layer, ids, weights = nn.Embedding(5, 2), np.array([[1, 1], [4, 1]]), draw(2, 2, 2)
    made = gc.grad(lambda p: (layer(p, ids) * weights).sum())(layer.init(KEY))["weight"]
    want = np.zeros((5, 2), np.float32)
    np.add.at(want, ids, weights)
    close(made, want)


def test_gradient_of_batch_norm_while_training_equals_that_of_torch():
    torch = pytest.importorskip("torch")
    theirs, layer, x = torch.nn.BatchNorm2d(3), nn.BatchNorm(3), draw(4, 3, 5, 2)
    made = theirs(x_ := torch.tensor(x, requires_grad=True))
    weights = draw(*made.shape)
    (made * torch.tensor(weights)).sum().backward()
    state = layer.state()
    loss = lambda params, x: (layer(params, x, state, training=True) * weights).sum()
    by_params, by_x = gc.grad(loss, wrt=(0, 1))(layer.init(KEY), x)
    np.testing.assert_allclose(by_x, x_.grad, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_params["weight"], theirs.weight.grad, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_params["bias"], theirs.bias.grad, rtol=1e-4, atol=1e-5)
