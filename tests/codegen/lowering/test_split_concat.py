"""Groups that read joined or padded arrays: one loop per part, none that asks where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed

import graphc as gc
from graphc.codegen.lowering.lower import lower_loops
from graphc.loops.nest import For, If, walk

RNG = np.random.default_rng(11)


def array(name: str, *dims: int) -> Any:
    made = 9 * RNG.standard_normal(dims)
    return (made + 1j * made[::-1] if name == "complex64" else made).astype(name)


CASES: list[tuple[Any, tuple[tuple[int, ...], ...]]] = [
    (lambda x: np.roll(x, 1, 0) + np.roll(x, -2, 1) * x, ((5, 7),)),
    (lambda x: np.roll(x, 3) - x, ((10_000,),)),
    (lambda a, b: np.concatenate([a, b, a]) * 2, ((3,), (4100,))),
    (lambda a, b, c: np.stack([a - b, b * c, c + a]) + a, ((40,), (40,), (40,))),
    (lambda a, b: np.stack([a, b], 1) * np.stack([b, a], 1), ((2, 3, 4), (2, 3, 4))),
    (lambda x: x + np.pad(x[1:-1, 1:-1] * 2, 1), ((6, 8),)),
    (lambda x: np.pad(x, ((1, 2), (0, 0), (2, 1))) - 1, ((3, 4, 5),)),
    (lambda a, b, x: x - np.concatenate([a, b]).reshape(x.shape), ((9000,), (3000,), (60, 200))),
    (lambda a, b, x: np.concatenate([a, b]).reshape(x.shape) * x[0], ((90,), (310,), (20, 20))),
    (lambda a, b, x: np.concatenate([a, b]).reshape(x.shape)[1:] - x[0], ((7,), (17,), (2, 3, 4))),
    (
        lambda a, b, x: np.concatenate([a, b]).reshape(x.shape)[:, ::2] * x[:, :1],
        ((7,), (8,), (3, 5)),
    ),
    (lambda a, b: (lambda j: (j * 2, j + a[:, :1]))(np.concatenate([a, b], 1)), ((4, 3), (4, 2))),
]


@pytest.mark.parametrize(
    ("case", "name"), crossed(CASES * 2, ["float32", "float64", "float16", "complex64", "int32"])
)
def test_parts_are_numpys(case: Any, name: str) -> None:
    function, dims = case
    arrays = [array(name, *d) for d in dims]
    made, expected = gc.compile(function)(*arrays), function(*arrays)
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (made, expected))):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-3 if name == "float16" else 1e-6)


def vector_loops(function: Any, *dims: tuple[int, ...]) -> list[For]:
    """Those of the one kernel that a function of arrays becomes."""
    found = []
    for stage in gc.compile(function).stages(*(array("float32", *each) for each in dims)):
        if stage.name == "fuse":
            (graph,) = stage.value.graphs
            found = [n.regions[0] for n in graph.nodes if n.op.name == "fused"]
    (region,) = found
    kernel, _ = lower_loops(region, "kernel")
    return [s for s in walk(kernel.body) if isinstance(s, For) and s.kind == "vector"]


def asking(loops: list[For]) -> list[For]:
    return [loop for loop in loops if any(isinstance(s, If) for s in walk(loop.body))]


def test_no_element_asks_where_it_lies() -> None:
    def step(x: Any) -> Any:
        return sum(np.roll(x, (i, j), (0, 1)) for i in (-1, 1) for j in (-1, 1))

    loops = vector_loops(step, (32, 32))
    assert len(loops) == 9
    assert not asking(loops)


def test_rows_that_are_joined_and_given_a_shape_do_not_ask() -> None:
    """A read that a mask hides entirely costs hundreds of cycles where no memory lies."""

    def updated(x: Any, a: Any, b: Any) -> Any:
        return x - np.concatenate([a, b]).reshape(x.shape) * 2

    def shifted(x: Any, a: Any, b: Any) -> Any:
        return updated(x, a, b) + x[0]

    for length in (3000, 3001):  # one loop over all elements
        loops = vector_loops(updated, (60, 100), (length,), (6000 - length,))
        assert (len(loops), len(asking(loops))) == (2, 0)
    assert not asking(vector_loops(shifted, (60, 100), (3000,), (3000,)))
    loops = vector_loops(shifted, (60, 100), (3001,), (2999,))
    assert (len(loops), len(asking(loops))) == (3, 1)  # the line in which the second begins


@pytest.mark.parametrize("kind", [np.float32, np.int8, np.complex64])
def test_rows_of_a_few_elements_are_put_together_in_lanes(kind: Any) -> None:
    x = np.arange(3 * 150 * 2).reshape(3, 150, 2).astype(kind)
    cases: list[Any] = [
        lambda x: np.stack([x[..., 0], x[..., 1] * 2], -1),
        lambda x: np.concatenate([x, x[..., :1], x], -1),
        lambda x: np.stack([x[0, :, 0], x[1, :, 1], x[2, :, 0]], 1) + x[0, :, :1],
        lambda x: np.concatenate([x[0], x[1]], 1)[3:],
    ]
    for case in cases:
        np.testing.assert_array_equal(gc.compile(case)(x), case(x))
    fn = gc.compile(lambda x: np.stack([x, x], -1), sizes={"x": ("n",)})
    for n in (0, 1, 100, 5000):
        np.testing.assert_array_equal(fn(x[0, :1, 0].repeat(n)), [[x[0, 0, 0]] * 2] * n or x[0, :0])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_pieces_side_by_side_are_shared_by_rows(axis: int, threads: int) -> None:
    """A thread writes whole rows of the result, not every other stretch of each."""
    dims = [30, 70, 90]
    pieces = [array("float32", *dims[:axis], extent, *dims[axis + 1 :]) for extent in (40, 1, 99)]
    fn = gc.compile(lambda *x: np.concatenate(x, axis), threads=threads)
    np.testing.assert_array_equal(fn(*pieces), np.concatenate(pieces, axis))
    sized = gc.compile(
        lambda x, y: np.concatenate([x, y], 1), sizes={"x": ("n", "a"), "y": ("n", "b")}
    )
    for n, a, b in ((50, 60, 70), (1, 2, 500), (300, 1, 40), (0, 4, 4), (7, 0, 30)):
        x, y = array("float32", n, a), array("float32", n, b)
        np.testing.assert_array_equal(sized(x, y), np.concatenate([x, y], 1))
