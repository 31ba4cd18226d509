"""precision_report: what a lower precision changes about the results of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.base.refusing import refusing
from graphc.frontend.trace.tree import flatten, leaf_names


@refusing
def precision_report(
    function: Callable[..., Any], *arguments: Any, precision: str = "bf16", **options: Any
) -> dict[str, float]:
    """For each result of function(*arguments), how far it is from that in f32 with a precision.

    The largest difference relative to the largest magnitude of the result in f32; names are paths
    in what the function returns, "" for a single array.  Both run once; `options` are those of
    `gc.compile`, such as error_budget.  Raises GraphError as `gc.compile` and its functions do.
    """
    from graphc.frontend.compile.decorator import compile
    from graphc.passes.measured_error import result_error

    if options.get("error_budget") is not None:
        options.setdefault("sample", arguments)
    exact = compile(function, **{k: v for k, v in options.items() if k not in MEASURED})
    wanted, tree = flatten(exact(*arguments))
    made, _ = flatten(compile(function, precision=precision, **options)(*arguments))
    return dict(zip(leaf_names(tree), map(result_error, wanted, made), strict=True))


MEASURED = ("error_budget", "sample")  # options that say how precision is lost
