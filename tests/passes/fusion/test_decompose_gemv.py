"""Products of vectors that are summed in loops, and what is left to the contraction core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import crossed, few

import graphc as gc
from graphc.codegen import gemm as contract
from graphc.codegen.gemm.layout import Word
from graphc.codegen.gemm.tile_choice import kind_of

RNG = np.random.default_rng(23)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def kinds(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """The kinds of the kernels in order."""
    stages = {s[0]: s[1] for s in gc.compile(function, **options).stages(*arguments)}
    return [n.attrs["kind"] for n in stages["fuse"].graphs[0].nodes if n.op.name == "fused"]


def check(function: Callable[..., Any], *arguments: Any) -> None:
    """Right, of the same shape, equal with any number of threads and close to sums in order."""
    want = np.asarray(function(*arguments))
    one, three = (gc.compile(function, threads=t)(*arguments) for t in (1, 3))
    assert (one.shape, one.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(one, three)
    scale = float(np.abs(want).max(initial=0.0))
    for made in (one, gc.compile(function, fast_math=False)(*arguments)):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-5 * scale)


def from_rows(x: Any, w: Any, s: Any) -> Any:
    return x @ (w.astype(np.float32) * s[..., None]).swapaxes(-1, -2)


def from_columns(x: Any, w: Any, s: Any) -> Any:
    return x @ (w.astype(np.float32) * s[..., None])


@pytest.mark.parametrize("outer", [(), (3,), (2, 3)])
@pytest.mark.parametrize("vector", [(1, 64), (64, 1)])
def test_computed_weights_are_multiplied_where_they_are_computed(
    outer: tuple[int, ...], vector: tuple[int, int]
) -> None:
    x = draw(*outer, *vector)
    rows, columns = (RNG.integers(-9, 9, (*outer, *d), np.int8) for d in ((128, 64), (64, 128)))
    if vector[0] == 1:
        cases = [(from_rows, rows), (from_columns, columns)]
    else:
        cases = [
            (lambda x, w, s: from_rows(x.swapaxes(-1, -2), w, s).swapaxes(-1, -2), rows),
            (lambda x, w, s: (w * s[..., None]) @ x, rows),
            (lambda x, w, s: (w * s[..., None]).swapaxes(-1, -2) @ x, columns),
        ]
    for function, w in cases:
        s = draw(*w.shape[:-1])
        assert kinds(function, x, w, s)[-1:] == ["loop"]
        check(function, x, w, s)


def test_weights_that_rows_share_are_computed_once() -> None:
    assert kinds(lambda x, w: x @ (w * 2), draw(8, 1, 64), draw(64, 128))[-1] == "contract"
    assert kinds(lambda x, w: x @ (w * 2), draw(4, 64), draw(64, 128))[-1] == "contract"
    check(lambda x, w: x @ (w * np.float32(2)), draw(2, 1, 1, 64), draw(1, 3, 64, 128))


def test_what_others_need_too_is_stored() -> None:
    def both(x: Any, w: Any) -> Any:
        y = np.tanh(w)
        return x @ y, y

    def after_a_product(x: Any, w: Any, z: Any) -> Any:
        return x @ np.tanh(z @ w)

    assert "contract" in kinds(both, draw(1, 64), draw(64, 128))
    assert kinds(after_a_product, draw(1, 64), draw(64, 64), draw(64, 64)) == ["contract"] * 2
    assert kinds(lambda x, w: x @ w, draw(1, 64), draw(64, 128)) == ["contract"]


def test_dot_products() -> None:
    check(lambda x, y: x @ y, draw(70_001), draw(70_001))
    check(lambda x, y: x @ y, draw(17), draw(17))
    check(lambda x, y: np.einsum("bi,bi->b", x, y), draw(300, 40), draw(300, 40))
    check(lambda x, y: np.einsum("abi,abi->b", x, y), draw(7, 30, 4), draw(7, 30, 4))
    check(lambda x, y: np.einsum("ab,ba->a", x, y), draw(30, 40), draw(40, 30))
    check(lambda x, y: x[:, None] @ y[:, :, None], draw(50, 20), draw(50, 20))
    assert kinds(lambda x, y: x @ y, draw(70_001), draw(70_001))[0] == "loop"
    assert kinds(lambda x, y: np.einsum("bi,bi->b", x, y), draw(9, 40), draw(9, 40)) == ["loop"]


def test_vectors_times_many_short_rows() -> None:
    check(lambda x, y: x @ y, draw(1000, 3), draw(3))
    check(lambda x, y: x @ y, draw(5, 100, 8), draw(8, 1))
    check(lambda x, y: x @ y, draw(5, 100, 8), draw(5, 8, 1))
    check(lambda x, y: x.T @ y, draw(8, 1000), draw(8))
    assert kinds(lambda x, y: x @ y, draw(1000, 3), draw(3)) == ["loop"]
    assert kinds(lambda x, y: x @ y, draw(1000, 300), draw(300)) == ["contract"]


def test_outer_products() -> None:
    check(lambda x, y: x[:, None] @ y[None], draw(50), draw(60))
    check(lambda x, y: x @ y, draw(4, 50, 1), draw(4, 1, 60))
    check(lambda x, y: x @ y, draw(50, 1), draw(4, 1, 60))
    assert kinds(lambda x, y: x @ y, draw(50, 1), draw(1, 60)) == ["loop"]


def test_sums_in_order_stay_products() -> None:
    x, y = draw(70_001), draw(70_001)
    assert kinds(lambda x, y: x @ y, x, y, fast_math=False) == ["contract"]
    assert kinds(lambda x, y: x @ y, x, y, parity=True)[0] == "contract"


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    crossed([(100, 128, 2), (65, 300, 3), (4100, 130, 4), (64, 129, 8)], ["f4", "f8"]),
)
def test_few_columns_of_long_rows_are_dot_products(sizes: Any, dtype: str) -> None:
    m, k, n = sizes
    x, w, b = (a.astype(dtype) for a in (draw(m, k), draw(k, n), draw(n)))
    check(lambda x, w: x @ w, x, w)
    check(lambda x, w, b: np.maximum(x @ w + b, 0), x, w, b)
    check(lambda x, w: (x @ w).T, x, w)
    check(lambda x, w: x @ w, draw(2, m, k), draw(2, k, n))
    check(lambda x, w: x @ w.T, x, np.ascontiguousarray(w.T))


def test_stores_count_as_work_of_a_product() -> None:
    """A large result is shared among threads, however short its sums; wide rows one by one."""
    hardware = contract.host_target()

    def planned(m: int, k: int, n: int) -> contract.Plan:
        dims = (contract.Dim(m, k, 0, n),), (contract.Dim(n, 0, 1, 1),), (contract.Dim(k, 1, n, 0),)
        return contract.plan(contract.NormalForm("f32", (), *dims), hardware, threads=2)

    assert planned(100_000, 4, 4).units >= 2
    assert planned(16, 4, 4).units == 1
    wide, narrow, deep = planned(4097, 8, 4096), planned(100_000, 8, 40), planned(4097, 200, 4096)
    tile = kind_of("f32", hardware).rows
    assert wide.params[Word.ROW_BLOCK] == tile
    assert min(p.params[Word.ROW_BLOCK] for p in (narrow, deep)) > tile


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("m", [2, 3, 4])
def test_few_rows_times_rows_that_lie_pages_apart(m: int, dtype: str) -> None:
    x, w = (RNG.integers(-4, 5, shape).astype(dtype) for shape in ((m, 133), (133, 1024)))
    check(lambda x, w: x @ w, x, w)
    check(lambda x, w: np.maximum(x @ w + 1, 0), x, w)
    check(lambda x, w: (x @ w).T, x, w)
    check(lambda x, w: x.T @ w, np.ascontiguousarray(x.T), w)


def equation_of(rng: np.random.Generator) -> tuple[str, list[tuple[int, ...]]]:
    """A contraction of two operands with axes in any order, and the shapes of its operands."""
    letters = rng.permutation(list("abcdef"))[: rng.integers(2, 6)]
    extents = {letter: int(rng.integers(0 if rng.random() < 0.05 else 1, 5)) for letter in letters}
    where = {letter: rng.choice(["left", "right", "both", "summed"]) for letter in letters}
    left = [letter for letter in letters if where[letter] != "right"]
    right = [letter for letter in letters if where[letter] != "left"]
    result = [letter for letter in letters if where[letter] != "summed"]
    terms = ["".join(rng.permutation(term)) if term else "" for term in (left, right, result)]
    equation = f"{terms[0]},{terms[1]}->{terms[2]}"
    return equation, [tuple(extents[letter] for letter in term) for term in terms[:2]]


@pytest.mark.parametrize("seed", few(range(40), 8, 0))
def test_small_contractions_of_any_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in (np.float32, np.float64):
        equation, shapes = equation_of(rng)
        arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
        for arguments in (arrays, [x.T.copy().T for x in arrays]):

            def product(a: Any, b: Any, equation: str = equation) -> Any:
                return np.einsum(equation, a, b) * 2 + 1

            check(product, *arguments)


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((3, 2), (6, 2, 1)), ((1, 7), (2, 7, 5))],
)
def test_small_products_are_loops(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = draw(*left), draw(*right)
    check(np.matmul, x, y)
    gradient = gc.grad(lambda x, y: np.sum(np.sin(x @ y)), wrt=("x", "y"))
    for function in (np.matmul, gradient):
        assert "contract" not in kinds(function, x, y)
    for made, want in zip(gradient(x, y), gc.compile(gradient, opt=0)(x, y), strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


def test_the_sizes_of_small_products_stay_open() -> None:
    product = gc.compile(np.matmul, sizes={"x1": ("n", 3)}, max_compiles=1)
    for n in (1, 2, 3):
        x, y = draw(n, 3), draw(3, 2)
        np.testing.assert_allclose(product(x, y), x @ y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_of_two_or_three_terms(k: int, dtype: str) -> None:
    x, y, b = (a.astype(dtype) for a in (draw(70, k), draw(k, 100), draw(100)))
    check(lambda x, y: x @ y, x, y)
    check(lambda x, y, b: np.tanh(x @ y + b), x, y, b)
    check(lambda x, y: np.tanh(x) @ np.sin(y), x, y)
    check(lambda x, y: x @ y, draw(4, 5, k).astype(dtype), y)
    check(lambda x, y: x @ y, draw(4, 5, k).astype(dtype), draw(3, 1, k, 65).astype(dtype))
    check(lambda x, y: x[::-1] @ y[:, ::-1], x, y)
    assert kinds(lambda x, y: x @ y, x, y) == ["loop"]
    gradient = gc.grad(lambda x, y: np.sum(np.sin(x @ y)), wrt=("x", "y"))
    for made, want in zip(gradient(x, y), gc.compile(gradient, opt=0)(x, y), strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)
    x[3, 0], y[1, 5] = np.nan, np.inf
    np.testing.assert_array_equal(np.isnan(gc.compile(np.matmul)(x, y)), np.isnan(x @ y))
