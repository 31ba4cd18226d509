"""The table of the sweep: operations x sizes x element types x layouts, a row for each operation.

A function takes a namespace before its arrays: NumPy's, graphc's tracers (NumPy's names again),
JAX's and PyTorch's (`sweep_peers.TorchNames`). Where a peer has its own word for an operation the
row says so; a peer that has none is None, and is left out of the case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cases import Case

SIZES = {"tiny": 64, "L1": 2048, "L2": 65_536, "L3": 1_048_576, "memory": 16_777_216}  # elements
WIDTH = {"tiny": 8, "L1": 32, "L2": 256, "L3": 1024, "memory": 4096}  # columns of a matrix
Array = np.ndarray
Function = Callable[..., Any]


@dataclass(frozen=True)
class Swept(Case):
    """A case with what each peer runs: `shared` with its namespace, unless it is told otherwise.

    `onnx` takes a network and the names of its inputs, or is the name of an operator;
    `judge` is what must agree: "values", "moments" (of random numbers) or "shape".
    """

    shared: Function | None = None
    jax: Function | None = None
    torch: Function | None = None
    onnx: Function | str | None = None
    numexpr: str | None = None
    numba: str | None = None
    fused: bool = False  # worth the time of torch.compile
    judge: str = "values"
    without: tuple[str, ...] = ()


def made(kind: str, rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Random elements of a dtype, positive and negative."""
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in ("i8", "i32", "i64"):
        return rng.integers(-100, 100, shape).astype(f"{kind[0]}{int(kind[1:]) // 8}")
    values = rng.standard_normal(shape)
    if kind in ("c64", "c128"):
        return (values + 1j * rng.standard_normal(shape)).astype(f"c{int(kind[1:]) // 8}")
    if kind == "bf16":
        import ml_dtypes

        return values.astype(np.float32).astype(ml_dtypes.bfloat16)
    return values.astype(f"f{int(kind[1:]) // 8}")


def arrays(kind: str, *shapes: Sequence[int]) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: tuple(made(kind, rng, shape) for shape in shapes)


def integers(high: int, *shapes: Sequence[int], kind: str = "i4") -> Any:
    return lambda rng: tuple(rng.integers(0, high, shape).astype(kind) for shape in shapes)


TOLERANCE = {"f16": 1e-2, "bf16": 5e-2, "f32": 2e-5, "c64": 2e-5, "f64": 1e-10, "c128": 1e-10}


def swept(name: str, function: Function | None, arguments: Any, **options: Any) -> Swept:
    """A case; a function that NumPy has not (None) is judged by the first peer that runs."""
    plain = functools.partial(function, np) if function else None
    options.setdefault("flops", 0.0)
    options.setdefault("tolerance", 2e-5)
    return Swept(name, plain, arguments, bytes=0.0, shared=function, **options)


def square(size: str) -> tuple[int, int]:
    return SIZES[size] // WIDTH[size], WIDTH[size]


# -- one element at a time ------------------------------------------------------------------------


def gelu_tanh(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


# name: function, operator of ONNX, formula of numexpr
BINARY: dict[str, tuple[Function, str, str | None]] = {
    "add": (lambda xp, x, y: x + y, "Add", "a + b"),
    "mul": (lambda xp, x, y: x * y, "Mul", "a * b"),
    "div": (lambda xp, x, y: x / y, "Div", "a / b"),
    "maximum": (lambda xp, x, y: xp.maximum(x, y), "Max", None),
    "power": (lambda xp, x, y: xp.abs(x) ** y, "", "abs(a) ** b"),
    "arctan2": (lambda xp, x, y: xp.arctan2(x, y), "", "arctan2(a, b)"),
    "less": (lambda xp, x, y: x < y, "Less", "a < b"),
}
UNARY: dict[str, tuple[Function, str, str | None]] = {
    "exp": (lambda xp, x: xp.exp(x), "Exp", "exp(a)"),
    "log": (lambda xp, x: xp.log(x * x), "", "log(a * a)"),
    "log1p": (lambda xp, x: xp.log1p(x * x), "", "log1p(a * a)"),
    "expm1": (lambda xp, x: xp.expm1(x), "", "expm1(a)"),
    "tanh": (lambda xp, x: xp.tanh(x), "Tanh", "tanh(a)"),
    "sin": (lambda xp, x: xp.sin(x), "Sin", "sin(a)"),
    "sqrt": (lambda xp, x: xp.sqrt(x * x), "", "sqrt(a * a)"),
    "abs": (lambda xp, x: xp.abs(x), "Abs", "abs(a)"),
    "floor": (lambda xp, x: xp.floor(x), "Floor", "floor(a)"),
    "sigmoid": (lambda xp, x: 1 / (1 + xp.exp(-x)), "Sigmoid", "1 / (1 + exp(-a))"),
    "cube": (lambda xp, x: x**3, "", "a ** 3"),
}
CHAINS: dict[str, tuple[Function, int, str | None, str | None]] = {
    "axpy": (lambda xp, x, y: 2.5 * x + y, 2, "2.5 * a + b", "axpy"),
    "polynomial": (
        lambda xp, x: ((((0.1 * x + 0.2) * x + 0.3) * x + 0.4) * x + 0.5) * x + 0.6,
        10,
        "((((0.1 * a + 0.2) * a + 0.3) * a + 0.4) * a + 0.5) * a + 0.6",
        "polynomial",
    ),
    "gelu-tanh": (gelu_tanh, 20, None, None),
    "norm-of-two": (
        lambda xp, x, y: xp.sqrt(x * x + y * y),
        4,
        "sqrt(a * a + b * b)",
        "norm_of_two",
    ),
    "select": (
        lambda xp, x, y: xp.where(x > y, x * y, x - y),
        4,
        "where(a > b, a * b, a - b)",
        None,
    ),
}


def elementwise() -> Iterator[Swept]:
    def row(name: str, size: str, kind: str, entry: Any, operands: int, **options: Any) -> Swept:
        function, operator, formula = entry
        usable = kind not in ("bf16", "f16", "c64", "bool", "i8")
        return swept(
            f"elementwise/{name}-{size}-{kind}",
            function,
            arrays(kind, *[square(size)] * operands),
            onnx=operator or None if kind != "c64" else None,
            numexpr=formula if usable else None,
            flops=float(SIZES[size]),
            tolerance=TOLERANCE.get(kind, 0.0),
            **options,
        )

    for size in SIZES:
        for kind in ("f32", "f64", "i32", "i8"):
            yield row("add", size, kind, BINARY["add"], 2, fused=kind == "f32")
    for kind, name in (
        ("bf16", "add"),
        ("f16", "add"),
        ("c64", "add"),
        ("c64", "mul"),
        ("i8", "mul"),
    ):
        for size in ("L2", "L3"):
            yield row(name, size, kind, BINARY[name], 2)
    for size in ("L2", "L3"):
        both = (lambda xp, x, y: x & y, "And", None)
        yield row("and", size, "bool", both, 2)
    for name in ("mul", "div", "maximum", "power", "arctan2", "less"):
        for size in ("L1", "L3"):
            yield row(name, size, "f32", BINARY[name], 2)
        yield row(name, "L2", "f64", BINARY[name], 2)
    for name, entry in UNARY.items():
        for size in ("L1", "L3"):
            yield row(name, size, "f32", entry, 1)
    for name in ("exp", "log", "tanh", "sin", "sqrt"):
        yield row(name, "L2", "f64", UNARY[name], 1)
    for kind in ("bf16", "f16"):
        for name in ("exp", "tanh", "sigmoid"):
            yield row(name, "L2", kind, UNARY[name], 1)
    yield row("exp", "L2", "c64", UNARY["exp"], 1)


def chains() -> Iterator[Swept]:
    for name, (function, flops, formula, hand) in CHAINS.items():
        operands = 2 if "y" in function.__code__.co_varnames else 1
        for size in ("tiny", "L2", "memory"):
            yield swept(
                f"chain/{name}-{size}-f32",
                function,
                arrays("f32", *[square(size)] * operands),
                flops=float(flops * SIZES[size]),
                numexpr=formula,
                numba=hand,
                fused=True,
            )


def layouts() -> Iterator[Swept]:
    """The same sum and a chain of more work, over operands that lie or repeat in other ways."""

    def work(xp: Any, x: Any, y: Any, heavy: bool) -> Any:
        return xp.exp(-x * x) * y if heavy else x + y

    ways: dict[str, tuple[Function, Function]] = {
        "transposed": (lambda xp, x: x.T, lambda m, n: ((n, m), (m, n))),
        "strided": (lambda xp, x: x[:, ::2], lambda m, n: ((m, 2 * n), (m, n))),
        "rows-apart": (lambda xp, x: x[::2], lambda m, n: ((2 * m, n), (m, n))),
        "reversed": (lambda xp, x: xp.flip(x, 1), lambda m, n: ((m, n), (m, n))),
        "row": (lambda xp, x: x, lambda m, n: ((n,), (m, n))),
        "column": (lambda xp, x: x, lambda m, n: ((m, 1), (m, n))),
    }
    for name, (view, shapes) in ways.items():
        for size in ("L2", "memory"):
            for heavy in (False, True):
                yield swept(
                    f"layout/{name}-{'exp' if heavy else 'add'}-{size}-f32",
                    lambda xp, x, y, v=view, h=heavy: work(xp, v(xp, x), y, h),
                    arrays("f32", *shapes(*square(size))),
                    flops=float(SIZES[size] * (10 if heavy else 1)),
                )


def casts() -> Iterator[Swept]:
    pairs = (("f32", "f64"), ("f64", "f32"), ("f32", "i32"), ("i32", "f32"), ("i8", "f32"))
    pairs += (("f32", "f16"), ("f16", "f32"), ("bf16", "f32"), ("bool", "f32"))
    for source, target in pairs:
        dtype = f"{'int' if target[0] == 'i' else 'float'}{target[1:]}"
        yield swept(
            f"cast/{source}-{target}-L3",
            lambda xp, x, d=dtype: xp.astype(x, d),
            arrays(source, square("L3")),
        )


# -- reductions -----------------------------------------------------------------------------------


def logsumexp(xp: Any, x: Any, axis: int | None) -> Any:
    top = xp.max(x, axis=axis, keepdims=True) if axis is not None else xp.max(x)
    total = xp.log(xp.sum(xp.exp(x - top), axis=axis))
    return total + (top.squeeze() if axis is not None else top)


REDUCTIONS: dict[str, tuple[Function, str | None]] = {
    "sum": (lambda xp, x, axis: xp.sum(x, axis=axis), "ReduceSum"),
    "max": (lambda xp, x, axis: xp.max(x, axis=axis), "ReduceMax"),
    "mean": (lambda xp, x, axis: xp.mean(x, axis=axis), "ReduceMean"),
    "var": (lambda xp, x, axis: xp.var(x, axis=axis), None),
    "argmax": (lambda xp, x, axis: xp.argmax(x, axis=axis), "ArgMax"),
    "norm": (lambda xp, x, axis: xp.sqrt(xp.sum(x * x, axis=axis)), "ReduceL2"),
    "logsumexp": (logsumexp, "ReduceLogSumExp"),
}


def reductions() -> Iterator[Swept]:
    axes: dict[str, int | None] = {"all": None, "rows": 1, "columns": 0}

    def operator(name: str | None, axis: int | None) -> Function | None:
        if name == "ArgMax":
            return None if axis is None else lambda net, x: net.op(name, x, axis=axis, keepdims=0)
        return name and (lambda net, x: reduced(net, name, x, axis))

    def row(name: str, way: str, size: str, kind: str = "f32") -> Swept:
        function, onnx = REDUCTIONS[name]
        axis = axes[way]
        return swept(
            f"reduce/{name}-{way}-{size}-{kind}",
            lambda xp, x: function(xp, x, axis),
            arrays(kind, square(size)),
            onnx=operator(onnx, axis),
            numba="total" if name == "sum" and way == "all" and kind == "f32" else None,
            flops=float(SIZES[size]),
            tolerance=max(TOLERANCE.get(kind, 0.0), 1e-4 if kind == "f32" else 0.0),
        )

    for name in REDUCTIONS:
        for way in axes:
            for size in ("L2", "memory") if name in ("sum", "max", "argmax") else ("L3",):
                yield row(name, way, size)
    for name, kind in (
        ("sum", "f64"),
        ("max", "f64"),
        ("max", "i32"),
        ("max", "i8"),
        ("argmax", "i32"),
    ):
        yield row(name, "all", "L3", kind)
        yield row(name, "rows", "L3", kind)
    for size in ("tiny", "L1"):
        yield row("sum", "all", size)
        yield row("sum", "rows", size)
    for name, function in {
        "cumsum": lambda xp, x: xp.cumsum(x, 1),
        "cumsum-columns": lambda xp, x: xp.cumsum(x, 0),
        "any": lambda xp, x: xp.any(x > 9.0),
        "count": lambda xp, x: xp.sum(x > 0.5),
    }.items():
        yield swept(f"reduce/{name}-L3-f32", function, arrays("f32", square("L3")), tolerance=1e-4)


def reduced(net: Any, name: str, x: str, axis: int | None) -> Any:
    axes = () if axis is None else (net.constant([axis], np.int64),)
    return net.op(name, x, *axes, keepdims=0)


# -- what moves elements --------------------------------------------------------------------------


def rows(xp: Any, x: Any) -> Any:
    """A copy whose rows lie one after another; NumPy's own would lie as x does."""
    return xp.copy(x, order="C")


def movement() -> Iterator[Swept]:
    moves: dict[str, tuple[Function, Any, Any]] = {
        "transpose": (lambda xp, x: rows(xp, x.T), "matrix", lambda net, x: net.op("Transpose", x)),
        "reverse": (lambda xp, x: rows(xp, xp.flip(x, 1)), "matrix", None),
        "stride-2": (lambda xp, x: rows(xp, x[:, ::2]), "matrix", None),
        "concat": (lambda xp, x: xp.concatenate([x, x], 1), "matrix", None),
        "stack-last": (lambda xp, x: xp.stack([x, x], -1), "matrix", None),
        "roll": (lambda xp, x: xp.roll(x, 3, 1), "matrix", None),
        "tile": (lambda xp, x: xp.tile(x, (2, 2)), "matrix", None),
        "repeat": (lambda xp, x: xp.repeat(x, 2, 1), "matrix", None),
        "pad": (lambda xp, x: xp.pad(x, ((1, 1), (1, 1))), "matrix", None),
        "triu": (lambda xp, x: xp.triu(x), "matrix", None),
    }
    for name, (function, _, onnx) in moves.items():
        for size in ("L2", "memory"):
            yield swept(f"move/{name}-{size}-f32", function, arrays("f32", square(size)), onnx=onnx)
    for name, order, shapes in (
        ("nchw-nhwc", (0, 2, 3, 1), ((8, 64, 56, 56), (1, 3, 224, 224))),
        ("nhwc-nchw", (0, 3, 1, 2), ((8, 56, 56, 64), (1, 224, 224, 3))),
        ("heads", (0, 2, 1, 3), ((4, 128, 8, 64), (8, 12, 512, 64))),
    ):
        for shape in shapes:
            yield swept(
                f"move/{name}-{'x'.join(map(str, shape))}-f32",
                lambda xp, x, o=order: rows(xp, xp.transpose(x, o)),
                arrays("f32", shape),
                onnx=lambda net, x, o=order: net.op("Transpose", x, perm=list(o)),
            )
    yield from gathers()


def gathers() -> Iterator[Swept]:
    def table(rows: int, width: int, count: int) -> Any:
        return lambda rng: (
            made("f32", rng, (rows, width)),
            rng.integers(0, rows, count).astype(np.int32),
        )

    def added(xp: Any, x: Any, ids: Any, y: Any) -> Any:
        total = x.copy()
        xp.add.at(total, ids, y)
        return total

    for rows, width, count in ((1000, 16, 4096), (30_000, 384, 1024), (1_000_000, 1, 1_000_000)):
        shape, source = f"{rows}x{width}-{count}", table(rows, width, count)
        yield swept(
            f"gather/rows-{shape}-f32",
            lambda xp, x, ids: xp.take(x, ids, axis=0),
            source,
            onnx=lambda net, x, ids: net.op("Gather", x, ids),
        )
        yield swept(
            f"gather/scatter-add-{shape}-f32",
            added,
            lambda rng, t=source, n=(count, width): (*t(rng), made("f32", rng, n)),
            jax=lambda jax: lambda x, ids, y: x.at[ids].add(y),
            torch=lambda torch: lambda x, ids, y: x.index_add(0, ids, y),
            tolerance=1e-4,
        )
    yield swept(
        "gather/along-axis-L3-f32",
        lambda xp, x, ids: xp.take_along_axis(x, ids, 1),
        lambda rng: (made("f32", rng, (1024, 1024)), rng.integers(0, 1024, (1024, 1024))),
    )
    yield swept(
        "gather/bincount-1000000-i32",
        lambda xp, x: xp.bincount(x, minlength=256),
        integers(256, (1_000_000,)),
        jax=lambda jax: lambda x: jax.numpy.bincount(x, length=256),
        native=lambda gc: lambda x: gc.bincount(x, length=256),
        numba="bincount",
    )
    yield swept(
        "gather/compress-L3-f32",
        lambda xp, x: x[x > 0.5],
        arrays("f32", (SIZES["L3"],)),
        without=("jax", "onnxruntime", "openvino"),
    )
