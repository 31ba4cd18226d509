"""Tuned numbers: their tables, and that nothing but speed depends on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
import tuned_programs
from effort import rounds

import graphc as gc
from benchmarks import tune
from benchmarks.suite import CASES as SUITE
from graphc import tuning
from graphc.codegen.tuning import tuned

RUNTIME = """
import numpy as np, graphc as gc
x = np.arange(12_000, dtype="f4").reshape(100, 120) / 1000
def loss(x):
    h, all_of_them = gc.scan(lambda h, r: (np.tanh(h + r), h * r), np.zeros(120, "f4"), x)
    return (h * all_of_them).sum()
f = gc.compile(lambda x: (np.tanh(x @ x.T) + 1).sum(0) + gc.grad(loss)(x).sum(), threads=2)
g = gc.compile(lambda x: np.exp(-x).sum(0), threads=2, devices=["cpu:0", "cpu:1"])
found = [f(x).tolist(), g(x).tolist(), f(x).tolist()]
"""
PRINT = """
import json
from graphc import tuning
tuning.numbers()
print(json.dumps([found, tuning.changes()]))
"""
WRONG = "codegen.few_tiles=20,codegen.few_tiles=-1,codegen.few_tiles=x,passes.a=1,b.c=1,d"


def test_every_number_is_within_its_range_and_says_what_it_is() -> None:
    found = tuning.numbers()
    assert len(found) > 250
    known = {*tune.SMALL, *tune.UNTIMED, *SUITE}
    for name, number in found.items():
        assert number.unit and number.trades and number.case in known, name
        if not isinstance(number.value, tuple):
            assert number.least <= number.value <= number.most, name
            assert type(number.value) is type(number.least) is type(number.most), name


@pytest.mark.parametrize("turn", range(rounds(2)))
def test_nothing_but_speed_depends_on_them(turn: int) -> None:
    """`python -m tuned_programs` in tests/support runs many more."""
    assert tuned_programs.check(turn * 9) is None


def test_a_grain_that_no_kernel_has_so_many_units_for() -> None:
    """It shares a word with how often the cancel flag is looked at, and ran over."""
    numbers = {"codegen.grain_bytes": 1 << 40, "codegen.long_kernel": 0.0}
    x = np.ones((300, 17), np.float32)
    for sizes in ("exact", {"x": ("n", 17)}):
        with tuning.chosen(numbers | {"codegen.poll_seconds": 1e9}):
            made = gc.compile(lambda x: x + 1, threads=2, sizes=sizes)(x)
        np.testing.assert_array_equal(made, x + 1)


def test_a_spec_that_is_forgotten_leaves_its_symbol_to_no_other() -> None:
    """Specs were told apart by their addresses, which are used again."""

    made = tuned_programs.program(0)
    wanted = tuned_programs.results(made, 1, {})
    for _ in range(3):
        found = tuned_programs.results(made, 1, {"codegen.kept_specs": 1})
        assert tuned_programs.difference(made, wanted, found) is None


@pytest.mark.parametrize(
    "numbers", [{"loops.unrolled_in_vector": 0}, {"loops.unrolled_outside": 256}]
)
def test_a_loop_of_unknown_length_is_never_written_as_copies(numbers: dict[str, int]) -> None:
    """It counted as one statement more than a vector loop may have, which others may have."""
    made = tuned_programs.program(2016)
    wanted = tuned_programs.results(made, 1, {})
    assert tuned_programs.tried(made, 1, numbers, wanted) is None


def test_machine_code_that_is_made_quickly_is_other_code_with_the_same_results() -> None:
    x = np.random.default_rng(0).normal(size=(40, 33))

    def made() -> tuple[Any, Any]:
        call = gc.compile(lambda x: gc.softmax(np.tanh(x)), threads=1)
        return call(x), call.executable(x).image.objects

    wanted, slow = made()
    with tuning.chosen({"codegen.machine_level": 0}):
        found, quick = made()
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert {*quick} != {*slow}, "one was taken for the other in the cache"


def test_rows_side_by_side_fit_the_columns_that_are_folded_at_once() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 33)).astype("f4")
    with tuning.chosen({"codegen.fold_columns": 16, "codegen.tall_columns": 512}):
        found = gc.compile(lambda x: x.sum(0), threads=1)(x)
    np.testing.assert_allclose(found, x.sum(0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("count", [3, 5, 6])
@pytest.mark.parametrize("ways", [lambda x: x.sum(0), lambda x: (x.max(0), (x + 1).sum(0))])
def test_rows_that_are_folded_at_once_need_be_no_power_of_two(count: int, ways: Any) -> None:
    """What lay in one lane was folded in pairs, of which an odd row had none."""
    x = np.random.default_rng(0).uniform(size=(40_001, 6)).astype("f4")
    numbers = {"codegen.fold_rows": count, "codegen.fold_rows_of_many": count}
    made = tuned_programs.Program("rows", ways, (x,))
    assert tuned_programs.tried(made, 1, numbers, listed(ways(x))) is None


def listed(found: Any) -> list[Any]:
    return [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize(
    ("function", "shape", "number", "value"),
    [
        (lambda x: np.linalg.solve(x + 140 * np.eye(70, dtype="f4"), x), (70, 70), "ops.panel", 5),
        (np.fft.fft, (3, 128), "codegen.most_lanes", 3),
    ],
)
def test_what_has_to_be_a_multiple_is_rounded(
    function: Any, shape: tuple[int, ...], number: str, value: int
) -> None:
    """Rows of a panel that fill no block were left out; vectors of three lanes were none."""
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("f4")
    made = tuned_programs.Program("multiples", function, (x,))
    assert (
        tuned_programs.tried(made, 1, {number: value}, tuned_programs.results(made, 1, {})) is None
    )


def test_a_unit_of_a_product_has_a_block_of_rows_however_soon_it_is_to_be_cancelled() -> None:
    """Blocks of more rows than a unit might have left none: a division by zero."""
    x, w = np.ones((40, 7), "f4"), np.ones((7, 5), "f4")
    with tuning.chosen({"codegen.long_unit": 1, "codegen.long_rows": 1}):
        found = gc.compile(lambda x, w: x @ w, threads=1)(x, w)
    np.testing.assert_array_equal(found, x @ w)


@pytest.mark.parametrize("seed", [3358, 3565])
def test_loops_over_a_tile_of_a_product_look_at_the_cancel_flag(seed: int) -> None:
    """What lay before their operands was no address: runs were cancelled, or crashed."""
    made = tuned_programs.program(seed)
    wanted = tuned_programs.results(made, 1, {})
    numbers = {"loops.look_work": 1 << 10, "loops.brief_work": 0}
    assert tuned_programs.tried(made, 1, numbers, wanted) is None


def test_a_half_of_a_vector_is_a_vector() -> None:
    """Of two lanes it was one, which has another type, on CPUs that move vectors in halves."""
    x = np.arange(40 * 16, dtype=np.uint16).reshape(40, 16)
    with tuning.chosen({"codegen.moved_bytes": 0, "codegen.most_lanes": 2}):
        found = gc.compile(lambda x: ~x + x)(x)
    np.testing.assert_array_equal(found, ~x + x)


@pytest.mark.parametrize(
    ("rows", "k", "columns", "numbers"),
    [
        (130, 130, 4, {"codegen.epilogue_shortest": 1}),
        (16, 3, 16, {"codegen.swap_ratio": 1, "codegen.swap_sum": 1, "codegen.epilogue_rows": 1}),
    ],
)
def test_columns_of_whole_rows_do_not_change_places_with_rows(
    rows: int, k: int, columns: int, numbers: dict[str, int]
) -> None:
    """Few columns may, but then what the epilogue got as rows were columns."""
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(rows, k)), draw.normal(size=(k, columns))
    with tuning.chosen(numbers):
        found = gc.compile(lambda x, w: tuned_programs.softmax(x @ w), threads=1)(x, w)
    np.testing.assert_allclose(found, tuned_programs.softmax(x @ w), rtol=1e-9)


def test_what_was_made_with_other_numbers_is_made_again() -> None:
    x, w = np.ones((7, 300), "f4"), np.ones((300, 64), "f4")

    def row_block() -> Any:
        graph = gc.compile(lambda x, w: x @ w, threads=1)
        return graph.executable(x, w).image.words.tolist()

    first = row_block()
    with tuning.chosen({"codegen.deepest_block": 64}):
        assert row_block() != first
        assert tuning.changes() == (("codegen.deepest_block", 64),)
    assert row_block() == first and tuning.changes() == ()


@pytest.mark.parametrize("name", ["codegen.few_tiles", "codegen.none", "nowhere.few_tiles"])
def test_a_number_out_of_range_or_that_is_none_is_refused(name: str) -> None:
    before = tuned.few_tiles
    with pytest.raises(gc.GraphError, match=name), tuning.chosen({name: -1}):
        pass
    assert tuned.few_tiles == before


def test_the_environment_sets_numbers_and_what_it_gets_wrong_is_named() -> None:
    wishes, done = at_the_ends(0)
    changed = dict(json.loads(done.stdout)[1])
    assert changed.pop("codegen.few_tiles") == 20 and changed.keys() <= wishes.keys()
    for part in ("may be 0 to 1048576", "'x' is no int", "'passes.a'", "'b.c'", "'d'"):
        assert part in done.stderr


def test_tune_measures_what_changes_and_nothing_else() -> None:
    known = tuning.numbers()["codegen.strip"]._replace(case="dot")
    row = tune.measured("codegen.strip", known, 128, 0.05)
    assert row["gain"] is None and not row["better"]
    row = tune.measured("codegen.tile_side", tuning.numbers()["codegen.tile_side"], 32, 1e9)
    assert row["gain"] > 0 and not row["better"]


@pytest.mark.parametrize("turn", range(rounds(1)))
def test_the_native_runtime_takes_any_of_its_numbers(turn: int) -> None:
    here: dict[str, Any] = {}
    exec(RUNTIME, here)
    wishes, done = at_the_ends(turn)
    for a, b in zip(here["found"], json.loads(done.stdout)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, err_msg=str(wishes))


@cache
def at_the_ends(turn: int) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """What a process wishes that has the runtime's numbers at their ends, and what it says."""
    known = {n: k for n, k in tuning.numbers().items() if n.startswith(("native.", "runtime."))}
    draw = Random(turn)
    wishes = {n: draw.choice((k.least, k.most)) for n, k in known.items()}
    text = ",".join([*(f"{n}={v}" for n, v in wishes.items()), WRONG])
    command = [sys.executable, "-c", RUNTIME + PRINT]
    environment = {**os.environ, "GRAPHC_TUNING": text}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return wishes, done


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
