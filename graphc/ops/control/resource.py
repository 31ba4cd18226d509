"""`resource`: a call of a queue or a reader, which the runtime keeps (`runtime/input`).

    %1 = resource() {resource="{...}", method="dequeue", ...} : f32[4]

Its text says all about the resource, so that the process which runs the node has its own.  Calls of
one resource are in line with one another as calls of Python are, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.ir.op import EXTENT, MANY, Attr, Effect, Host
from graphc.ir.types import AnyType, Dimension
from graphc.ops.control.host_calls import (
    THREADED,
    Arrays,
    kinds_of,
    operands_of,
    reference_of,
    result_of,
)
from graphc.ops.record.batching import by_the_sweep
from graphc.ops.record.families import define

# Who calls a resource by its text: whoever makes resources says so.
keepers: list[Callable[[str, str, Arrays], Arrays]] = []
METHODS = ("enqueue", "dequeue", "dequeue_many", "size", "close", "contents", "restore", "next")


def _infer(
    *types: AnyType,
    resource: str,
    method: str,
    dtypes: tuple[str, ...],
    ranks: tuple[int, ...],
    dims: tuple[Dimension, ...],
    threaded: bool,
) -> AnyType:
    operands_of("resource", types, threaded)
    return result_of(kinds_of(dtypes, ranks, dims), threaded)


def _call(arrays: Arrays, resource: str, method: str, **described: object) -> Arrays:
    return keepers[-1](resource, method, arrays)


RESOURCE = define(
    "resource",
    batch=by_the_sweep,
    infer=_infer,
    reference=reference_of(_call),
    lower=Host(is_local=True),
    attrs=(
        Attr("resource", "str"),
        Attr("method", "str", choices=METHODS),
        Attr("dtypes", "strs", (), most=MANY),
        Attr("ranks", "ints", (), within=EXTENT, most=MANY),
        Attr("dims", "dims", (), within=EXTENT, most=MANY),
        THREADED,
    ),
    effect=Effect.IO,
    variadic=True,
    differentiable=False,
    doc="What a queue or a reader of the process that runs it gives, or takes.",
)
