"""graphc: a graph compiler for Python. NumPy-style model functions become native kernels.

Public names are looked up on first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphc.collector import collector_paused
from graphc.errors import (
    CheckpointError,
    FeedError,
    GraphError,
    GraphHint,
    LimitError,
    OutOfRangeError,
    ParseError,
    RunError,
    TraceError,
    TypeRuleError,
    VerifyError,
)

if TYPE_CHECKING:
    from os import PathLike

    from graphc.frontend.decorator import compile as compile
    from graphc.frontend.saved import parse as parse
    from graphc.frontend.saved import show as show
    from graphc.frontend.spec import spec as spec

__version__ = "0.1.0"

_HOMES = {
    "Array": "graphc.runtime.array",
    "CSVLogger": "graphc.learn.callbacks",
    "Callback": "graphc.learn.callbacks",
    "Checkpoints": "graphc.learn.checkpoints",
    "EarlyStopping": "graphc.learn.callbacks",
    "Graph": "graphc.ir.graph",
    "History": "graphc.learn.callbacks",
    "LearningRateLogger": "graphc.learn.callbacks",
    "Model": "graphc.learn.model",
    "Program": "graphc.ir.graph",
    "Session": "graphc.frontend.session",
    "Variable": "graphc.frontend.variable",
    "assert_": "graphc.frontend.outside",
    "callback": "graphc.frontend.outside",
    "checkpoint": "graphc.frontend.markers",
    "compile": "graphc.frontend.decorator",
    "colocate": "graphc.frontend.placement",
    "cond": "graphc.frontend.control",
    "container": "graphc.frontend.variable",
    "custom_grad": "graphc.frontend.markers",
    "custom_op": "graphc.ops.custom",
    "device": "graphc.frontend.placement",
    "fori": "graphc.frontend.control",
    "grad": "graphc.frontend.grad",
    "gradient_report": "graphc.frontend.gradients",
    "gradients": "graphc.frontend.gradients",
    "hessian": "graphc.frontend.grad",
    "jacobian": "graphc.frontend.grad",
    "jvp": "graphc.frontend.grad",
    "load_checkpoint": "graphc.learn.checkpoints",
    "map": "graphc.frontend.control",
    "name": "graphc.frontend.trace",
    "parse": "graphc.frontend.saved",
    "print": "graphc.frontend.outside",
    "profile": "graphc.frontend.calibrate",
    "register_pytree": "graphc.frontend.tree",
    "reset_container": "graphc.frontend.variable",
    "save": "graphc.frontend.saved",
    "save_checkpoint": "graphc.learn.checkpoints",
    "scan": "graphc.frontend.control",
    "show": "graphc.frontend.saved",
    "spec": "graphc.frontend.spec",
    "variables": "graphc.frontend.variable",
    "stop_gradient": "graphc.frontend.markers",
    "switch": "graphc.frontend.control",
    "to_device": "graphc.frontend.resident",
    "value_and_grad": "graphc.frontend.grad",
    "vjp": "graphc.frontend.grad",
    "while_loop": "graphc.frontend.control",
}

_MODULES = {
    "data": "graphc.learn.data",
    "linalg": "graphc.ops.products",
    "nn": "graphc.learn.nn",
    "numpy": "graphc.numpy",
    "optim": "graphc.learn.optim",
    "parallel": "graphc.learn.parallel",
    "random": "graphc.ops.random",
}

_ERRORS = (
    CheckpointError,
    FeedError,
    GraphError,
    GraphHint,
    LimitError,
    OutOfRangeError,
    ParseError,
    RunError,
    TraceError,
    TypeRuleError,
    VerifyError,
)


def load(path: str | PathLike[str], **options: Any) -> Any:
    """A saved graph (.gir) or a compiled one (.gcx) as a callable.

    A .gcx file runs without any part of the compiler being imported; its options are `threads`,
    `share` and `require_signature`.  Variables of a file live in containers of their own, unless it
    shares this program's.
    """
    if str(path).endswith(".gcx"):
        from graphc.runtime.loaded import load as load_compiled

        return load_compiled(path, **options)
    from graphc.frontend.saved import load as load_graph

    return load_graph(path, **options)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    with collector_paused():
        if name in _HOMES:
            found = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _MODULES:
            found = importlib.import_module(_MODULES[name])
        else:
            found = _public(name)
    globals()[name] = found
    return found


def _public(name: str) -> Any:
    from graphc.ops.value import PUBLIC

    if name not in PUBLIC:
        from graphc.hints import missing

        raise missing("graphc", name, __dir__())
    from graphc.frontend.dispatch import linked

    return linked(name)


def __dir__() -> list[str]:
    from graphc.ops.value import PUBLIC

    return sorted(
        {*_HOMES, *_MODULES, *PUBLIC, "load", *(kind.__name__ for kind in _ERRORS), "__version__"}
    )
