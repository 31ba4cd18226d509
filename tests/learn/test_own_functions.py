"""What a user's own function may do, it may also do where graphc's own code calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import nn


class OneHot(nn.Layer):
    """Rows of a known array, chosen by the input."""

    def forward(self, params: Any, x: Any) -> Any:
        return np.eye(4, dtype="f4")[x]


class Written(nn.Layer):
    """An array that is made and written inside."""

    def init(self, key: Any, dtype: Any = "f32") -> Any:
        made = np.zeros(3, "f4")
        made[0] = gc.random.normal(key, ())
        return {"shift": made}

    def forward(self, params: Any, x: Any) -> Any:
        made = np.zeros(3, "f4")
        made[0] = x.sum()
        made[1:] = x[1:] * 2
        return made


class Counted(nn.Layer):
    """A layer with its own apply and a state."""

    def state(self, dtype: Any = "f32") -> Any:
        return np.zeros(3, "f4")

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> Any:
        made = np.zeros(3, "f4")
        made[0] = state[0] + x.sum()
        return x * np.ones(3, "f4"), made


def of_batch(x: Any) -> Any:
    made = np.zeros(x.shape, "f4")
    made[:, 0] = x.sum(axis=1)
    return made


class OfBatch(nn.Layer):
    def forward(self, params: Any, x: Any) -> Any:
        return of_batch(x)


def same(made: Any, wanted: Any) -> None:
    assert np.shape(made) == np.shape(wanted)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


INDICES = np.array([1, 2, 3])
X = np.array([1.0, 2.0, 4.0], "f4")
BATCH = np.arange(12, dtype="f4").reshape(3, 4)
WRITTEN = np.array([7, 4, 8], "f4")


@pytest.mark.parametrize(
    "call",
    [
        lambda layer, x: layer({}, x),
        lambda layer, x: layer.forward({}, x),
        lambda layer, x: layer.apply({}, x)[0],
    ],
    ids=["call", "forward", "apply"],
)
def test_a_layer_of_ones_own_makes_and_writes_arrays(call: Any) -> None:
    same(gc.compile(lambda x: call(OneHot(), x))(INDICES), np.eye(4)[INDICES])
    same(gc.compile(lambda x: call(Written(), x))(X), WRITTEN)


@pytest.mark.parametrize("kind", [nn.Sequential, nn.Residual])
def test_a_layer_of_ones_own_within_others(kind: Any) -> None:
    own = X if kind is nn.Residual else 0
    layers = nn.Sequential(nn.Sequential(Written()), nn.relu, lambda x: x * np.eye(3)[0])
    inner = kind(*layers.layers)
    expected = own + WRITTEN * np.eye(3)[0]
    same(gc.compile(lambda x: inner([[None], None, None], x))(X), expected)


def test_functions_and_numpys_own_as_layers() -> None:
    net = nn.Sequential(of_batch, np.tanh, gc.tanh, OfBatch())
    expected = of_batch(np.tanh(np.tanh(of_batch(BATCH))))
    same(gc.compile(net)([None] * 4, BATCH), expected)
    same(net([None] * 4, BATCH), expected)


def test_init_and_state_of_ones_own_layer() -> None:
    net = nn.Sequential(Written(), Counted())
    key = gc.random.key(3)
    made = gc.compile(net.init)(key)
    same(made[0]["shift"], [gc.random.normal(key=gc.random.fold_in(key, 0), shape=()), 0, 0])
    result, state = gc.compile(lambda x, state: net.apply([None, None], x, state))(
        X, [None, np.ones(3, "f4")]
    )
    same(result, WRITTEN)
    same(state[1], [20, 0, 0])


def test_the_first_weights_are_made_by_ones_own_function() -> None:
    def weights(key: Any, shape: Any, dtype: Any) -> Any:
        made = np.zeros(shape, "f4")
        made[0] = gc.random.normal(key, shape[1:])
        return made

    layer = nn.Dense(2, 3, weights=weights)
    made = gc.compile(layer.init)(gc.random.key(0))["weight"]
    same(made[1], np.zeros(3))
    same(made[0], gc.random.normal(gc.random.key(0), (3,)))


class Objective:
    def __call__(self, result: Any, target: Any) -> Any:
        return ((result - np.eye(3, dtype="f4")[target]) ** 2).mean()


def squared(result: Any, target: Any) -> Any:
    wanted = np.zeros(result.shape, "f4")
    wanted[np.arange(len(target)), target] = 1
    return ((result - wanted) ** 2).mean()


def hits(result: Any, target: Any) -> Any:
    return (np.eye(3)[result.argmax(1)] * np.eye(3)[target]).sum()


class Descent:
    """An optimiser of one's own."""

    def init(self, params: Any) -> Any:
        return np.zeros((), "i8")

    def update(self, gradients: Any, state: Any, params: Any) -> Any:
        rate = np.array([0.5, 0.25, 0.125], "f4")[state]
        return {k: params[k] - rate * gradients[k] for k in params}, state + 1


def halving(step: Any) -> Any:
    return np.array([0.5, 0.25, 0.125])[step]


TARGET = np.array([2, 0, 1])


def _trained(network: Any, loss: Any, optimizer: Any, params: Any = None) -> Any:
    model = gc.Model(network, params, loss=loss, optimizer=optimizer, metrics=[hits], seed=1)
    first = model.weights()
    figures = [model.train_step(BATCH, TARGET) for _ in range(2)]
    return model, first, figures


def _by_hand(weights: Any, bias: Any) -> Any:
    """Two steps of descent in f64: the losses, the hits before them, and the weights."""
    losses, found = [], []
    for rate in (0.5, 0.25):
        result = BATCH @ weights + bias
        off = result - np.eye(3)[TARGET]
        losses.append((off**2).mean())
        found.append((result.argmax(1) == TARGET).sum())
        slope = 2 * off / off.size
        weights, bias = weights - rate * (BATCH.T @ slope), bias - rate * slope.sum(0)
    return losses, found, weights


@pytest.mark.parametrize("loss", [squared, Objective(), lambda r, t: Objective()(r, t)])
@pytest.mark.parametrize("optimizer", [Descent(), gc.optim.sgd(halving)])
def test_loss_metric_and_optimiser_of_ones_own(loss: Any, optimizer: Any) -> None:
    def scaled(params: Any, x: Any) -> Any:
        made = np.zeros((3, 3), "f4")
        made[:] = x @ params["weight"] + params["bias"]
        return made

    start = {"weight": np.full((4, 3), 0.01, "f4"), "bias": np.zeros(3, "f4")}
    model, _, figures = _trained(scaled, loss, optimizer, start)
    losses, found, weights = _by_hand(np.full((4, 3), 0.01), np.zeros(3))
    np.testing.assert_allclose([f["loss"] for f in figures], losses, rtol=1e-4)
    assert [int(f["hits"]) for f in figures] == found
    np.testing.assert_allclose(model.params["weight"], weights, rtol=1e-3, atol=1e-5)
    measured = model.evaluate((BATCH, TARGET))
    np.testing.assert_allclose(measured["hits"], hits(model.predict(BATCH), TARGET))


def test_an_own_schedule_after_a_warm_up_and_an_own_mask() -> None:
    rate = gc.optim.warm_up(halving, 2)
    same(gc.compile(rate)(np.array(3)), 0.25)

    def mask(params: Any) -> Any:
        return {name: bool(np.eye(2)[len(p.shape) - 1][1]) for name, p in params.items()}

    optimizer = gc.optim.adamw(halving, weight_decay=0.5, mask=mask)
    params = {"weight": np.ones((2, 2), "f4"), "bias": np.ones(2, "f4")}
    zero = {name: np.zeros_like(p) for name, p in params.items()}
    new, _ = gc.compile(optimizer.update)(zero, optimizer.init(params), params)
    same(new["weight"], np.full((2, 2), 0.75))
    same(new["bias"], np.ones(2))


def test_a_layer_of_ones_own_on_a_device() -> None:
    same(gc.compile(gc.parallel.on("cpu:0", Written()))(None, X), WRITTEN)


def test_a_replicated_function_of_ones_own() -> None:
    step = gc.parallel.replicate(lambda params, x: of_batch(x) * params, ["cpu:0", "cpu:0"])
    made = gc.compile(lambda params, x: step(params, x))(np.float32(2), BATCH[:2])
    same(made, of_batch(BATCH[:2]).reshape(2, 1, 4).mean(0) * 2)
