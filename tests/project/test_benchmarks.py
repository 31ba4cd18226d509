"""The benchmark programs are also the largest tests: each compiles and agrees with NumPy."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import few
from gpu_launches import launches_of
from project import ROOT

import graphc as gc
from benchmarks import (
    at_scale,
    digests,
    gpu,
    gpu_cases,
    peers,
    report,
    roofline,
    scale,
    training,
    worker,
)
from benchmarks.__main__ import jobs
from benchmarks.cases import CASES as FUNCTIONS
from benchmarks.suite import CASES
from graphc.runtime.devices.registry import Link

# The encoder takes as long as all others, and the examples compare it with float64.
SMALL = [name for name in FUNCTIONS if name != "minilm"]


@pytest.mark.slow
@pytest.mark.parametrize("name", few([*SMALL, "minilm"], 8))
def test_case_agrees_with_numpy_and_takes_no_more_memory(name: str) -> None:
    import graphc as gc

    case = CASES[name]
    arguments = case.arguments(np.random.default_rng(0))
    compiled = gc.compile(case.native(gc) if case.native else case.function)
    tracemalloc.start()
    expected = case.function(*arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = compiled(*arguments)
    assert result.dtype == expected.dtype
    assert worker.difference(result, expected) <= case.tolerance
    arena = compiled.executable(*arguments).image.arena_bytes
    assert arena + result.nbytes <= peak + packed_bytes(name, arguments)


def packed_bytes(name: str, arguments: tuple[object, ...]) -> int:
    """What a copy of the matrices takes where little else is computed; NumPy's products pack theirs
    in memory that it does not report.
    """
    if name.split("-")[0] not in ("gemm", "mlp", "lstm"):
        return 0
    from graphc.frontend.trace.tree import flatten

    return sum(leaf.nbytes for leaf in flatten(arguments)[0] if leaf.ndim == 2)


@pytest.mark.parametrize("name", SMALL)
def test_every_optimisation_level_gives_the_same_result(name: str) -> None:
    import graphc as gc

    case = CASES[name]
    arguments = case.arguments(np.random.default_rng(1))
    function = case.native(gc) if case.native else case.function
    plain, optimised = (gc.compile(function, opt=opt)(*arguments) for opt in (0, 2))
    assert worker.difference(plain, optimised) <= case.tolerance


@pytest.mark.slow
@pytest.mark.parametrize("name", few(training.CASES, 2))
def test_training_steps_move_parameters_as_pytorch_does(name: str) -> None:
    case = CASES[name]
    runs = [peers.prepare(p, case, worker.fresh_arguments(case), 1) for p in ("torch", "graphc")]
    (losses, moves), found = map(peers.outcome, runs)
    assert max(map(worker.difference, found, (losses, moves))) <= case.tolerance
    assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", training.CASES)
def test_a_warm_training_step_is_one_native_call_and_allocates_nothing(name: str) -> None:
    case = CASES[name]
    run = peers.prepare("graphc", case, worker.fresh_arguments(case), 1)
    places = {array.ctypes.data for array in run.params.values()}
    for _ in range(3):
        run()
    called: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event in ("call", "c_call"):
            called.append(frame.f_code.co_filename if event == "call" else function.__name__)

    sys.setprofile(note)
    run()
    sys.setprofile(None)
    native, package = called.count("graphc_entry"), str(Path(gc.__file__).parent)
    assert native <= 1  # which is none where the call makes no frame of Python
    assert native or not any(name.startswith(package) for name in called)
    tracemalloc.start()
    run()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - held < 8192  # the dictionary of parameters and the loss
    assert {array.ctypes.data for array in run.params.values()} == places


def test_a_training_step_goes_on_from_the_last_one() -> None:
    run = peers.Training(lambda p, x: ({"w": p["w"] - x}, p["w"].sum()), ({"w": np.ones(2)}, 1), id)
    losses, moves = peers.outcome(run)
    assert losses.tolist() == [2.0, 0.0, -2.0, -4.0]
    assert moves.tolist() == [-4.0, -4.0]


@pytest.mark.parametrize("kind", scale.GRAPHS)
def test_unrolled_graphs_agree_with_numpy(kind: str) -> None:
    report = scale.measure(kind, 300)
    assert report["error"] < 1e-5
    assert report["nodes"] >= 290
    assert {"trace", "cse", "fuse", "plan", *scale.TIMINGS} <= set(report["seconds"])


@pytest.mark.slow
def test_worker_prints_one_json_report() -> None:
    command = [sys.executable, "-m", "benchmarks.worker", "pair", "call", "numpy", "1", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["numpy"]["median"] > 0
    assert found["roof"]["gflops"] > 0


SIMULATED = """
import benchmarks.gpu as gpu
gpu.COPY_BYTES, gpu.PEERS = 1 << 12, ()
gpu.main(["--small", "-c", "cal*", "--seconds", "0.01", "--output", "found.json"])
"""


@pytest.mark.slow
def test_a_benchmark_of_a_gpu_in_the_simulator(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda")
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    own = found["results"]["call"]["graphc"]
    assert own["call"] > 0 and own["device"] > 0 and found["copy"] > 0
    assert "| call |" in (tmp_path / "found.md").read_text()


@pytest.mark.parametrize("name", few(gpu_cases.CASES, 12))
def test_a_case_for_gpus_has_kernels(name: str) -> None:
    case = gpu_cases.CASES[name]
    specs = tuple(gc.spec(o.shape, o.dtype) for o in case.operands)
    assert launches_of(gpu.program(case), specs, "cuda:sm_90")


def test_operands_for_gpus_have_their_numbers() -> None:
    made = gpu_cases.host_array(gpu_cases.spread(1 << 12))
    assert made.dtype == np.float32 and len(np.unique(made)) == 1 << 12
    assert gpu_cases.host_array(gpu_cases.integers(7, 3, 100)).max() == 6
    assert gpu_cases.host_array(gpu_cases.bf16(3)).dtype.name == "bfloat16"


# In a process of its own: what other tests leave may be freed while this one counts.
COUNTED = """
import numpy as np
from benchmarks import memory

held = []

def run():
    if not held:
        held.append(np.ones(4 << 20))
    return np.ones(2 << 20)

start = memory.Watch()
run()
first, then = start.peak(), memory.later(run, start)
print(first, then["warm"], then["kept"])
"""


def test_memory_of_a_first_and_of_a_later_call() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [float(mib) for mib in done.stdout.split()] == pytest.approx([48, 16, 32], abs=3)


def test_memory_that_graphc_holds() -> None:
    for name in ("mlp-128", "train-mlp"):
        run = peers.prepare("graphc", CASES[name], worker.fresh_arguments(CASES[name]), 1)
        held = peers.own_memory(run)
        assert 0.2 < held["arena"] < 4 and 0 <= held["packed"] < 1
    assert peers.own_memory(peers.prepare("numpy", CASES["call"], (), 1)) == {}


def test_a_case_that_needs_more_memory_than_numpy_is_named() -> None:
    def first(case: str, peer: str, **found: float) -> dict[str, object]:
        report = {"warm": {"memory": {"first": 50.0, **found}}}
        return {"action": "first", "case": case, "peer": peer, "report": report}

    results = [
        first("call", "graphc", warm=4.0, kept=60.0, arena=1.0, packed=9.0),
        first("call", "numpy", warm=3.0, kept=1.0),
        first("conv", "graphc", warm=4.0, kept=60.0, arena=1.0, packed=9.0),
        first("conv", "numpy", warm=4.0, kept=1.0),
        {"action": "first", "case": "lstm", "peer": "jax", "report": {"failed": "no"}},
    ]
    assert report.memory_above(results) == ["call needs 5.0 MiB, NumPy 4.0"]
    table = report.memory_table(results, ["graphc", "numpy"])
    assert list(table.columns[1].cells) == ["1.0, 9.0"] * 2
    assert list(table.columns[3].cells) == ["50 / 3.0 + 1.0", "50 / 4.0 + 1.0"]


def test_alternate_interleaves_equal_numbers_of_blocks() -> None:
    order: list[str] = []
    runs = {name: lambda name=name: order.append(name) for name in "ab"}
    samples = worker.alternate(runs, seconds=0)
    assert len(samples["a"]) == len(samples["b"]) >= 5


def test_difference_is_relative_to_the_largest_value() -> None:
    assert worker.difference(np.array([101.0, 0]), np.array([100.0, 0])) == pytest.approx(0.01)
    assert worker.difference(np.zeros(2), np.zeros(3)) == float("inf")


def test_roofline_measures_both_loops() -> None:
    rates = roofline.measure(1)
    assert rates["gflops"] > 1
    assert rates["gbytes"] > 0.1


def test_report_words() -> None:
    assert report.duration(0.00123) == "1.23 ms"
    assert report.duration(4.5e-8) == "0.0450 us"
    assert "2.00x" in report.times(2.0)
    planned = jobs(["call"], ["numpy", "jax"], [1, 2], first=True)
    assert [job["peer"] for job in planned if job["action"] == "first"] == [
        "graphc",
        "numpy",
        "jax",
    ]
    failed = [{"case": "call", "peer": "jax", "report": {"jax": {"failed": "no"}}}]
    assert report.failures(failed) == ["call, jax: no"]


@pytest.mark.slow
def test_digests_tell_kernels_apart_and_are_always_the_same() -> None:
    *cases, total = digests.lines("tanh(")
    assert [*cases, total] == list(digests.lines("tanh("))
    assert {case.partition(" ")[0] for case in cases} >= {"tanh(float32)", "tanh(complex64)"}
    cells = [cell for case in cases for cell in case.split()[1:]]
    assert "-" not in cells and len(set(cells)) == len(cells)


def test_workers_that_are_simulated_are_as_fast_as_their_links_let_them() -> None:
    """Without transfers as fast as there are workers, with slow links never faster than that, and
    the parts of a step are the whole."""
    passes = {rows: 1e-3 * rows for rows in at_scale.CHUNK_ROWS}
    links = {"none": Link(0.0, math.inf), "slow": Link(1e-4, 1e8), "slower": Link(1e-3, 1e7)}
    found = at_scale.results(at_scale.Costs(passes, passes, links))
    alone = found["none"][1].seconds
    assert alone == pytest.approx(at_scale.ROWS * at_scale.LAYERS * 2e-3)
    for workers in at_scale.WORKERS:
        times = [found[title][workers].seconds for title in links]
        assert times[0] == pytest.approx(alone / workers) and times == sorted(times)
        for way in (found[title][workers] for title in links):
            assert way.seconds == pytest.approx(way.work + way.bubble + way.summing)
            assert way.replicas * way.stages == workers
