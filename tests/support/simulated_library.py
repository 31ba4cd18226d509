"""Device code of library ops on Numba's simulator; run with NUMBA_ENABLE_CUDASIM=1.

Blocks are as small as they can be, for every simulated thread is a thread of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from op_harness import node_of, tensors
from op_samples import good_samples

from graphc.codegen.gpu.emit import maker
from graphc.codegen.python.helpers import storage_dtype
from graphc.errors import INDEFINITE, SINGULAR
from graphc.gpu import SIMULATED, cuda
from graphc.ir.op import OPS, CudaCode
from graphc.ir.types import DTYPES
from graphc.ops.index.scatter_launches import route_of, scatter_code, spread_code
from graphc.ops.linalg.factor_launches import cholesky_code, lu_code, solve_code
from graphc.ops.linalg.solve_cuda import OUT_OF_RANGE
from graphc.ops.record.launches import Machine
from graphc.ops.reduce.scan_launches import cumulative_code, nonzero_code, occurrences_code
from graphc.ops.sort.sort_launches import argsort_code, sort_code, topk_code

assert SIMULATED
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # integers wrap

SMALL = Machine(
    threads=4,
    blocks=2,
    tile=8,
    sorters=4,
    panel=2,
    eliminators=4,
    warp=4,
    scanners=8,
    digit=4,
    rounds=2,
    run=2,
    chunk=3,
    chunk_above=2,
    many_rows=7,
    few=2,
)
LARGER = Machine(threads=4, blocks=2, panel=4, eliminators=8, few=64, warp=4, scanners=8)
ROW = 7  # of the step table, which a failure names
RANDOM = np.random.default_rng(0)


def run(
    code: CudaCode, node: Any, operands: Iterable[Any], out: Any = None
) -> tuple[list[Any], int]:
    """The results of device code, and the status it leaves. `out` is the memory of the result."""
    types = tensors(node.type)
    given = [np.ascontiguousarray(o).reshape(-1) for o in operands]
    made = [np.full(t.size, 77).astype(storage_dtype(t.dtype)) for t in types]
    made = [out] if out is not None else made
    work = [np.full(count, 55).astype(storage_dtype(d)) for d, count in code.workspace]
    status = np.zeros(1, np.int64)
    for call in code.calls:
        kernel = cuda.jit(maker(call.source)())
        kernel[call.blocks, call.threads](*given, *made, *work, *call.params, status, ROW)
    return [m.reshape(t.dims) for m, t in zip(made, types)], int(status[0])


def check(
    code: Callable[..., CudaCode | None], op: str, operands: Any, exact: bool = True, **attrs: Any
) -> None:
    """Device code gives what the op's reference gives."""
    node = node_of(OPS[op], operands, attrs)
    made = code(node)
    assert made is not None
    found, status = run(made, node, operands)
    wanted = OPS[op].reference(*operands, **node.attrs.values_dict)
    assert status == 0
    for one, other in zip(found, wanted if isinstance(wanted, tuple) else (wanted,)):
        numeric = one.dtype.kind in "fc"
        same = np.array_equal(one, other, equal_nan=numeric)
        if not exact:
            same = np.allclose(one, other, rtol=2e-4, atol=2e-4, equal_nan=numeric)
        assert same, (op, attrs, [o.shape for o in operands], one, other)


# ------------------------------------------------------------------------------------ sorting


def keys(name: str, shape: tuple[int, ...], ties: bool) -> Any:
    most = int(np.iinfo(DTYPES[name].numpy).max)
    low = most - 3 if ties else 0  # the greatest keys are those that pad a tile
    return RANDOM.integers(low, most, shape, DTYPES[name].numpy, endpoint=True)


def test_sorting() -> None:
    shapes = ((3, 5), (1, 8), (2, 9), (1, 17), (1, 41), (3, 1), (2, 75), (1, 64), (1, 200))
    for number, dims in enumerate(shapes):
        x = keys(("u8", "u16", "u32", "u64")[number % 4], dims, ties=number % 2 == 0)
        check(lambda n: sort_code(n, True, SMALL), "sort_keys", (x,))
        check(lambda n: argsort_code(n, True, SMALL), "argsort_keys", (x,))


def test_topk() -> None:
    for dims, wanted in (((3, 5), 2), ((2, 8), 8), ((1, 30), 1), ((2, 30), 4), ((1, 19), 6)):
        x = keys("u8", dims, ties=wanted != 4)
        check(lambda n: topk_code(n, True, SMALL), "topk_keys", (x,), k=wanted)
    for name, wanted in (("u16", 5), ("u32", 8), ("u8", 13)):
        x = keys(name, (2, 40), ties=wanted != 5)
        check(lambda n: topk_code(n, True, SMALL), "topk_keys", (x,), k=wanted)
    node = node_of(OPS["topk_keys"], (keys("u8", (1, 19), False),), {"k": 9})
    assert len(topk_code(node, True, SMALL).calls) > 3  # it sorts all, then takes the head


def test_occurrences() -> None:
    for size, drop in ((5, False), (3, True), (0, True)):
        x = RANDOM.integers(-2 if drop else 0, 5, 33).astype(np.int32)
        check(lambda n: occurrences_code(n, True, SMALL), "occurrences", (x,), size=size, drop=drop)


def test_nonzero() -> None:
    for extent in (0, 1, 8, 9, 33):
        mask = RANDOM.random(extent) < 0.4
        for size in (0, extent // 3, extent + 2):
            check(lambda n: nonzero_code(n, True, SMALL), "nonzero", (mask,), size=size)


# ------------------------------------------------------------------------------------ scatter


def values(name: str, shape: tuple[int, ...]) -> Any:
    if name == "bool":
        return RANDOM.random(shape) < 0.5
    made = (RANDOM.normal(size=shape) * 4).astype(DTYPES[name].numpy)
    return made


ROUTES: set[str] = set()


def scattered(name: str, mode: str, strict: bool, machine: Machine) -> None:
    """Repeated positions, out-of-range ones that are dropped, NaN."""
    for rows, width, count, drop in ((4, 3, 9, False), (5, 1, 13, True), (3, 2, 0, False)):
        x, updates = values(name, (rows, width)), values(name, (count, width))
        if DTYPES[name].kind == "f":
            x.reshape(-1)[1], updates.reshape(-1)[::5] = np.nan, np.nan
        limit = rows + 3 * drop
        index = RANDOM.integers(-limit, limit, count).astype(np.int32)
        node = node_of(OPS["scatter"], (x, index, updates), {"mode": mode, "drop": drop})
        ROUTES.add(route_of(node, strict, machine))
        check(
            lambda n: scatter_code(n, strict, machine),
            "scatter",
            (x, index, updates),
            exact=strict or DTYPES[name].is_integer,
            mode=mode,
            drop=drop,
        )


def test_scatter() -> None:
    for name in ("f32", "i8", "c64", "i64", "bool"):
        for mode in ("set", "add", "mul", "min", "max"):
            if mode == "set" or name in ("f32", "i8", "i64") or (mode, name) == ("add", "c64"):
                for strict, machine in ((True, LARGER), (True, SMALL), (False, SMALL)):
                    scattered(name, mode, strict, machine)
    assert {"few", "claimed", "atomic", "sorted"} == ROUTES


def test_scatter_fails() -> None:
    """A bad position changes nothing of a variable that is updated where it lies."""
    index, updates = np.array([0, 3, 1]), np.ones((3, 2))
    for machine in (SMALL, LARGER):
        for mode in ("set", "add"):
            x = np.arange(6.0).reshape(3, 2)
            node = node_of(OPS["scatter"], (x, index, updates), {"mode": mode})
            place = x.reshape(-1)
            code = scatter_code(node, True, machine)
            _, status = run(code, node, (place, index, updates), out=place)
            assert status == (ROW << 32) | 1
            assert np.array_equal(place, np.arange(6.0))


def test_spread() -> None:
    """Places beyond the ends count at the ends; strict sums keep their loops."""
    index = RANDOM.integers(-2, 9, (3, 11)).astype(np.int32)
    for name in ("f32", "f64"):
        x = RANDOM.normal(size=(3, 11)).astype(DTYPES[name].numpy)
        check(lambda n: spread_code(n, False, SMALL), "spread", (index, x), False, extent=7)
    node = node_of(OPS["spread"], (index, x), {"extent": 7})
    assert spread_code(node, True, SMALL) is None


# ------------------------------------------------------------------------------------ matrices


def factors(op: str, code: Callable[..., CudaCode | None]) -> None:
    for machine in (SMALL, LARGER):
        for sample in good_samples(OPS[op]):
            x = sample.operands[0]
            if x.size and x.shape[-1] < 9:
                check(lambda n: code(n, True, machine), op, sample.operands, False, **sample.attrs)  # noqa: B023


def test_lu() -> None:
    factors("lu", lu_code)
    x = np.array([[0.0, 2.0, 1.0], [4.0, 4.0, 0.0], [-4.0, 0.0, 3.0]])  # exchanges, a tie
    check(lambda n: lu_code(n, True, SMALL), "lu", (x,), False)


def test_cholesky() -> None:
    factors("cholesky", cholesky_code)
    x = np.diag([1.0, 4.0, -1.0])
    node = node_of(OPS["cholesky"], (x,), {})
    _, status = run(cholesky_code(node, True, SMALL), node, (x,))
    assert status == (ROW << 32) | INDEFINITE


def test_solve() -> None:
    factors("lu_solve", solve_code)
    packed, b = np.diag([1.0, 0.0]), np.ones((2, 1))
    for perm, reason in (([0, 1], SINGULAR), ([0, 2], OUT_OF_RANGE)):
        matrix = packed if reason == SINGULAR else np.eye(2)
        operands = (matrix, np.array(perm), b)
        node = node_of(OPS["lu_solve"], operands, {})
        _, status = run(solve_code(node, True, SMALL), node, operands)
        assert status == (ROW << 32) | reason


# ------------------------------------------------------------------------------------ running


def test_cumulative() -> None:
    """Several levels of chunks, both directions, along every axis; strict sums keep their loops."""
    for op in ("cumsum", "cumprod", "cummax", "cummin", "recurrence"):
        for name in ("f32",) if op == "recurrence" else ("f32", "i64", "u64"):
            for dims, axis in (((50,), 0), ((2, 20), 1), ((20, 3), 0), ((2, 9, 2), 1)):
                x = RANDOM.integers(1, 4, dims).astype(DTYPES[name].numpy)
                if name == "f32":
                    x = (x / 4).astype(np.float32)
                    x.reshape(-1)[7] = np.nan if op != "recurrence" else -1
                operands = (x, x[::-1].copy()) if op == "recurrence" else (x,)
                for reverse in (False, True):
                    with np.errstate(all="ignore"):
                        check(
                            lambda n: cumulative_code(n, False, SMALL),
                            op,
                            operands,
                            name != "f32",
                            axis=axis,
                            reverse=reverse,
                        )
    node = node_of(OPS["cumsum"], (np.ones(50, np.float32),), {"axis": 0, "reverse": False})
    assert cumulative_code(node, True, SMALL) is None
    node = node_of(OPS["cumsum"], (np.ones((50, 7)),), {"axis": 0, "reverse": False})
    assert cumulative_code(node, False, SMALL) is None
