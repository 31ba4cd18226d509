"""What does not change in a vector loop is asked before it, and the same is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed, rounds
from loop_evaluator import Evaluator

import graphc as gc
from graphc import tuning
from graphc.codegen.lowering.unswitch import unswitched
from graphc.ir.types import F32
from graphc.loops.nest import Buffer, Expr, For, If, Kernel, Scalars, Statement, postorder, walk

RNG = np.random.default_rng(5)


def programs(rng: np.random.Generator) -> tuple[Scalars, Buffer, Buffer]:
    """A nest that adds up rows by what it asks of both of its indices and of an element."""
    b = Scalars()
    source, target = Buffer(0, F32, 64, "in"), Buffer(1, F32, 64, "out")
    with b.loop(8) as i, b.loop(8, "vector") as j:
        place = i * 8 + j
        total = b.register(b.const(0.0, F32))
        for _ in range(rng.integers(1, 4)):
            ask(b, rng, i, j, lambda: b.assign(total, b.read(total) * 2 + b.load(source, place)))
        b.store(target, place, b.read(total))
        ask(b, rng, i, j, lambda: b.store(target, place, b.const(float(rng.integers(9)), F32)))
    return b, source, target


def ask(b: Scalars, rng: np.random.Generator, i: Expr, j: Expr, then: Any, depth: int = 0) -> None:
    """Do something where one or two comparisons hold, perhaps asking more."""
    tests = [comparison(b, rng, rng.choice([i, i, j])) for _ in range(rng.integers(1, 3))]
    with b.when(tests[0] if len(tests) == 1 else tests[0] & tests[1]):
        then()
        if depth < 2 and rng.random() < 0.4:
            ask(b, rng, i, j, then, depth + 1)
            then()


def comparison(b: Scalars, rng: np.random.Generator, index: Expr) -> Expr:
    op = str(rng.choice(["lt", "ge", "eq", "ne", "le"]))
    found = b.compare(op, index, b.integer(int(rng.integers(0, 9))))
    return ~found if rng.random() < 0.2 else found


def asked_inside(body: list[Statement]) -> int:
    """How many conditions in vector loops ask nothing of those loops."""
    count = 0
    for loop in walk(body):
        if isinstance(loop, For) and loop.kind == "vector":
            for inside in walk(loop.body):
                if isinstance(inside, If):
                    parts = inside.condition.args if inside.condition.op == "and" else ()
                    for part in parts or (inside.condition,):
                        count += loop.variable not in set(postorder([part]))
    return count


@pytest.mark.parametrize("seed", range(rounds(20)))
def test_what_is_computed_stays_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, *buffers = programs(rng)
    values = rng.standard_normal(64).astype("f4")
    made = []
    with tuning.chosen({"codegen.loop_versions": 64}):
        after = unswitched(b.body)
    for body in (b.body, after):
        arrays = [values, np.full(64, np.nan, "f4")]
        Evaluator(Kernel("k", tuple(buffers), 0, body), arrays).run(0, 1)
        made.append(arrays[1])
    np.testing.assert_array_equal(made[1], made[0])
    versions = sum(isinstance(s, For) and s.kind == "vector" for s in walk(after))
    assert not asked_inside(after) or versions == 1


def test_a_loop_that_asks_too_much_stays_as_it_is() -> None:
    b = Scalars()
    target = Buffer(0, F32, 64, "out")
    with b.loop(8) as i, b.loop(8, "vector") as j:
        for k in range(4):  # where none holds there is nothing to do
            with b.when(((i >> k) & 1).cast(F32) > 0.5):
                b.store(target, i * 8 + j, b.const(float(k), F32))
    with tuning.chosen({"codegen.loop_versions": 14}):
        assert asked_inside(unswitched(b.body)) == 4
    with tuning.chosen({"codegen.loop_versions": 15}):
        assert asked_inside(unswitched(b.body)) == 0


def joined(count: int) -> Any:
    return lambda *given: np.pad(np.concatenate(given[:count], 1), ((0, 0), (0, 0), (1, 1), (1, 0)))


@pytest.mark.parametrize(("count", "name"), crossed([1, 2, 3, 5], ["float32", "int8", "complex64"]))
def test_pads_of_joined_arrays_are_numpys(count: int, name: str) -> None:
    arrays = [(9 * RNG.standard_normal((2, k + 1, 5, 20))).astype(name) for k in range(count)]
    expected = joined(count)(*arrays)
    for threads in (1, 2):
        made = gc.compile(joined(count), threads=threads)(*arrays)
        np.testing.assert_array_equal(made, expected)
