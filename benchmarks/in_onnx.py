"""The cases as ONNX graphs, built by hand, for ONNX Runtime.

Weights are initialisers, as in an exported model, so the runtime may pre-pack them. Activations are
inputs. Operator set 20 has `Gelu` and `LayerNormalization`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from benchmarks.cases import HEADS, HIDDEN

OPSET = 20


class Net:
    """An ONNX graph under construction; values are names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, array: np.ndarray) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs[name] = array
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.initializers)}"
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x: str, p: dict[str, Any], k: str) -> str:
        product = self.op("MatMul", x, self.constant(p["w" + k]))
        return self.op("Add", product, self.constant(p["b" + k]))

    def layer_norm(self, x: str, scale: Any, shift: Any, epsilon: float) -> str:
        constants = self.constant(scale), self.constant(shift)
        return self.op("LayerNormalization", x, *constants, axis=-1, epsilon=epsilon)

    def model(self, output: str, dtype: Any = np.float32) -> bytes:
        kind = helper.np_dtype_to_tensor_dtype
        values = [
            helper.make_tensor_value_info(name, kind(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        result = helper.make_tensor_value_info(output, kind(np.dtype(dtype)), None)
        graph = helper.make_graph(self.nodes, "case", values, [result], self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9
        )
        return model.SerializeToString()


def call(net, a, b, c, d):
    a, b, c, d = map(net.input, (a, b, c, d))
    return net.op("Add", net.op("Mul", a, b), net.op("Mul", c, d))


def tree(net, p, x):
    x = net.input(x)
    for layer in p.values():
        x = net.op("Add", net.op("Mul", x, net.input(layer["w"])), net.input(layer["b"]))
    return x


def pointwise(net, x, y, w, b):
    scaled = net.op("Mul", net.input(x), net.constant(w))
    gelu = net.op("Gelu", net.op("Add", scaled, net.constant(b)), approximate="tanh")
    return net.op("Mul", gelu, net.op("Sigmoid", net.input(y)))


def softmax(net, x):
    return net.op("Softmax", net.input(x), axis=-1)


def layer_norm(net, x, scale, shift):
    return net.layer_norm(net.input(x), scale, shift, 1e-5)


def mlp(net, x, p):
    h = net.input(x)
    for i in "12":
        h = net.op("Relu", net.op("Gemm", h, net.constant(p["w" + i]), net.constant(p["b" + i])))
    return net.op("Gemm", h, net.constant(p["w3"]), net.constant(p["b3"]))


def attention(net, x, p, shape, heads, hide=None):
    count, length, width = shape
    split_shape = net.constant([count, length, heads, width // heads], np.int64)

    def split(part, order):
        projected = net.op("Reshape", net.linear(x, p, part), split_shape)
        return net.op("Transpose", projected, perm=order)

    scores = net.op("MatMul", split("q", [0, 2, 1, 3]), split("k", [0, 2, 3, 1]))
    scores = net.op("Mul", scores, net.constant((width // heads) ** -0.5))
    weights = net.op("Softmax", net.op("Add", scores, hide) if hide else scores, axis=-1)
    mixed = net.op("MatMul", weights, split("v", [0, 2, 1, 3]))
    mixed = net.op("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = net.op("Reshape", mixed, net.constant([count, length, width], np.int64))
    return net.linear(mixed, p, "o")


def transformer(net, x, p):
    shape, x = x.shape, net.input(x)
    normed = net.layer_norm(x, p["s1"], p["t1"], 1e-5)
    x = net.op("Add", x, attention(net, normed, p, shape, HEADS["transformer"]))
    h = net.linear(net.layer_norm(x, p["s2"], p["t2"], 1e-5), p, "1")
    return net.op("Add", x, net.linear(net.op("Gelu", h, approximate="tanh"), p, "2"))


def lstm(net, x, p):
    def weights(array):
        """Rows of the gates, from the order i f g o to the order i o f g of ONNX."""
        i, f, g, o = np.split(array.T, 4)
        return np.concatenate([i, o, f, g])[None]

    bias = np.concatenate([weights(p["b"]), np.zeros((1, 4 * HIDDEN), np.float32)], axis=1)
    constants = [net.constant(a) for a in (weights(p["wx"]), weights(p["wh"]), bias)]
    states, _ = net.op("LSTM", net.input(x), *constants, outputs=2, hidden_size=HIDDEN)
    return net.op("Squeeze", states, net.constant([1], np.int64))


def conv(net, x, w):
    return net.op("Conv", net.input(x), net.constant(w), pads=[1, 1, 1, 1])


def gemm(net, a, b):
    return net.op("MatMul", net.input(a), net.input(b))


def minilm(net, ids, mask, p):
    shape = (*ids.shape, 384)
    words = net.op("Gather", net.constant(p["words"]), net.input(ids))
    keep = net.input(mask)
    places = net.constant(p["positions"][: shape[1]] + p["kind"])
    x = net.layer_norm(net.op("Add", words, places), p["s"], p["t"], 1e-12)
    wide = net.op("Unsqueeze", keep, net.constant([1, 2], np.int64))
    hide = net.op("Mul", net.op("Sub", wide, net.constant(1)), net.constant(1e9))
    for q in p["layers"]:
        attended = attention(net, x, q, shape, HEADS["minilm"], hide)
        x = net.layer_norm(net.op("Add", x, attended), q["s1"], q["t1"], 1e-12)
        outer = net.linear(net.op("Gelu", net.linear(x, q, "1")), q, "2")
        x = net.layer_norm(net.op("Add", x, outer), q["s2"], q["t2"], 1e-12)
    one = net.constant([1], np.int64)
    kept = net.op("Mul", x, net.op("Unsqueeze", keep, net.constant([2], np.int64)))
    total = net.op("ReduceSum", kept, one, keepdims=0)
    mean = net.op("Div", total, net.op("ReduceSum", keep, one, keepdims=1))
    return net.op("LpNormalization", mean, axis=-1, p=2)


FUNCTIONS: dict[str, Callable[..., str]] = {
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


def build(name: str, arguments: tuple[Any, ...]) -> tuple[bytes, dict[str, np.ndarray]]:
    """The serialised model of a case and the arrays to feed it."""
    net = Net()
    output = FUNCTIONS[name](net, *arguments)
    return net.model(output), net.inputs
