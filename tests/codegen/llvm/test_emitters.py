"""The emitters of the loop IR against a direct evaluator: every op, type, statement and route."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from effort import examples
from emitted_kernels import (
    BINARY,
    COMPUTE,
    FUNCTIONS,
    HOST,
    REAL,
    ROUTES,
    UNARY,
    Arrays,
    Loaded,
    by_llvm,
    check,
    check_gather_with_checked_index,
    check_that_loads_are_read_when_used,
    combines,
    elementwise,
    library_code,
    pairs,
    reduction,
    same_numbers,
    special,
)
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.base.record import replace
from graphc.codegen.build import build, kernel_texts
from graphc.codegen.llvm import kernel as llvm_emitter
from graphc.codegen.llvm import target as targets
from graphc.codegen.llvm.microarchitectures import KNOWN, microarchitecture
from graphc.codegen.python import source
from graphc.config import Config
from graphc.errors import RAISED, GraphError
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from graphc.loops.facts import bytes_of_threads, work_stride
from graphc.loops.nest import Buffer, Expr, Kernel, Register, Scalars
from graphc.loops.scalars import maximum, minimum
from graphc.passes import pipeline
from graphc.runtime.load import elf

# ------------------------------------------------------------------------------------ values


def run_elementwise(
    inputs: Arrays,
    dtypes: Sequence[DType],
    results: Sequence[DType],
    make: Callable[..., Sequence[Expr]],
    kind: str = "vector",
) -> None:
    # Numba takes a second per kernel: one width of integers less shows nothing new.
    slow = dtypes[0].name in ("i16", "i64", "u8", "u16")
    turn = len(results) + REAL.index(dtypes[0])
    other = "llvm-0" if slow or turn % 3 else "numba"
    kernel = elementwise(dtypes, results, len(inputs[0]), make, kind=kind)
    arrays = [*inputs, *(np.zeros(len(inputs[0]), d.numpy) for d in results)]
    check(kernel, arrays, ["llvm", other])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", COMPUTE, ids=str)
def test_every_binary_op(dtype: DType) -> None:
    names = BINARY[dtype.kind]
    run_elementwise(
        list(pairs(dtype)),
        [dtype, dtype],
        [dtype] * len(names),
        lambda b, x, y: [b.op(name, x, y) for name in names],
    )


@pytest.mark.parametrize("dtype", COMPUTE, ids=str)
def test_every_unary_op_and_comparison(dtype: DType) -> None:
    compare = ("eq", "ne", "lt", "le", "gt", "ge")
    names = UNARY[dtype.kind]
    run_elementwise(
        list(pairs(dtype)),
        [dtype, dtype],
        [dtype] * len(names) + [BOOL] * 6 + [dtype],
        lambda b, x, y: [
            *(b.op(n, x) for n in names),
            *(b.compare(c, x, y) for c in compare),
            b.select(b.compare("ge", x, y), x, y),
        ],
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", REAL, ids=str)
def test_every_cast(source: DType) -> None:
    half_kinds = source in (F16, BF16)
    run_elementwise(
        [special(source)],
        [source],
        REAL,
        lambda b, x: [
            b.cast(b.cast(x, F32) if half_kinds and r is not source else x, r) for r in REAL
        ],
    )


@pytest.mark.parametrize("half", [True, False])
def test_f16_conversions_with_and_without_hardware(half: bool) -> None:
    target = replace(HOST, half=half)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    kernel = elementwise(
        [F16], [F32, F16], 2**16, lambda b, x: [b.cast(x, F32), b.cast(b.cast(x, F32), F16)]
    )
    arrays = [every, np.zeros(2**16, np.float32), np.zeros(2**16, np.float16)]
    by_llvm(kernel, target=target)(arrays, 0, 1)
    assert same_numbers(arrays[1], every.astype(np.float32), F32)
    assert same_numbers(arrays[2], every, F16)
    bits = np.random.default_rng(0).integers(0, 2**32, 2**16, dtype=np.uint32)
    singles = np.concatenate([bits.view(np.float32), special(F32)])
    narrow = elementwise([F32], [F16], len(singles), lambda b, x: [b.cast(x, F16)])
    arrays = [singles, np.zeros(len(singles), np.float16)]
    by_llvm(narrow, target=target)(arrays, 0, 1)
    with np.errstate(all="ignore"):
        assert same_numbers(arrays[1], singles.astype(np.float16), F16)


def test_f64_becomes_f16_in_one_rounding() -> None:
    """Halves between neighbours, what is a little beside them, ends of the range, any bits."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):
        halves = (every[:-1] + every[1:]) / 2
        beside = [np.nextafter(halves, way) for way in (-np.inf, np.inf)]
        beside += [halves * (1 + way) for way in (-(2.0**-30), 2.0**-30)]
        bits = np.random.default_rng(0).integers(0, 2**64, 2**16, dtype=np.uint64)
        x = np.concatenate([every, halves, *beside, bits.view(np.float64), special(F64)])
        narrow = elementwise([F64], [F16], len(x), lambda b, x: [b.cast(x, F16)])
        arrays = [x, np.zeros(len(x), np.float16)]
        by_llvm(narrow)(arrays, 0, 1)
        assert same_numbers(arrays[1], x.astype(np.float16), F16)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_fma_calls_and_bitcasts(dtype: DType) -> None:
    x, y = pairs(dtype)
    integer = I32 if dtype is F32 else I64
    run_elementwise(
        [x, y],
        [dtype, dtype],
        [dtype, dtype, integer],
        lambda b, x, y: [
            b.fma(x, y, x),
            b.call("square_plus", x, y),
            b.bitcast(b.op("abs", b.op("floor", b.select(b.compare("ne", x, x), y, x))), integer),
        ],
    )


# ------------------------------------------------------------------------------------ statements


@pytest.mark.parametrize("dtype", COMPUTE, ids=str)
def test_reductions(dtype: DType) -> None:
    generator = np.random.default_rng(1)
    for turn, (combine, size) in enumerate(itertools.product(combines(dtype), (1, 5, 77))):
        bits = generator.integers(0, 100, size)
        values = bits / 64 + 0.25 if dtype.kind == "f" else bits & 1 if dtype is BOOL else bits
        arrays = [values.astype(dtype.numpy), np.zeros(1, dtype.numpy)]
        tolerance = 4e-7 * size if dtype.kind == "f" else 0.0
        both = size == 77 and (turn // 3 + COMPUTE.index(dtype)) % 6 == 0
        routes = ["llvm", *(["numba"] * both), *(["llvm-0"] * (size == 5))]
        check(reduction(dtype, combine, size), arrays, routes, tolerance=tolerance)


def test_strict_reductions_keep_their_order() -> None:
    values = np.random.default_rng(2).standard_normal(1000).astype(np.float32) * 1e3
    for combine in ("add", "mul"):
        check(reduction(F32, combine, 1000, strict=True), [values, np.zeros(1, np.float32)])


@pytest.mark.parametrize("place", [0, 13, 999])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_extremes_propagate_nan(dtype: DType, place: int) -> None:
    values = np.arange(1000).astype(dtype.numpy)
    values[place] = np.nan
    for combine in ("min", "max"):
        routes = () if place == 13 else ["llvm"]
        check(reduction(dtype, combine, 1000), [values, np.zeros(1, dtype.numpy)], routes)


def hard_sums(size: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    spike = np.ones(size)
    spike[0] = 2.0**24
    return {
        "equal": np.full(size, 0.1),
        "spike": spike,
        "normal": generator.standard_normal(size),
        "cancel": np.resize([1e8, 1.0, -1e8, 1e-3], size),
    }


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("size", [1, 100, 1024, 100_003, 3_000_000])
def test_long_sums_are_accurate_and_deterministic(dtype: DType, size: int) -> None:
    run = by_llvm(reduction(dtype, "add", size))
    unit = 2.0**-24 if dtype is F32 else 2.0**-53
    for name, wide in hard_sums(size).items():
        values = wide.astype(dtype.numpy)
        exact = (
            math.fsum(values.tolist())
            if size < 10**6
            else float(values.astype(np.longdouble).sum())
        )
        results = []
        for _ in range(2):
            sink = np.zeros(1, dtype.numpy)
            assert run([values, sink], 0, 1) == 0
            results.append(float(sink[0]))
        bound = (
            (math.ceil(math.log2(size + 1)) + 1)
            * unit
            * float(np.abs(values).sum(dtype=np.float64))
        )
        assert abs(results[0] - exact) <= bound, name
        assert results[0] == results[1]


@pytest.mark.parametrize("size", [0, 1, 1025, 40_000])
def test_sum_over_an_extent_known_at_run_time(size: int) -> None:
    b = Scalars()
    source, sink = Buffer(0, F64, size, "in"), Buffer(1, F64, 1, "out")
    total = b.register(b.const(0, F64))
    with b.loop(b.param(0), "vector") as i:
        b.update(total, "add", b.load(source, i))
    b.store(sink, 0, b.read(total))
    values, result = np.random.default_rng(size).random(size), np.zeros(1)
    run = by_llvm(Kernel("k0", (source, sink), 1, b.body))
    assert run([values, result], 0, 1, (size,)) == 0
    assert abs(result[0] - math.fsum(values)) <= 1e-15 * max(size, 1)


@pytest.mark.parametrize("size", [64, 100])
def test_blocks_of_one_long_loop(size: int) -> None:
    b = Scalars()
    source, sink = Buffer(0, I32, size, "in"), Buffer(1, I32, size, "out")
    with b.loop(-(-size // 16), "parallel") as unit:
        start = b.mul(unit, b.integer(16))
        stop = b.op("min", b.add(start, b.integer(16)), b.integer(size))
        with b.loop(stop, "vector", start) as i:
            b.store(sink, i, b.op("not", b.load(source, i)))
    kernel = Kernel("k0", (source, sink), 0, b.body, -(-size // 16))
    check(kernel, [np.arange(size, dtype=np.int32), np.zeros(size, np.int32)])
    assert ("smin" in llvm_emitter.emit(kernel, HOST)) == (size % 16 != 0)


def test_sum_over_two_loops_and_a_register_that_is_read() -> None:
    b = Scalars()
    source = Buffer(0, F64, 6000 * 3, "in")
    total, running = Buffer(1, F64, 1, "out"), Buffer(2, F64, 6000, "out")
    whole, prefix = b.register(b.const(0, F64)), b.register(b.const(0, F64))
    with b.loop(6000) as i:
        with b.loop(3, "vector") as j:
            b.update(whole, "add", b.load(source, b.affine([(i, 3), (j, 1)])))
        b.update(prefix, "add", b.load(source, b.affine([(i, 3)])))
        b.store(running, i, b.read(prefix))
    b.store(total, 0, b.read(whole))
    kernel = Kernel("k0", (source, total, running), 0, b.body)
    values = np.random.default_rng(4).random(18000)
    check(kernel, [values, np.zeros(1), np.zeros(6000)], ["llvm", "numba"], tolerance=1e-12)


def softmax(rows: int, columns: int) -> Kernel:
    b = Scalars()
    source = Buffer(0, F32, rows * columns, "in")
    sink = Buffer(1, F32, rows * columns, "inout")
    with b.loop(rows, "parallel") as i:
        largest = b.register(b.const(-np.inf, F32))
        with b.loop(columns, "vector") as j:
            b.update(largest, "max", b.load(source, b.affine([(i, columns), (j, 1)])))
        total = b.register(b.const(0, F32))
        with b.loop(columns, "vector") as j:
            place = b.affine([(i, columns), (j, 1)])
            value = b.call(
                "square_plus", b.sub(b.load(source, place), b.read(largest)), b.const(1, F32)
            )
            b.update(total, "add", value)
            b.store(sink, place, value)
        with b.loop(columns, "vector") as j:
            place = b.affine([(i, columns), (j, 1)])
            b.store(sink, place, b.div(b.load(sink, place), b.read(total)))
    return Kernel("k0", (source, sink), 0, b.body, rows, notes=("rows of a softmax\nimport os",))


@pytest.mark.parametrize("columns", [1, 10, 33, 64])
def test_rows_with_three_loops(columns: int) -> None:
    values = np.random.default_rng(5).standard_normal(7 * columns).astype(np.float32)
    check(softmax(7, columns), [values, np.zeros_like(values)], tolerance=1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_parallel_units_cover_exactly_their_range(route: str) -> None:
    values = np.random.default_rng(6).standard_normal(7 * 10).astype(np.float32)
    run = ROUTES[route](softmax(7, 10))
    whole, parts = np.zeros_like(values), np.full_like(values, -9)
    run([values, whole], 0, 7)
    run([values, parts], 2, 5)
    assert (parts[:20] == -9).all() and (parts[50:] == -9).all()
    run([values, parts], 0, 2)
    run([values, parts], 5, 7)
    run([values, parts], 3, 3)
    assert (parts == whole).all()


def test_gather_with_checked_index() -> None:
    check_gather_with_checked_index()


@pytest.mark.slow
def test_index_division_if_params_and_assign() -> None:
    b = Scalars()
    source, sink, flags = (
        Buffer(0, I32, 60, "in"),
        Buffer(1, I32, 60, "out"),
        Buffer(2, BOOL, 60, "out"),
    )
    last = b.register(b.const(-5, I32))
    with b.loop(b.param(0)) as i:
        row, column = b.op("idiv", i, b.integer(5)), b.op("irem", i, b.integer(5))
        value = b.load(source, b.affine([(column, 12), (row, 1)]))
        with b.when(b.compare("gt", value, b.const(3, I32))):
            b.assign(last, b.sub(value, b.cast(b.param(1), I32)))
            with b.when(b.compare("eq", column, b.integer(2))):
                b.update(last, "xor", b.const(1, I32))
        b.store(sink, i, b.read(last))
        b.store(flags, i, b.compare("lt", b.read(last), b.const(0, I32)))
    kernel = Kernel("k0", (source, sink, flags), 2, b.body)
    values = np.random.default_rng(8).integers(-9, 9, 60).astype(np.int32)
    arrays = [values, np.zeros(60, np.int32), np.zeros(60, np.bool_)]
    for params in ((60, 3), (0, 3), (17, -2)):
        check(kernel, arrays, params=params)


def test_loads_and_registers_are_read_when_they_are_used() -> None:
    check_that_loads_are_read_when_used()


@pytest.mark.parametrize("route", ROUTES)
def test_scratch_is_private_to_a_thread(route: str) -> None:
    b = Scalars()
    source, sink, scratch = (
        Buffer(0, F32, 12, "in"),
        Buffer(1, F32, 12, "out"),
        Buffer(2, F32, 5, "work"),
    )
    with b.loop(12, "parallel") as i:
        b.store(scratch, 3, b.load(source, i))
        b.store(sink, i, b.load(scratch, 3))
    kernel = Kernel("k0", (source, sink, scratch), 0, b.body, 12)
    assert bytes_of_threads(scratch, 1) == 64
    apart = work_stride(scratch) // 4
    memory = np.full(bytes_of_threads(scratch, 3) // 4, -1, np.float32)
    values = np.arange(12, dtype=np.float32)
    result = np.zeros(12, np.float32)
    assert ROUTES[route](kernel)([values, result, memory], 4, 8, thread=2) == 0
    assert (result[4:8] == values[4:8]).all()
    place = 2 * apart + 3
    assert memory[place] == 7 and (np.delete(memory, place) == -1).all()


# -------------------------------------------------------------------------------- random kernels


class Draw:
    """Builds random expressions of random types over a few loads."""

    registers: list[Register]

    def __init__(self, data: st.DataObject, b: Scalars, leaves: list[Expr]) -> None:
        self.data, self.b, self.leaves = data, b, leaves

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.data.draw(st.sampled_from(list(choices)))

    def expression(self, dtype: DType, depth: int) -> Expr:
        if depth == 0:
            leaf = self.pick(self.leaves)
            return self.b.cast(leaf, dtype)
        form = self.pick(("binary", "binary", "unary", "select", "cast"))
        if form == "select":
            kind = self.pick(COMPUTE)
            x, y = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
            condition = self.b.compare(self.pick(("eq", "lt", "ge")), x, y)
            return self.b.select(condition, *(self.expression(dtype, depth - 1) for _ in range(2)))
        if form == "cast":
            return self.b.cast(self.expression(self.pick(COMPUTE), depth - 1), dtype)
        if form == "unary":
            return self.b.op(self.pick(UNARY[dtype.kind]), self.expression(dtype, depth - 1))
        x, y = self.expression(dtype, depth - 1), self.expression(dtype, depth - 1)
        name = self.pick(BINARY[dtype.kind])
        made = self.b.op(name, x, y)
        if dtype.kind == "f" and name in ("min", "max"):
            # Which of 0.0 and -0.0 is the smaller is left open, and a quotient would show it.
            return self.b.add(made, self.b.const(0.0, dtype))
        return made


@pytest.mark.slow
@examples(8)
@given(st.data())
def test_random_elementwise_kernels(data: st.DataObject) -> None:
    b = Scalars()
    kinds = [data.draw(st.sampled_from(COMPUTE)) for _ in range(3)]
    result = data.draw(st.sampled_from(COMPUTE))
    sources = [Buffer(k, d, 20, "in") for k, d in enumerate(kinds)]
    sink = Buffer(3, result, 20, "out")
    with b.loop(4, "parallel") as i, b.loop(5, "vector") as j:
        at = b.affine([(i, 5), (j, 1)])
        draw = Draw(data, b, [*(b.load(s, at) for s in sources), at])
        b.store(sink, at, draw.expression(result, 3))
    kernel = Kernel("k0", (*sources, sink), 0, b.body, 4, strict=True)
    arrays = [np.resize(special(d), 20) for d in kinds] + [np.zeros(20, result.numpy)]
    check(kernel, arrays, ["llvm", "numba"] if data.draw(st.integers(0, 7)) == 0 else ["llvm"])


class Statements(Draw):
    """Builds random statements of every kind, nested, over types whose results are exact."""

    sinks: list[Buffer]

    def index(self, buffer: Buffer) -> Expr:
        """An index that is always inside the buffer: loop variables are not negative."""
        at = self.pick([leaf for leaf in self.leaves if leaf.op == "var"] or [self.b.integer(1)])
        at = self.b.add(self.b.mul(at, self.b.integer(self.pick((1, 2, 5)))), self.b.integer(3))
        return self.b.op("irem", at, self.b.integer(buffer.size))

    def value(self, dtype: DType) -> Expr:
        leaves, registers = self.leaves, [self.b.read(r) for r in self.registers]
        sink = self.pick(self.sinks)
        self.leaves = [*leaves, *registers, self.b.load(sink, self.index(sink))]
        made = self.expression(dtype, self.pick((0, 1, 2)))
        self.leaves = leaves
        return made

    def statement(self, depth: int) -> None:
        b, form = self.b, self.pick(FORMS if depth else FORMS[:5])
        if form == "declare":
            self.registers.append(b.register(self.value(self.pick((I32, F64, BOOL, U8)))))
        elif form == "store":
            sink = self.pick(self.sinks)
            b.store(sink, self.index(sink), self.value(sink.dtype))
        elif form == "fail":
            b.fail(b.op("and", *(self.value(BOOL) for _ in range(2))), self.pick((3, 4)))
        elif form in ("assign", "update"):
            register = self.pick(self.registers)
            value = self.value(register.dtype)
            if form == "assign" or register.dtype.kind == "f":
                b.assign(register, value)
            else:
                b.update(register, self.pick(combines(register.dtype)), value)
        else:
            self.nested(form, depth)

    def nested(self, form: str, depth: int) -> None:
        leaves, registers = self.leaves, list(self.registers)
        if form == "if":
            with self.b.when(self.value(BOOL)):
                self.block(depth - 1)
        else:
            with self.b.loop(self.pick((0, 1, 3, 9))) as i:
                self.leaves = [*leaves, i]
                self.block(depth - 1)
        self.leaves, self.registers = leaves, registers

    def block(self, depth: int) -> None:
        for _ in range(self.pick((1, 2, 3))):
            self.statement(depth)


FORMS = ("declare", "assign", "update", "store", "fail", "if", "loop", "loop")


@examples(13)
@given(st.data())
def test_random_statements(data: st.DataObject) -> None:
    b = Scalars()
    source = Buffer(0, I32, 11, "in")
    sinks = [Buffer(1 + k, d, 11, "inout") for k, d in enumerate((I32, F64, BOOL))]
    draw = Statements(data, b, [b.load(source, 4), b.integer(2), b.const(-1, I32)])
    draw.sinks = sinks
    draw.registers = [b.register(b.const(5, I32)), b.register(b.const(0.5, F64))]
    draw.block(3)
    kernel = Kernel("k0", (source, *sinks), 0, b.body, 1, strict=True)
    arrays = [np.resize(special(k.dtype), 11) for k in kernel.buffers]
    check(kernel, arrays, ["llvm", "numba"] if data.draw(st.integers(0, 9)) == 0 else ["llvm"])


# ------------------------------------------------------------------------------------ texts


def test_kernels_share_one_module() -> None:
    kernels = [softmax(2, 8), elementwise([F32], [F32], 8, lambda b, x: [b.call("half", x)])]
    kernels[1].name = "k1"
    text = llvm_emitter.emit_module(kernels, HOST, FUNCTIONS)
    assert text.count("@vm.half.f32(float %x0)") == 1
    objects = targets.optimise_and_object([text], HOST)
    arrays = [np.arange(8, dtype=np.float32), np.zeros(8, np.float32)]
    Loaded(objects, "k1")(arrays, 0, 1)
    assert (arrays[1] == arrays[0] / 2).all()


def test_objects_and_texts_are_deterministic() -> None:
    first, second = (llvm_emitter.emit(softmax(3, 8), HOST, FUNCTIONS) for _ in range(2))
    assert first == second
    assert targets.optimise_and_object([first], HOST) == targets.optimise_and_object([second], HOST)


def test_loops_vectorise_without_alias_checks() -> None:
    text = llvm_emitter.emit(softmax(4, 1024), HOST, FUNCTIONS)
    code = str(targets.compiled([text], HOST))
    lanes = HOST.lanes(4)
    assert f"<{lanes} x float>" in code
    assert "vector.memcheck" not in code
    assert "declare ptr @mem" not in code


def test_objects_call_nothing() -> None:
    """Fills and copies stay loops, so that an object needs no C library."""
    kernel = elementwise(
        [F32],
        [F32, F64, F32],
        999,
        lambda b, x: [x, b.const(0, F64), b.op("floor", b.op("sqrt", x))],
    )
    code = targets.optimise_and_object([llvm_emitter.emit(kernel, HOST)], HOST)
    assert not elf.parse(code).imports


def test_windows_dissolve_so_that_the_loop_around_them_vectorises() -> None:
    b = Scalars()
    source, sink = Buffer(0, F32, 34 * 34, "in"), Buffer(1, F32, 32 * 32, "out")
    with b.loop(32, "parallel") as i, b.loop(32, "vector") as j:
        best = b.register(b.const(-np.inf, F32))
        with b.loop(3) as p, b.loop(3) as q:
            at = b.affine([(i, 34), (p, 34), (j, 1), (q, 1)])
            b.update(best, "max", b.load(source, at))
        b.store(sink, b.affine([(i, 32), (j, 1)]), b.read(best))
    kernel = Kernel("k0", (source, sink), 0, b.body, 32)
    text = llvm_emitter.emit(kernel, HOST)
    assert text.count(f"load <{HOST.lanes(4)} x float>, ptr %v") >= 9
    assert f"<{HOST.lanes(4)} x float>" in str(targets.compiled([text], HOST))
    values = np.random.default_rng(10).standard_normal(34 * 34).astype(np.float32)
    check(kernel, [values, np.zeros(1024, np.float32)])


def test_integer_conversions_vectorise() -> None:
    kernel = elementwise([F32], [I32], 1024, lambda b, x: [b.cast(x, I32)])
    code = str(targets.compiled([llvm_emitter.emit(kernel, HOST)], HOST))
    assert f"fptosi <{HOST.lanes(4)} x float>" in code


@pytest.mark.parametrize(
    ("cpu", "count", "to", "apply", "lanes"),
    [
        ("znver4", 1 << 20, F32, "add", 8),
        ("znver4", 1 << 10, F32, "add", 16),  # near
        ("znver4", 1 << 20, F32, "call", 16),  # more than moved
        ("znver4", 1 << 20, BOOL, "lt", 16),  # elements of two sizes
        ("znver5", 1 << 20, F32, "add", 16),
    ],
)
def test_what_moves_much_is_moved_in_halves_where_vectors_are_double_pumped(
    cpu: str, count: int, to: DType, apply: str, lanes: int
) -> None:
    def body(b: Scalars, x: Expr, y: Expr) -> list[Expr]:
        made = {"add": lambda: x + y, "call": lambda: b.call("square_plus", x, y)}
        return [made[apply]() if apply in made else x < y]

    kernel = elementwise([F32, F32], [to], count, body)
    text = llvm_emitter.emit(kernel, targets.named(cpu), FUNCTIONS)
    assert f"load <{lanes} x float>" in text
    assert f"load <{24 - lanes} x float>" not in text


@pytest.mark.parametrize(
    ("cpu", "table", "rows", "single"),
    [
        ("znver4", 1 << 10, 1, True),
        ("znver4", 1 << 20, 1, False),  # far apart: more gathers are under way than loads
        ("znver4", 1 << 10, 1 << 10, True),  # far, but in one row each
        ("znver5", 1 << 10, 1, False),
    ],
)
def test_places_of_small_tables_are_loaded_one_by_one_where_gathers_are_slow(
    cpu: str, table: int, rows: int, single: bool
) -> None:
    source, places = Buffer(0, F32, table * rows, "in"), Buffer(1, I32, 64 * rows, "in")
    out = Buffer(2, F32, 64 * rows, "out")
    b = Scalars()
    with b.loop(rows, "parallel") as row, b.loop(64, "vector") as k:
        at = row * 64 + k
        place = maximum(minimum(b.load(places, at).cast(I64), b.integer(table - 1)), b.integer(0))
        b.store(out, at, b.load(source, row * table + place))
    kernel = Kernel("k0", (source, places, out), 0, b.body, units=rows)
    target = targets.named(cpu)
    text = llvm_emitter.emit(kernel, target)
    assert ("prefer-no-gather" in text) is single
    assert ("gather" in targets.assembly([text], target)) is not single
    rng = np.random.default_rng(0)
    values = rng.standard_normal(table * rows).astype(np.float32)
    chosen = rng.integers(-1, table + 1, 64 * rows).astype(np.int32)
    check(kernel, [values, chosen, np.zeros(64 * rows, np.float32)], ["llvm"])


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "neoverse-n1", "znver4"])
def test_other_targets_compile(cpu: str) -> None:
    target = targets.named(cpu)
    text = llvm_emitter.emit(softmax(4, 64), target, FUNCTIONS)
    assert len(targets.optimise_and_object([text], target)) > 500
    assert "k0" in targets.assembly([text], target)


def test_every_microarchitecture_is_reached_by_its_name() -> None:
    for known in KNOWN:
        made = targets.named(known.prefix)
        assert microarchitecture(known.prefix) is known  # none before it begins like it
        assert (made.triple, made.vector_bits, made.half) == (
            known.triple,
            known.vector_bits,
            known.half,
        )
        assert (made.brain, made.quads) == (known.brain, known.quads)
        assert (made.double_pumped, made.slow_gathers) == (known.double_pumped, known.slow_gathers)
    other = microarchitecture("a CPU that nobody has heard of")
    assert not (other.brain or other.quads or other.double_pumped or other.slow_gathers)


def test_unknown_target_and_misplaced_loops_are_errors() -> None:
    with pytest.raises(GraphError, match="unknown CPU target"):
        targets.named("z80")
    b = Scalars()
    with b.loop(4), b.loop(4, "parallel") as i:
        b.store(Buffer(0, I64, 4, "out"), i, i)
    with pytest.raises(GraphError, match="outermost"):
        llvm_emitter.emit(Kernel("k0", (Buffer(0, I64, 4, "out"),), 0, b.body), HOST)
    b = Scalars()
    with b.loop(4) as i:
        pass
    b.store(Buffer(0, I64, 4, "out"), 0, i)
    with pytest.raises(GraphError, match="outside its loop"):
        llvm_emitter.emit(Kernel("k0", (Buffer(0, I64, 4, "out"),), 0, b.body), HOST)


def test_readable_source() -> None:
    text = source.emit(softmax(7, 10), FUNCTIONS)
    assert text.index("def half_f32") < text.index("def square_plus_f32") < text.index("def k0")
    body = text[text.index("def k0") :]
    assert body == READABLE
    assert all(len(line) <= 120 for line in text.split("\n"))


READABLE = """\
def k0(a0, a1, lo, hi):
    # a0: in f32[70]
    # a1: inout f32[70]
    # rows of a softmax?import os
    for i0 in range(lo, hi):  # parallel
        r0 = np.float32(-np.inf)
        for i1 in range(10):  # vector
            r0 = maximum_f32(r0, a0[at(i1 + i0 * 10)])
        r1 = np.float32(0.0)
        for i2 in range(10):  # vector
            p0 = i0 * 10 + i2
            t0 = square_plus_f32(a0[at(p0)] - r0, np.float32(1.0))
            r1 += t0
            a1[at(p0)] = t0
        for i3 in range(10):  # vector
            p1 = i0 * 10 + i3
            a1[at(p1)] = a1[at(p1)] / r1
    return 0
"""


def test_notes_cannot_leave_their_comment() -> None:
    kernel = softmax(2, 4)
    kernel.notes = ("x\nimport os", "y\r\x0c\u2028raise SystemExit", "z\x00\\")
    tree = ast.parse(source.emit(kernel, FUNCTIONS))
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Raise)]
    imported = [n.names[0].name for n in ast.walk(tree) if isinstance(n, ast.Import)]
    assert imported == ["numpy"]


# ------------------------------------------------------------------------------ library kernels


def reverse(source: np.ndarray, sink: np.ndarray, params: np.ndarray) -> None:
    for i in range(source.size):
        sink[i] = source[source.size - 1 - i] * params[0]


def fill(sink: np.ndarray, params: np.ndarray, lo: int, hi: int) -> None:
    for i in range(lo, hi):
        sink[i] = i


def find(source: np.ndarray, params: np.ndarray) -> int:
    for i in range(source.size):
        if source[i] == params[1]:
            return i
    raise ValueError("not there")


def positive(source: np.ndarray, sink: np.ndarray, params: np.ndarray) -> int:
    kept = [value for value in source if value > 0]
    kept.append(0.0)
    copied = np.empty(len(kept), np.float64)
    for i in range(len(kept)):
        copied[i] = kept[i]
    sink[: len(kept)] = copied
    return len(kept)


def prints(source: np.ndarray, params: np.ndarray) -> None:
    print(source[0])


def test_library_kernel_sizes_at_run_time_and_at_compile_time() -> None:
    values, sink = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    code = library_code(reverse, [F32, F32], "lib0", params=1)
    assert Loaded(code, "lib0")([values, sink], 0, 1, (5, 5, 3)) == 0
    assert (sink == values[::-1] * 3).all()
    fixed = library_code(reverse, [F32, F32], "lib1", sizes=[4, 4], params=1)
    assert Loaded(fixed, "lib1")([values, sink], 0, 1, (2,)) == 0
    assert (sink[:4] == values[3::-1] * 2).all()


def test_library_kernel_over_a_range_of_units() -> None:
    run = Loaded(library_code(fill, [I64], "lib7", ranged=True), "lib7")
    sink = np.zeros(6, np.int64)
    assert run([sink], 2, 4, (6,)) == 0
    assert sink.tolist() == [0, 0, 2, 3, 0, 0]


def test_library_kernel_status_and_exception() -> None:
    run = Loaded(library_code(find, [I64], "lib2", params=2), "lib2")
    values = np.array([5, 6, 7])
    assert run([values], 0, 1, (3, 0, 7)) == 2
    assert run([values], 0, 1, (3, 0, 9)) == RAISED


@pytest.mark.slow
def test_library_kernel_that_allocates_needs_no_numba_runtime() -> None:
    run = Loaded(library_code(positive, [F64, F64], "lib3"), "lib3")
    values, sink = np.random.default_rng(9).standard_normal(3000), np.zeros(3001)
    expected = [*values[values > 0], 0.0]
    for _ in range(50):
        assert run([values, sink], 0, 1, (3000, 3001)) == len(expected)
    assert sink[: len(expected)].tolist() == expected


def test_library_kernels_that_cannot_be_compiled_say_why() -> None:
    with pytest.raises(GraphError, match="runtime"):
        library_code(prints, [F64], "lib4")
    with pytest.raises(GraphError, match="cannot compile"):
        library_code(lambda a, p: a.no_such_method(), [F64], "lib5")
    with pytest.raises(GraphError, match="returns float64"):
        library_code(lambda a, p: a[0], [F64], "lib6")


def test_a_dump_shows_what_numba_ran() -> None:
    """Its source, and LLVM IR that becomes the very object code that is linked."""

    def function(x: Any) -> Any:
        return np.exp(x) / np.exp(x).sum(1, keepdims=True)

    config = Config(backend="numba", threads=1)
    graph = gc.compile(function).graph(gc.spec((5, 23), "f32"))  # which no other test compiles
    _, compiled = build(pipeline.run(graph, config)[-1].value, config)
    files = kernel_texts(compiled, config)
    codes = {symbol: code for code, symbols in compiled.objects.items() for symbol in symbols}
    assert compiled.kernels.keys() == compiled.by_numba
    for symbol in compiled.kernels:
        module = targets.parse([files[f"{symbol}.ll"]], HOST)
        assert targets.machine(HOST).emit_object(module) == codes[symbol]
        assert f"def {symbol}(" in files[f"{symbol}.py"] and "def entry(" in files[f"{symbol}.py"]
        assert f"{symbol}:" in files[f"{symbol}.s"]
