"""What several threads change while others walk over it."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import numpy as np
import pytest
from runtime_kernels import doubler
from threads import at_once

import graphc as gc
from graphc.config import Config
from graphc.frontend.compile.decorator import CompiledFunction
from graphc.frontend.compile.signature import Literals, Weak
from graphc.frontend.trace.tree import LEAF, treedef
from graphc.ir.types import dtype
from graphc.runtime.call import failure
from graphc.runtime.call.execute import Executable, stop_all
from graphc.runtime.call.open_executable import Latest
from graphc.runtime.call.variable import Container, container
from graphc.runtime.cuda.result_memory import Pool
from graphc.runtime.load.program import Slot
from graphc.runtime.tuning import tuned

X = np.arange(8, dtype=np.float32)


class _Key:
    """As a signature, it is hashed and compared by Python."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.number == self.number


def test_what_is_made_for_sizes_is_dropped_while_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuned, "kept_sizes", 2)
    kept: Latest[_Key, int] = Latest()
    plan = doubler().image
    keys = [_Key(number) for number in range(3)]

    def look(number: int) -> None:
        assert kept.get(keys[number % 3]) in (None, number % 3)
        list(kept)

    def add(number: int) -> None:
        kept.add(keys[number % 3], number % 3, plan)

    at_once(look, look, add, add, times=3_000)


@pytest.mark.slow
def test_programs_begin_and_end_while_all_are_stopped() -> None:
    held: list[Executable] = []

    def begin(number: int) -> None:
        held.append(doubler())
        del held[: len(held) - 100]

    at_once(begin, lambda _: [stop_all(0) for _ in range(20)], times=300)


def test_variables_are_declared_while_their_container_is_reset() -> None:
    here = Container("of threads")
    for number in range(500):
        here.declare(f"w{number}", Slot("w", "f32", (1,)), None)

    def declare(number: int) -> None:
        here.declare(f"v{number}", Slot("v", "f32", (1,)), None)
        _ = here.nbytes

    at_once(declare, lambda _: here.reset(), times=200)


def test_a_variable_is_bound_anew_while_runs_begin() -> None:
    held, here = gc.Variable(X, name="held", container="bound anew"), container("bound anew")
    run = gc.compile(lambda x: x + held)
    run(X)

    def move(number: int) -> None:
        with here.writing():
            for follower in here.followers:
                follower.unbind()

    at_once(*[lambda _: np.testing.assert_array_equal(run(X), 2 * X)] * 3, move, times=300)


class _Driver:
    """Hands out addresses, and knows who has them."""

    name = "gpu:0"

    def __init__(self) -> None:
        self.numbers = count(1)
        self.lent: set[int] = set()

    def allocate(self, nbytes: int) -> int:
        made = next(self.numbers)
        self.lent.add(made)
        return made

    def free(self, address: int) -> None:
        self.lent.remove(address)


def test_blocks_that_are_given_back_to_a_device_are_nobody_elses() -> None:
    driver: Any = _Driver()
    pool = Pool(driver)

    def take(number: int) -> None:
        block = pool.take(512 * (1 + number % 3))
        assert block.address in driver.lent

    at_once(take, take, take, lambda _: pool.release(), times=2_000)
    assert pool.kept == sum(size * len(free) for size, free in pool.free.items())


def test_errors_below_native_code_are_kept_while_others_are() -> None:
    for _ in range(failure._MOST_RAISED):
        failure.keep(ValueError())

    def keep(number: int) -> None:
        error = ValueError(number)
        kept = failure.take_error(failure.keep(error))
        assert kept in (error, None)  # those of the others may have pushed it out
        failure.keep(error)

    at_once(*[keep] * 4, times=1_000)


def test_one_structure_is_one_object() -> None:
    kinds: list[list[Any]] = [[], [], []]

    def make(seen: list[Any], number: int) -> None:
        seen.append(treedef(dict, (f"only here {number}",), (LEAF,)))

    at_once(*[lambda n, seen=seen: make(seen, n) for seen in kinds], times=3_000)
    for made in zip(*kinds, strict=True):
        assert made[0] is made[1] is made[2]


def test_numbers_of_many_threads_are_counted() -> None:
    """A number that keeps changing stays one of few values, whoever comes first."""
    kept = Literals(lambda name: (int,))
    weak = Weak(dtype("i64"), int)

    def call(number: int) -> None:
        kept.key((f"n{number}", 0), object(), weak)
        kept.need_all()

    at_once(*[call] * 6, times=500)
    assert max(map(len, kept.seen.values())) <= 3


def test_a_number_that_must_be_known_is_known_to_all_threads() -> None:
    """The first to fail has it known from now on; the others, who failed beside it, call again."""

    def model(x: Any, n: Any) -> Any:
        if not isinstance(n, int):
            time.sleep(0.05)  # the others are bound meanwhile, as this call is
        return np.ones(n) + x

    literals = Literals(lambda name: (int,))
    run: Any = CompiledFunction(model, Config.create(), literals=literals)
    for size in range(1, 4):
        run(X[:1], size)
    calls = [lambda _: np.testing.assert_array_equal(run(X[:1], 7), np.ones(7))] * 4
    at_once(*calls)
