"""First calls in a running process: `python -m benchmarks.first_calls [CASE ...] [--peers ...]`.

Each is made by a fresh process with an empty cache that has compiled something else before: what
is timed is preparation and first call, not the import.  `graphc tiered` answers by the interpreter
while a thread compiles (`gc.compile(f, tiered=True)`); how long that thread takes is told beside.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.__main__ import ROOT, environment

CHOSEN = """
    gemm-64 gemm-256 gemm-1024 mlp-1 mlp-128 softmax layernorm pointwise tree lstm conv transformer
"""
PEERS = ("graphc", "graphc tiered", "jax")


def one(name: str, peer: str) -> dict[str, float]:
    """Milliseconds of the first call of a case in this process, and until its code is there."""
    from benchmarks import peers, worker
    from benchmarks.suite import CASES
    from graphc.frontend.compile.making import Making

    worker.limit_threads(1)
    case = CASES[name]
    arguments = worker.fresh_arguments(case)
    _warm(peer)
    start = time.perf_counter()
    run = _tiered(case, arguments) if peer == "graphc tiered" else None
    (run or peers.prepare(peer, case, arguments, 1))()
    first = time.perf_counter() - start
    for thread in threading.enumerate():
        if isinstance(thread, Making):
            thread.join()
    return {"first": 1e3 * first, "compiled": 1e3 * (time.perf_counter() - start)}


def _warm(peer: str) -> None:
    """Compile something else."""
    x = np.ones(100, np.float32)
    if peer == "jax":
        import jax

        jax.jit(lambda x: jax.numpy.exp(x) + 1)(x).block_until_ready()
    elif peer.startswith("graphc"):
        import graphc as gc

        gc.compile(lambda x: np.exp(x) + 1)(x)


def _tiered(case: Any, arguments: tuple[Any, ...]) -> functools.partial[Any]:
    import graphc as gc

    function: Callable[..., Any] = case.native(gc) if case.native else case.function
    return functools.partial(gc.compile(function, threads=1, tiered=True), *arguments)


def measured(name: str, peer: str, times: int) -> dict[str, float]:
    """Medians of several fresh processes."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "benchmarks.first_calls", "--one", name, peer]
            done = subprocess.run(
                command, cwd=ROOT, env=environment(1, cache), capture_output=True, text=True
            )
        if done.returncode:
            raise SystemExit(f"{name}, {peer}: {done.stderr.strip()}")
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=CHOSEN.split())
    parser.add_argument("--peers", default=",".join(PEERS), help="of graphc, graphc tiered, jax")
    parser.add_argument("--times", type=int, default=3, help="processes for each figure")
    parser.add_argument("--one", action="store_true", help="CASE PEER: of this process, as JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(one(*options.cases)))
        return
    names = options.peers.split(",")
    print("ms, one thread | " + " | ".join(names) + "\n" + "---|" * (1 + len(names)))
    for case in options.cases:
        cells = []
        for name in names:
            found = measured(case, name, options.times)
            later = f" ({found['compiled']:.0f})" if name == "graphc tiered" else ""
            cells.append(f"{found['first']:.1f}{later}")
        print(f"{case} | " + " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
