"""Writes cost what they write: random programs of writes against NumPy, and what they copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds

import graphc as gc
from graphc.codegen.kernels import spec_of
from graphc.config import Config
from graphc.errors import RunError
from graphc.ir.graph import Program as Planned
from graphc.ir.place import Buffer
from graphc.ir.regions import scheduled_graphs
from graphc.loops.nest import For, Statement, Store

COUNT = rounds(24)
SHAPES = [(7,), (4, 5), (3, 4, 5), (2, 1, 6)]

# ------------------------------------------------------------------------------------ programs


def random_part(rng: np.random.Generator, extent: int, traced: list[int]) -> Any:
    """One part of an index: ("traced", k) stands for the k-th number given at run time."""
    match rng.integers(6):
        case 0:
            return int(rng.integers(-extent, extent))
        case 1:
            traced.append(int(rng.integers(-extent, extent)))
            return ("traced", len(traced) - 1)
        case 2:
            start, stop = sorted(rng.integers(-extent, extent + 1, 2))
            return slice(int(start), int(stop), int(rng.choice([1, 1, 2, 3])))
        case 3:
            return slice(None, None, int(rng.choice([1, -1, 2, -2])))
        case 4:
            return rng.integers(-extent, extent, rng.integers(1, 4))
    return slice(None)


def random_index(rng: np.random.Generator, shape: tuple[int, ...], traced: list[int]) -> list[Any]:
    parts = [random_part(rng, extent, traced) for extent in shape[: rng.integers(len(shape) + 1)]]
    arrays = [k for k, part in enumerate(parts) if isinstance(part, np.ndarray)]
    for k in arrays[1:]:  # arrays of one index have one length
        parts[k] = rng.integers(-shape[k], shape[k], len(parts[arrays[0]]))
    if rng.integers(4) == 0:
        parts.insert(int(rng.integers(len(parts) + 1)), None)
    if rng.integers(4) == 0:
        parts.append(...)
    return parts or [...]


def index_of(parts: list[Any], numbers: Any) -> Any:
    return tuple(numbers[part[1]] if type(part) is tuple else part for part in parts)


def view_of(name: str, x: Any, parts: list[Any], numbers: Any) -> Any:
    if name == "index":
        return x[index_of(parts, numbers)]
    return {"T": lambda: x.T, "flat": lambda: x.reshape(-1), "self": lambda: x}[name]()


def is_basic(parts: list[Any]) -> bool:
    return not any(isinstance(part, np.ndarray) for part in parts)


class Program:
    """A few writes, drawn from a seed; `run` is for NumPy and for the tracer."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.shape = SHAPES[rng.integers(len(SHAPES))]
        self.x = rng.integers(-9, 9, self.shape).astype(rng.choice(["f8", "f4", "i4", "f2"]))
        self.numbers: list[int] = []
        self.steps = [self.step(rng) for _ in range(rng.integers(1, 5))]
        self.keeps = bool(rng.integers(2))  # the first value is returned as well

    def step(self, rng: np.random.Generator) -> tuple[Any, ...]:
        blank, name = self.x, str(rng.choice(["self", "self", "T", "flat", "index"]))
        outer = random_index(rng, blank.shape, self.numbers) if name == "index" else []
        if name == "index" and not is_basic(outer):
            name, outer = "self", []
        blank = view_of(name, blank, outer, self.numbers)
        if blank.ndim == 0 or blank.size == 0:
            name, outer, blank = "self", [], self.x
        parts = random_index(rng, blank.shape, self.numbers)
        there = blank[index_of(parts, self.numbers)]
        value = rng.integers(-5, 5, there.shape).astype(self.x.dtype)
        kind = str(rng.choice(["set", "set", "add", "mul", "at", "old"]))
        return name, outer, parts, value if rng.integers(3) else value.dtype.type(3), kind

    def run(self, x: Any, numbers: Any) -> Any:
        before, seen = x.copy() if self.keeps else None, []
        for name, outer, parts, value, kind in self.steps:
            view = view_of(name, x, outer, numbers)
            index = index_of(parts, numbers)
            if kind == "set":
                view[index] = value
            elif kind == "add":
                view[index] += value
            elif kind == "mul":
                view[index] *= value
            elif kind == "at":
                np.add.at(view, index, value)
            else:  # the old value is read before it is overwritten, and used afterwards
                old = view[index] + 0
                view[index] = value
                seen.append((old * 2).sum(dtype="f8"))
        return x, before, seen


def agree(made: Any, wanted: Any) -> None:
    x, before, seen = made
    np.testing.assert_allclose(x, wanted[0], rtol=1e-3)
    if before is not None:
        np.testing.assert_array_equal(before, wanted[1])
    np.testing.assert_allclose(np.array(seen, "f8"), np.array(wanted[2], "f8"), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_random_writes_are_numpys(block: int) -> None:
    for seed in range(block * COUNT // 4, (block + 1) * COUNT // 4):
        program = Program(seed)
        numbers = np.array([*program.numbers, 0])
        wanted = program.run(program.x.copy(), numbers)
        donate = ["x"] if seed % 2 else ()
        made = gc.compile(program.run, donate=donate, threads=1 + seed % 3 // 2)
        for _ in range(2):
            agree(made(program.x.copy(), numbers), wanted)


@pytest.mark.parametrize("block", range(2))
def test_random_writes_in_loops_are_numpys(block: int) -> None:
    for seed in range(block * COUNT // 4, (block + 1) * COUNT // 4):
        program = Program(1000 + seed)
        program.keeps = False
        length = 3
        rows = np.stack([np.array([*program.numbers, 0])] * length)
        x = program.x.copy()
        seen = [np.sum(program.run(x, row)[2], dtype="f8") for row in rows]

        def step(carry: Any, row: Any, program: Program = program) -> Any:
            made, _, found = program.run(carry, row)
            return made, sum(found, start=gc.zeros((), "f8"))

        def looped(x: Any, rows: Any, step: Any = step) -> Any:
            made, found = gc.scan(step, x, rows)
            return made, None, found

        donate = ["x"] if seed % 2 else ()
        made = gc.compile(looped, donate=donate)(program.x.copy(), rows)
        agree(made, (x, None, seen))


# ------------------------------------------------------------------------------------ what it costs


def stores(body: list[Statement], units: int) -> int:
    """How many elements the statements store."""
    found = 0
    for statement in body:
        if isinstance(statement, Store):
            found += 1
        elif isinstance(statement, For):
            count = statement.stop.data - statement.start.data
            inner = units if statement.kind == "parallel" else count
            found += inner * stores(statement.body, units)
    return found


class Cost:
    """What a compiled function writes: elements stored by its updates, and reasons for copies."""

    def __init__(self, function: Any, *args: Any, **options: Any) -> None:
        compiled = gc.compile(function, **options)
        last = compiled.stages(*args)[-1]
        planned = last[1]
        assert isinstance(planned, Planned)
        self.graph = planned.graphs[0]
        self.copies = [text for _, text in last[3].reasons if text.startswith("copies its array")]
        self.kernels = [
            node
            for inner in scheduled_graphs(self.graph)
            for node in inner.nodes
            if node.op.name == "fused"
        ]
        specs = [spec_of(node, Config()) for node in self.kernels]
        kernels = [s.patch[1].kernel for s in specs if s.patch]
        self.written = [stores(k.body, k.units) for k in kernels if k]
        ends = (r.offset + r.nbytes for n in self.kernels for r in arena_of(n))
        self.arena = max(ends, default=0)
        self.donated = compiled.executable(*args).image.donated


def arena_of(node: Any) -> list[Any]:
    assert isinstance(node.place, Buffer)
    return [region for region in node.place.regions if region.base == "arena"]


ROW = np.ones(1000, "f4")


def element(d: Any, k: Any) -> None:
    d[k % 1000, (7 * k) % 1000] = 1


def column(d: Any, k: Any) -> None:
    d[:, k % 1000] = ROW


def part_of_row(d: Any, k: Any) -> None:
    d[k % 1000, 10:20] = k


def plus(d: Any, k: Any) -> None:
    d[k % 1000, (7 * k) % 1000] += 1


def row_plus(d: Any, k: Any) -> None:
    d[k % 1000] += ROW


def transposed(d: Any, k: Any) -> None:
    d.T[k % 1000, (7 * k) % 1000] = 1


def through_a_row(d: Any, k: Any) -> None:
    row = d[k % 1000]
    row[(7 * k) % 1000] = 1
    row[3] = 2


def flat(d: Any, k: Any) -> None:
    d.reshape(-1)[7 * k] = 1


def strided(d: Any, k: Any) -> None:
    d[k % 1000, ::-7] *= 2


def reads_before(d: Any, k: Any) -> None:
    old = d[k % 1000, 3]
    d[k % 1000, (7 * k) % 1000] = 1
    d[5, k % 1000] = old + 1


FORMS = {
    element: [1],
    column: [1000],
    part_of_row: [10],
    plus: [1],
    row_plus: [1000],
    transposed: [1],
    through_a_row: [1, 1],
    flat: [1],
    strided: [143],
    reads_before: [1, 1],
}
D = np.zeros((1000, 1000), "f4")


def repeated(put: Any, kind: str) -> Any:
    def step(k: Any, d: Any) -> Any:
        put(d, k)
        return d

    def function(d: Any) -> Any:
        if kind == "fori":
            return gc.fori(0, 50, step, d)
        if kind == "while":
            whole = lambda s: (s[0] + 1, step(*s))
            return gc.while_loop(lambda s: s[0] < 50, whole, (0, d))[1]
        return gc.scan(lambda d, k: (step(k, d), None), d, np.arange(50))[0]

    return function


@pytest.mark.parametrize("put", FORMS, ids=lambda put: put.__name__)
@pytest.mark.parametrize("kind", ["fori", "while", "scan"])
def test_a_write_in_a_loop_writes_what_it_says_and_copies_nothing(put: Any, kind: str) -> None:
    function = repeated(put, kind)
    cost = Cost(function, D, donate=["d"])
    assert cost.copies == []
    assert sorted(cost.written) == FORMS[put]
    assert cost.donated == (0,)
    assert cost.arena < D.nbytes // 100
    if kind == "fori":
        wanted = D.copy()
        for k in range(50):
            put(wanted, k)
        np.testing.assert_array_equal(gc.compile(function)(D), wanted)


def test_adding_at_positions_is_in_place() -> None:
    def function(x: Any, index: Any) -> Any:
        np.add.at(x, index, 1.0)
        np.maximum.at(x, index, 0.5)
        np.subtract.at(x, index, 2.0)
        return x

    x, index = np.zeros((100, 100)), (np.array([1, 5, 1]), np.array([2, 99, 2]))
    assert Cost(function, x, index, donate=["x"]).copies == []
    mine, wanted = x.copy(), function(x.copy(), index)
    made = gc.compile(function, donate=["x"])(mine, index)
    assert made is mine
    np.testing.assert_array_equal(made, wanted)


def test_a_donated_cache_is_written_where_it_lies() -> None:
    def write(cache: Any, row: Any, position: Any) -> Any:
        cache[:, :, position] = row
        return cache

    for dtype in ("f4", "f2"):
        cache, row = np.zeros((1, 4, 32, 8), dtype), np.ones((1, 4, 8), dtype)
        cost = Cost(write, cache, row, 3, donate=["cache"])
        assert (cost.copies, cost.written, cost.donated) == ([], [32], (0,))
        step = gc.compile(write, donate=["cache"])
        wanted = cache.copy()
        for position in (3, -1, 0):
            made = step(cache, row, position)
            wanted[:, :, position] = row
            assert made is cache
            np.testing.assert_array_equal(made, wanted)
        for position in (32, -33):
            with pytest.raises(RunError, match="out of range"):
                step(cache, row * 2, position)
        np.testing.assert_array_equal(cache, wanted)  # a bad position changes nothing


def test_what_a_program_made_itself_is_updated_where_it_lies() -> None:
    def function(x: Any, i: Any) -> Any:
        y = x @ x
        y[i] = 1
        y[:, i] = 2
        return y @ x

    x = np.random.default_rng(0).normal(size=(64, 64))
    cost = Cost(function, x, 3)
    assert cost.copies == []
    assert sum(r.nbytes == x.nbytes for n in cost.kernels for r in arena_of(n)) == 3
    assert cost.arena < 2 * x.nbytes
    y = x @ x
    y[3], y[:, 3] = 1, 2
    np.testing.assert_allclose(gc.compile(function)(x, 3), y @ x)


def test_a_copy_that_is_needed_has_a_reason() -> None:
    def argument(x: Any, i: Any) -> Any:
        x[i] = 1
        return x

    def both(x: Any, i: Any) -> Any:
        y = x * 2
        z = y.copy()
        y[i] = 1
        return y, z

    def later(x: Any, i: Any) -> Any:
        y = x * 2
        z = y.copy()
        y[i] = 1
        return y, z @ z

    def carried(x: Any, i: Any) -> Any:
        def step(k: Any, carry: Any) -> Any:
            x, total = carry
            old = x.copy()
            x[k] = 1
            return x, total + (old @ x).sum()

        return gc.fori(0, 4, step, (x, 0.0))

    x = np.ones((20, 20))
    for function, reason in (
        (argument, "does not donate it"),
        (both, "is a result as well"),
        (later, "afterwards"),
        (carried, "afterwards"),
    ):
        (text,) = Cost(function, x, 2).copies
        assert reason in text


def test_variables_are_written_in_place_in_loops() -> None:
    v = gc.Variable(np.zeros((30, 30)), name="written")

    def function(n: Any) -> Any:
        made = gc.fori(0, 20, lambda k, d: put(d, k), v.value)
        v.assign(made)
        return n

    def put(d: Any, k: Any) -> Any:
        d[k, k] += 1
        return d

    cost = Cost(function, 1)
    assert cost.copies == []
    assert cost.arena < v.value.nbytes
    compiled = gc.compile(function)
    compiled(1)
    compiled(1)
    np.testing.assert_array_equal(v.value, np.diag([2.0] * 20 + [0.0] * 10))


def test_gradients_through_computed_positions() -> None:
    def loss(x: Any, v: Any, i: Any) -> Any:
        y = x * 2
        y[i, 1::2] = v
        y[:, i] *= x[i]
        y.T[i] += v.sum()
        return (y * y).sum()

    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(4, 4)), rng.normal(size=2)
    for i in (1, -1):
        made = gc.compile(gc.grad(loss, wrt=(0, 1)))(x, v, np.array(i))
        for which, slopes in enumerate(made):
            for at in np.ndindex(slopes.shape):
                moved = [[x.copy(), v.copy()] for _ in range(2)]
                for sign, arrays in zip((1e-6, -1e-6), moved, strict=True):
                    arrays[which][at] += sign
                high, low = (loss(x, v, i) for x, v in moved)
                np.testing.assert_allclose(slopes[at], (high - low) / 2e-6, rtol=1e-4, atol=1e-6)


def test_parts_of_an_array_and_branches_are_written_where_they_lie() -> None:
    def parts(x: Any, i: Any) -> Any:
        left, right = np.split(x, 2, axis=-1)
        right[i] = 7
        left += 1
        np.array_split(x, 3, axis=0)[1][:] = 9
        return x

    def branches(x: Any, i: Any) -> Any:
        def then(y: Any) -> Any:
            z = y * 2
            y[i] = 1
            return y, z

        def other(y: Any) -> Any:
            z = y.copy()
            y[:, i] = 5
            return z + 1, y

        y, z = gc.cond(i > 0, then, other, x @ x)
        return y @ x, z @ x

    x = np.random.default_rng(0).normal(size=(4, 4))
    assert Cost(parts, x, 1, donate=["x"]).copies == []
    np.testing.assert_array_equal(gc.compile(parts)(x, 1), parts(x.copy(), 1))
    for i in (2, -1):
        y = x @ x
        first, second = (y.copy(), y * 2) if i > 0 else (y + 1, y.copy())
        if i > 0:
            first[i] = 1
        else:
            second[:, i] = 5
        made = gc.compile(branches)(x, i)
        np.testing.assert_allclose(made[0], first @ x)
        np.testing.assert_allclose(made[1], second @ x)


def test_nothing_is_written_through_a_view_of_one_row() -> None:
    def function(x: Any) -> Any:
        x[0, ::2][-1:-1] = np.zeros((0, 6))
        return x

    x = np.ones((2, 1, 6))
    np.testing.assert_array_equal(gc.compile(function)(x), x)


def test_loops_in_loops_are_looked_through_once() -> None:
    def nested(d: Any, depth: int) -> Any:
        if depth == 0:
            d[0, 0] += 1
            return d
        return gc.fori(0, 2, lambda k, d: nested(d, depth - 1), d)

    d = np.zeros((9, 9))
    made = gc.compile(lambda d: nested(d, 10), donate=["d"])(d)
    assert made is d
    assert d[0, 0] == 2**10
