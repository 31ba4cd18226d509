"""graphc: a graph compiler for Python. NumPy-style model functions become native kernels.

Public names are looked up on first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphc.collector import collector_paused
from graphc.errors import (
    FeedError,
    GraphError,
    LimitError,
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
    "Graph": "graphc.ir.graph",
    "Program": "graphc.ir.graph",
    "Session": "graphc.frontend.session",
    "Variable": "graphc.frontend.variable",
    "checkpoint": "graphc.frontend.grad",
    "compile": "graphc.frontend.decorator",
    "cond": "graphc.frontend.control",
    "custom_grad": "graphc.frontend.grad",
    "fori": "graphc.frontend.control",
    "grad": "graphc.frontend.grad",
    "gradients": "graphc.frontend.grad",
    "hessian": "graphc.frontend.grad",
    "jacobian": "graphc.frontend.grad",
    "jvp": "graphc.frontend.grad",
    "map": "graphc.frontend.control",
    "name": "graphc.frontend.trace",
    "scan": "graphc.frontend.control",
    "stop_gradient": "graphc.frontend.grad",
    "switch": "graphc.frontend.control",
    "value_and_grad": "graphc.frontend.grad",
    "vjp": "graphc.frontend.grad",
    "while_loop": "graphc.frontend.control",
    "container": "graphc.frontend.variable",
    "custom_op": "graphc.ops.custom",
    "parse": "graphc.frontend.saved",
    "register_pytree": "graphc.frontend.tree",
    "reset_container": "graphc.frontend.variable",
    "save": "graphc.frontend.saved",
    "show": "graphc.frontend.saved",
    "spec": "graphc.frontend.spec",
}

_MODULES = {
    "linalg": "graphc.ops.products",
    "nn": "graphc.learn.nn",
    "optim": "graphc.learn.optim",
    "random": "graphc.ops.random",
}

_ERRORS = (
    FeedError,
    GraphError,
    LimitError,
    ParseError,
    RunError,
    TraceError,
    TypeRuleError,
    VerifyError,
)


def load(path: str | PathLike[str], **options: Any) -> Any:
    """A saved graph (.gir) or a compiled one (.gcx) as a callable.

    A .gcx file runs without any part of the compiler being imported; its only option is `threads`.
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
        raise AttributeError(f"module 'graphc' has no attribute {name!r}")
    from graphc.frontend.dispatch import linked

    return linked(name)


def __dir__() -> list[str]:
    from graphc.ops.value import PUBLIC

    return sorted(
        {*_HOMES, *_MODULES, *PUBLIC, "load", *(kind.__name__ for kind in _ERRORS), "__version__"}
    )
