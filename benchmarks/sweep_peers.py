"""How each peer prepares a case of the sweep; what it returns runs the case once (see `peers`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.cases import CASES
from benchmarks.peers import Run, Unavailable
from benchmarks.sweep_cases import Swept

MODULES = {  # what a peer needs, of which the first is imported before anything is timed
    "graphc": ("graphc",),
    "numpy": ("numpy",),
    "jax": ("jax",),
    "torch": ("torch",),
    "torch.compile": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx"),
    "numexpr": ("numexpr",),
    "numba": ("numba",),
}


class TorchNames:
    """PyTorch under NumPy's names, for functions that take a namespace."""

    def __getattr__(self, name: str) -> Any:
        import torch

        found = TORCH.get(name)
        if found is not None:
            return functools.partial(found, torch)
        if name == "linalg":
            return torch.linalg
        return getattr(torch, name)


def torch_max(torch: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return torch.max(x) if axis is None else torch.amax(x, axis, keepdims)


OPENVINO_TYPES = ("float32", "int32", "int64", "bool")
# Names that PyTorch spells in another way, or whose arguments it does.
TORCH: dict[str, Callable[..., Any]] = {
    "max": torch_max,
    "sum": lambda t, x, axis=None, keepdims=False: t.sum(x, dim=axis, keepdim=keepdims),
    "mean": lambda t, x, axis=None, keepdims=False: t.mean(x, dim=axis, keepdim=keepdims),
    "var": lambda t, x, axis=None: t.var(x, dim=axis, correction=0),
    "argmax": lambda t, x, axis=None: t.argmax(x, dim=axis),
    "copy": lambda t, x, order: x.contiguous() if not x.is_contiguous() else x.clone(),
    "transpose": lambda t, x, order: x.permute(order),
    "concatenate": lambda t, xs, axis: t.cat(xs, axis),
    "stack": lambda t, xs, axis: t.stack(xs, axis),
    "flip": lambda t, x, axis: t.flip(x, (axis,)),
    "repeat": lambda t, x, n, axis: t.repeat_interleave(x, n, axis),
    "pad": lambda t, x, widths: t.nn.functional.pad(
        x, [n for pair in reversed(widths) for n in pair]
    ),
    "take": lambda t, x, ids, axis: t.index_select(x, axis, ids),
    "take_along_axis": lambda t, x, ids, axis: t.take_along_dim(x, ids, axis),
    "astype": lambda t, x, dtype: x.to(getattr(t, dtype)),
    "sort": lambda t, x, axis=-1: t.sort(x, dim=axis)[0],
    "argsort": lambda t, x, axis=-1, kind=None: t.argsort(x, dim=axis, stable=kind is not None),
    "nonzero": lambda t, x: t.nonzero(x, as_tuple=True),
    "median": lambda t, x: t.median(x),
    "round": lambda t, x: t.round(x),
    "any": lambda t, x: t.any(x),
}


def graphc(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    import graphc as gc

    function = case.native(gc) if case.native else case.function
    return functools.partial(gc.compile(function, threads=threads), *arguments)


def numpy(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    if case.function is None:
        raise Unavailable("NumPy has no such function")
    return functools.partial(case.function, *arguments)


def jax(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    import jax

    jax.config.update("jax_enable_x64", True)
    function = case.jax(jax) if case.jax else functools.partial(shared(case), jax.numpy)
    compiled, inputs = jax.jit(function), jax.device_put(arguments, may_alias=False)
    return lambda: jax.block_until_ready(compiled(*inputs))


def torch(case: Swept, arguments: tuple[Any, ...], threads: int, compiled: bool = False) -> Run:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    function = case.torch(torch) if case.torch else functools.partial(shared(case), TorchNames())
    if compiled:
        torch.compiler.reset()
        function = torch.compile(function)
    inputs = [tensor(torch, argument) for argument in arguments]
    return functools.partial(function, *inputs)


def tensor(torch: Any, array: np.ndarray) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_compile(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    if not case.fused:
        raise Unavailable("one operation: there is nothing to fuse")
    return torch(case, arguments, threads, compiled=True)


def shared(case: Swept) -> Any:
    if case.shared is None:
        raise Unavailable("this peer has no such function")
    return case.shared


def network(case: Swept, arguments: tuple[Any, ...]) -> tuple[bytes, dict[str, np.ndarray]]:
    """The case as an ONNX model; every argument is an input."""
    from benchmarks import in_onnx

    if case.onnx is None:
        raise Unavailable("ONNX has no such operator")
    net = in_onnx.Net()
    names = [net.input(array) for array in arguments]
    kind = np.float32
    if isinstance(case.onnx, str):
        output = net.op(case.onnx, *names)
        kind = bool if case.onnx == "Less" else arguments[0].dtype
    else:
        output = case.onnx(net, *names)
        kind = np.int64 if net.nodes[-1].op_type == "ArgMax" else arguments[0].dtype
    return net.model(output, kind), net.inputs


def onnxruntime(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    return peers.onnx_session(*network(case, arguments), threads)


def openvino(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    """In f32: OpenVINO would multiply in bf16 on its own where the processor does."""
    if any(array.dtype.name not in OPENVINO_TYPES for array in arguments):
        raise Unavailable("it computes other types in those that it has")
    return in_openvino(*network(case, arguments), threads)


def in_openvino(model: bytes, feeds: dict[str, np.ndarray], threads: int) -> Run:
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    request = compiled.create_infer_request()

    def run() -> Any:
        return request.infer(feeds, share_inputs=True, share_outputs=True)[0]

    return run


def numexpr(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    import numexpr

    if case.numexpr is None:
        raise Unavailable("numexpr has no such formula")
    numexpr.set_num_threads(threads)
    values = dict(zip("abcd", arguments))
    formula = case.numexpr
    numexpr.evaluate(formula, values)
    return lambda: numexpr.evaluate(formula, values)


def numba(case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    from benchmarks import sweep_by_hand

    if case.numba is None:
        raise Unavailable("nobody wrote it by hand")
    return functools.partial(sweep_by_hand.compiled(case.numba, threads), *arguments)


PREPARE: dict[str, Callable[[Swept, tuple[Any, ...], int], Run]] = {
    "graphc": graphc,
    "numpy": numpy,
    "jax": jax,
    "torch": torch,
    "torch.compile": torch_compile,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "numexpr": numexpr,
    "numba": numba,
}


def prepare(peer: str, case: Swept, arguments: tuple[Any, ...], threads: int) -> Run:
    """A function without arguments; Unavailable where the peer has no word for the case."""
    if peer in case.without:
        raise Unavailable("sizes that the data decides are beyond it")
    if not case.name.startswith("model/"):
        return PREPARE[peer](case, arguments, threads)
    plain = CASES[case.name.removeprefix("model/")]
    if peer == "openvino":
        from benchmarks import in_onnx

        return in_openvino(*in_onnx.build(peers.kind(plain), arguments), threads)
    if peer not in (*peers.PEERS, "graphc"):
        raise Unavailable("models are not written for it")
    return peers.prepare(peer, plain, arguments, threads)


def fetch(result: Any) -> np.ndarray:
    """A result as a NumPy array; bf16 as f32."""
    if hasattr(result, "detach"):
        result = result.detach()
        result = result.float() if str(result.dtype) == "torch.bfloat16" else result
    array = np.asarray(result)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
