"""One measurement in a fresh process; prints one line of JSON.

python -m benchmarks.worker pair  CASE PEER THREADS SECONDS     graphc and the peer, in turn
python -m benchmarks.worker first CASE PEER THREADS             import, first call, memory
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

BLOCK = 0.02  # seconds: a block of calls long enough for the clock, short enough to interleave
Clock = Callable[[], float]
REST = 0.1  # seconds; OpenBLAS and ONNX Runtime spin for some tens of milliseconds


def limit_threads(threads: int) -> None:
    """Pin the process to as many processors as threads: the one limit that every library obeys."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:threads])


def calls_per_block(run: Callable[[], Any], clock: Clock) -> int:
    count = 1
    while True:
        seconds = timed(run, count, clock)
        if seconds > BLOCK / 4 or count >= 1 << 20:
            return max(1, min(1 << 20, round(count * BLOCK / max(seconds, 1e-9))))
        count *= 4


def timed(run: Callable[[], Any], count: int, clock: Clock) -> float:
    start = clock()
    for _ in range(count):
        run()
    return clock() - start


def alternate(
    runs: dict[str, Callable[[], Any]], seconds: float, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds per call of each block: the runs take turns, and the order flips every round.

    Before every turn the process rests until the other library's threads have stopped spinning
    for more work, which would otherwise take a processor from whoever comes next; one call wakes
    its own.
    """
    counts = {name: calls_per_block(run, clock) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    start = time.perf_counter()
    rounds = 0
    while rounds < 5 or (time.perf_counter() - start < seconds and rounds < 200):
        for name in order:
            time.sleep(REST)
            runs[name]()
            samples[name].append(timed(runs[name], counts[name], clock) / counts[name])
        order.reverse()
        rounds += 1
    return samples


def difference(a: Any, b: Any) -> float:
    """Largest absolute difference, relative to the largest magnitude of `b`."""
    import numpy as np

    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype(np.float64) - b).max() / max(float(np.abs(b).max()), 1e-30))


def summary(samples: list[float]) -> dict[str, float]:
    low, _, high = statistics.quantiles(samples, n=4)
    return {"median": statistics.median(samples), "low": low, "high": high}


def fresh_arguments(case: Any) -> tuple[Any, ...]:
    """The same numbers every time, in memory of their own: a training step overwrites them."""
    import numpy as np

    arguments: tuple[Any, ...] = case.arguments(np.random.default_rng(0))
    return arguments


def pair(name: str, peer: str, threads: int, seconds: float) -> dict[str, Any]:
    """Time graphc (where it is there) and one peer; NumPy's result is the judge of both.

    Training steps, which NumPy has not, judge each other: the peer, which runs first, is right.
    """
    from benchmarks import peers, roofline
    from benchmarks.suite import CASES

    case = CASES[name]
    judge = peer if case.function is None else "numpy"
    expected = None if case.function is None else [case.function(*fresh_arguments(case))]
    report: dict[str, Any] = {"roof": roofline.measure(threads)}
    runs: dict[str, Callable[[], Any]] = {}
    for each in dict.fromkeys((peer, "graphc")):
        try:
            run = peers.prepare(each, case, fresh_arguments(case), threads)
            found = peers.outcome(run)
        except Exception as problem:  # noqa: BLE001 - any failure of a peer is a result to report
            report[each] = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
            continue
        expected = expected or found
        error = max(map(difference, found, expected))
        report[each] = {"error": error}
        if error <= case.tolerance:
            runs[each] = run
        else:
            report[each]["failed"] = f"differs from {judge} by {error:.1e}"
    samples = alternate(runs, seconds)
    for each, values in samples.items():
        report[each] |= summary(values)
    if len(samples) == 2:
        ratios = [other / own for own, other in zip(samples["graphc"], samples[peer])]
        report["ratio"] = statistics.median(ratios)
    return report


def first(name: str, peer: str, threads: int) -> dict[str, Any]:
    """Milliseconds of import, preparation plus first call, and second call; MiB of memory."""
    from benchmarks import memory, peers
    from benchmarks.suite import CASES

    case = CASES[name]
    arguments = fresh_arguments(case)
    marks = [time.perf_counter()]
    __import__(peer.split(".")[0])
    marks.append(time.perf_counter())
    watch = memory.Watch()
    begin = time.perf_counter()
    try:
        run = peers.prepare(peer, case, arguments, threads)
        run()
    except Exception as problem:  # noqa: BLE001 - any failure of a peer is a result to report
        return {"failed": f"{type(problem).__name__}: {problem}"[:300]}
    marks.append(time.perf_counter() - begin + marks[-1])
    peak = watch.peak()
    begin = time.perf_counter()
    run()
    marks.append(time.perf_counter() - begin + marks[-1])
    names = ("import", "first", "second")
    times = {n: 1e3 * (b - a) for n, a, b in zip(names, marks, marks[1:])}
    return times | {"memory": {"first": peak} | memory.later(run, watch) | peers.own_memory(run)}


def main(action: str, name: str, peer: str, threads: str, seconds: str = "1") -> None:
    limit_threads(int(threads))
    if action == "pair":
        report = pair(name, peer, int(threads), float(seconds))
    else:
        report = first(name, peer, int(threads))
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
