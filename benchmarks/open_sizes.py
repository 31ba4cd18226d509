"""One compilation for all sizes beside one for each: the price of leaving sizes open.

    python -m benchmarks.open_sizes                       every case, one thread
    python -m benchmarks.open_sizes --threads 2 -c mlp    one case, two threads

Each case has eight sizes.  One function is compiled with these open, another one exactly for each
of them, and calls of both are timed in turn; a cell is the median of the ratios, above 1 where the
open one takes longer.  One thread counts its CPU time, more count the clock.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

import graphc as gc
from benchmarks import cases
from graphc.base.garbage_collection import collector_paused

ROUNDS, TURN = 15, 0.004  # pairs of a cell, least seconds of a turn
Sizes = tuple[int, ...]


class Case(NamedTuple):
    """A function of an array whose extents are open, and of arrays that stay as they are."""

    function: Callable[..., Any]
    open: tuple[Any, ...]  # the first argument's extents: names of what is open, numbers
    sizes: Sequence[Sizes]  # what the names stand for, eight times
    rest: Callable[[np.random.Generator], tuple[Any, ...]] = lambda rng: ()
    first: Callable[[np.random.Generator, Sizes], tuple[Any, ...]] | None = None

    def arguments(self, sizes: Sizes, rest: tuple[Any, ...]) -> tuple[Any, ...]:
        rng = np.random.default_rng(1)
        if self.first is not None:
            return *self.first(rng, sizes), *rest
        given = iter(sizes)
        shape = (next(given) if isinstance(d, str) else d for d in self.open)
        return cases.normal(rng, *shape), *rest


def recurrent(x: Any, p: Any) -> Any:
    """An LSTM over as many steps as there are."""
    zeros = np.zeros((x.shape[1], cases.HIDDEN), np.float32)

    def step(state: Any, row: Any) -> Any:
        h, c = state
        gates = row @ p["wx"] + h @ p["wh"] + p["b"]
        i, f, g, o = (gates[:, k * cases.HIDDEN : (k + 1) * cases.HIDDEN] for k in range(4))
        c = cases.sigmoid(f) * c + cases.sigmoid(i) * np.tanh(g)
        h = cases.sigmoid(o) * np.tanh(c)
        return (h, c), h

    return gc.scan(step, (zeros, zeros), x)[1]


def convnet(x: Any, p: Any) -> Any:
    """A stem, a pool, a separable convolution, one in steps of two, and a mean."""
    x = np.maximum(gc.conv(x, p["stem"], padding=1), 0)
    x = gc.max_pool(x, 2, 2)
    x = np.maximum(gc.conv(x, p["depth"], padding=1, groups=32), 0)
    x = np.maximum(gc.conv(x, p["point"]), 0)
    x = np.maximum(gc.conv(x, p["down"], stride=2, padding=1), 0)
    return x.mean(axis=(2, 3)) @ p["head"]


def filters(rng: np.random.Generator) -> tuple[Any, ...]:
    shapes = {"stem": (32, 3, 3, 3), "depth": (32, 1, 3, 3), "point": (64, 32, 1, 1)}
    shapes |= {"down": (64, 64, 3, 3)}
    made = {name: cases.normal(rng, *s, scale=0.1) for name, s in shapes.items()}
    return ({**made, "head": cases.dense(rng, 64, 10)},)


def words(rng: np.random.Generator, sizes: Sizes) -> tuple[Any, ...]:
    return rng.integers(1000, 30000, sizes).astype(np.int32), np.ones(sizes, np.float32)


def images(function: Callable[..., Any], rest: Any = lambda rng: (), channels: int = 32) -> Case:
    return Case(function, ("b", channels, "h", "w"), IMAGES, rest)


def weight(*shape: int) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: (cases.normal(rng, *shape, scale=0.1),)


BATCHES = [(n,) for n in (1, 2, 5, 16, 33, 64, 100, 256)]
TEXTS = [(1, 9), (1, 32), (2, 17), (3, 40), (4, 24), (1, 128), (2, 64), (5, 50)]
IMAGES = [
    (1, 16, 16),
    (1, 32, 32),
    (2, 20, 28),
    (1, 56, 56),
    (3, 33, 47),
    (8, 16, 24),
    (1, 97, 64),
    (4, 64, 64),
]
LONG_ROWS = [(4000, n) for n in (17, 40, 64, 100, 192, 384, 768, 1000)]
SHORT_ROWS = [(20000, n) for n in (2, 3, 4, 5, 6, 7, 8, 12)]

CASES = {
    "mlp": Case(cases.mlp, ("b", 784), BATCHES, lambda rng: cases.mlp_arguments(1)(rng)[1:]),
    "transformer": Case(
        cases.transformer,
        ("b", "t", 512),
        TEXTS,
        lambda rng: (cases.transformer_parameters(rng, 512, 2048),),
    ),
    "minilm": Case(
        cases.encoder(gc.erf), ("b", "t"), TEXTS, lambda rng: (cases.random_minilm(rng),), words
    ),
    "convnet": images(convnet, filters, 3),
    "lstm": Case(
        recurrent,
        ("t", "b", cases.HIDDEN),
        [(5, 1), (35, 1), (7, 4), (20, 8), (35, 20), (12, 33), (3, 64), (64, 2)],
        lambda rng: cases.lstm_arguments(rng)[1:],
    ),
    "softmax": Case(cases.softmax, ("n", "m"), LONG_ROWS),
    "short-softmax": Case(cases.softmax, ("n", "m"), SHORT_ROWS),
    "short-norm": Case(
        lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1),
        ("n", "m"),
        SHORT_ROWS,
    ),
    "short-sum": Case(lambda x: x.sum(-1), ("n", "m"), SHORT_ROWS),
    "conv-3x3": images(lambda x, w: gc.conv(x, w, padding=1), weight(32, 32, 3, 3)),
    "conv-5x5": images(lambda x, w: gc.conv(x, w, padding=2), weight(32, 32, 5, 5)),
    "depthwise": images(lambda x, w: gc.conv(x, w, padding=1, groups=32), weight(32, 1, 3, 3)),
    "depthwise-2": images(
        lambda x, w: gc.conv(x, w, stride=2, padding=1, groups=32), weight(32, 1, 3, 3)
    ),
    "max-pool": images(lambda x: gc.max_pool(x, 2, 2)),
    "max-pool-3": images(lambda x: gc.max_pool(x, 3, 2)),
    "mean-pool": images(lambda x: gc.avg_pool(x, 2, 2)),
}


def timed(call: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    with collector_paused():
        began = clock()
        for _ in range(count):
            call()
        return clock() - began


def ratio(ours: Callable[[], object], yardstick: Callable[[], object], threads: int) -> float:
    """The median ratio of turns."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    for call in (ours, yardstick, ours, yardstick):
        call()
    count = max(1, math.ceil(TURN / max(timed(yardstick, 1, clock), 1e-7)))
    pairs = []
    for turn in range(ROUNDS):
        order = (ours, yardstick) if turn % 2 else (yardstick, ours)
        first, second = (timed(call, count, clock) for call in order)
        pairs.append(first / second if turn % 2 else second / first)
    return statistics.median(pairs)


def row(case: Case, threads: int) -> tuple[list[float], int]:
    """The ratio for each size, and how many compilations served them all."""
    rest = case.rest(np.random.default_rng(0))
    given = [case.arguments(sizes, rest) for sizes in case.sizes]
    names = list(signature(case.function).parameters)[: len(given[0]) - len(rest)]
    ours = gc.compile(case.function, sizes=dict.fromkeys(names, case.open), threads=threads)
    exact = gc.compile(case.function, sizes="exact", threads=threads)
    found = []
    for arguments in given:
        np.testing.assert_allclose(ours(*arguments), exact(*arguments), rtol=1e-3, atol=1e-4)
        found.append(ratio(partial(ours, *arguments), partial(exact, *arguments), threads))
    return found, len(ours.compiles)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-c", "--cases", default=",".join(CASES))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print("| | open over exact, by sizes | compilations | mean | most |")
    print("|---|---|---|---|---|")
    for name in options.cases.split(","):
        found, compilations = row(CASES[name], options.threads)
        cells = " ".join(
            f"{'x'.join(map(str, s))}: {r:.2f}"
            for s, r in zip(CASES[name].sizes, found, strict=True)
        )
        mean = statistics.geometric_mean(found)
        print(f"| {name} | {cells} | {compilations} | {mean:.3f} | {max(found):.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
