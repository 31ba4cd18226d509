"""graphc: a graph compiler for Python. NumPy-style model functions become native kernels.

Public names are looked up on first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import graphc.forks  # noqa: F401  (a fork waits for what the import of the compiler holds)
from graphc.base.garbage_collection import collector_paused
from graphc.base.version import __version__ as __version__
from graphc.errors import (
    CheckpointError,
    EndOfData,
    FeedError,
    GraphError,
    GraphHint,
    LimitError,
    OutOfRangeError,
    ParseError,
    RunError,
    SizeError,
    TraceError,
    TypeRuleError,
    VerifyError,
)

if TYPE_CHECKING:
    from os import PathLike

    from graphc.frontend.compile.decorator import compile as compile
    from graphc.frontend.files.gir_files import parse as parse
    from graphc.frontend.files.gir_files import show as show
    from graphc.frontend.trace.spec import spec as spec
    from graphc.runtime.files.gcx_function import Loaded as Loaded

_HOMES = {
    "Array": "graphc.runtime.call.array",
    "CSVLogger": "graphc.learn.callbacks",
    "Callback": "graphc.learn.callbacks",
    "Checkpoints": "graphc.learn.checkpoints",
    "EarlyStopping": "graphc.learn.callbacks",
    "Graph": "graphc.ir.graph",
    "History": "graphc.learn.callbacks",
    "JSONLogger": "graphc.learn.callbacks",
    "LearningRateLogger": "graphc.learn.callbacks",
    "Loaded": "graphc.runtime.files.gcx_function",
    "LoadedGraph": "graphc.frontend.files.loaded_graph",
    "LossCurve": "graphc.learn.callbacks",
    "Model": "graphc.learn.model",
    "Program": "graphc.ir.graph",
    "SaveBest": "graphc.learn.callbacks",
    "Session": "graphc.frontend.session.session",
    "Queue": "graphc.learn.inputs",
    "Reader": "graphc.learn.inputs",
    "TensorBoard": "graphc.learn.callbacks",
    "Variable": "graphc.frontend.session.variable",
    "all_gather": "graphc.frontend.transforms.vmap",
    "assert_": "graphc.frontend.transforms.host_calls",
    "axis_index": "graphc.frontend.transforms.vmap",
    "bisect": "graphc.frontend.diagnosis.bisect",
    "callback": "graphc.frontend.transforms.host_calls",
    "checkpoint": "graphc.frontend.transforms.markers",
    "compile": "graphc.frontend.compile.decorator",
    "colocate": "graphc.frontend.trace.placement",
    "cond": "graphc.frontend.transforms.control",
    "convert": "graphc.formats.convert",
    "container": "graphc.frontend.session.variable",
    "custom_grad": "graphc.frontend.transforms.markers",
    "custom_op": "graphc.ops.control.custom",
    "device": "graphc.frontend.trace.placement",
    "fake_quantize": "graphc.learn.quantize",
    "fori": "graphc.frontend.transforms.control",
    "grad": "graphc.frontend.transforms.grad",
    "from_torch": "graphc.formats.torch.live",
    "gradient_report": "graphc.frontend.transforms.gradients",
    "gradients": "graphc.frontend.transforms.gradients",
    "hessian": "graphc.frontend.transforms.grad",
    "jacobian": "graphc.frontend.transforms.grad",
    "jvp": "graphc.frontend.transforms.grad",
    "load_checkpoint": "graphc.learn.checkpoints",
    "map": "graphc.frontend.transforms.control",
    "measure_links": "graphc.frontend.compile.measure_devices",
    "name": "graphc.frontend.trace.trace",
    "nms": "graphc.frontend.transforms.non_max_suppression",
    "parse": "graphc.frontend.files.gir_files",
    "pmax": "graphc.frontend.transforms.vmap",
    "pmean": "graphc.frontend.transforms.vmap",
    "pmin": "graphc.frontend.transforms.vmap",
    "precision_report": "graphc.frontend.diagnosis.precision",
    "print": "graphc.frontend.transforms.host_calls",
    "profile": "graphc.frontend.compile.measure_devices",
    "psum": "graphc.frontend.transforms.vmap",
    "quantize": "graphc.learn.quantize",
    "register_pytree": "graphc.frontend.trace.tree",
    "reset_container": "graphc.frontend.session.variable",
    "save": "graphc.frontend.files.gir_files",
    "save_checkpoint": "graphc.learn.checkpoints",
    "scan": "graphc.frontend.transforms.control",
    "show": "graphc.frontend.files.gir_files",
    "spec": "graphc.frontend.trace.spec",
    "variables": "graphc.frontend.session.variable",
    "stop_gradient": "graphc.frontend.transforms.markers",
    "switch": "graphc.frontend.transforms.control",
    "torch_backend": "graphc.formats.torch.backend",
    "to_device": "graphc.frontend.compile.device_args",
    "value_and_grad": "graphc.frontend.transforms.grad",
    "view": "graphc.formats.view",
    "vjp": "graphc.frontend.transforms.grad",
    "vmap": "graphc.frontend.transforms.vmap",
    "why": "graphc.frontend.diagnosis.why",
    "while_loop": "graphc.frontend.transforms.control",
}

_MODULES = (
    "cluster",
    "data",
    "linalg",
    "nn",
    "numpy",
    "optim",
    "parallel",
    "random",
    "sparse",
    "summary",
)

_ERRORS = (
    CheckpointError,
    EndOfData,
    FeedError,
    GraphError,
    GraphHint,
    LimitError,
    OutOfRangeError,
    ParseError,
    RunError,
    SizeError,
    TraceError,
    TypeRuleError,
    VerifyError,
)


def load(path: str | PathLike[str], **options: Any) -> Loaded:
    """A saved graph (.gir), a compiled one (.gcx), an ONNX model (.onnx), a program of PyTorch
    (.pt2) or a model of Keras 3 (.keras) as a callable.

    It takes NumPy arrays, in order or by the file's names, or the nestings of them that the saved
    function took (dicts, lists, tuples), and returns arrays.  A .gcx file runs
    without any part of the compiler being imported; its options are `threads`, `share` and
    `require_signature`.  Variables of a file live in containers of their own, unless it shares this
    program's.  What a model of others was compiled to is kept in the cache: the next
    process runs it without reading the file again.  Raises GraphError for a file that is missing,
    damaged, of another format or, where that is asked for, not signed; ParseError for text that is
    no graph.
    """
    if str(path).endswith(".gcx"):
        from graphc.runtime.files.gcx_function import load as load_compiled

        return load_compiled(path, **options)
    if str(path).endswith((".onnx", ".pt2", ".keras")):
        from graphc.formats.model_cache import load as load_model

        return load_model(path, options, _import)
    from graphc.frontend.files.loaded_graph import load as load_graph

    return load_graph(path, **options)


def _import(path: str | PathLike[str], **options: Any) -> Loaded:
    if str(path).endswith(".onnx"):
        from graphc.formats.onnx.model import load as load_onnx

        return load_onnx(path, **options)
    if str(path).endswith(".keras"):
        from graphc.learn.keras.model import load as load_keras_model

        return load_keras_model(path, **options)
    from graphc.formats.torch.model import load as load_torch

    return load_torch(path, **options)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    with collector_paused():
        if name in _HOMES:
            found = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _MODULES:
            found = importlib.import_module(f"graphc.{name}")
        else:
            found = _public(name)
    globals()[name] = found
    return found


def _public(name: str) -> Any:
    from graphc.ops.record.value import PUBLIC

    if name not in PUBLIC:
        from graphc.base.hints import missing

        raise missing("graphc", name, __dir__())
    from graphc.frontend.trace.dispatch import linked

    return linked(name)


def __dir__() -> list[str]:
    from graphc.ops.record.value import PUBLIC

    own = {"load", *(kind.__name__ for kind in _ERRORS), "__version__"}
    return sorted({*_HOMES, *_MODULES, *own, *filter(str.isidentifier, PUBLIC)})
