"""Whole training steps: loss, gradients and the update of the parameters, which the step consumes.

NumPy has no gradients, so these cases have no NumPy baseline: graphc and the peer judge each other
by the loss and by how far every parameter has moved after a few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.cases import F32, HIDDEN, STEPS, Case, block_flops, dense, normal, sigmoid

RATE = 0.05
MOVES = 4  # steps after which results are compared
TOLERANCE = 2e-3  # of the largest move: differences of float32 parameters lose digits
Loss = Callable[..., Any]


def sgd(gc: ModuleType, case: Case) -> Callable[..., Any]:
    """step(params, *inputs) -> (new params, loss), for `gc.compile(..., donate=["params"])`."""
    assert case.native is not None
    loss = case.native(gc)

    def step(params, *inputs):
        value, gradients = gc.value_and_grad(loss)(params, *inputs)
        rate = F32(RATE)
        return {k: p - rate * gradients[k] for k, p in params.items()}, value

    return step


# -- losses, as functions of the parameters and the inputs ----------------------------------------


def train_mlp(gc: ModuleType) -> Loss:
    return lambda p, x, labels: gc.cross_entropy(cases.mlp(x, p), labels)


def mean_square(difference):
    return (difference * difference).mean()


def train_transformer(gc: ModuleType) -> Loss:
    return lambda p, x, target: mean_square(cases.transformer(x, p) - target)


def train_lstm(gc: ModuleType) -> Loss:
    def loss(p, x, target):
        def step(state, x):
            h, c = state
            gates = x @ p["wx"] + h @ p["wh"] + p["b"]
            i, f, g, o = (gates[:, k * HIDDEN : (k + 1) * HIDDEN] for k in range(4))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            return (h, c), h

        start = np.zeros((x.shape[1], HIDDEN), F32)
        return mean_square(gc.scan(step, (start, start), x)[1] - target)

    return loss


def train_conv(gc: ModuleType) -> Loss:
    def loss(p, x, labels):
        h = gc.max_pool(np.maximum(gc.conv(x, p["c1"], padding=1) + p["b1"], 0), 2)
        h = gc.max_pool(np.maximum(gc.conv(h, p["c2"], padding=1) + p["b2"], 0), 2)
        return gc.cross_entropy(h.reshape(len(x), -1) @ p["w"] + p["b"], labels)

    return loss


# -- their arguments: parameters first ------------------------------------------------------------


def mlp_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    x, p = cases.mlp_arguments(128)(rng)
    return p, x, rng.integers(0, 10, 128)


def transformer_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    p = cases.transformer_parameters(rng, 512, 2048)
    return p, normal(rng, 4, 128, 512), normal(rng, 4, 128, 512)


def lstm_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    x, p = cases.lstm_arguments(rng)
    return p, x, normal(rng, STEPS, x.shape[1], HIDDEN, scale=0.5)


def conv_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    """64 pictures of 28x28 pixels, 16 and 32 channels and a dense layer."""
    p = {
        "c1": normal(rng, 16, 1, 3, 3, scale=1 / 3),
        "b1": normal(rng, 16, 1, 1, scale=0.1),
        "c2": normal(rng, 32, 16, 3, 3, scale=1 / 12),
        "b2": normal(rng, 32, 1, 1, scale=0.1),
        "w": dense(rng, 32 * 7 * 7, 10),
        "b": normal(rng, 10, scale=0.1),
    }
    return p, normal(rng, 64, 1, 28, 28), rng.integers(0, 10, 64)


# -- the list: a backward pass has two products for each of the forward pass ----------------------

MLP = 784 * 512, 512 * 256 + 256 * 10
BLOCK = 4 * 512 * 512 + 2 * 512 * 2048
CONV = 64 * 28 * 28 * 16 * 9, 64 * (14 * 14 * 32 * 16 * 9 + 32 * 49 * 10)


def training(name: str, native: Any, arguments: Any, flops: float, parameters: int) -> Case:
    """Its bytes are those of reading and writing every parameter."""
    return Case(name, None, arguments, flops, 8 * parameters, TOLERANCE, native)


CASES = {
    case.name: case
    for case in (
        training(
            "train-mlp", train_mlp, mlp_arguments, 2 * 128 * (2 * MLP[0] + 3 * MLP[1]), sum(MLP)
        ),
        training(
            "train-transformer",
            train_transformer,
            transformer_arguments,
            3 * block_flops(4, 128, 512, 2048),
            BLOCK,
        ),
        training(
            "train-lstm",
            train_lstm,
            lstm_arguments,
            2 * STEPS * 20 * HIDDEN * HIDDEN * 4 * (2 + 3),
            8 * HIDDEN * HIDDEN,
        ),
        training("train-conv", train_conv, conv_arguments, 2 * (2 * CONV[0] + 3 * CONV[1]), 20_458),
    )
}
