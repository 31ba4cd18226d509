"""The cases in PyTorch, written as its users write them: fused functions where it has them.

Each entry takes the case's arguments as tensors. `LOOPS` replaces an entry under `torch.compile`
where the eager one is a single opaque kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.cases import HEADS, HIDDEN, tree
from benchmarks.training import RATE


def call(a, b, c, d):
    return a * b + c * d


def pointwise(x, y, w, b):
    return F.gelu(x * w + b, approximate="tanh") * torch.sigmoid(y)


def softmax(x):
    return torch.softmax(x, dim=-1)


def layer_norm(x, scale, shift, epsilon=1e-5):
    return F.layer_norm(x, x.shape[-1:], scale, shift, epsilon)


def mlp(x, p):
    h = F.relu(torch.addmm(p["b1"], x, p["w1"]))
    h = F.relu(torch.addmm(p["b2"], h, p["w2"]))
    return torch.addmm(p["b3"], h, p["w3"])


def attention(x, p, heads, hide=None):
    count, length, width = x.shape

    def split(part):
        projected = x @ p["w" + part] + p["b" + part]
        return projected.view(count, length, heads, width // heads).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(split("q"), split("k"), split("v"), attn_mask=hide)
    return mixed.transpose(1, 2).reshape(count, length, width) @ p["wo"] + p["bo"]


def transformer(x, p):
    x = x + attention(layer_norm(x, p["s1"], p["t1"]), p, HEADS["transformer"])
    h = layer_norm(x, p["s2"], p["t2"]) @ p["w1"] + p["b1"]
    return x + F.gelu(h, approximate="tanh") @ p["w2"] + p["b2"]


def lstm(x, p):
    start = torch.zeros(1, x.shape[1], HIDDEN)
    weights = [p["wx_t"], p["wh_t"], p["b"], p["zero"]]
    return torch.lstm(x, (start, start), weights, True, 1, 0.0, False, False, False)[0]


def lstm_loop(x, p):
    h = c = torch.zeros(x.shape[1], HIDDEN)
    states = []
    for step in x.unbind(0):
        i, f, g, o = (step @ p["wx"] + h @ p["wh"] + p["b"]).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states)


def conv(x, w):
    return F.conv2d(x, w, padding=1)


def gemm(a, b):
    return a @ b


def minilm(ids, mask, p):
    x = F.embedding(ids, p["words"]) + p["positions"][: ids.shape[1]] + p["kind"]
    x = layer_norm(x, p["s"], p["t"], 1e-12)
    hide = (mask[:, None, None, :] - 1) * 1e9
    for q in p["layers"]:
        attended = attention(x, q, HEADS["minilm"], hide)
        x = layer_norm(x + attended, q["s1"], q["t1"], 1e-12)
        h = F.gelu(x @ q["w1"] + q["b1"])
        x = layer_norm(x + (h @ q["w2"] + q["b2"]), q["s2"], q["t2"], 1e-12)
    pooled = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    return F.normalize(pooled, dim=-1)


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
LOOPS: dict[str, Callable[..., Any]] = {"lstm": lstm_loop}


def tensors(value: Any) -> Any:
    """The same nesting with arrays as tensors."""
    if isinstance(value, dict):
        return {key: tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(tensors, value))
    return torch.from_numpy(value)


def arguments(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors, with the weight layouts that an `nn.Module` would hold prepared beforehand."""
    inputs = tensors(values)
    if name == "lstm":
        p = inputs[1]
        p |= {f"{k}_t": p[k].t().contiguous() for k in ("wx", "wh")}
        p["zero"] = torch.zeros(4 * HIDDEN)
    return inputs


# -- training steps: losses of the parameters and the inputs --------------------------------------


def convnet(p, x, labels):
    h = F.max_pool2d(F.relu(F.conv2d(x, p["c1"], p["b1"].view(-1), padding=1)), 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, p["c2"], p["b2"].view(-1), padding=1)), 2)
    return F.cross_entropy(torch.addmm(p["b"], h.flatten(1), p["w"]), labels)


def layer(p, x):
    """`torch.lstm` wants weights that an `nn.LSTM` would hold transposed."""
    return lstm(x, p | {"wx_t": p["wx"].t(), "wh_t": p["wh"].t(), "zero": torch.zeros_like(p["b"])})


LOSSES: dict[str, Callable[..., Any]] = {
    "train-mlp": lambda p, x, labels: F.cross_entropy(mlp(x, p), labels),
    "train-transformer": lambda p, x, target: F.mse_loss(transformer(x, p), target),
    "train-lstm": lambda p, x, target: F.mse_loss(layer(p, x), target),
    "train-conv": convnet,
}
LOSS_LOOPS: dict[str, Callable[..., Any]] = {
    "train-lstm": lambda p, x, target: F.mse_loss(lstm_loop(x, p), target)
}


def training(name: str, params: dict[str, torch.Tensor], compiled: bool) -> Callable[..., Any]:
    """step(params, *inputs) -> (the params, updated in place, and the loss)."""
    loss = LOSSES[name]
    if compiled:
        loss = torch.compile(LOSS_LOOPS.get(name, loss))
    leaves = [p.requires_grad_() for p in params.values()]
    optimiser = torch.optim.SGD(leaves, lr=RATE, fused=True)

    def step(params, *inputs):
        optimiser.zero_grad()
        value = loss(params, *inputs)
        value.backward()
        optimiser.step()
        return params, value.detach()

    return step
