"""The cases in JAX, written as its users write them: `jax.nn`, `lax.scan`, `lax.conv`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.cases import HEADS, HIDDEN, tree
from benchmarks.training import RATE


def call(a, b, c, d):
    return a * b + c * d


def pointwise(x, y, w, b):
    return jax.nn.gelu(x * w + b) * jax.nn.sigmoid(y)


def softmax(x):
    return jax.nn.softmax(x)


def layer_norm(x, scale, shift, epsilon=1e-5):
    return jax.nn.standardize(x, epsilon=epsilon) * scale + shift


def mlp(x, p):
    h = jax.nn.relu(x @ p["w1"] + p["b1"])
    h = jax.nn.relu(h @ p["w2"] + p["b2"])
    return h @ p["w3"] + p["b3"]


def attention(x, p, heads, hide=None):
    count, length, width = x.shape

    def split(part):
        return (x @ p["w" + part] + p["b" + part]).reshape(count, length, heads, width // heads)

    mixed = jax.nn.dot_product_attention(split("q"), split("k"), split("v"), bias=hide)
    return mixed.reshape(count, length, width) @ p["wo"] + p["bo"]


def transformer(x, p):
    x = x + attention(layer_norm(x, p["s1"], p["t1"]), p, HEADS["transformer"])
    h = jax.nn.gelu(layer_norm(x, p["s2"], p["t2"]) @ p["w1"] + p["b1"])
    return x + h @ p["w2"] + p["b2"]


def lstm(x, p):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ p["wx"] + h @ p["wh"] + p["b"], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], HIDDEN), jnp.float32)
    return jax.lax.scan(step, (zeros, zeros), x)[1]


def conv(x, w):
    return jax.lax.conv(x, w, (1, 1), "SAME")


def gemm(a, b):
    return a @ b


def minilm(ids, mask, p):
    x = p["words"][ids] + p["positions"][: ids.shape[1]] + p["kind"]
    x = layer_norm(x, p["s"], p["t"], 1e-12)
    hide = (mask[:, None, None, :] - 1) * 1e9
    for q in p["layers"]:
        attended = attention(x, q, HEADS["minilm"], hide)
        x = layer_norm(x + attended, q["s1"], q["t1"], 1e-12)
        h = jax.nn.gelu(x @ q["w1"] + q["b1"], approximate=False)
        x = layer_norm(x + (h @ q["w2"] + q["b2"]), q["s2"], q["t2"], 1e-12)
    pooled = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "call": call,
    "tree": tree,
    "pointwise": pointwise,
    "softmax": softmax,
    "layernorm": layer_norm,
    "mlp": mlp,
    "transformer": transformer,
    "lstm": lstm,
    "conv": conv,
    "minilm": minilm,
    "gemm": gemm,
}


# -- training steps: losses of the parameters and the inputs --------------------------------------


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -chosen.mean()


def pooled(x):
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def convnet(p, x, labels):
    h = pooled(jax.nn.relu(conv(x, p["c1"]) + p["b1"]))
    h = pooled(jax.nn.relu(conv(h, p["c2"]) + p["b2"]))
    return cross_entropy(h.reshape(len(x), -1) @ p["w"] + p["b"], labels)


LOSSES: dict[str, Callable[..., Any]] = {
    "train-mlp": lambda p, x, labels: cross_entropy(mlp(x, p), labels),
    "train-transformer": lambda p, x, target: jnp.square(transformer(x, p) - target).mean(),
    "train-lstm": lambda p, x, target: jnp.square(lstm(x, p) - target).mean(),
    "train-conv": convnet,
}


def training(name: str) -> Callable[..., Any]:
    """step(params, *inputs) -> (new params in the memory of the old ones, loss)."""

    def step(params, *inputs):
        value, gradients = jax.value_and_grad(LOSSES[name])(params, *inputs)
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), value

    return jax.jit(step, donate_argnums=0)
