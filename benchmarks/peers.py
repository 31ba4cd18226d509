"""How each peer prepares a case: from arguments to a function without arguments that runs it once.

A prepared function returns when the result is complete. Inputs are converted beforehand to what the
peer works on natively, so a timing holds no conversion. Peers are imported on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.cases import Case

Run = Callable[[], Any]


class Unavailable(Exception):
    """This peer cannot run this case here; the message says why."""


def kind(case: Case) -> str:
    """`mlp-128` and `mlp-1` are one program of kind `mlp`."""
    return case.name.split("-")[0]


def graphc(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import graphc as gc

    if not hasattr(gc, "compile"):
        raise Unavailable("this graphc has no compile")
    function = case.native(gc) if case.native else case.function
    return functools.partial(gc.compile(function, threads=threads), *arguments)


def numpy(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    return functools.partial(case.function, *arguments)


def torch_eager(case: Case, arguments: tuple[Any, ...], threads: int) -> functools.partial[Any]:
    import torch

    from benchmarks import in_torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    inputs = in_torch.arguments(kind(case), arguments)
    return functools.partial(in_torch.FUNCTIONS[kind(case)], *inputs)


def torch_compile(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import torch

    from benchmarks import in_torch

    eager = torch_eager(case, arguments, threads)
    function = in_torch.LOOPS.get(kind(case), eager.func)
    return functools.partial(torch.compile(function), *eager.args)


def jax(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import jax

    from benchmarks import in_jax

    inputs = jax.device_put(arguments)
    function = jax.jit(in_jax.FUNCTIONS[kind(case)])
    return lambda: jax.block_until_ready(function(*inputs))


def onnxruntime(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import onnxruntime

    from benchmarks import in_onnx

    model, feeds = in_onnx.build(kind(case), arguments)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)[0]


PEERS: dict[str, Callable[[Case, tuple[Any, ...], int], Run]] = {
    "numpy": numpy,
    "torch": torch_eager,
    "torch.compile": torch_compile,
    "jax": jax,
    "onnxruntime": onnxruntime,
}
MODULES = {"onnxruntime": ("onnxruntime", "onnx")}


def missing(peer: str) -> str | None:
    """Why a peer cannot be used here, or None."""
    for module in MODULES.get(peer, (peer.split(".")[0],)):
        if find_spec(module) is None:
            return f"{module} is not installed"
    return None


def prepare(peer: str, case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    return (graphc if peer == "graphc" else PEERS[peer])(case, arguments, threads)


def fetch(result: Any) -> np.ndarray:
    return np.asarray(result)
