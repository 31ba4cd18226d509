"""What messages between processes cost: python -m benchmarks.cluster [--json]
Training while workers are killed and stopped: python -m benchmarks.cluster --faults N

A value goes to and fro between two workers in a loop of the program, so that only links are timed;
beside them a copy of as many bytes in one process, and a step of three workers that does nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any

import numpy as np

import graphc as gc

TRIPS = 200


def seconds(call: Callable[[], Any], times: int) -> list[float]:
    """Of each of so many calls, in order of length."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return sorted(found)


def to_and_fro(value: Any) -> Any:
    """A value goes to the other task and back, TRIPS times."""

    def body(k: Any, x: Any) -> Any:
        with gc.device("/task:1"):
            x = np.abs(x)
        with gc.device("/task:0"):
            return np.negative(x)

    return gc.fori(0, TRIPS, body, value)


def at_home(value: Any) -> Any:
    """The same arithmetic without messages."""
    with gc.device("/task:0"):
        return gc.fori(0, TRIPS, lambda k, x: np.negative(np.abs(x)), value)


def message(devices: list[str], nbytes: int, times: int) -> dict[str, float]:
    """Microseconds of a message, and of a copy of its bytes in this process."""
    value = np.ones(nbytes // 4, np.float32)
    far, near = (gc.compile(f, devices=devices) for f in (to_and_fro, at_home))
    for run in (far, near):
        run(value)
    whole = median(seconds(lambda: far(value), times)) - median(seconds(lambda: near(value), times))
    target = np.empty_like(value)
    copy = median(seconds(lambda: np.copyto(target, value), 200))
    return {"message": 1e6 * whole / TRIPS / 2, "copy": 1e6 * copy}


def empty_step() -> dict[str, float]:
    """Microseconds of a step in which three workers take part and do next to nothing."""
    with gc.cluster.local(workers=3, threads=1) as cluster:

        @gc.compile(devices=cluster.devices)
        def step(x: Any) -> Any:
            made = []
            for task in range(3):
                with gc.device(f"/task:{task}"):
                    made.append(x + task)
            return made

        x = np.zeros(1, np.float32)
        step(x)
        found = seconds(lambda: step(x), 2000)
    return {"least": 1e6 * found[0], "median": 1e6 * median(found)}


STEPS, WIDTH = 50, 64


def trained(devices: list[str], home: str) -> Callable[[], float]:
    """A step of training of three layers, one on each device."""
    rng = np.random.default_rng(2)
    ws = [
        gc.Variable(rng.standard_normal((WIDTH, WIDTH)).astype("f4") / 8, f"w{k}", container=home)
        for k in range(3)
    ]
    batch = rng.standard_normal((32, WIDTH)).astype("f4")

    @gc.compile(devices=devices, threads=1)
    def step(x: Any) -> Any:
        def loss(ws: Any) -> Any:
            h = x
            for task, w in enumerate(ws):
                with gc.device(f"/task:{task}"):
                    h = np.tanh(h @ w)
            return (h * h).mean()

        value, gradients = gc.value_and_grad(loss)([w.value for w in ws])
        for w, gradient in zip(ws, gradients):
            w.assign_add(-0.1 * gradient)
        return value

    return lambda: float(step(batch))


def kill(pid: int, how: signal.Signals) -> None:
    """Send a signal to a worker, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def faults(count: int) -> dict[str, dict[str, float]]:
    """Kill or stop a worker at random moments of training; whether the weights are those of calm
    training, and the seconds that a disturbed step took."""
    alone = [f"/job:alone/task:{task}/device:cpu:0" for task in range(3)]
    rng, runs, last = np.random.default_rng(3), 0, signal.SIGKILL
    took: dict[str, list[float]] = {"SIGKILL": [], "SIGSTOP": []}
    with gc.cluster.local(workers=3, threads=1, retries=9) as cluster:
        while cluster.restarts < count:
            calm = trained(alone, f"calm{runs}")
            wanted = [calm() for _ in range(STEPS)]
            step, found = trained(cluster.devices, f"stormy{runs}"), []
            for _ in range(STEPS):
                if rng.random() < 0.3:
                    last = signal.SIGSTOP if rng.random() < 0.1 else signal.SIGKILL
                    victim = cluster.pids[rng.integers(3)]
                    threading.Timer(rng.random() * 4e-3, kill, (victim, last)).start()
                before, begin = cluster.restarts, time.perf_counter()
                found.append(step())
                if cluster.restarts > before:
                    took[last.name].append(time.perf_counter() - begin)
            assert found == wanted, "the losses differ"
            names = gc.variables(f"calm{runs}")
            others = gc.variables(f"stormy{runs}")
            assert all(np.array_equal(names[n].value, others[n].value) for n in names)
            gc.reset_container(f"calm{runs}")
            gc.reset_container(f"stormy{runs}")
            runs += 1
    return {
        name: {"faults": len(t), "median s": median(t), "most s": max(t)}
        for name, t in took.items()
        if t
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    if "--faults" in sys.argv:
        print(json.dumps(faults(int(sys.argv[sys.argv.index("--faults") + 1])), indent=1))
        return
    with gc.cluster.local(workers=2, threads=1) as cluster:
        found = {
            "4 bytes": message(cluster.devices, 4, 30),
            "4 MB": message(cluster.devices, 4 << 20, 5),
        }
    found["empty step of 3 workers"] = empty_step()
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for title, row in found.items():
        print(f"{title:26}", *(f"{name} {value:8.1f} us" for name, value in row.items()))


if __name__ == "__main__":
    main()
