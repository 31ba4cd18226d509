"""What several devices of one process gain and cost: two branches side by side, messages.

python -m benchmarks.devices

Rates are printed beside what the same machine does without messages in the same minute: one device,
and a copy loop.  On a busy machine the fastest of many calls counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc
from graphc.runtime.call.execute import Executable
from graphc.runtime.observe.trace import trace

HERE, THERE = "cpu:0", "cpu:1"
HOPS = 32


def executable(
    function: Callable[..., Any], arguments: list[Any], devices: list[str]
) -> Executable:
    compiled = gc.compile(function, devices=devices, threads=1, soft_placement=True)
    found: Executable = compiled.executable(*arguments)
    return found


def fastest(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The best time of each call; they take turns, so that they see the same machine."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for k, call in enumerate(calls):
            started = time.perf_counter()
            call()
            best[k] = min(best[k], time.perf_counter() - started)
    return best


# ------------------------------------------------------------------------------------ branches


def branches(x: Any, left: Any, right: Any) -> Any:
    """Two equal chains of eight products."""
    ends = []
    for device, w in ((HERE, left), (THERE, right)):
        with gc.device(device):
            y = x
            for _ in range(8):
                y = np.tanh(y @ w)
            ends.append(y)
    with gc.device(HERE):
        return ends[0] + ends[1]


def speedup(size: int, seconds: float) -> tuple[float, float]:
    """Seconds of two branches on one device and on two, one thread each."""
    draw = np.random.default_rng(0)
    arrays = [(draw.standard_normal((size, size)) / size**0.5).astype("f4") for _ in range(3)]
    one = executable(branches, arrays, [HERE])
    two = executable(branches, arrays, [HERE, THERE])
    for a, b in zip(one.run(arrays), two.run(arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    alone, both = fastest([lambda: one(*arrays), lambda: two(*arrays)], seconds)
    return alone, both


# ------------------------------------------------------------------------------------ messages


def relay(x: Any) -> Any:
    """A value that goes to the other device and back, again and again."""
    for _ in range(HOPS):
        with gc.device(THERE):
            x = np.tanh(x)
        with gc.device(HERE):
            x = np.tanh(x)
    return x


def latency(count: int, seconds: float) -> float:
    """Seconds from the start of sending `count` f32 to the end of receiving, the fastest run's
    mean.
    """
    x = np.linspace(-1, 1, count, dtype="f4")
    two = executable(relay, [x], [HERE, THERE])
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        _, found = trace(two, [x], room=1024)
        sent = {e.name: e.start for e in found.events if e.kind == "send"}
        taken = [(e.name, e.end) for e in found.events if e.kind == "transfer"]
        best = min(best, sum(at - sent[name] for name, at in taken) / len(taken))
    return best


def bandwidth(nbytes: int, rounds: int = 12) -> tuple[float, float]:
    """Bytes per second of one message, and of a copy between two arrays."""
    x = np.ones(nbytes // 4, "f4")
    two = executable(relay, [x], [HERE, THERE])
    moved, copied = float("inf"), float("inf")
    target = np.empty_like(x)
    for _ in range(rounds):
        _, found = trace(two, [x])
        moved = min(moved, *(e.seconds for e in found.events if e.kind == "transfer"))
        started = time.perf_counter()
        np.copyto(target, x)
        copied = min(copied, time.perf_counter() - started)
    return nbytes / moved, nbytes / copied


def main() -> None:
    for size in (256, 512):
        alone, both = speedup(size, 6.0)
        print(
            f"two chains of eight {size}^3 products: one device {alone * 1e3:7.2f} ms, "
            f"two {both * 1e3:7.2f} ms, {alone / both:.2f} x"
        )
    for count in (1, 16, 256, 4096):
        print(f"message of {4 * count:6} bytes: {latency(count, 1.0) * 1e6:6.2f} us")
    for megabytes in (1, 16):
        moved, copied = bandwidth(megabytes << 20)
        rates = f"{moved / 1e9:6.1f} GB/s, a copy {copied / 1e9:6.1f} GB/s"
        print(f"message of {megabytes:3} MiB: {rates}")


if __name__ == "__main__":
    main()
