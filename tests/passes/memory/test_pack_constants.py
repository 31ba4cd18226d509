"""Constants that contractions read as panels: the layout, the pass, the program, its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from effort import examples, slow
from hypothesis import strategies as st

import graphc as gc
from graphc import tuning
from graphc.codegen import gemm as contract
from graphc.codegen.gemm import Dim, NormalForm
from graphc.codegen.llvm.target import host
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Program
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ir.text import literals, show
from graphc.ir.types import F32
from graphc.ops.linalg.packing import pack_panels
from graphc.ops.reference.interpreter import interpret
from graphc.passes.pipeline import run
from graphc.runtime.files import gcx_writer

gc.sum  # noqa: B018  a public name fills the op table

NUMPY: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
Case = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]
PROGRAMS: dict[str, Case] = {
    "dense": (lambda x, w: np.tanh(x @ w + 1), (8, 96), (96, 80)),
    "transposed": (lambda x, w: x @ w.T, (33, 70), (50, 70)),
    "batched": (lambda x, w: x @ w, (4, 6, 40), (4, 40, 33)),
    "heads": (lambda x, w: gc.einsum("bi,hio->bho", x, w), (5, 64), (4, 64, 32)),
    "swapped": (lambda x, w: gc.einsum("bi,oi->ob", x, w), (5, 64), (40, 64)),
    "sliced": (lambda x, w: x @ w[::-1, 3:50], (9, 64), (64, 64)),
    "reshaped": (lambda x, w: x @ w.reshape(64, 48), (9, 64), (4, 16, 48)),
    "also read": (lambda x, w: x @ w + w[0], (4, 64), (64, 64)),
    # Rows of weights that meet few columns, or leave lanes of the last vector empty.
    "on the left": (lambda x, w: np.maximum(w @ x, 0) + x[0, 0], (130, 17), (64, 130)),
    "few columns": (lambda x, w: gc.einsum("poi,ipt->opt", w, x), (140, 3, 16), (3, 64, 140)),
    "images": (lambda x, w: np.tanh(gc.conv(x, w)), (2, 64, 7, 7), (96, 64, 1, 1)),
    "many images": (lambda x, w: np.tanh(gc.conv(x, w)), (16, 64, 7, 7), (96, 64, 1, 1)),
    "windows": (lambda x, w: gc.conv(x, w, padding=1, stride=2), (1, 16, 9, 9), (72, 16, 3, 3)),
    "grouped": (lambda x, w: gc.conv(x, w, groups=2), (3, 96, 5, 7), (128, 48, 1, 1)),
    "beside": (lambda x, w: gc.conv(x, w) + x, (1, 64, 7, 7), (64, 64, 1, 1)),
    "means": (lambda x, w: gc.conv(x, w).mean(axis=(2, 3)), (1, 64, 7, 7), (64, 64, 1, 1)),
}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


ROWS: dict[str, Case] = {
    "row": (lambda x, w: np.tanh(x @ w + 1), (1, 97), (97, 83)),
    "vector": (lambda x, w: x @ w, (70,), (70, 33)),
    "column": (lambda x, w: np.maximum(w @ x, 0), (70,), (50, 70)),
    "transposed": (lambda x, w: x @ w.T, (1, 66), (131, 66)),
    "every second": (lambda x, w: x[:, ::2] @ w, (1, 140), (70, 40)),
    "batched": (lambda x, w: x @ w, (3, 1, 65), (3, 65, 37)),
    "with its greatest": (lambda x, w: (x @ w) / np.abs(x @ w).max(), (1, 64), (64, 96)),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ROWS)
def test_single_rows_times_constant_weights(name: str, threads: int) -> None:
    function, argument, weights = ROWS[name]
    x, w = normal(*argument), normal(*weights)
    with tuning.chosen({"codegen.packed_ahead_share": 0.0}):
        packed = gc.compile(lambda x: function(x, w), threads=threads)
        np.testing.assert_allclose(packed(x), function(x, w), rtol=1e-4, atol=1e-4)
        assert nodes_of(packed.lower(x), "pack")


@pytest.mark.parametrize("target", ["cpu", slow("cpu:haswell"), slow("cpu:x86-64")])
def test_few_rows_of_a_long_sum_are_exact_to_a_rounding(target: str) -> None:
    """All terms have the same sign: a sum one by one would be off by many roundings."""
    depth = 9000
    w = np.abs(normal(depth, 70))
    for rows in (1, 2, 4):
        x = np.abs(normal(rows, depth))
        found = gc.compile(lambda x: x @ w, threads=1, target=target)(x)
        off = found / (x.astype(np.float64) @ w) - 1
        assert np.sqrt(np.mean(off**2)) < np.finfo(np.float32).eps, rows


def test_any_number_of_rows_times_constant_weights() -> None:
    w = normal(300, 90)
    packed = gc.compile(lambda x: np.tanh(x @ w), sizes={"x": ("n", 300)})
    for rows in range(1, 20):
        x = normal(rows, 300) / 10
        np.testing.assert_allclose(packed(x), np.tanh(x @ w), rtol=1e-4, atol=1e-5)
    assert len(packed.compiles) == 1


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "cpu:x86-64"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "i8", "f2", "f4", "f8"])
def test_few_rows_of_any_type_times_constant_weights(dtype: str, target: str) -> None:
    """Fewer rows are read as a stream than tiles have of small elements, however many there are."""
    random = np.random.default_rng(0)
    w = random.integers(0, 3, (100, 64)).astype(dtype)
    packed = gc.compile(lambda x: x @ w, sizes={"x": ("n", 100)}, target=target)
    for rows in range(1, 10):
        x = random.integers(0, 3, (rows, 100)).astype(dtype)
        np.testing.assert_array_equal(packed(x), x @ w)
    np.testing.assert_array_equal(gc.compile(lambda x: x @ w, target=target)(x[:5]), x[:5] @ w)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_constant_weights(name: str) -> None:
    function, argument, weights = PROGRAMS[name]
    x, w = normal(*argument), normal(*weights)
    packed = gc.compile(lambda x: function(x, w))
    expected = gc.compile(function)(x, w)
    np.testing.assert_allclose(packed(x), expected, rtol=1e-5, atol=1e-5)
    for record in packed.stages(x):
        (found,) = interpret(record.value, [x])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=record.name)
        tensors = {one.digest: one.array for one in literals(record.value)}
        text = show(record.value)
        assert show(parse(text, tensors)) == text


@examples(12)
@hypothesis.given(st.integers(1, 80), st.integers(1, 70), st.integers(1, 150), st.data())
def test_random_weights_on_the_left(m: int, n: int, k: int, data: Any) -> None:
    """Whichever operand is packed, one product has the same numbers on any number of threads."""
    dtype = data.draw(st.sampled_from((np.float32, np.float64)))
    w, x = normal(m, k).astype(dtype), normal(k, n).astype(dtype)
    epilogue = data.draw(st.sampled_from((lambda y: y, np.tanh, lambda y: y + x[:1])))
    made = [gc.compile(lambda x: epilogue(w @ x), threads=t)(x) for t in (1, 2)]
    np.testing.assert_array_equal(*made)
    wanted = epilogue(w.astype(np.float64) @ x.astype(np.float64))
    np.testing.assert_allclose(made[0], wanted, atol=1e-4)


def nodes_of(graph: Any, op: str) -> list[Any]:
    graph = graph.graphs[0] if isinstance(graph, Program) else graph
    return [node for node in graph.nodes if node.op.name == op]


def test_what_is_packed() -> None:
    w = normal(96, 80)
    x = normal(8, 96)
    planned = gc.compile(lambda x: (x @ w, np.exp(x) @ w)).lower(x)
    assert len(nodes_of(planned, "pack")) == 1, "equal panels are made once"
    assert not nodes_of(planned, "const"), "the constant itself is not stored"
    planned = gc.compile(lambda x: (x @ w, w * 2)).lower(x)
    assert len(nodes_of(planned, "pack")) == len(nodes_of(planned, "const")) == 1
    for given in (lambda x: x[:1] @ w, lambda x: x[:, :4] @ w[:4, :4]):
        assert not nodes_of(gc.compile(given).lower(x), "pack"), "one row, or a tiny matrix"
    assert not nodes_of(gc.compile(lambda x: x @ w, backend="numba").lower(x), "pack")


def test_weights_are_panels_where_pixels_come_in_short_runs() -> None:
    """16 images of 7 x 7 pixels fill all lanes, but what is made of the sums would be stored one by
    one."""
    weights = normal(96, 256, 1, 1)

    def packs(function: Callable[[Any], Any], size: int) -> int:
        graph = gc.compile(function).stages(gc.spec((16, 256, size, size), "f32"))[-1][1].graphs[0]
        return len(nodes_of(graph, "pack"))

    assert packs(lambda x: np.tanh(gc.conv(x, weights)), 7) == 1
    assert packs(lambda x: np.tanh(gc.conv(x, weights)), 16) == 0
    assert packs(lambda x: gc.conv(x, weights), 7) == 0  # sums are scattered in runs


def test_a_later_stage_compiles_and_a_saved_program_runs(tmp_path: Any) -> None:
    w, x = normal(96, 80), normal(8, 96)
    function = gc.compile(lambda x: x @ w)
    tiled = next(record.value for record in function.stages(x) if record.name == "pack_constants")
    assert run(tiled, Config(), after="pack_constants")[-1].name == "plan"
    gcx_writer.save(function.executable(x).image, tmp_path / "dense.gcx")
    np.testing.assert_array_equal(gc.load(tmp_path / "dense.gcx")(x), function(x))


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_bf16_weights(layout: str) -> None:
    x, w = (normal(*shape).astype(ml_dtypes.bfloat16) for shape in ((20, 71), (71, 90)))
    w = np.ascontiguousarray(w.T) if layout == "nt" else w
    turned = (lambda w: w.T) if layout == "nt" else (lambda w: w)
    function = gc.compile(lambda x: x @ turned(w))
    expected = x.astype(np.float64) @ turned(w).astype(np.float64)
    np.testing.assert_allclose(function(x).astype(np.float64), expected, rtol=1e-2, atol=1e-1)
    for record in function.stages(x):
        (found,) = interpret(record.value, [x])
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("together", [1, 2, 4])
def test_neighbours_in_k_lie_side_by_side(together: int) -> None:
    values = np.arange(5 * 3, dtype=np.float32).reshape(5, 3)
    deep = -(-5 // together) * together
    layout = ((), (5, 3), (3, 1), 0, 2, deep * 2 + 1, together)
    packed = pack_panels(values, *layout).reshape(2, -1)
    panels = packed[:, :-1].reshape(2, deep // together, 2, together)
    for k in range(5):
        for n in range(3):
            assert panels[n // 2, k // together, n % 2, k % together] == values[k, n]
    back = OPS["unpack"].reference(packed.reshape(-1), *layout, shape=(5, 3))
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("seed", range(20))
def test_panels_are_those_of_the_core(seed: int, dtype: str) -> None:
    random = np.random.default_rng(seed)
    n, k = [int(e) for e in random.integers(1, 9, 2)], [int(e) for e in random.integers(1, 40, 2)]
    extents = np.array([*k, *n])
    order = random.permutation(4)
    strides = np.ones(4, int)
    for inner, outer in zip(order[:0:-1], order[-2::-1], strict=True):
        strides[outer] = strides[inner] * extents[inner]
    dims = [Dim(int(e), 0, int(s), 0) for e, s in zip(extents, strides, strict=True)]
    c = [dims[2]._replace(c=n[1]), dims[3]._replace(c=1)]
    a = [dims[0]._replace(a=k[1]), dims[1]._replace(a=1)]
    rows = Dim(3, k[0] * k[1], 0, n[0] * n[1])
    problem = NormalForm(dtype, (), (rows,), tuple(c), tuple(a))
    panels = contract.panels_of(problem, contract.host_target())
    if panels is None:
        assert dtype == "bf16"
        return
    assert panels.operand == 1
    plan = contract.plan(problem, contract.host_target(), packed_b=True)
    values = normal(int(extents.prod())).astype(NUMPY[dtype])
    names = ("batch", "k", "n", "offset", "columns", "step", "together")
    layout = [getattr(panels, name) for name in names]
    packed = pack_panels(values, *layout)
    assert packed.nbytes == plan.packed
    attrs = dict(zip(names, layout, strict=True))
    back = OPS["unpack"].reference(packed, **attrs, shape=values.shape)
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize(
    "change",
    [{"offset": 1}, {"k": (5, 4)}, {"n": (4, -1)}, {"n": (4,)}, {"step": 15}, {"k": (0, 4)}],
)
def test_layouts_that_reach_outside_are_refused(change: dict[str, Any]) -> None:
    good = {"batch": (), "k": (4, 4), "n": (4, 1), "offset": 0, "columns": 4, "step": 16}
    value = literal(normal(4, 4), F32)
    pack = OPS["pack"]
    made = pack.result_type((), pack.coerce({"value": value, **good}))
    assert made.shape == (16,)
    with pytest.raises(GraphError):
        pack.result_type((), pack.coerce({"value": value, **good, **change}))


def test_panels_of_another_machine_are_refused() -> None:
    w, x = normal(96, 80), normal(8, 96)
    function = gc.compile(lambda x: x @ w)
    tiled = next(record.value for record in function.stages(x) if record.name == "pack_constants")
    tensors = {one.digest: one.array for one in literals(tiled)}
    columns = nodes_of(tiled, "pack")[0].attrs["columns"]
    text = show(tiled).replace(f"columns={columns}", f"columns={columns // 2}")
    with pytest.raises(GraphError):
        run(parse(text, tensors), Config(), after="fuse")


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", NUMPY)
def test_programs_for_lesser_machines(cpu: str, dtype: str) -> None:
    if not host().triple.startswith("x86") or host().vector_bits < 512:
        pytest.skip("needs a machine that has what these have")
    x, w = (normal(*shape).astype(NUMPY[dtype]) for shape in ((20, 71), (71, 90)))
    expected = x.astype(np.float64) @ w.astype(np.float64)
    for function, given in ((lambda x: x @ w, (x,)), (lambda x, w: x @ w, (x, w))):
        found = gc.compile(function, target=f"cpu:{cpu}")(*given)
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-2, atol=1e-1)


def test_kernels_of_constants_run_while_compiling() -> None:
    """The doubled weights of a loop, larger than what is folded, are made once."""
    w, x = normal(2, 512, 520), normal(3, 1, 520)
    w[1, 3, 4] = np.nan

    def loop(x: Any, w: Any) -> Any:
        turned = gc.transpose(gc.getitem(w, 1) * 2)
        return gc.scan(lambda h, r: (np.tanh(r @ turned), h), np.zeros((1, 512), "f4"), x)[0]

    def outside(compiled: Any) -> int:
        return len(nodes_of(compiled.lower(x), "fused"))

    known = gc.compile(lambda x: loop(x, w))
    assert outside(known) == 0
    np.testing.assert_array_equal(known(x), gc.compile(loop)(x, w))
    with tuning.chosen({"passes.evaluated_bytes": 1 << 19}):
        assert outside(gc.compile(lambda x: loop(x, w))) == 2  # doubled, then turned


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_one_row_times_a_constant_larger_than_the_second_level_cache(
    dtype: str, order: Any
) -> None:
    rng = np.random.default_rng(0)
    w = np.asarray(rng.standard_normal((160, 16_400)), dtype, order=order)
    for rows in (1, 2):
        x = rng.standard_normal((rows, 160)).astype(dtype)
        made = gc.compile(lambda x: x @ w, threads=1)(x)
        assert np.abs(made - x @ w).max() < 1e-3
