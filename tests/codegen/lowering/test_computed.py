"""Operands that a contraction computes block by block: which, and that results are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from effort import crossed, examples, few
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.ir.graph import Graph, Node
from graphc.ops.reference.interpreter import interpret
from graphc.passes.tuning import tuned

MANY = examples(24)
EXTENTS = [0, 1, 2, 7, 16, 17, 33, 70, 300]
LIMITS = {"f4": 1e-4, "f8": 1e-11, "i4": 0}


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small an operand is, it is not worth storing."""
    monkeypatch.setattr(tuned, "prologue_rows", -1)
    monkeypatch.setattr(tuned, "prologue_columns", -1)


def kernels(function: Any, *arguments: Any, **options: Any) -> list[Node]:
    graph: Graph = gc.compile(function, **options).stages(*arguments)[-1][1].graphs[0]
    return [n for n in graph.nodes if n.op.name in ("fused", "blocked")]


def scaled(x: Any, y: Any, row: Any, column: Any) -> Any:
    return x * row


def normalised(x: Any, y: Any, row: Any, column: Any) -> Any:
    return (x - row) * column + 1


def halved(x: Any, y: Any, row: Any, column: Any) -> Any:
    return x / 3


def masked(x: Any, y: Any, row: Any, column: Any) -> Any:
    return np.where(y > 0, x, 0) - column


def curved(x: Any, y: Any, row: Any, column: Any) -> Any:
    return np.tanh(x) * np.exp(-y * y)


def outer(x: Any, y: Any, row: Any, column: Any) -> Any:
    return x + row * column


LIES = ("plain", "turned")
MADE = (scaled, normalised, halved, masked, curved, outer)
EXACT = (scaled, normalised, masked, outer)  # for integers


class Operand:
    """A matrix as stored, how it lies, and what is computed from it."""

    def __init__(self, rng: Any, shape: tuple[int, ...], name: str, lies: str, make: Any) -> None:
        self.lies, self.make = lies, make
        stored = (*shape[:-2], shape[-1], shape[-2]) if lies == "turned" else shape
        row, column = (*stored[:-2], 1, stored[-1])[-2:], (stored[-2], 1)
        self.arrays = [draw(rng, dims, name) for dims in (stored, stored, row, column)]

    def of(self, x: Any, y: Any, row: Any, column: Any) -> Any:
        made = x if self.make is None else self.make(x, y, row, column)
        return made.swapaxes(-1, -2) if self.lies == "turned" else made


def draw(rng: Any, dims: tuple[int, ...], name: str) -> np.ndarray:
    if name == "i4":
        return rng.integers(-9, 9, dims).astype(name)
    return rng.normal(size=dims).astype(name)


@pytest.mark.slow
@MANY
@given(
    shape=st.tuples(*[st.sampled_from(EXTENTS)] * 3),
    batch=st.sampled_from([(), (1,), (3,), (2, 2)]),
    shared=st.booleans(),
    name=st.sampled_from(sorted(LIMITS)),
    lies=st.tuples(*[st.sampled_from(["plain", "turned"])] * 2),
    makes=st.tuples(*[st.sampled_from([None, *MADE])] * 2),
    ends=st.booleans(),
    threads=st.integers(1, 3),
)
def test_any_operands(
    far: None,
    shape: Any,
    batch: Any,
    shared: bool,
    name: str,
    lies: Any,
    makes: Any,
    ends: bool,
    threads: int,
) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m * k + n)
    makes = tuple(make if name != "i4" or make in EXACT else None for make in makes)
    a = Operand(rng, (*batch, m, k), name, lies[0], makes[0])
    b = Operand(rng, (k, n) if shared else (*batch, k, n), name, lies[1], makes[1])

    def function(*given: Any) -> Any:
        made = a.of(*given[:4]) @ b.of(*given[4:])
        return np.maximum(made, 0) + 1 if ends else made

    compare(function, [*a.arrays, *b.arrays], LIMITS[name], threads)


def compare(
    function: Callable[..., Any], given: list[np.ndarray], limit: float, threads: int = 1
) -> None:
    """As the interpreter has it, at every opt level, for any number of threads."""
    compiled = gc.compile(function, threads=threads)
    (wanted,) = interpret(compiled.graph(*given), given)
    made = compiled(*given)
    assert made.dtype == wanted.dtype
    scale = max(1.0, float(np.abs(wanted.astype("f8")).max(initial=0)))
    for one in (made, gc.compile(function, opt=0)(*given)):
        np.testing.assert_allclose(
            one.astype("f8"), wanted.astype("f8"), rtol=limit, atol=limit * scale
        )
    assert np.array_equal(made, gc.compile(function, threads=threads + 1)(*given))


# -- what they compute is what would be stored


@pytest.mark.parametrize(
    ("case", "which"),
    crossed(few(itertools.product(MADE, LIES, LIES), 13), [(1, 0), (0, 1), (1, 1)]),
)
def test_not_a_bit_changes(case: Any, which: Any, request: pytest.FixtureRequest) -> None:
    make, *lies = case
    rng = np.random.default_rng(0)
    a = Operand(rng, (90, 600), "f4", lies[0], make if which[0] else None)
    b = Operand(rng, (600, 75), "f4", lies[1], make if which[1] else None)
    given = [*a.arrays, *b.arrays]
    function = lambda *g: a.of(*g[:4]) @ b.of(*g[4:])
    stored = gc.compile(function)(*given)
    assert len(kernels(function, *given, threads=1)) == 1 + sum(which)
    request.getfixturevalue("far")
    computed = lambda *g: function(*g)
    assert len(kernels(computed, *given, threads=1)) == 1
    for threads in (1, 2, 5):
        assert np.array_equal(gc.compile(computed, threads=threads)(*given), stored)


@pytest.mark.parametrize("dims", [(1, 3000, 1500), (3, 2000, 1030), (8, 1500, 900)])
@pytest.mark.parametrize("turned", [False, True])
def test_threads_do_not_choose_how_few_rows_are_summed(
    far: None, dims: tuple[int, int, int], turned: bool
) -> None:
    m, k, n = dims
    rng = np.random.default_rng(6)
    x, s, w = (
        rng.normal(size=d).astype("f4") for d in ((m, k), (k,), (n, k) if turned else (k, n))
    )
    function = lambda x, s, w: (x * s) @ (w.T if turned else w)
    alone = gc.compile(function, threads=1)(x, s, w)
    for threads in (2, 3):
        assert np.array_equal(gc.compile(function, threads=threads)(x, s, w), alone)


@pytest.mark.parametrize("name", ["i1", "u1", "i2", ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("lies", ["plain", "turned"])
def test_weights_of_few_bits(far: None, name: Any, lies: str) -> None:
    rng = np.random.default_rng(1)
    stored = (65, 130) if lies == "plain" else (130, 65)
    w, x = rng.integers(0, 100, stored).astype(name), rng.normal(size=(40, 65)).astype("f4")
    zero, scale = rng.normal(size=(2, 130)).astype("f4")

    def function(x: Any, w: Any, zero: Any, scale: Any) -> Any:
        w = w.T if lies == "turned" else w
        return x @ ((w.astype("f4") - zero) * scale)

    assert len(kernels(function, x, w, zero, scale, threads=1)) == 1
    compare(function, [x, w, zero, scale], 1e-4)


@pytest.mark.slow
@MANY
@given(
    form=st.sampled_from(
        [
            "bsd,dhe->bhse",
            "bhse,bhte->bhst",
            "bhst,bhte->bshe",
            "bshe,hed->bsd",
            "sbd,de->bes",
            "ab,cb->ca",
            "abc,dbc->da",
            "ij,j->i",
            "i,ij->j",
            "bi,bi->b",
            "ij,kl->ikjl",
        ]
    ),
    extents=st.lists(st.sampled_from([0, 1, 2, 3, 17, 40]), min_size=12, max_size=12),
    which=st.sampled_from([(1, 0), (0, 1), (1, 1)]),
    threads=st.integers(1, 2),
)
def test_any_einsum(far: None, form: str, extents: Any, which: Any, threads: int) -> None:
    letters = sorted(set(form) - set(",->"))
    size = dict(zip(letters, extents, strict=False))
    rng = np.random.default_rng(sum(extents))
    given = [rng.normal(size=[size[c] for c in part]) for part in form.split("->")[0].split(",")]

    def function(x: Any, y: Any) -> Any:
        return gc.einsum(form, x * 2 + x if which[0] else x, gc.tanh(y) if which[1] else y)

    compare(function, given, 1e-11, threads)


def test_strided_and_broadcast_inputs(far: None) -> None:
    rng = np.random.default_rng(2)
    x, s = rng.normal(size=(80, 66)), rng.normal(size=(1, 33))
    w = rng.normal(size=(33, 20))

    def function(x: Any, s: Any, w: Any) -> Any:
        return (x[::2, ::-2] * s + x[1::2, 1:2]) @ (np.broadcast_to(w[:, :1], (33, 20)) - w)

    assert len(kernels(function, x, s, w, threads=1)) == 1
    compare(function, [x, s, w], 1e-11, 2)


def test_a_step_of_training(far: None) -> None:
    """An operand that two products read is stored; one that is computed has gradients as ever."""

    def loss(w: Any, x: Any, s: Any) -> Any:
        return (np.maximum((x * s) @ (w * 0.5), 0) ** 2).sum()

    rng = np.random.default_rng(3)
    w, x, s = rng.normal(size=(20, 30)), rng.normal(size=(50, 20)), rng.normal(size=20)
    made = gc.compile(gc.grad(loss, wrt=(0, 1, 2)))(w, x, s)
    h = np.maximum((x * s) @ (w * 0.5), 0)
    dxs = 2 * h @ (w * 0.5).T
    for one, want in zip(made, ((x * s).T @ h, dxs * s, (dxs * x).sum(0)), strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-10, atol=1e-10)


def test_donated_memory_is_read_before_it_is_written(far: None) -> None:
    rng = np.random.default_rng(4)
    x, s = rng.normal(size=(60, 60)), rng.normal(size=60)
    function = lambda x, s: (x * s) @ (s * 2)[:, None] + x
    wanted = gc.compile(function)(x, s)
    assert np.array_equal(gc.compile(function, donate="x")(x.copy(), s), wanted)


def test_every_stage_runs(far: None) -> None:
    from graphc.config import Config
    from graphc.passes import pipeline

    rng = np.random.default_rng(5)
    given = [rng.normal(size=dims).astype("f4") for dims in ((50, 40), (40,), (40, 30))]
    function = lambda x, s, w: (x * s) @ w
    records = pipeline.run(gc.compile(function).graph(*given), Config(verify=3, threads=1))
    for record in records:
        made = interpret(record.value, given)[0]
        np.testing.assert_allclose(made, function(*given), rtol=1e-4, atol=1e-4)


# -- when they are computed


def is_stored(function: Any, *shapes: Any, **options: Any) -> bool:
    given = [gc.spec(dims, name) for name, *dims in shapes]
    return len(kernels(function, *given, **options)) > 1


def test_large_rows_are_computed_and_small_ones_stored() -> None:
    function = lambda x, s, w: (x * s) @ w
    large = ("f32", 4096, 1024), ("f32", 1024), ("f32", 1024, 256)
    assert not is_stored(function, *large)
    assert is_stored(function, ("f32", 100, 1024), *large[1:])
    for options in ({"opt": 0}, {"parity": True}, {"check_finite": True}, {"backend": "numba"}):
        assert is_stored(function, *large, **options)


def test_large_weights_are_computed_for_few_rows() -> None:
    function = lambda x, w, s: x @ (w.astype("f4") * s)
    weights = ("i8", 4096, 4096), ("f32", 4096)
    assert not is_stored(function, ("f32", 8, 4096), *weights)
    assert is_stored(function, ("f32", 2000, 4096), *weights)
    assert is_stored(function, ("f32", 8, 512), ("i8", 512, 512), ("f32", 512))


def test_what_is_read_twice_is_stored() -> None:
    large = ("f32", 4096, 1024), ("f32", 1024), ("f32", 1024, 256)
    for function in (
        lambda x, s, w: ((x * s) @ w, x * s),
        lambda x, s, w: ((x * s) @ w, (x * s) @ (w.T.reshape(w.shape) + 1)),
        lambda x, s, w: (x * s)[:4096:2] @ w + (x * s)[1::2] @ w,
        lambda x, s, w: gc.einsum("mk,bkn->bmn", x * s, np.stack([w, w])),
    ):
        assert is_stored(function, *large)
