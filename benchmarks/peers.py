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
from benchmarks.memory import MIB
from benchmarks.training import MOVES, sgd

Run = Callable[[], Any]


class Unavailable(Exception):
    """This peer cannot run this case here; the message says why."""


class Training:
    """A step that consumes its parameters: every run goes on from those of the last one."""

    def __init__(self, step: Callable[..., Any], arguments: tuple[Any, ...], wait: Any) -> None:
        self.step, self.wait = step, wait
        self.params, *self.inputs = arguments

    def __call__(self) -> Any:
        self.params, loss = self.step(self.params, *self.inputs)
        self.wait((self.params, loss))
        return loss


def kind(case: Case) -> str:
    """`mlp-128` and `mlp-1` are one program of kind `mlp`."""
    return case.name.split("-")[0]


def done(result: Any) -> None:
    """Calls of this peer return when the result is there."""


def graphc(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import graphc as gc

    if not hasattr(gc, "compile"):
        raise Unavailable("this graphc has no compile")
    if case.function is None:
        step = gc.compile(sgd(gc, case), donate=["params"], threads=threads)
        return Training(step, arguments, done)
    function = case.native(gc) if case.native else case.function
    return functools.partial(gc.compile(function, threads=threads), *arguments)


def numpy(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    if case.function is None:
        raise Unavailable("NumPy has no gradients")
    return functools.partial(case.function, *arguments)


def torch_training(
    case: Case, arguments: tuple[Any, ...], threads: int, compiled: bool
) -> Training:
    import torch

    from benchmarks import in_torch

    torch.set_num_threads(threads)
    inputs = in_torch.tensors(arguments)
    return Training(in_torch.training(case.name, inputs[0], compiled), inputs, done)


def torch_eager(case: Case, arguments: tuple[Any, ...], threads: int) -> Any:
    import torch

    from benchmarks import in_torch

    if case.function is None:
        return torch_training(case, arguments, threads, compiled=False)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    inputs = in_torch.arguments(kind(case), arguments)
    return functools.partial(in_torch.FUNCTIONS[kind(case)], *inputs)


def torch_compile(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import torch

    from benchmarks import in_torch

    if case.function is None:
        return torch_training(case, arguments, threads, compiled=True)
    eager = torch_eager(case, arguments, threads)
    function = in_torch.LOOPS.get(kind(case), eager.func)
    return functools.partial(torch.compile(function), *eager.args)


def jax(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    import jax

    from benchmarks import in_jax

    inputs = jax.device_put(arguments, may_alias=False)
    if case.function is None:
        return Training(in_jax.training(case.name), inputs, jax.block_until_ready)
    function = jax.jit(in_jax.FUNCTIONS[kind(case)])
    return lambda: jax.block_until_ready(function(*inputs))


def onnxruntime(case: Case, arguments: tuple[Any, ...], threads: int) -> Run:
    from benchmarks import in_onnx

    if case.function is None:
        raise Unavailable("ONNX Runtime does not train")
    return onnx_session(*in_onnx.build(kind(case), arguments), threads)


def onnx_session(model: bytes, feeds: dict[str, np.ndarray], threads: int) -> Run:
    import onnxruntime

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


def own_memory(run: Run) -> dict[str, float]:
    """MiB that graphc holds for the calls of one thread: values and workspace (`arena`), constants
    and weights packed when compiling (`packed`).  Nothing is known of the others.
    """
    training = isinstance(run, Training)
    function = run.step if training else getattr(run, "func", None)
    if not hasattr(function, "executable"):
        return {}
    arguments = (run.params, *run.inputs) if training else run.args
    image = function.executable(*arguments).image
    return {"arena": image.arena_bytes / MIB, "packed": image.constants.nbytes / MIB}


def outcome(run: Run) -> list[np.ndarray]:
    """What peers must agree on: the result; or the loss, and how far parameters moved in a few
    steps.
    """
    if not isinstance(run, Training):
        return [fetch(run())]
    before = flat(run.params)
    losses = [fetch(run()) for _ in range(MOVES)]
    return [np.stack(losses), flat(run.params) - before]


def flat(params: dict[str, Any]) -> np.ndarray:
    """A copy of all parameters in one row, in the order of their names."""
    return np.concatenate([fetch(params[name]).ravel() for name in sorted(params)])


def fetch(result: Any) -> np.ndarray:
    return np.asarray(result.detach() if hasattr(result, "detach") else result)
