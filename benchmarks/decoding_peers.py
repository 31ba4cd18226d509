"""A step of `benchmarks.decoding` in torch, ONNX Runtime and OpenVINO.

torch runs the model op by op, its cache written in place; the two runtimes take it as an ONNX model
whose products are MatMul, MatMulNBits (4 bits, and 8 in ONNX Runtime) or products by a
DequantizeLinear of constants.  They are given the cache and return what joins it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graphc.ops.linalg.few_bits import numbers_of

Run = Callable[[], Any]
WIDE = 128  # weights of 8 bits that share a scale in MatMulNBits, which has none for a column


class Unavailable(Exception):
    """This peer cannot run this case; the message says why."""


def matrix(w: Any) -> Any:
    """A weight as f32."""
    return np.asarray(w.dense() if hasattr(w, "dense") else w, np.float32)


def integers(q: Any) -> tuple[Any, Any]:
    """The integers [columns, depth] and scales [columns, groups] of a quantized weight."""
    numbers, scales = (
        np.asarray(part).swapaxes(1, 2).reshape(-1, part.shape[1])[: q.rows]
        for part in (numbers_of(q.words, q.bits), q.scales)
    )
    return numbers.astype(np.int8), scales


# ---------------------------------------------------------------------------------------- torch


class Torch:
    """The model op by op; weights of 8 and 4 bits by the packed products that torch has."""

    def __init__(self, params: Any, bits: int, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch, self.bits = torch, bits
        self.dtype = torch.float32 if bits == 32 else torch.bfloat16
        self.params = params
        self.words = self.tensor(matrix(params["words"]))
        self.places = self.tensor(matrix(params["places"]))
        head = params["words"] if bits > 8 else params["words"].T
        self.head = self.linear({"w": head.T if bits > 8 else head})
        self.layers = [
            {k: self.linear(p[k]) for k in ("qkv", "out", "up", "down")}
            | {k: [self.tensor(p[k][n]) for n in ("scale", "shift")] for k in ("norm1", "norm2")}
            for p in params["layers"]
        ]
        self.norm = [self.tensor(params["norm"][n]) for n in ("scale", "shift")]

    def tensor(self, array: Any) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(self.dtype)

    def linear(self, p: Any) -> Callable[[Any], Any]:
        torch, w = self.torch, p["w"]
        bias = self.tensor(p["b"]) if "b" in p else None
        if self.bits > 8:
            held = self.tensor(matrix(w).T)
            return lambda x: torch.nn.functional.linear(x, held, bias)
        numbers, scales = integers(w)
        if self.bits == 8:
            held, by = torch.from_numpy(numbers), self.tensor(scales[:, 0])
            product = lambda x: torch.ops.aten._weight_int8pack_mm(x, held, by)  # noqa: E731
        else:
            group, columns = numbers.shape[1] // scales.shape[1], len(numbers)
            spare = (0, -columns % 16), (0, 0)
            numbers, scales = np.pad(numbers, spare), np.pad(scales, spare)
            wide = torch.from_numpy(numbers.astype(np.int32) + 8)
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(wide, 1)
            by = self.tensor(np.stack([scales.T, np.zeros_like(scales.T)], axis=-1))

            def product(x: Any) -> Any:
                made = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group, by)
                return made[:, :columns]

        def run(x: Any) -> Any:
            made = product(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
            return made if bias is None else made + bias

        return run

    def step(self, tokens: Any, cache: Any, past: int) -> Any:
        f = self.torch.nn.functional
        x = self.words[tokens] + self.places[past]
        batch, _, width = x.shape
        heads = cache.shape[3]
        for p, (keys, values) in zip(self.layers, cache):
            parts = p["qkv"](f.layer_norm(x, (width,), *p["norm1"])).split(width, -1)
            q, k, v = (part.view(batch, 1, heads, -1).transpose(1, 2) for part in parts)
            keys[:, :, past], values[:, :, past] = k[:, :, 0], v[:, :, 0]
            seen = keys[:, :, : past + 1], values[:, :, : past + 1]
            made = f.scaled_dot_product_attention(q, *seen)
            x = x + p["out"](made.transpose(1, 2).reshape(batch, 1, width))
            up = p["up"](f.layer_norm(x, (width,), *p["norm2"]))
            x = x + p["down"](f.gelu(up, approximate="tanh"))
        return self.head(f.layer_norm(x, (width,), *self.norm))[:, 0]


def torch(params: Any, bits: int, threads: int, tokens: Any, past: Any) -> Run:
    model = Torch(params, bits, threads)
    count = past.shape[4]
    cache = model.tensor(np.pad(past, [(0, 0)] * 4 + [(0, 16), (0, 0)]))
    given = model.torch.from_numpy(tokens.astype(np.int64))

    def once() -> Any:
        with model.torch.inference_mode():
            return model.step(given, cache, count).float().numpy()

    return once


# ----------------------------------------------------------------------------------------- ONNX


class Onnx:
    """Writes the model: constants, nodes, and what goes in and out."""

    def __init__(self, bits: int, blocks: bool) -> None:
        self.bits, self.blocks = bits, blocks
        self.nodes: list[Any] = []
        self.held: list[Any] = []

    def constant(self, array: Any) -> str:
        from onnx.numpy_helper import from_array

        name = f"c{len(self.held)}"
        self.held.append(from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        from onnx.helper import make_node

        made = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(make_node(kind, inputs, made, **attrs))
        return made if outputs > 1 else made[0]

    def product(self, x: str, w: Any) -> str:
        if self.bits > 8:
            return str(self.node("MatMul", x, self.constant(matrix(w))))
        numbers, scales = integers(w)
        columns, depth = numbers.shape
        if not self.blocks and self.bits == 8:
            held, by = self.constant(numbers.T), self.constant(scales[:, 0])
            return str(self.node("MatMul", x, self.node("DequantizeLinear", held, by, axis=1)))
        block = WIDE if self.bits == 8 else depth // scales.shape[1]
        unsigned = (numbers.astype(np.int16) + 2 ** (self.bits - 1)).astype(np.uint8)
        if self.bits == 4:
            unsigned = unsigned[:, ::2] | unsigned[:, 1::2] << 4
        packed = unsigned.reshape(columns, depth // block, -1)
        by = np.repeat(scales, depth // block // scales.shape[1], axis=1).reshape(-1)
        sizes = {"K": depth, "N": columns, "bits": self.bits, "block_size": block}
        given = (x, self.constant(packed), self.constant(by))
        return str(
            self.node("MatMulNBits", *given, domain="com.microsoft", accuracy_level=4, **sizes)
        )

    def linear(self, x: str, p: Any) -> str:
        return str(self.node("Add", self.product(x, p["w"]), self.constant(p["b"])))

    def norm(self, x: str, p: Any) -> str:
        held = self.constant(p["scale"]), self.constant(p["shift"])
        return str(self.node("LayerNormalization", x, *held, axis=-1, epsilon=1e-5))

    def layer(self, x: str, p: Any, keys: str, values: str, shape: tuple[int, ...]) -> Any:
        batch, heads, _, size = shape
        parts = self.node(
            "Split",
            self.linear(self.norm(x, p["norm1"]), p["qkv"]),
            outputs=3,
            axis=-1,
            num_outputs=3,
        )
        apart = self.constant(np.array([batch, 1, heads, size]))
        q, k, v = (
            self.node("Transpose", self.node("Reshape", part, apart), perm=[0, 2, 1, 3])
            for part in parts
        )
        all_keys, all_values = (
            self.node("Concat", old, new, axis=2) for old, new in ((keys, k), (values, v))
        )
        turned = self.node("Transpose", all_keys, perm=[0, 1, 3, 2])
        near = self.node("MatMul", q, turned)
        near = self.node("Mul", near, self.constant(np.float32(size**-0.5)))
        made = self.node("MatMul", self.node("Softmax", near, axis=-1), all_values)
        made = self.node("Transpose", made, perm=[0, 2, 1, 3])
        flat = self.node("Reshape", made, self.constant(np.array([batch, 1, heads * size])))
        x = self.node("Add", x, self.linear(flat, p["out"]))
        up = self.linear(self.norm(x, p["norm2"]), p["up"])
        up = self.node("Gelu", up, approximate="tanh")
        return self.node("Add", x, self.linear(up, p["down"])), k, v

    def write(self, params: Any, past: Any, folder: Path) -> Path:
        from onnx import TensorProto, helper, save

        shape = past.shape[2:]
        caches = [f"{kind}{n}" for n in range(len(past)) for kind in ("keys", "values")]
        inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, (shape[0], 1))]
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in caches]
        x = self.node("Gather", self.constant(matrix(params["words"])), "tokens")
        x = self.node("Add", x, self.constant(matrix(params["places"])[shape[2]]))
        made = []
        for p, keys, values in zip(params["layers"], caches[::2], caches[1::2]):
            x, *new = self.layer(x, p, keys, values, shape)
            made += new
        scores = self.product(self.norm(x, params["norm"]), params["words"].T)
        outputs = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (scores, *made)
        ]
        graph = helper.make_graph(self.nodes, "step", inputs, outputs, self.held)
        sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=sets)
        model.ir_version = 10
        path = folder / "step.onnx"
        save(model, path, save_as_external_data=True, location="step.data")
        return path


def feeds(tokens: Any, past: Any) -> dict[str, Any]:
    made = {"tokens": tokens.astype(np.int64)}
    for n, (keys, values) in enumerate(past):
        made |= {f"keys{n}": keys, f"values{n}": values}
    return made


def onnxruntime(params: Any, bits: int, threads: int, tokens: Any, past: Any) -> Run:
    import onnxruntime as ort

    if bits == 16:
        raise Unavailable("has no products of bf16 on this CPU")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    with tempfile.TemporaryDirectory() as folder:
        path = Onnx(bits, blocks=True).write(params, past, Path(folder))
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = feeds(tokens, past)
    return lambda: session.run(None, given)[0][:, 0]


def openvino(params: Any, bits: int, threads: int, tokens: Any, past: Any) -> Run:
    import openvino as ov

    core = ov.Core()
    hint = "bf16" if bits == 16 else "f32"
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": hint}
    settings |= {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    with tempfile.TemporaryDirectory() as folder:
        path = Onnx(bits, blocks=False).write(params, past, Path(folder))
        model = core.compile_model(core.read_model(str(path)), "CPU", settings)
    request, given = model.create_infer_request(), feeds(tokens, past)
    request.infer(given)
    return lambda: request.infer(given, share_inputs=True, share_outputs=True)[0][:, 0]


PEERS = {"torch": torch, "onnxruntime": onnxruntime, "openvino": openvino}
