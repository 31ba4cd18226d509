"""One compilation for all sizes: what comes out equals the reference, and few sizes are refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import slow
from guarded_arrays import guarded
from open_sizes import template, wrong

import graphc as gc
from graphc.codegen.llvm.kernel import emit
from graphc.codegen.llvm.target import host
from graphc.ir.sizes import Scope
from graphc.ir.types import F32, dtype
from graphc.loops.nest import Buffer, Kernel, Scalars

Shapes = list[tuple[int, ...]]
ROWS = (0, 1, 2, 7, 64, 1000)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


# Function, specs, sizes at hand, and the shapes of a call for (n, m).
MODELS: dict[str, tuple[Callable[..., Any], list[Any], dict[str, int], Callable[..., Shapes]]] = {
    "element-wise": (lambda x: np.tanh(x) * 2 + 1, [("n", 5)], {"n": 20}, lambda n, m: [(n, 5)]),
    "columns": (
        lambda x: x - x.mean(axis=0),
        [("n", "m")],
        {"n": 20, "m": 9},
        lambda n, m: [(n, m)],
    ),
    "tall": (
        lambda x: x.sum(axis=0) + x.max(),
        [("n", 3)],
        {"n": 300000},
        lambda n, m: [(n + 1, 3)],
    ),
    "turned": (lambda x: np.sin(x.T) + 1, [("n", "m")], {"n": 20, "m": 33}, lambda n, m: [(n, m)]),
    "softmax": (softmax, [("n", "m")], {"n": 20, "m": 33}, lambda n, m: [(n, m + 1)]),
    "layer norm": (layer_norm, [("n", "m")], {"n": 20, "m": 33}, lambda n, m: [(n, m + 1)]),
    "broadcast": (
        lambda x, y: x * y + y,
        [("n", 1), ("m",)],
        {"n": 20, "m": 33},
        lambda n, m: [(n, 1), (m + 2,)],
    ),
    "concat": (
        lambda x, y: np.concatenate([x, y * 2, x], axis=1).T + 1,
        [("n", 3), ("n", "m")],
        {"n": 20, "m": 33},
        lambda n, m: [(n, 3), (n, m)],
    ),
}


def test_a_scan_of_open_length_may_have_no_step() -> None:
    def cell(x: Any, h: Any, w: Any, u: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = np.tanh(row @ w + h @ u)
            return h, h

        return gc.scan(step, h, x)

    weights = [(8, 16), (16, 16)]
    specs = [gc.spec(s) for s in [("t", 3, 8), (3, 16), *weights]]
    made = template(cell, specs, {"t": 6}, threads=1)
    exact = gc.compile(cell, sizes="exact")
    rng = np.random.default_rng(0)
    for length in (0, 1, 2, 3, 40):
        shapes = [(length, 3, 8), (3, 16), *weights]
        arrays = [rng.standard_normal(s).astype("f4") for s in shapes]
        got = made.run(arrays)
        assert got is not None and not wrong(got, exact(*arrays)), length


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("name", MODELS)
def test_one_compilation_serves_all_sizes(name: str, opt: int) -> None:
    function, specs, hints, shapes = MODELS[name]
    made = template(function, [gc.spec(s) for s in specs], hints, opt=opt, threads=2)
    rng = np.random.default_rng(0)
    for n in ROWS:
        for m in ROWS[:-1]:
            arrays = [rng.standard_normal(s).astype("f4") for s in shapes(n, m)]
            got = made.run(arrays)
            assert got is not None, made.formulas.explain(
                made.built.image.params, [a.shape for a in arrays]
            )
            with np.errstate(all="ignore"):
                assert not wrong(got, [function(*arrays)]), (n, m)


def pooled(x: Any, v: Any, w: Any) -> Any:
    h = gc.max_pool(np.maximum(gc.conv(x, v, padding=1), 0), 2)
    return gc.conv(h, w, padding=w.shape[2] // 2).mean(axis=(2, 3))


def narrow(x: Any, v: Any, w: Any) -> Any:
    h = gc.conv(gc.conv(x, v, padding=1, groups=16), v, padding=1, groups=16, stride=2)
    return gc.conv(gc.max_pool(h, 3, stride=2, padding=1), w)


# Function and weights; images are (n, 16, h, w).
NETS = {
    "winograd": (pooled, [(16, 16, 3, 3), (16, 16, 5, 5)]),
    "depthwise": (narrow, [(16, 1, 3, 3), (8, 16, 1, 1)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_convolutions_of_any_images_are_compiled_once(name: str) -> None:
    function, weights = NETS[name]
    rng = np.random.default_rng(0)
    v, w = (rng.standard_normal(s).astype("f4") / 8 for s in weights)
    made = gc.compile(function, sizes={"x": ("n", 16, "h", "w")}, threads=2)
    for n, height, width in ((9, 33, 36), (2, 19, 18), (7, 8, 9), (17, 5, 7)):
        x = rng.standard_normal((n, 16, height, width)).astype("f4")
        assert not wrong(made(x, v, w), [function(x, v, w)]), (n, height, width)
    assert len(made.compiles) == 1
    wide = rng.standard_normal((2, 16, 4, 700)).astype("f4")  # rows beyond a strip of tiles
    assert not wrong(made(wide, v, w), [function(wide, v, w)])
    assert len(made.compiles) <= 2


def test_positions_are_divided_by_sizes_ahead_of_the_loops_that_share_them() -> None:
    """LLVM leaves a division where it is, as it might trap."""
    n = Scope().symbol("n", 20)
    b = Scalars()
    sink = Buffer(0, F32, n, "out")
    with b.loop(n, "parallel") as i, b.loop(5) as j, b.loop(n - 1, "vector") as k:
        b.store(sink, b.op("irem", i, b.integer(n)) + j * 8 + k, b.const(1.0, F32))
    kernel = Kernel("k", (sink,), 0, b.body, units=n, sizes=tuple(b.sizes))
    lines = emit(kernel, host()).splitlines()
    outer, inner, *_ = (k for k, line in enumerate(lines) if line.startswith("loop"))
    divided = [k for k, line in enumerate(lines) if re.search(r"rem i64 %\w+, %", line)]
    versions = sum(line.startswith("rows") for line in lines)
    assert outer < divided[0] < inner and len(divided) == max(versions, 1)


LENGTHS = (0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 64, 65, 100, 112, 113, 128, 129, 256, 300)


@pytest.mark.parametrize(
    "kind", ["float32", "int8", *map(slow, ("float64", "float16", "int64", "bool"))]
)
def test_short_rows_of_every_length_are_read_and_written_whole(kind: str) -> None:
    """A row of few vectors has a version of its own, the last vector of any row a mask."""

    def rows(x: Any) -> Any:
        y = x.astype("f4")
        return (
            x[:, 1:],
            y.sum(axis=1),
            (y * 2).cumsum(axis=1)[:, -1:],
            y - y.max(axis=1, initial=0)[:, None],
        )

    made = template(rows, [gc.spec(("n", "m"), kind)], {"n": 20, "m": 33}, threads=1)
    rng = np.random.default_rng(0)
    for m in LENGTHS[1:]:
        x = (rng.standard_normal((5, m)) * 9).astype(kind)
        got = made.run([x])
        assert got is not None and not wrong(got, rows(x)), m


@pytest.mark.parametrize("kind", ["float32", "float64", "int8"])
def test_rows_beside_longer_ones_and_rows_of_elements_apart(kind: str) -> None:
    """Of a pad the rows of the image, of the border and of what is beside it have lengths of their
    own; what lies apart is taken in whole vectors, the last ones of which are cut."""

    def padded(x: Any) -> Any:
        return np.pad(x, ((0, 0), (1, 2), (1, 3)), constant_values=1), x[..., ::2] * 2

    spec = gc.spec(("b", "h", "2*w"), kind)
    made = template(padded, [spec], {"b": 5, "h": 20, "w": 33}, threads=1)
    rng = np.random.default_rng(0)
    for w, side in itertools.product(LENGTHS[1:], ("before", "behind")):
        x = (rng.standard_normal((2, 3, 2 * w)) * 9).astype(kind)
        got = made.run([guarded(x, side)])
        assert got is not None and not wrong(got, padded(x)), w


@pytest.mark.parametrize("target", ["cpu", "cpu:haswell"])
@pytest.mark.parametrize("kind", ["float32", "bool", *map(slow, ("float64", "float16", "int16"))])
def test_rows_of_few_elements_lie_one_in_each_lane(kind: str, target: str) -> None:
    """For each such length there is a version without loops over a row, with closed pages behind
    the last one; any number of rows is left when vectors are full."""

    def rows(x: Any, shift: Any) -> Any:
        y = x.astype("f4")
        scaled = np.exp(y - y.max(axis=1, keepdims=True)) + shift
        return scaled / scaled.sum(axis=1, keepdims=True), (y + shift).mean(axis=1), x[:, :1] == x

    specs = [gc.spec(("n", "m"), kind), gc.spec(("m",), "f4")]
    made = template(rows, specs, {"n": 20, "m": 33}, threads=1, target=target)
    rng = np.random.default_rng(0)
    for n, m in itertools.product((1, 15, 16, 37, 64), range(1, 11)):
        x, shift = (rng.standard_normal((n, m)) * 3).astype(kind), rng.standard_normal(m)
        shift = shift.astype("f4") ** 2
        got = made.run([guarded(x, "behind"), guarded(shift, "behind")])
        assert got is not None and not wrong(got, rows(x, shift)), (n, m)


@pytest.mark.parametrize("target", ["cpu", "cpu:haswell"])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_products_of_open_extents_read_no_row_but_their_own(kind: str, target: str) -> None:
    """What was compiled for whole bundles and whole vectors serves others, too: an element behind
    the last one of a row may be a NaN, or lie where nothing may be read."""
    specs = [gc.spec((40, "k"), kind), gc.spec(("k", "n"), kind)]
    made = template(lambda x, w: x @ w, specs, {"k": 20, "n": 64}, threads=1, target=target)
    for k, n in ((19, 33), (33, 65), (20, 1), (1, 64)):
        rng = np.random.default_rng(0)
        x, w = (rng.uniform(1, 2, s).astype(dtype(kind).numpy) for s in ((40, k), (k, n)))
        x[8:] = np.nan
        got = made.run([guarded(x, "behind"), guarded(w, "behind")])
        assert not wrong(got, [(x.astype("f4") @ w.astype("f4")).astype(x.dtype)]), (k, n)


def block_of_a_transformer(ids: Any, mask: Any, table: Any, w: Any, wide: Any, back: Any) -> Any:
    (b, t), size = ids.shape, w.shape[0]
    x = table[ids] + table[:1]
    heads = (x @ w).reshape(b, t, 2, size // 2).transpose(0, 2, 1, 3)
    scores = heads @ heads.transpose(0, 1, 3, 2) / 4 + (1 - mask[:, None, None, :]) * -1e4
    x = layer_norm(x + (softmax(scores) @ heads).transpose(0, 2, 1, 3).reshape(b, t, size) @ w)
    h = x @ wide
    return layer_norm(x + (h * (1 + np.tanh(h + h**3))) @ back).sum(axis=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_transformer_is_compiled_once_for_all_batches_and_lengths(threads: int) -> None:
    rng = np.random.default_rng(0)
    shapes = ((100, 32), (32, 32), (32, 128), (128, 32))
    weights = [rng.standard_normal(shape).astype("f4") * 0.2 for shape in shapes]
    kinds = [("b", "t"), *shapes]
    specs = [gc.spec(("b", "t"), "i64"), *(gc.spec(shape, "f32") for shape in kinds)]
    made = template(block_of_a_transformer, specs, {"b": 33, "t": 300}, threads=threads)
    assert [repr(guard) for guard in made.guards] == ["t != 0"]
    for b, t in ((1, 1), (2, 7), (7, 64), (64, 2), (3, 129), (1, 300), (20, 90), (0, 5)):
        ids = rng.integers(0, 100, (b, t))
        mask = (rng.random((b, t)) < 0.7).astype("f4")
        want = block_of_a_transformer(ids, *(a.astype("f8") for a in (mask, *weights)))
        np.testing.assert_allclose(made.run([ids, mask, *weights]), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["cpu", "cpu:haswell"])
def test_parts_of_a_joined_row_begin_where_sizes_say(target: str) -> None:
    joined = lambda a, b: np.concatenate([a, b, a], axis=1)
    made = gc.compile(lambda a, b: (np.exp(joined(a, b)), joined(a, b).sum(axis=1)), target=target)
    rng = np.random.default_rng(0)
    for m, k in ((5, 3), (6, 4), (1, 1), (17, 31), (0, 3), (3, 0), (40, 2)):
        a, b = (rng.standard_normal((4, n)).astype("f4") for n in (m, k))
        whole = joined(a, b)
        for one, want in zip(made(a, b), (np.exp(whole), whole.sum(axis=1)), strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)
    assert len(made.compiles) == 2
