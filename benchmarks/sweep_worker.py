"""One participant of the sweep, in a process of its own: takes orders as lines of JSON.

python -m benchmarks.sweep_worker PEER THREADS

    {"do": "prepare", "case": NAME, "file": PATH}   run the case once, save a sample of its result
    {"do": "time", "seconds": S}                    run it for so long; seconds a call
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

from benchmarks.worker import limit_threads

SAMPLE = 65_536  # elements of a result that are compared


class Participant:
    """The case that is ready, and how many calls make a block."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        # One thread: the time that the process computes, whatever else the machine does meanwhile.
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.run: Callable[[], Any] = lambda: None

    def prepare(self, case: str, file: str) -> dict[str, Any]:
        import numpy as np

        from benchmarks import sweep_peers
        from benchmarks.sweep_table import CASES

        self.run = lambda: None  # lets go of the last case before this one takes memory
        chosen = CASES[case]
        rng = np.random.default_rng(zlib.crc32(case.encode()))
        arguments = chosen.arguments(rng)
        try:
            self.run = sweep_peers.prepare(self.peer, chosen, arguments, self.threads)
            result = sweep_peers.fetch(self.run())
        except sweep_peers.Unavailable as reason:
            return {"absent": str(reason)}
        np.save(file, sample(result, chosen.judge))
        self.run()
        return {"shape": list(result.shape), "bytes": size(arguments) + result.nbytes}

    def time(self, seconds: float) -> dict[str, Any]:
        """Seconds of a call, over as many as fill a block; a call before it fills the caches."""
        self.run()
        count, clock, run = 1, self.clock, self.run
        while True:
            start = clock()
            for _ in range(count):
                run()
            taken = clock() - start
            if taken > seconds / 2 or count >= 1 << 20:
                return {"seconds": taken / count}
            count = max(2 * count, min(8 * count, int(count * seconds / max(taken, 1e-7))))


def sample(result: Any, judge: str) -> Any:
    """What is compared: the same elements for everybody, or the moments of random numbers."""
    import numpy as np

    flat = np.ascontiguousarray(result).reshape(-1)
    if judge == "moments":
        return np.array([flat.mean(), flat.std()], np.float64)
    if flat.size <= SAMPLE:
        return flat
    return flat[np.random.default_rng(0).integers(0, flat.size, SAMPLE)]


def size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(size, value))
    return int(getattr(value, "nbytes", 8))


def main(peer: str, threads: str) -> None:
    limit_threads(int(threads))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    participant = Participant(peer, int(threads))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(participant, order.pop("do"))(**order)
        except Exception as problem:  # noqa: BLE001 - any failure of a peer is a result to report
            answer = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
