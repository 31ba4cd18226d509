"""What the tests of variables share: the interpreter beside a compiled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphc as gc
from graphc.ops.reference.interpreter import interpret

X = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)


def agree(
    function: Callable[..., Any],
    variables: Sequence[gc.Variable],
    arguments: Sequence[Any] = (),
    runs: int = 4,
    **options: Any,
) -> Any:
    """Run a compiled function several times and the interpreter beside it: results and state."""
    compiled = gc.compile(function, **options)
    graph = compiled.graph(*arguments)
    state = {(v.container, v.name): v.value for v in variables}
    for _ in range(runs):
        wanted = interpret(graph, arguments, state=state)
        made = compiled(*arguments)
        made = () if made is None else made if isinstance(made, tuple) else (made,)
        for got, want in zip(made, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        for v in variables:
            np.testing.assert_allclose(v.value, state[v.container, v.name], rtol=1e-5, atol=1e-5)
    return compiled


def homes_of(compiled: Any, *arguments: Any) -> set[int | str]:
    """The base registers that kernels write to."""
    program = compiled.lower(*arguments)
    kernels = [n for n in program.graphs[0].nodes if n.op.name == "fused"]
    return {r.base for n in kernels for r in n.place.regions}
