"""Kernels of the loop IR, run by every route beside the direct evaluator."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from loop_evaluator import Evaluator

from graphc.codegen.llvm import kernel as llvm_emitter
from graphc.codegen.llvm import target as targets
from graphc.codegen.numba import route as numba_route
from graphc.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64, DType
from graphc.loops.nest import Buffer, Expr, Kernel, Scalars
from graphc.loops.scalars import fma

HOST = targets.host()
REAL = [d for d in DTYPES.values() if d.kind != "c"]
COMPUTE = [d for d in REAL if d not in (F16, BF16)]
Arrays = list[np.ndarray]


def square_plus(x: Expr, y: Expr) -> Expr:
    """A stand-in for a math function: fma, a literal and a call of another function."""
    return x.scalars.call("half", fma(x, x, y))


def half(x: Expr) -> Expr:
    return x * 0.5


FUNCTIONS: dict[str, Callable[..., Expr]] = {"square_plus": square_plus, "half": half}


def library_code(*arguments: Any, **more: Any) -> bytes:
    """Object code of a hand-written function, of the arguments of `library_module`."""
    return numba_route.emitted(numba_route.library_module(*arguments, **more))


class Loaded:
    """A kernel in memory."""

    jit = None
    counter = itertools.count()

    def __init__(self, objects: bytes, name: str) -> None:
        Loaded.jit = Loaded.jit or llvm.create_lljit_compiler(use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(objects).export_symbol(name)
        self.library = builder.link(Loaded.jit, f"kernel{next(Loaded.counter)}")
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, word, word, word)
        self.entry = kind(self.library[name])

    def __call__(
        self, arrays: Arrays, lo: int, hi: int, params: Sequence[int] = (), thread: int = 0
    ) -> int:
        table = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        words = np.array([*params, 0], np.int64)
        address = ctypes.cast(table, ctypes.c_void_p)
        return int(self.entry(address, words.ctypes.data, lo, hi, thread))


def by_llvm(kernel: Kernel, opt: int = 2, target: targets.Target = HOST) -> Loaded:
    text = llvm_emitter.emit(kernel, target, FUNCTIONS)
    return Loaded(targets.optimise_and_object([text], target, opt), kernel.name)


def by_numba(kernel: Kernel) -> Loaded:
    return Loaded(numba_route.emitted(numba_route.kernel_module(kernel, FUNCTIONS)), kernel.name)


ROUTES: dict[str, Callable[[Kernel], Loaded]] = {
    "llvm": by_llvm,
    "llvm-0": lambda k: by_llvm(k, 0),
    "numba": by_numba,
}


def fresh(arrays: Arrays) -> Arrays:
    return [a.copy() for a in arrays]


def same_numbers(x: np.ndarray, y: np.ndarray, dtype: DType) -> bool:
    """Equal as numbers: any NaN equals any NaN, and zeros are equal whatever their sign."""
    if dtype.kind != "f":
        return bool((x == y).all())
    with np.errstate(invalid="ignore"):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    return bool(((wide_x == wide_y) | (np.isnan(wide_x) & np.isnan(wide_y))).all())


def check(
    kernel: Kernel,
    arrays: Arrays,
    routes: Sequence[str] = (),
    params: Sequence[int] = (),
    tolerance: float = 0.0,
) -> None:
    """Run every route and compare all buffers with the evaluator's."""
    expected = fresh(arrays)
    status = Evaluator(kernel, expected, params, FUNCTIONS).run(0, kernel.units)
    for route in routes or ROUTES:
        got = fresh(arrays)
        assert ROUTES[route](kernel)(got, 0, kernel.units, params) == status, route
        if status:
            continue
        for buffer in kernel.buffers:
            x, y = expected[buffer.index], got[buffer.index]
            if buffer.mode == "work":
                continue
            if tolerance and buffer.dtype.kind == "f":
                np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance)
            elif not same_numbers(x, y, buffer.dtype):
                wrong = [
                    i
                    for i in range(len(x))
                    if not same_numbers(x[i : i + 1], y[i : i + 1], buffer.dtype)
                ]
                i = wrong[0]
                raise AssertionError(f"{route}: {buffer}[{i}] is {y[i]!r}, expected {x[i]!r}")


def special(dtype: DType) -> np.ndarray:
    """Extremes, zeros, NaN, values around integer limits, and some ordinary ones."""
    if dtype is BOOL:
        return np.array([True, False, True, True, False], np.bool_)
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        edge = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 7, 31, 63, 100]
        edge += [-1, -2, -7, -100] if dtype.kind == "i" else [8, 200]
        return np.array(edge, dtype.numpy)
    real = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.49999997, 3.7, -3.7, 1e-40, -1e-45, 1e-8]
    real += [np.nan, np.inf, -np.inf, 127.5, 128.0, -128.5, 255.5, 256.0, -0.9, 32767.6, 65504.0]
    real += [
        65519.99,
        65520.0,
        6e-8,
        2.98e-8,
        2147483520.0,
        2147483648.0,
        -2147483648.0,
        4294967040,
    ]
    real += [
        4294967296.0,
        9.2e18,
        9223372036854775808.0,
        -9.3e18,
        1.8e19,
        1.9e19,
        3.3895e38,
        3.4e38,
    ]
    if dtype is F64:
        real += [1e300, -1e300, 1 + 2**-8 + 2**-40, 1 + 2**-11 + 2**-50, 1 + 3 * 2**-8 - 2**-40]
        real += [2049.0000001, 2147483647.5, -2147483648.9, 65519.999999, 2**-25 * (1 + 2**-30)]
    with np.errstate(over="ignore"):
        return np.array(real, np.float64).astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    values = special(dtype)
    x, y = np.meshgrid(values, values)
    return x.ravel().copy(), y.ravel().copy()


def elementwise(
    inputs: Sequence[DType],
    results: Sequence[DType],
    size: int,
    make: Callable[..., Sequence[Expr]],
    strict: bool = True,
    kind: str = "vector",
) -> Kernel:
    """A kernel that stores make(b, *loaded) at every index."""
    b = Scalars()
    sources = [Buffer(i, d, size, "in") for i, d in enumerate(inputs)]
    sinks = [Buffer(len(inputs) + i, d, size, "out") for i, d in enumerate(results)]
    with b.loop(size, kind) as i:
        values = make(b, *(b.load(s, i) for s in sources))
        for sink, value in zip(sinks, values, strict=True):
            b.store(sink, i, value)
    return Kernel("k0", (*sources, *sinks), 0, b.body, 1, strict)


BINARY = {
    "f": ("add", "sub", "mul", "div", "min", "max"),
    "i": ("add", "sub", "mul", "idiv", "irem", "min", "max", "and", "or", "xor", "shl", "shr"),
    "b": ("and", "or", "xor", "min", "max"),
}
BINARY["u"] = BINARY["i"]
UNARY = {
    "f": ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint"),
    "i": ("neg", "abs", "not", "popcount", "clz"),
    "u": ("abs", "not", "popcount", "clz"),
    "b": ("not",),
}


def reduction(dtype: DType, combine: str, size: int, strict: bool = False) -> Kernel:
    b = Scalars()
    source, sink = Buffer(0, dtype, size, "in"), Buffer(1, dtype, 1, "out")
    register = b.register(b.const(identity(dtype, combine), dtype))
    with b.loop(size, "vector") as i:
        b.update(register, combine, b.load(source, i))
    b.store(sink, 0, b.read(register))
    return Kernel("k0", (source, sink), 0, b.body, 1, strict)


def identity(dtype: DType, combine: str) -> float | int:
    if combine in ("min", "max"):
        low = combine == "max"
        if dtype.kind == "f":
            return -np.inf if low else np.inf
        return (
            1 - low
            if dtype is BOOL
            else int(getattr(np.iinfo(dtype.numpy), "min" if low else "max"))
        )
    return {"add": 0, "mul": 1, "and": -1, "or": 0, "xor": 0}[combine]


def combines(dtype: DType) -> tuple[str, ...]:
    if dtype is BOOL:
        return "and", "or", "xor", "min", "max"
    return ("add", "mul", "min", "max", *(() if dtype.kind == "f" else ("and", "or", "xor")))


def check_gather_with_checked_index() -> None:
    """The index is clamped, so a vector loop may report the failure after it."""
    for kind, bad in itertools.product(("vector", "serial"), (False, True)):
        b = Scalars()
        table, index = Buffer(0, F32, 9, "in"), Buffer(1, I32, 40, "in")
        sink = Buffer(2, F32, 40, "out")
        with b.loop(40, kind) as i:
            at = b.cast(b.load(index, i), I64)
            outside = b.op(
                "or", b.compare("lt", at, b.integer(0)), b.compare("ge", at, b.integer(9))
            )
            b.fail(outside, 17)
            b.store(sink, i, b.load(table, b.select(outside, b.integer(0), at)))
        kernel = Kernel("k0", (table, index, sink), 0, b.body)
        places = np.random.default_rng(7).integers(0, 9, 40).astype(np.int32)
        places[23] = -4 if bad else 3
        check(kernel, [np.arange(9, dtype=np.float32), places, np.zeros(40, np.float32)])


def check_that_loads_are_read_when_used() -> None:
    b = Scalars()
    cells, sink = Buffer(0, F32, 4, "inout"), Buffer(1, F32, 4, "out")
    register = b.register(b.const(1, F32))
    first, before = b.load(cells, 0), b.read(register)
    both = b.add(first, before)
    b.store(sink, 0, both)
    b.store(cells, 0, b.const(7, F32))
    b.store(sink, 1, both)
    b.assign(register, b.const(30, F32))
    b.store(sink, 2, both)
    with b.loop(3) as i:
        b.store(sink, 3, both)
        b.store(cells, 0, b.cast(i, F32))
    arrays = [np.array([2, 0, 0, 0], np.float32), np.zeros(4, np.float32)]
    check(Kernel("k0", (cells, sink), 0, b.body), arrays)
