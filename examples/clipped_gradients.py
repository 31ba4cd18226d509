"""Gradients per example: a network learns from data of which a part is wrong, by clipping each one.

One wild example has a large gradient and drags all parameters along.  `gc.vmap(gc.grad(loss))` is
the gradient of every example by itself, in one native call; scaled to a length of at most 1 they
are summed (as in the private training of Abadi et al., 2016, without its noise).

    python examples/clipped_gradients.py
"""

import numpy as np

import graphc as gc

INPUTS, HIDDEN, BATCH, STEPS = 16, 64, 64, 400


def predict(params, x):
    return np.tanh(x @ params["w"] + params["b"]) @ params["v"]


def loss(params, x, y):
    """Of one example: x is a vector, y a number."""
    return (predict(params, x) - y) ** 2


def clipped(params, x, y):
    """The mean of the gradients of all examples, none of them longer than 1."""

    def one(x, y):
        gradient = gc.grad(loss)(params, x, y)
        length = np.sqrt(sum((part**2).sum() for part in gradient.values()))
        return {name: part / np.maximum(length, 1) for name, part in gradient.items()}

    return {name: each.mean(0) for name, each in gc.vmap(one)(x, y).items()}


def plain(params, x, y):
    return gc.grad(lambda p: gc.vmap(lambda x, y: loss(p, x, y))(x, y).mean())(params)


def trained(gradient, x, y, rate: float):
    @gc.compile
    def step(params, x, y):
        change = gradient(params, x, y)
        return {name: params[name] - rate * change[name] for name in params}

    rng = np.random.default_rng(1)
    params = {
        "w": rng.normal(size=(INPUTS, HIDDEN)) / np.sqrt(INPUTS),
        "b": np.zeros(HIDDEN),
        "v": rng.normal(size=HIDDEN) / np.sqrt(HIDDEN),
    }
    for _ in range(STEPS):
        rows = rng.integers(0, len(x), BATCH)
        params = step(params, x[rows], y[rows])
    return params


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4096, INPUTS))
    y = np.sin(x @ rng.normal(size=INPUTS) / 2)
    wrong = rng.random(len(x)) < 0.05
    given = np.where(wrong, rng.normal(size=len(x)) * 30, y)
    for name, gradient, rate in (("plain", plain, 0.02), ("clipped", clipped, 0.2)):
        made = gc.compile(predict)(trained(gradient, x, given, rate), x)
        print(f"{name:8s} mean squared error on the true values: {np.mean((made - y) ** 2):.3f}")


if __name__ == "__main__":
    main()
