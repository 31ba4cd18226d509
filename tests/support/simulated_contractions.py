"""Contraction kernels for GPUs in Numba's CUDA simulator, against the reference interpreter; run
with NUMBA_ENABLE_CUDASIM=1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from effort import crossed

import graphc as gc
from graphc.codegen.gpu.arch import SIMULATED
from graphc.codegen.gpu.compile import pointed_dtype
from graphc.codegen.gpu.contraction.kernels import Contract, Launches, contract_launches
from graphc.codegen.gpu.contraction.tile_choice import Group, Matrix, Tile
from graphc.codegen.lowering.contraction import form_of
from graphc.gpu import cuda
from graphc.ir.graph import Graph
from graphc.ir.types import DTYPES, Type
from graphc.ops.reference.interpreter import interpret

TILES = (
    Tile(8, 8, 4, 4, 4),
    Tile(4, 8, 4, 2, 4),
    Tile(8, 16, 2, 8, 8),
    Tile(4, 4, 8, 2, 2),
    Tile(8, 8, 4, 4, 4, 3),
    Tile(4, 8, 4, 2, 4, 2),
    Tile(8, 8, 2, 4, 4, 4),
)
TOLERANCE = {"f32": 2e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 2e-2}
REAL = [name for name, dtype in DTYPES.items() if dtype.kind in "iuf"]
Function = Callable[..., Any]
Spec = tuple[tuple[int, ...], str]


def region_of(function: Function, specs: Sequence[Spec]) -> Graph:
    """A function as the region of a fused contraction."""
    return gc.compile(function).graph(*(gc.spec(shape, dtype) for shape, dtype in specs))


def drawn(kind: Type, random: np.random.Generator) -> np.ndarray:
    if kind.dtype.is_integer:
        info = np.iinfo(kind.dtype.numpy)
        made = random.integers(info.min, info.max, kind.dims, kind.dtype.numpy, endpoint=True)
    else:
        made = random.standard_normal(kind.dims).astype(kind.dtype.numpy)
    return np.asarray(made)


def run(made: Launches, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
    """Run launches over memory; the status they leave for row 3."""
    launches, workspace = made
    status = np.zeros(1, np.int64)
    work = np.full(workspace + 16, 0xA5, np.uint8)
    memory = {"in": operands, "out": results, "work": [work]}
    for launch in launches:
        pointers = []
        for (kind, number, _), (dtype, count) in zip(launch.operands, launch.buffers, strict=True):
            array = memory[kind][0 if kind == "work" else number].reshape(-1)
            pointers.append(array.view(pointed_dtype(dtype))[:count])
        cuda.jit(launch.make())[launch.blocks, launch.threads](*pointers, status, 3)
    return int(status[0])


def check(
    function: Function,
    specs: Sequence[Spec],
    seed: int,
    tile: Tile | Matrix | Group | None = None,
    splits: int | None = None,
    overwritten: int | None = None,
    tolerance: float | None = None,
) -> None:
    """Compare all results; `overwritten` is the operand whose memory the first result takes."""
    region = region_of(function, specs)
    random = np.random.default_rng(seed)
    operands = [drawn(p.type, random) for p in region.params if isinstance(p.type, Type)]
    expected = interpret(region, operands, wide=True)
    magnitudes = interpret(region, [np.abs(o) if o.dtype.kind != "u" else o for o in operands])
    kinds = [r.type for r in region.results if isinstance(r.type, Type)]
    results = [np.full(kind.dims, 7, kind.dtype.numpy) for kind in kinds]
    if overwritten is not None:
        results[0] = operands[overwritten]
    made = Contract(region, form_of(region), SIMULATED).launches(tile, splits)
    assert run(made, operands, results) == 0
    for got, want, kind, magnitude in zip(results, expected, kinds, magnitudes, strict=True):
        note = f"{specs} seed {seed} {tile} splits {splits}"
        if kind.dtype.is_integer:
            assert (got == want).all(), note
            continue
        scale = np.maximum(np.abs(np.asarray(magnitude, np.float64)), 1)
        error = np.max(np.abs(np.asarray(got, np.float64) - want) / scale)
        assert error <= (tolerance or TOLERANCE[kind.dtype.name]), f"{note}: {error}"


def sizes(random: np.random.Generator, least: int = 1, most: int = 14) -> list[int]:
    return [int(x) for x in random.integers(least, most, 4)]


LAYOUTS: dict[str, Function] = {
    "nn": lambda x, y: x @ y,
    "nt": lambda x, y: x @ y.T,
    "tn": lambda x, y: x.T @ y,
    "tt": lambda x, y: x.T @ y.T,
    "strided": lambda x, y: x[:, ::2] @ y[::-1],
}


def shapes(layout: str, m: int, n: int, k: int) -> tuple[tuple[int, int], tuple[int, int]]:
    if layout == "strided":
        return (m, 2 * k), (k, n)
    return (m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)


def tiles() -> None:
    """Every dtype, layout and tile; extents that divide and that do not."""
    random = np.random.default_rng(1)
    for number, dtype in enumerate(REAL * 2):
        layout = list(LAYOUTS)[number % len(LAYOUTS)]
        m, n, k, _ = sizes(random) if number % 3 else (8, 16, 8, 0)
        pair = shapes(layout, m, n, k)
        specs = [(shape, dtype) for shape in pair]
        tile = TILES[number % len(TILES)]
        if DTYPES[dtype].itemsize < 4:
            tile = tile._replace(stages=0)  # copied elements are those that are multiplied
        check(LAYOUTS[layout], specs, number, tile)


def matrices() -> None:
    """Fragments of tensor cores, whose products each lane computes by itself here."""
    one = Matrix(16, 16, 16, 16, 16)
    for number, (layout, size) in enumerate(crossed(LAYOUTS, [(16, 16, 32), (19, 13, 21)])):
        pair = shapes(layout, *size)
        check(LAYOUTS[layout], [(x, ("bf16", "f16")[number // 2 % 2]) for x in pair], number, one)
    pair = shapes("nt", 40, 16, 64)
    check(LAYOUTS["nt"], [(x, "bf16") for x in pair], 9, Matrix(32, 16, 32, 32, 16))
    check(LAYOUTS["nt"], [(x, "f16") for x in pair], 9, Matrix(32, 32, 32, 16, 16))
    check(LAYOUTS["nt"], [(x, "bf16") for x in pair], 9, one, 2)
    check(LAYOUTS["nt"], [(x, "bf16") for x in pair], 9, one._replace(stages=4), 2)


GROUPS = (
    ("nt", Group(64, 16, 64, 3, 1), "bf16"),
    ("nn", Group(64, 64, 64, 2, 0), "f16"),
    ("tn", Group(128, 64, 64, 4, 1), "bf16"),
    ("nt", Group(64, 16, 32, 3, 1), "f32"),
    ("nn", Group(64, 64, 32, 2, 0), "f32"),
    ("tt", Group(128, 64, 32, 4, 1), "f32"),
)


def groups() -> None:
    """Groups of four warps over swizzled memory; f32 by the first 10 bits of fractions."""
    for number, (layout, group, dtype) in enumerate(GROUPS):
        m, n, k = (60, 24, 136) if number % 3 == 0 else (72, 16, 200)
        if dtype == "f32":
            m, n, k = m - 1, n - number % 2, k - 3 * (number % 2)
        specs = [(shape, dtype) for shape in shapes(layout, m, n, k)]
        near = 2e-3 if dtype == "f32" else None
        check(LAYOUTS[layout], specs, number, group, 1 + number % 2, None, near)


def splits() -> None:
    """Sums in parts, with and without parts that are short."""
    for number, (k, parts) in enumerate([(40, 2), (33, 3), (64, 8), (9, 3)]):
        specs = [((7, k), "f32"), ((k, 9), "f32"), ((9,), "f32")]
        check(lambda x, y, z: np.tanh(x @ y + z), specs, number, TILES[number], parts)
    whole = [((5, 31), "i16"), ((31, 6), "i16")]
    check(LAYOUTS["nn"], whole, 9, TILES[0], 4)
    check(LAYOUTS["nn"], [((1, 200), "u32"), ((200, 6), "u32")], 9, None, 3)


def thin() -> None:
    """One to eight rows or columns; the other operand contiguous along k, along j or not at all."""
    random = np.random.default_rng(2)
    for number in range(16):
        layout = list(LAYOUTS)[number % len(LAYOUTS)]
        _, n, k, _ = sizes(random, 16, 28)
        few = number % 8 + 1
        m, n = (few, n) if number % 2 else (n, few)
        dtype = ("f32", "f16", "i8", "f64", "bf16", "i64")[number % 6]
        check(LAYOUTS[layout], [(shape, dtype) for shape in shapes(layout, m, n, k)], number)
    check(LAYOUTS["nn"], [((1, 100), "f32"), ((100, 1), "f32")], 7)
    check(LAYOUTS["nn"], [((1, 101), "f32"), ((101, 1), "f32")], 7, None, 2)
    check(LAYOUTS["nn"], [((3, 1, 64), "f32"), ((3, 64, 8), "f32")], 8)


def batches() -> None:
    """Stacks of matrices, stacks that share one, einsums and outer products."""
    cases: list[tuple[Function, list[tuple[int, ...]]]] = [
        (lambda x, y: x @ y, [(3, 5, 6), (3, 6, 7)]),
        (lambda x, y: x @ y, [(2, 3, 5, 6), (6, 7)]),
        (lambda x, y: x @ y, [(5, 6), (3, 6, 7)]),
        (lambda x: x @ x.T, [(9, 6)]),
        (lambda x, y: gc.einsum("bihd,bjhd->bhij", x, y), [(2, 5, 2, 6), (2, 4, 2, 6)]),
        (lambda x, y: gc.einsum("abc,cd->bad", x, y), [(3, 4, 9), (9, 5)]),
        (lambda x, y: gc.einsum("abc,bcd->ad", x, y), [(6, 2, 5), (2, 5, 7)]),
        (lambda x, y: gc.einsum("abc,dcb->ad", x, y), [(6, 2, 5), (7, 5, 2)]),
    ]
    for number, (function, given) in enumerate(cases):
        specs = [(shape, "f32") for shape in given]
        check(function, specs, number, TILES[number % len(TILES)])


def convolutions() -> None:
    """Windows in one, two and three axes, strides, dilation and groups."""
    cases: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((2, 3, 7, 6), (4, 3, 3, 3), {}),
        ((1, 2, 9, 8), (5, 2, 3, 2), {"stride": 2}),
        ((2, 2, 9, 9), (3, 2, 3, 3), {"dilation": 2}),
        ((2, 4, 8, 8), (6, 2, 3, 3), {"groups": 2, "stride": (1, 2)}),
        ((2, 3, 20), (4, 3, 5), {"stride": 3}),
        ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {}),
        ((3, 4, 5, 5), (4, 4, 1, 1), {}),
    ]
    for number, (x, w, options) in enumerate(cases):

        def convolve(x: Any, w: Any, options: dict[str, Any] = options) -> Any:
            return gc.conv(x, w, **options)

        dtype = "bf16" if number == 3 else "f32"
        check(
            convolve, [(x, dtype), (w, dtype)], number, TILES[number % 2 + (4 if number % 3 else 0)]
        )


def two_results(x: Any, y: Any, z: Any) -> Any:
    sums = x @ y
    return sums + z, np.exp(-abs(sums)) * z


def epilogues() -> None:
    """What follows the sums: biases, activations, casts, several results, results in place."""
    x, y, z = ((9, 12), "f32"), ((12, 8), "f32"), ((9, 8), "f32")
    row, column = ((8,), "f32"), ((9, 1), "f32")
    for number, tile in enumerate((TILES[0], TILES[1])):
        check(lambda x, y, b: gc.nn.gelu(x @ y + b), [x, y, row], number, tile)
        check(lambda x, y, b: (x @ y * b).astype("f16"), [x, y, column], number, tile)
        check(two_results, [x, y, z], number, tile)
        check(lambda x, y, z: x @ y + z, [x, y, z], number, tile, None, 2)
        check(two_results, [x, y, z], number, tile, None, 2)
        check(lambda x, y, z: x @ y + z, [x, y, z], number, tile, 2, 2)
    check(lambda x, y: (x.T @ y).astype("i32"), [((9, 5), "f64"), ((9, 6), "f64")], 5, TILES[0])


def statuses() -> None:
    """With check_finite the row that overflows is named; short sums are left to loops."""
    region = region_of(lambda x, y: x @ y, [((6, 8), "f32"), ((8, 9), "f32")])
    made = contract_launches(region, SIMULATED, check_finite=True)
    assert made is not None
    result = np.zeros((6, 9), np.float32)
    ones = [np.ones((6, 8), np.float32), np.ones((8, 9), np.float32)]
    assert run(made, ones, [result]) == 0
    assert (result == 8).all()
    ones[0][5, 7] = np.inf
    assert run(made, ones, [result]) == 3 << 32 | 2
    short = region_of(lambda x, y: x @ y, [((6, 2), "f32"), ((2, 9), "f32")])
    assert contract_launches(short, SIMULATED) is None


FAMILIES = (tiles, matrices, groups, splits, thin, batches, convolutions, epilogues, statuses)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_family(family: Callable[[], None]) -> None:
    family()
