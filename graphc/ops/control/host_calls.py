"""Ops that leave the program while it runs: print, assert, summary and callback call Python.

    trace   %1 = print(%0) {text="x is {}"} : ()           %2 = print(%0) {text="again"} after %1
    state   %1 = print(%0, %t) {text=..., threaded=true} : u8[]    %2 = print(%0, %1) {...}

They happen once for each time they are reached, in program order.  The pass `state` threads a token
through them and through the regions that hold them, as it does with the values of variables: from
there on the order is that of data, which every later pass keeps.
"""

from __future__ import annotations

import re
import string
import sys
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

import numpy as np

from graphc.errors import GraphError, RunError, TypeRuleError
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.op import EXTENT, MANY, OPS, Attr, Effect, Host
from graphc.ir.sizes import Size
from graphc.ir.traits import Traits
from graphc.ir.types import (
    BOOL,
    MAX_RANK,
    U8,
    AnyType,
    Dim,
    Dimension,
    Type,
    dtype,
    leaves,
    tensor,
    tuple_type,
)
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import by_the_sweep
from graphc.ops.record.families import define, require, require_tensor

TOKEN = tensor(U8, ())  # what stands for all that has happened outside so far
MOST_WIDTH = 100  # characters that a format may ask for
MOST_SHOWN = 6  # values of a failed assertion that its message has a line for
THREADED = Attr("threaded", "bool", False)

Arrays = Sequence[Any]


def operands_of(name: str, types: tuple[AnyType, ...], threaded: bool) -> list[Type]:
    """The types of the values, without that of the token."""
    require_tensor(name, *types)
    if threaded:
        require(bool(types) and types[-1] is TOKEN, f"the last operand of {name} is a {TOKEN}")
    kept = types[: len(types) - threaded]
    return [kind for kind in kept if isinstance(kind, Type)]


def result_of(kinds: Sequence[AnyType], threaded: bool) -> AnyType:
    made = (*kinds, TOKEN) if threaded else tuple(kinds)
    return made[0] if len(made) == 1 else tuple_type(made)


def reference_of(run: Callable[..., Arrays]) -> Callable[..., Any]:
    def reference(*arrays: Array, threaded: bool, **attrs: object) -> Any:
        made = tuple(run(arrays[: len(arrays) - threaded], **attrs))
        made = (*made, np.zeros((), np.uint8)) if threaded else made
        return made[0] if len(made) == 1 else made

    return reference


# -------------------------------------------------------------------------------------------- print


def _infer_print(*types: AnyType, text: str, threaded: bool) -> AnyType:
    kinds = operands_of("print", types, threaded)
    _check_text("print", text, kinds, len(_fields("print", text)) == len(kinds))
    return result_of((), threaded)


def _check_text(name: str, text: str, kinds: Sequence[Type], enough: bool) -> None:
    """Raise TypeRuleError unless the fields of a text fit the first values."""
    fields = _fields(name, text)
    require(
        enough,
        f"{name} has {len(kinds)} value(s) for the {len(fields)} field(s) of {text[:80]!r}",
        hint="write {} for each value, and {{ }} for braces",
    )
    for spec, kind in zip(fields, kinds):
        if spec:
            _check_format(name, spec, kind)


def _fields(name: str, text: str) -> list[str]:
    """The format of each {} in a text. A text may come from a file: it reads no attributes."""
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise TypeRuleError(
            f"{name}: {error} in {text[:80]!r}", hint="{{ and }} are braces"
        ) from None
    for _, field, spec, conversion in pieces:
        require(
            not field and not conversion and "{" not in (spec or ""),
            f"{name}: a field is {{}} or {{:format}}, not one with {field or conversion or spec!r}",
        )
    return [spec or "" for _, field, spec, _ in pieces if field is not None]


def _check_format(name: str, spec: str, kind: Type) -> None:
    require(
        kind.rank == 0,
        f"{name}: the format {spec!r} is for numbers, and the value is {kind}",
        hint="write {} for an array",
    )
    require(
        all(int(number) <= MOST_WIDTH for number in re.findall(r"\d{1,18}", spec)),
        f"{name}: the format {spec[:40]!r} asks for more than {MOST_WIDTH} characters",
    )
    try:
        format(np.zeros((), kind.dtype.numpy).item(), spec)
    except (TypeError, ValueError) as error:
        raise TypeRuleError(f"{name}: the format {spec!r} does not fit {kind}: {error}") from None


def _formatted(text: str, arrays: Arrays) -> str:
    values = [array.item() if array.ndim == 0 else array for array in map(np.asarray, arrays)]
    return text.format(*values)


def _print(arrays: Arrays, text: str) -> Arrays:
    sys.stdout.write(_formatted(text, arrays) + "\n")
    return ()


print_ = define(
    "print",
    batch=by_the_sweep,
    infer=_infer_print,
    reference=reference_of(_print),
    lower=Host(),
    attrs=(Attr("text", "str"), THREADED),
    effect=Effect.IO,
    variadic=True,
    doc="Print a text, with a value for each {} in it, whenever it is reached.",
)


# ------------------------------------------------------------------------------------------- assert


def _infer_assert(*types: AnyType, message: str, threaded: bool) -> AnyType:
    kinds = operands_of("assert", types, threaded)
    require(bool(kinds), "assert needs a condition")
    require(
        kinds[0].dtype is BOOL,
        f"the condition of assert is {kinds[0]}, not of booleans",
        hint="compare it with something",
    )
    _check_text("assert", message, kinds[1:], len(_fields("assert", message)) < len(kinds))
    return result_of((), threaded)


def _assert(arrays: Arrays, message: str) -> Arrays:
    condition, *values = arrays
    if not np.all(condition):
        fields = len(_fields("assert", message))
        shown = [f"value {k}: {value}".replace("\n", " ") for k, value in enumerate(values)]
        text = _formatted(message, values) or "an assertion failed"
        raise RunError(text, details=tuple(shown[fields:][:MOST_SHOWN]))
    return ()


assert_ = define(
    "assert",
    batch=by_the_sweep,
    infer=_infer_assert,
    reference=reference_of(_assert),
    lower=Host(),
    attrs=(Attr("message", "str", ""), THREADED),
    effect=Effect.IO,
    variadic=True,
    doc="Stop the run, with a message and the values after the first, unless the first operand is "
    "true in all elements.",
    traits=Traits(checks=True),
)


# ------------------------------------------------------------------------------------------ summary


class Recorder(Protocol):
    """Who takes summaries; `is_on` says whether what is traced now is to have them."""

    @property
    def is_on(self) -> bool: ...

    def take(self, kind: str, tag: str, value: Any, step: int | None) -> None:
        """One summary: a number, an array or a text. Raises GraphError where it cannot be kept."""


recorders: list[Recorder] = []  # the last one takes what this process summarises
CHARTED = {"scalar": (0, 0), "histogram": (0, MAX_RANK), "image": (2, 4), "text": (0, MAX_RANK)}
CHANNELS = (1, 3, 4)  # of an image: grey, RGB, RGBA
MOST_TAG = 200  # characters of a name


def _infer_summary(
    *types: AnyType, kind: str, tag: str, text: str, stepped: bool, threaded: bool
) -> AnyType:
    kinds = operands_of("summary", types, threaded)
    require(0 < len(tag) <= MOST_TAG, f"the name of a summary has 1 to {MOST_TAG} characters")
    if stepped:
        require(bool(kinds), "summary: the step is missing")
        step = kinds.pop()
        is_count = step.rank == 0 and step.dtype.kind in "iu"
        require(is_count, f"the step of a summary is one whole number, not {step}")
    if kind == "text":
        fits = len(_fields("summary", text)) == len(kinds)
        _check_text("summary", text, kinds, fits)
        return result_of((), threaded)
    require(len(kinds) == 1 and not text, f"a {kind} is made of one value, got {len(kinds)}")
    _check_charted(kind, kinds[0])
    return result_of((), threaded)


def _check_charted(kind: str, value: Type) -> None:
    least, most = CHARTED[kind]
    require(
        least <= value.rank <= most,
        f"a {kind} has {least} to {most} dimensions, not those of {value}",
        hint="take its mean, or a histogram" if kind == "scalar" else None,
    )
    require(not value.dtype.is_complex, f"a {kind} is of real numbers, not {value}")
    if kind == "image" and value.rank > 2 and not isinstance(value.shape[-1], Dim | Size):
        channels = value.shape[-1] in CHANNELS
        require(channels, f"the last axis of an image is its 1, 3 or 4 channels, not {value}")


def _summary(arrays: Arrays, kind: str, tag: str, text: str, stepped: bool) -> Arrays:
    for recorder in recorders[-1:]:
        values = list(arrays)
        step = int(values.pop()) if stepped else None
        value = _formatted(text, values) if kind == "text" else np.asarray(values[0])
        recorder.take(kind, tag, value, step)
    return ()


summary = define(
    "summary",
    batch=by_the_sweep,
    infer=_infer_summary,
    reference=reference_of(_summary),
    lower=Host(),
    attrs=(
        Attr("kind", "str", choices=tuple(CHARTED)),
        Attr("tag", "str"),
        Attr("text", "str", ""),
        Attr("stepped", "bool", False),
        THREADED,
    ),
    effect=Effect.IO,
    variadic=True,
    doc="Hand a value to whoever records the run, as a number, a histogram, an image or a text.",
)


# ----------------------------------------------------------------------------------------- callback

_numbers = count()


class Function(str):
    """A name that stands for a Python function of this process in the attributes of a node."""

    call: Callable[..., Any]


_functions: weakref.WeakValueDictionary[str, Function] = weakref.WeakValueDictionary()


def function_of(call: Callable[..., Any]) -> Function:
    """A name of its own for a function, by which texts of this process find it, too."""
    made = Function(f"{getattr(call, '__name__', type(call).__name__)}#{next(_numbers)}")
    made.call = call
    _functions[str(made)] = made  # the key is another object: it would keep the function
    return made


def function_called(op: str, name: str) -> Callable[..., Any]:
    """The function that a name stands for. Raises TypeRuleError where it is not of this process."""
    known = _functions.get(name)
    require(
        known is not None,
        f"{op}: there is no function {name[:80]!r} in this process",
        hint="a graph from a file can only compute; it is made while a function is traced",
    )
    assert known is not None
    return known.call


def kinds_of(dtypes: Sequence[str], ranks: Sequence[int], dims: Sequence[Dimension]) -> list[Type]:
    require(len(dtypes) == len(ranks), "callback: a rank for each dtype of its results")
    require(sum(ranks) == len(dims), "callback: as many dims as the ranks of its results say")
    rest = iter(dims)
    return [
        tensor(dtype(name), [next(rest) for _ in range(rank)])
        for name, rank in zip(dtypes, ranks, strict=True)
    ]


def _infer_callback(
    *types: AnyType,
    function: str,
    dtypes: tuple[str, ...],
    ranks: tuple[int, ...],
    dims: tuple[Dimension, ...],
    threaded: bool,
) -> AnyType:
    operands_of("callback", types, threaded)
    function_called("callback", function)
    return result_of(kinds_of(dtypes, ranks, dims), threaded)


def _callback(arrays: Arrays, function: str, dtypes: Any, ranks: Any, dims: Any) -> Arrays:
    name = function.rpartition("#")[0]
    known = _functions.get(function)
    if known is None:
        raise RunError(f"the function of the callback {name} is gone")
    try:
        made = known.call(*arrays)
    except Exception as error:
        raise RunError(f"the callback {name} raised {type(error).__name__}: {error}") from error
    kinds = kinds_of(dtypes, ranks, dims)
    if not kinds:
        return ()
    results = [np.asarray(array) for array in made]
    found = ", ".join(f"{a.dtype}{list(a.shape)}" for a in results)
    fits = len(results) == len(kinds) and all(
        a.shape == kind.dims and a.dtype == kind.dtype.numpy for a, kind in zip(results, kinds)
    )
    if not fits:
        wanted = ", ".join(map(str, kinds))
        raise RunError(f"the callback {name} returned {found or 'nothing'}, not {wanted}")
    return results


callback = define(
    "callback",
    batch=by_the_sweep,
    infer=_infer_callback,
    reference=reference_of(_callback),
    lower=Host(is_local=True),
    attrs=(
        Attr("function", "str"),
        Attr("dtypes", "strs", (), most=MANY),
        Attr("ranks", "ints", (), within=EXTENT, most=MANY),
        Attr("dims", "dims", (), within=EXTENT, most=MANY),
        THREADED,
    ),
    effect=Effect.IO,
    variadic=True,
    doc="What a Python function of this process returns for the operands; results are of fixed "
    "dtypes and shapes.",
)


# ----------------------------------------------------------------------------------------- regions


def without_calls(region: Graph) -> Graph:
    """A region that runs once more, for its gradient, without what has happened already.

    Raises GraphError for a callback with results, which only another call can give.
    """

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = map_regions(node, without_calls)
        if made is not node:
            r.nodes.append(made)
            return made
        if node.op.effect is not Effect.IO or not isinstance(node.op.lower, Host):
            return None
        threaded = node.attrs["threaded"]
        if len(leaves(node.type)) > threaded:
            raise GraphError(
                f"{node.op.name} would be called again on the way back",
                details=node.describe(),
                location=node.loc,
                hint="call it outside of gc.checkpoint, gc.vjp and gc.jvp; gc.grad calls it once",
            )
        return node.inputs[-1] if threaded else r.emit(OPS["tuple"], ())

    return rebuild(region, rewrite) if region.effect is Effect.IO else region


def is_loose(op: Any, attrs: Any) -> bool:
    """Does a node call Python in an order that only `after` edges keep?"""
    return op.effect is Effect.IO and isinstance(op.lower, Host) and not attrs["threaded"]
