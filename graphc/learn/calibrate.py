"""Products in 8 bits on both sides: the ranges of what a model multiplies, from samples.

    x @ w   ->   dequantize(quantize(x)) @ dequantize(w of i8)

A weight gets a scale for each output column or channel, what is computed one scale and one zero
point for its range over the samples, in u8.  The compiler multiplies the bytes themselves
(passes/normalise/choose_integers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import FeedError, GraphError
from graphc.frontend.compile.decorator import compile
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.frontend.session.inlined_calls import written_out
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.types import F32, I8, I32, U8, DType, Type
from graphc.ops.reference.interpreter import evaluate_node, interpret

Array = np.ndarray[Any, Any]
_LIKE_SAMPLES = (
    "a model that is quantized on samples takes arrays like them: quantize it for each size of "
    "batches, on samples of that size"
)
Range = tuple[float, float]
METHODS = ("minmax", "percentile", "mse")
KEPT = 1 << 16  # values of a sample that a percentile or an error is measured on
SHARES = np.linspace(0.3, 1.0, 36)  # of the whole range, that the least error is looked for in


@record(frozen=True)
class Affine:
    """u8 numbers stand for (number - zero) * scale."""

    scale: np.float32
    zero: int

    def rounded(self, x: Array) -> Array:
        """What becomes of numbers that are stored so."""
        units = np.clip(np.rint(x / self.scale) + np.float32(self.zero), 0, 255)
        return (units.astype(np.float32) - np.float32(self.zero)) * self.scale


class Calibrated:
    """A function whose products by constants are made of bytes; see `quantize`.

    It is called as the function that it was made of, with arrays of the sizes of the samples.
    `compiled` is what runs, `layers` the error of each such product by itself, by its line and
    number, and `error` that of the worst result: the root of the mean square difference relative to
    that of the values in full, over all samples.
    """

    def __init__(
        self, compiled: Any, layers: Mapping[str, float], error: float, sample: tuple[Any, ...]
    ) -> None:
        self.compiled, self.layers, self.error = compiled, dict(layers), error
        self._sample = sample

    def __call__(self, *args: Any) -> Any:
        """Results as of the function. Raises FeedError for arrays of other sizes or dtypes."""
        return self.compiled(*args)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the graph of bytes, for `gc.load` and the command line."""
        self.compiled.save(path, *self._sample)

    def __repr__(self) -> str:
        return f"<{len(self.layers)} products in 8 bits, results differ by {self.error:.2g}>"


def calibrated(
    function: Any, samples: Sequence[Any], method: str, percentile: float, options: dict[str, Any]
) -> Calibrated:
    """The function with its products in 8 bits. Raises GraphError as `quantize` does."""
    if method not in METHODS:
        raise GraphError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if not (isinstance(percentile, int | float | np.number) and 50 < percentile <= 100):
        raise GraphError(f"percentile must be above 50 and at most 100, got {percentile!r}")
    if not callable(function) or not isinstance(samples, Iterable) or isinstance(samples, str):
        raise GraphError("quantize takes a function and a list of samples: samples=[(x,), ...]")
    calls = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    if not calls:
        raise GraphError("samples are needed to calibrate with", hint="give samples=[(x,), ...]")
    is_traced = callable(getattr(function, "graph", None))  # loaded models are a graph
    traced = function if is_traced else compile(function)
    graph: Graph = written_out(traced.graph(*calls[0]))
    _, tree = flatten(traced(*calls[0]), keep_order=True)
    products = [node for node in graph.nodes if weight_of(node) is not None]
    if not products:
        raise GraphError(
            "the function multiplies nothing by a constant matrix of f32",
            hint="let it close over its weights: lambda x: model(x, weights)",
        )
    feeds = [[np.asarray(leaf) for leaf in flatten(call)[0]] for call in calls]
    seen = [operands_of(graph, products, feed) for feed in feeds]
    sources = list(dict.fromkeys(node.inputs[0] for node in products))
    ranges = {
        source: affine(range_of([found[source] for found, _ in seen], method, percentile))
        for source in sources
    }
    made = in_bytes(graph, products, ranges)
    layers = {title_of(node): layer_error(node, ranges, seen) for node in products}
    exact, rounded = [r for _, r in seen], [interpret(made, feed) for feed in feeds]
    error = max(map(relative, zip(*exact, strict=True), zip(*rounded, strict=True)))
    return Calibrated(compile(calling(made, tree), **options), layers, error, calls[0])


def calling(graph: Graph, tree: Any) -> Callable[..., Any]:
    """A graph as a function of what its original took, that returns what that did."""
    inner = LoadedGraph(graph.replace(result_names=()))

    def quantized(*args: Any) -> Any:
        try:
            results = inner(*flatten(args)[0])
        except FeedError as error:
            raise FeedError(error.message, hint=_LIKE_SAMPLES) from None
        return unflatten(tree, results if isinstance(results, tuple) else (results,))

    return quantized


# ------------------------------------------------------------------------------------ ranges


def operands_of(
    graph: Graph, products: Sequence[Node], feed: Sequence[Array]
) -> tuple[dict[Node, Array], list[Array]]:
    """What the products read on a sample, and the results of the graph."""
    wanted = list(dict.fromkeys(node.inputs[0] for node in products))
    count = len(graph.results)
    both = graph.replace(results=(*graph.results, *wanted), result_names=())
    values = interpret(both, feed)
    for node, value in zip(wanted, values[count:], strict=True):
        if not np.isfinite(value).all():
            raise GraphError("a sample leads to NaN or infinite numbers", location=node.loc)
    return dict(zip(wanted, values[count:], strict=True)), values[:count]


def range_of(values: Sequence[Array], method: str, percentile: float) -> Range:
    """The range of values that bytes are to reach; those outside become its ends."""
    if method == "percentile":
        ends = [np.percentile(few(v), (100 - percentile, percentile)) for v in values if v.size]
    else:
        ends = [np.asarray((v.min(), v.max())) for v in values if v.size]
    low, high = (float(f([e[k] for e in ends], default=0.0)) for k, f in ((0, min), (1, max)))
    if method == "mse":
        near = np.concatenate([few(v) for v in values])
        tried = [(low * share, high * share) for share in SHARES]
        low, high = min(tried, key=lambda r: float(np.square(affine(r).rounded(near) - near).sum()))
    return low, high


def few(values: Array) -> Array:
    """At most so many of the values, evenly spread."""
    flat = values.reshape(-1)
    return flat[:: -(-flat.size // KEPT) or 1]


def affine(found: Range) -> Affine:
    """Scale and zero point of a range, in which 0 has a number of its own."""
    low, high = min(found[0], 0.0), max(found[1], 0.0)
    scale = np.float32((high - low) / 255)
    if scale == 0:
        return Affine(np.float32(1), 0)
    return Affine(scale, int(np.rint(-low / float(scale))))


# ------------------------------------------------------------------------------------ rewriting


def weight_of(node: Node) -> Array | None:
    """The constant that a product of f32 multiplies with; None for any other node."""
    product = node.op.traits.matrix_product or node.op is OPS["conv"]
    if not product or node.op is OPS["einsum"] or not isinstance(node.type, Type):
        return None
    x, w = (n.type for n in node.inputs)
    if node.type.dtype is not F32 or not isinstance(x, Type) or not isinstance(w, Type):
        return None
    value = constant(node.inputs[1])
    return value if value is not None and x.is_static and value.size else None


def constant(node: Node) -> Array | None:
    """The value of a constant, or of views of one."""
    if node.op.traits.constant:
        return np.asarray(node.attrs["value"].array)
    moved = node.op.traits.permutes or node.op.traits.reshapes
    value = constant(node.inputs[0]) if moved else None
    return None if value is None else evaluate_node(node, [value])


def in_integers(node: Node) -> tuple[Array, Array]:
    """The weight of a product as i8 and scales, one for each output column or channel."""
    weight = weight_of(node)
    assert weight is not None
    axes = tuple(range(1, weight.ndim)) if node.op is OPS["conv"] else (-2,)
    if not np.isfinite(weight).all():
        raise GraphError("a weight with NaN or infinite numbers", location=node.loc)
    scales = np.abs(weight).max(axes, keepdims=True) / np.float32(127)
    if node.op is not OPS["conv"] and weight.ndim > 2:  # one scale a column for all matrices
        scales = scales.max(tuple(range(weight.ndim - 2)), keepdims=True)
    scales = np.where(scales == 0, np.float32(1), scales).astype(np.float32)
    return np.rint(weight / scales).clip(-127, 127).astype(np.int8), scales


def in_bytes(graph: Graph, products: Sequence[Node], ranges: Mapping[Node, Affine]) -> Graph:
    """The graph with operands of the products rounded to bytes and widened again."""
    known = {node.id: node for node in products}
    stored: dict[int, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        old = known.get(node.id)
        if old is None:
            return None
        x = node.inputs[0]
        if x.id not in stored:
            stored[x.id] = dequantized(
                quantized(x, ranges[old.inputs[0]], r), ranges[old.inputs[0]], r
            )
        numbers, scales = in_integers(old)
        wide = cast(fixed(numbers, I8, r), F32, r)
        weight = r.emit(OPS["mul"], (wide, fixed(scales, F32, r)))
        return r.emit(node.op, (stored[x.id], weight), node.attrs)

    return rebuild(graph, rewrite)


def quantized(x: Node, to: Affine, r: Rewriter) -> Node:
    units = r.emit(OPS["rint"], (r.emit(OPS["div"], (x, fixed(to.scale, F32, r))),))
    units = r.emit(OPS["add"], (units, fixed(to.zero, F32, r)))
    units = r.emit(OPS["maximum"], (units, fixed(0, F32, r)))
    return cast(r.emit(OPS["minimum"], (units, fixed(255, F32, r))), U8, r)


def dequantized(x: Node, to: Affine, r: Rewriter) -> Node:
    units = r.emit(OPS["sub"], (cast(x, I32, r), fixed(to.zero, I32, r)))
    return r.emit(OPS["mul"], (cast(units, F32, r), fixed(to.scale, F32, r)))


def cast(x: Node, dtype: DType, r: Rewriter) -> Node:
    return r.emit(OPS["cast"], (x,), {"dtype": dtype})


def fixed(value: Any, dtype: DType, r: Rewriter) -> Node:
    array = np.asarray(value, dtype.numpy)
    return r.emit(OPS["const"], (), {"value": literal(array, dtype)})


# ------------------------------------------------------------------------------------ errors


def layer_error(
    node: Node, ranges: Mapping[Node, Affine], seen: Sequence[tuple[Mapping[Node, Array], Any]]
) -> float:
    """How far a product of bytes is from the one in full, of the same operands."""
    weight = weight_of(node)
    assert weight is not None
    numbers, scales = in_integers(node)
    narrow = numbers.astype(np.float32) * scales
    source = node.inputs[0]
    pairs = [(found[source], ranges[source].rounded(found[source])) for found, _ in seen]
    exact = [evaluate_node(node, [x, weight]) for x, _ in pairs]
    return relative(exact, [evaluate_node(node, [x, narrow]) for _, x in pairs])


def relative(exact: Sequence[Array], made: Sequence[Array]) -> float:
    """The root of the mean square difference, relative to that of the exact values."""
    wide = [np.asarray(a, np.float64) for a in exact]
    spent = sum(float(np.square(b - a).sum()) for a, b in zip(wide, made, strict=True))
    whole = sum(float(np.square(a).sum()) for a in wide)
    return float(np.sqrt(spent / whole)) if whole else 0.0


def title_of(node: Node) -> str:
    """The line of a product, and its number in the traced graph."""
    line = f"{Path(node.loc[0]).name}:{node.loc[1]} " if node.loc else ""
    return f"{line}{node.op.name} %{node.id}"
