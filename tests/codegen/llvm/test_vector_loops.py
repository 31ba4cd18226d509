"""Vector loops that are written as vector instructions: every count, on machines with masks and
without, against the direct evaluator.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import Any

import numpy as np
import pytest
from effort import crossed, few
from emitted_kernels import HOST, Arrays, by_llvm, elementwise, fresh, reduction, same_numbers
from guarded_arrays import guarded
from loop_evaluator import Evaluator

import graphc as gc
from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm import target as targets
from graphc.codegen.llvm.module import widened
from graphc.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I8, I32, I64, U8, DType
from graphc.loops.nest import Buffer, Kernel, Scalars
from graphc.loops.scalars import maximum, minimum

NARROW = targets.named("x86-64-v3" if "x86" in HOST.triple else "neoverse-n1")
TARGETS = {"masks or not": HOST, "no masks": NARROW}
COUNTS = [*range(1, 36), 47, 63, 64, 65, 96, 100, 127, 128, 129, 256, 1000]


def same(kernel: Kernel, arrays: Arrays, target: targets.Target, tolerance: float = 0.0) -> None:
    """The evaluator and vector instructions agree, in every element of every buffer."""
    assert targets.LEFT not in llvm.emit(kernel, target)
    expected, got = fresh(arrays), fresh(arrays)
    status = Evaluator(kernel, expected, ()).run(0, kernel.units)
    assert by_llvm(kernel, target=target)(got, 0, kernel.units) == status
    for buffer in () if status else kernel.buffers:
        x, y = expected[buffer.index], got[buffer.index]
        if tolerance:
            np.testing.assert_allclose(y, x, rtol=tolerance)
        else:
            assert same_numbers(x, y, buffer.dtype), (buffer, len(x))


@pytest.mark.parametrize(("dtype", "target"), crossed([F32, F64, I8, BOOL, U8], TARGETS))
def test_results_of_every_count_end_where_they_should(dtype: DType, target: str) -> None:
    """Buffers are longer than the loop: what lies behind it stays as it was."""
    for count in few(COUNTS, 20, dtype.itemsize):
        b = Scalars()
        source, sink = Buffer(0, dtype, count + 64, "in"), Buffer(1, dtype, count + 64, "out")
        op = "not" if dtype.kind != "f" else "neg"
        with b.loop(count + 3, "vector", 3) as i:
            b.store(sink, i, b.op(op, b.load(source, i)))
        kernel = Kernel("k0", (source, sink), 0, b.body)
        data = np.arange(count + 64).astype(dtype.numpy)
        same(kernel, [data, np.full_like(data, 1)], TARGETS[target])


@pytest.mark.parametrize(("dtype", "target"), crossed([F32, F64, I32, I64], TARGETS))
def test_sums_and_extremes_of_every_count(dtype: DType, target: str) -> None:
    for count in few(COUNTS, 12, dtype.itemsize):
        data = np.random.default_rng(count).integers(-99, 99, count).astype(dtype.numpy)
        for combine in ("add", "min", "max"):
            same(
                reduction(dtype, combine, count), [data, np.zeros(1, dtype.numpy)], TARGETS[target]
            )


@pytest.mark.slow
@pytest.mark.parametrize(("work", "target"), crossed(few([0, 26, 40, 120], 3), TARGETS.values()))
def test_counts_that_are_known_only_when_the_loop_runs(work: int, target: targets.Target) -> None:
    """Some reach over several whole iterations of all copies, of which much work leaves fewer."""
    b, width = Scalars(), 64 * 5
    sizes, source = Buffer(0, I64, 64, "in"), Buffer(1, F32, 64 * width, "in")
    sink, sums = Buffer(2, F32, 64 * width, "out"), Buffer(3, F32, 64, "out")
    with b.loop(64, "parallel") as row:
        total = b.register(b.const(0.0, F32))
        start = b.mul(row, b.integer(width))
        with b.loop(b.add(start, b.load(sizes, row)), "vector", start) as i:
            value = b.load(source, i)
            for _ in range(work):
                value = b.sub(value, b.load(source, start))
            b.update(total, "add", value)
            b.store(sink, i, b.mul(b.load(source, i), b.load(source, start)))
        b.store(sums, row, b.read(total))
    kernel = Kernel("k0", (sizes, source, sink, sums), 0, b.body, 64)
    data = np.random.default_rng(0).integers(-9, 9, 64 * width).astype(np.float32)
    same(kernel, [np.arange(64) * 5, data, np.ones_like(data), np.zeros(64, np.float32)], target)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "target"), crossed(few([8, 24, 28, 40], 3), TARGETS.values()))
def test_counts_that_are_no_multiple_of_all_copies(steps: int, target: targets.Target) -> None:
    """The heavier the loop, the fewer copies: also three, which no mask of bits rounds down to."""
    b = Scalars()
    sizes, source = Buffer(0, I64, 8, "in"), Buffer(1, F32, 8 * 512, "in")
    sums = Buffer(2, F32, 8, "out")
    with b.loop(8, "parallel") as row:
        total = b.register(b.const(0.0, F32))
        start = b.mul(row, b.integer(512))
        with b.loop(b.add(start, b.load(sizes, row)), "vector", start) as i:
            value = b.load(source, i)
            for step in range(steps):
                value = b.op("max", value, b.const(step / 8 - 9.0, F32))
            b.update(total, "add", value)
        b.store(sums, row, b.read(total))
    kernel = Kernel("k0", (sizes, source, sums), 0, b.body, 8)
    data = np.random.default_rng(0).integers(-9, 9, 8 * 512).astype(np.float32)
    counts = np.array([1, 31, 44, 45, 100, 256, 299, 300])
    same(kernel, [counts, data, np.zeros(8, np.float32)], target)


def first_of_rows(dtype: DType, place: DType, count: int, none: int) -> Kernel:
    """The first place in each of three rows where there is no zero, or a number."""
    b = Scalars()
    source, sink = Buffer(0, dtype, 3 * count, "in"), Buffer(1, I64, 3, "out")
    with b.loop(3, "parallel") as row:
        found = b.register(b.const(np.iinfo(place.numpy).max, place))
        with b.loop(count, "vector") as i:
            holds = b.load(source, row * count + i) != 0
            b.update(found, "min", b.select(holds, i.cast(place), b.const(none, place)))
        b.store(sink, row, b.read(found).cast(I64))
    return Kernel("k0", (source, sink), 0, b.body, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "target"), crossed([F32, I8, F64], TARGETS))
def test_a_search_ends_at_the_first_place_and_finds_none_behind_the_last(
    dtype: DType, target: str
) -> None:
    for count in few([n for n in COUNTS if n > 32], 9, dtype.itemsize):
        rng = np.random.default_rng(count)
        for none in (count, count + 5, count // 2):  # the last is no number that ends it
            kernel = first_of_rows(dtype, I64 if count % 2 else I32, count, none)
            for share in (0.0, 1 / count, 0.5, 1.0):
                data = (rng.random(3 * count) < share).astype(dtype.numpy)
                same(kernel, [data, np.zeros(3, np.int64)], TARGETS[target])


@pytest.mark.parametrize(("place", "target"), crossed([None, 0, 9, 18], TARGETS.values()))
def test_only_lanes_of_the_loop_can_fail_it(place: int | None, target: targets.Target) -> None:
    b = Scalars()
    source, sink = Buffer(0, F32, 64, "in"), Buffer(1, F32, 64, "out")
    with b.loop(19, "vector") as i:
        value = b.load(source, i)
        b.fail(b.compare("ne", value, value), 7)
        b.store(sink, i, b.div(b.const(1.0, F32), value))
    data = np.full(64, np.nan, np.float32)
    data[:19] = np.arange(19)
    if place is not None:
        data[place] = np.nan
    kernel = Kernel("k0", (source, sink), 0, b.body)
    same(kernel, [data, np.zeros(64, np.float32)], target)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_types_of_several_widths_in_one_loop(target: targets.Target) -> None:
    dtypes = [F16, BF16, I8, BOOL, F64, I64]
    kernel = elementwise(
        dtypes,
        [F32, F64, BOOL],
        77,
        lambda b, h, n, i, c, d, w: [
            b.select(c, b.cast(h, F32), b.cast(n, F32)),
            b.add(d, b.add(b.cast(i, F64), b.cast(w, F64))),
            b.compare("lt", b.cast(h, F64), d),
        ],
    )
    random = np.random.default_rng(1)
    arrays = [random.integers(0, 9, 77).astype(d.numpy) for d in dtypes]
    same(kernel, [*arrays, *(np.zeros(77, d.numpy) for d in (F32, F64, BOOL))], target)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_number_of_an_iteration_is_a_value(target: targets.Target) -> None:
    b = Scalars()
    sink = Buffer(0, F32, 90, "out")
    with b.loop(83, "vector", 5) as i:
        b.store(sink, i, b.cast(b.mul(i, i), F32))
    same(Kernel("k0", (sink,), 0, b.body), [np.zeros(90, np.float32)], target)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", [F32, F64, F16, I8, BOOL])
def test_elements_that_lie_a_few_apart(dtype: DType, target: targets.Target) -> None:
    """Rows of them, of which some are taken and all are stored; nothing behind is touched."""
    some = np.random.default_rng(0)
    for step, known in ((2, True), (3, True), (4, True), (2, False), (3, False), (4, False)):
        count = int(some.integers(1, 70))
        teeth = sorted(some.choice(np.arange(step + 2), 3, replace=False).tolist())
        b = Scalars()
        length = Buffer(0, I64, 1, "in")
        source = Buffer(1, dtype, (count - 1) * step + teeth[-1] + 1, "in")
        sink = Buffer(2, dtype, count * step + 8, "out")
        stop = b.integer(count) if known else b.load(length, 0)
        with b.loop(stop, "vector") as i:
            taken = [b.load(source, b.affine([(i, step)], tooth)) for tooth in teeth]
            for k in range(step):
                value = taken[k % 3]
                b.store(sink, b.affine([(i, step)], k + 3), value)
        kernel = Kernel("k0", (length, source, sink), 0, b.body)
        data = some.integers(0, 2, source.size).astype(dtype.numpy)
        arrays = [np.array([count]), data, np.ones(sink.size, dtype.numpy)]
        if target is HOST and target.vector_bits == 512:
            same(kernel, arrays, target)
        else:  # without masks they are left to LLVM
            got = fresh(arrays)
            assert by_llvm(kernel, target=target)(got, 0, 1) == 0
            expected = fresh(arrays)
            Evaluator(kernel, expected, ()).run(0, 1)
            assert same_numbers(expected[2], got[2], dtype)


def test_without_masks_loops_of_wide_strides_and_of_stores_with_gaps_are_left_to_llvm() -> None:
    for step, apart in ((5, 1), (1, 2)):
        b = Scalars()
        source, sink = Buffer(0, F32, 160, "in"), Buffer(1, F32, 64, "out")
        with b.loop(32, "vector") as i:
            b.store(sink, i * apart, b.load(source, i * step))
        text = llvm.emit(Kernel("k0", (source, sink), 0, b.body), NARROW)
        assert targets.LEFT in text


def test_rows_are_read_up_to_the_last_element_that_is_taken() -> None:
    """The page behind the array is closed."""
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    closed = ctypes.c_void_p(start + mmap.PAGESIZE)
    assert ctypes.CDLL(None).mprotect(closed, mmap.PAGESIZE, 0) == 0
    for dtype, step, count in ((np.float32, 2, 16), (np.float32, 4, 33), (np.float64, 3, 9)):
        size = np.dtype(dtype).itemsize * ((count - 1) * step + 1)
        x = np.frombuffer(area, dtype, (count - 1) * step + 1, mmap.PAGESIZE - size)
        assert not np.any(gc.compile(lambda x, step=step: x[::step] + 0)(x))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_casts_of_what_is_cut_off(target: targets.Target) -> None:
    """To short integers, between bounds inside, at and outside of those of the type."""
    ends = [-np.inf, -70000, -32769, -129, -128.5, -1, -0.0, 0.5, 127.5, 128, 256, 65536, np.inf]
    data = np.array([*ends, np.nan, *np.linspace(-300, 300, 50)], np.float32)
    shorts = [DTYPES[name] for name in ("i8", "u8", "i16", "u16")]
    for dtype, low, high in itertools.product(shorts, (-128, 0, -9e9), (127, 255, 9e9)):
        kernel = elementwise(
            [F32],
            [dtype],
            len(data),
            lambda b, x, low=low, high=high, dtype=dtype: [
                minimum(maximum(x, low), b.const(float(high), F32)).cast(dtype)
            ],
        )
        same(kernel, [data, np.ones(len(data), dtype.numpy)], target)


def test_registers_that_are_read_on_the_way_keep_their_order() -> None:
    b = Scalars()
    source, sink = Buffer(0, I32, 40, "in"), Buffer(1, I32, 40, "out")
    total = b.register(b.const(0, I32))
    with b.loop(40) as i:
        b.update(total, "add", b.load(source, i))
        b.store(sink, i, b.read(total))
    kernel = Kernel("k0", (source, sink), 0, b.body)
    got = [np.arange(40, dtype=np.int32), np.zeros(40, np.int32)]
    by_llvm(kernel)(got, 0, 1)
    assert (got[1] == np.cumsum(got[0])).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "fadd contract float %v1, 0x3FF0000000000000",
            "fadd contract <4 x float> %v1, splat (float 0x3FF0000000000000)",
        ),
        (
            "call i32 @llvm.abs.i32(i32 %x0, i1 false)",
            "call <4 x i32> @llvm.abs.v4i32(<4 x i32> %x0, i1 false)",
        ),
        (
            "select i1 %v1, double -0.0, double %e2",
            "select <4 x i1> %v1, <4 x double> splat (double -0.0), <4 x double> %e2",
        ),
        ("call float @vm.exp.f32(float %v9)", "call <4 x float> @vm.exp.v4f32(<4 x float> %v9)"),
        ("xor i1 %v3, true", "xor <4 x i1> %v3, splat (i1 true)"),
    ],
)
def test_the_text_of_an_instruction_over_vectors(text: str, expected: str) -> None:
    assert widened(text, 4) == expected


def test_narrow_vectors_read_nothing_behind_an_array() -> None:
    """The page behind the array is closed: a mask with a bit too many is a crash."""
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    closed = ctypes.c_void_p(start + mmap.PAGESIZE)
    assert ctypes.CDLL(None).mprotect(closed, mmap.PAGESIZE, 0) == 0
    x = np.frombuffer(area, np.int8, 62 * 45, mmap.PAGESIZE - 62 * 45).reshape(62, 45)
    z = np.arange(45)

    def both(x, z):  # type: ignore[no-untyped-def]
        return np.any(np.where(x != 0, x.astype(np.int64), z) > 99, 1), np.all(x, 1)

    anywhere, everywhere = gc.compile(both, threads=1)(x, z)
    assert not np.any(anywhere)
    assert not np.any(everywhere)


def test_what_a_loop_counts_and_takes_away_again_is_no_constant_ahead_of_it() -> None:
    """i - (i - 1) is 1 in every iteration, but cannot be computed where there is no i."""

    def steps(x: Any) -> Any:
        row = gc.arange(40)
        longer = gc.concatenate([row[:1] - 1, row])
        apart = longer[1:] - longer[:-1]
        return apart + x[0], x[apart]

    x = np.arange(3)
    made = gc.compile(steps)(x)
    assert made[0].tolist() == [1] * 40 and made[1].tolist() == [1] * 40


def test_what_the_iterations_of_a_loop_share_is_computed_ahead_of_it() -> None:
    """LLVM's own passes that would move it are not run over kernels like this one."""
    b = Scalars()
    source, sink = Buffer(0, F32, 7000, "in"), Buffer(1, F32, 7000, "out")
    with b.loop(9) as i, b.loop(7) as j, b.loop(16, "vector") as k:
        b.store(sink, i * 700 + (k + j * 90), b.load(source, b.affine([(j, 80)], k) + i * 600))
    kernel = Kernel("k0", (source, sink), 0, b.body)
    _, outer, inner = llvm.emit(kernel, HOST).split("phi i64")
    assert ", 700" in outer
    assert ", 600" in outer
    assert ", 90" in inner
    assert ", 80" in inner
    same(kernel, [np.arange(7000, dtype="f4"), np.zeros(7000, "f4")], HOST)


@pytest.mark.parametrize(("dtype", "target"), crossed([F32, F64, I8, BOOL], TARGETS))
def test_rows_that_are_read_backwards(dtype: DType, target: str) -> None:
    """Up to the first element of their buffer, beside others that are read forwards."""
    for count in few(COUNTS, 20, dtype.itemsize):
        b = Scalars()
        source, sink = Buffer(0, dtype, count + 3, "in"), Buffer(1, dtype, 2 * count + 64, "out")
        with b.loop(count, "vector") as i:
            b.store(sink, i, b.load(source, count - 1 - i))
            b.store(sink, i + count, maximum(b.load(source, count + 2 - i), b.load(source, i)))
        data = np.random.default_rng(count).integers(0, 2, count + 3).astype(dtype.numpy)
        given = [data, np.ones(2 * count + 64, dtype.numpy)]
        same(Kernel("k0", (source, sink), 0, b.body), given, TARGETS[target])


@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["i1", "i2", "f4", "f8"])
def test_rows_of_parts_read_backwards_begin_with_the_array(dtype: str, columns: int) -> None:
    """The pages around the array are closed; most iterations load from one part alone."""
    x = (np.arange(65 * columns) % 100).reshape(65, columns).astype(dtype)

    def backwards(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[4::3], x], 0)[::-1][1:, ::-1].copy()

    for side in ("before", "behind"):
        made = gc.compile(backwards, threads=1)(guarded(x, side))
        np.testing.assert_array_equal(made, backwards(x))
