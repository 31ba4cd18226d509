"""A transformer trained in stages on two CPUs beside one core alone.

python -m benchmarks.two_cpus

On a machine that others use, no clock on the wall says what two cores gain.  So every kernel is
timed by what the processor spends on its thread, in the order of the pipeline's own rows, and each
device is given a clock that goes on by these times and by the messages it waits for.  Pairs of
real steps stand beside that: they are the same where two cores are free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import numpy as np

import graphc as gc
from graphc import nn, parallel
from graphc.frontend.trace.tree import flatten
from graphc.runtime.call.execute import Executable
from graphc.runtime.load.table import WAIT
from graphc.runtime.observe.replay import Device, run_steps

LAYERS, WIDTH, HEADS, WORDS, LENGTH, ROWS = 12, 256, 4, 512, 64, 32
TWO = ["cpu:0", "cpu:1"]
TIMES = 3  # of which the fastest counts, kernel by kernel


def transformer(layers: int) -> tuple[Callable[[Any, Any], Any], Any]:
    """A loss of (params, batch of words), and parameters."""
    attention = nn.MultiHeadAttention(WIDTH, HEADS)
    draw = np.random.default_rng(0)

    def matrix(*shape: int) -> Any:
        return (draw.standard_normal(shape) * 0.05).astype(np.float32)

    def loss(params: Any, batch: Any) -> Any:
        h = params["words"][batch]
        for layer in params["layers"]:
            h = h + attention(layer["attention"], gc.layer_norm(h))
            h = h + nn.gelu(gc.layer_norm(h) @ layer["up"]) @ layer["down"]
        return gc.cross_entropy((h @ params["head"]).reshape(-1, WORDS), batch.reshape(-1))

    def layer(number: int) -> Any:
        made = attention.init(gc.random.key(number))
        return {"attention": made, "up": matrix(WIDTH, 4 * WIDTH), "down": matrix(4 * WIDTH, WIDTH)}

    params = {"words": matrix(WORDS, WIDTH), "head": matrix(WIDTH, WORDS)}
    return loss, params | {"layers": [layer(k) for k in range(layers)]}


class Clocked(Device):
    """A device with a clock of its own, in seconds of its kernels, copies and waits."""

    def __init__(
        self, took: dict[tuple[int, int], float], sent: dict[int, float], *given: Any
    ) -> None:
        """`took` has the least for each device and row, `sent` when each message was there."""
        super().__init__(*given)
        self.took, self.sent = took, sent
        self.clock = self.idle = 0.0

    def call(self, row: int, addresses: tuple[int, ...]) -> None:
        started = time.thread_time()
        super().call(row, addresses)
        key, spent = (self.number, row), time.thread_time() - started
        self.took[key] = min(spent, self.took.get(key, spent))
        self.clock += self.took[key]

    def send(self, row: int, address: int) -> None:
        super().send(row, address)
        self.sent[self.words[row + 3]] = self.clock

    def receive(self, row: int, address: int) -> None:
        late = max(0.0, self.sent[self.words[row + 3]] - self.clock)
        self.idle += late
        self.clock += late
        super().receive(row, address)

    def next_step(self) -> tuple[float, int]:
        """When the next row can begin, and which it is."""
        if self.row is None:
            return min(
                (self._since(self.begun_by.get(s, -1)), self.starts[s]) for s in self._able()
            )
        waits = self.words[self.row] == WAIT
        return self._since(self.words[self.row + 3] if waits else -1), self.row

    def _able(self) -> list[int]:
        return [s for s in self.open if self.begun_by.get(s, -1) in (-1, *self.mail)]

    def _since(self, channel: int) -> float:
        return max(self.clock, self.sent.get(channel, 0.0))


def first(devices: list[Device]) -> tuple[int, int]:
    """The device whose next row begins first, and that row."""
    able = [each for each in devices if each.may_step() and isinstance(each, Clocked)]
    (_, row), number = min((each.next_step(), each.number) for each in able)
    return number, row


def clocked(executable: Executable, arrays: Sequence[Any], times: int = TIMES) -> list[Clocked]:
    """The devices after a run of an executable in which each had a core for itself."""
    took: dict[tuple[int, int], float] = {}
    for _ in range(times):
        sent: dict[int, float] = {}
        made: list[Clocked] = []
        ends, _ = run_steps(executable, arrays, first, partial(_known, made, took, sent))
        if isinstance(ends, Exception):
            raise ends
    return made


def _known(made: list[Clocked], took: Any, sent: Any, *given: Any) -> Clocked:
    """A device of one run, which shares what is known with the others."""
    made.append(Clocked(took, sent, *given))
    return made[-1]


def pairs(one: Callable[[], Any], other: Callable[[], Any], count: int) -> np.ndarray:
    """Seconds on the wall and of all cores, of both in turn: [pair, which, clock]."""

    def seconds(call: Callable[[], Any]) -> tuple[float, float]:
        started = time.perf_counter(), time.process_time()
        call()
        return time.perf_counter() - started[0], time.process_time() - started[1]

    seconds(one), seconds(other)
    return np.array([(seconds(one), seconds(other)) for _ in range(count)])


def report(schedule: str, layers: int, chunks: int, steps: int) -> None:
    loss, params = transformer(layers)
    batch = np.random.default_rng(1).integers(0, WORDS, (ROWS, LENGTH))
    arrays = [np.asarray(leaf) for leaf in flatten((params, batch))[0]]
    piped = parallel.pipeline(loss, TWO, chunks, schedule, checkpoint="never")
    one = gc.compile(gc.value_and_grad(loss), threads=1)
    two = gc.compile(piped, devices=TWO, threads=1)
    alone = clocked(one.executable(params, batch), arrays)[0].clock
    ran = clocked(two.executable(params, batch), arrays)
    whole = max(each.clock for each in ran)
    work = sum(each.clock - each.idle for each in ran)
    programs = [fn.executable(params, batch).image for fn in (one, two)]
    kept = [image.arena_bytes for program in programs for image in program.images]
    print(f"{schedule}: {layers} layers, {chunks} chunks")
    print(f"  one core {alone:.4f} s, two {whole:.4f} s: {alone / whole:.2f} times as fast")
    print(
        f"  work {work / alone:.3f} of one core's; idle {[round(e.idle / whole, 3) for e in ran]}"
    )
    print(f"  bytes of a device: {', '.join(f'{n / kept[0]:.0%}' for n in kept[1:])} of unpiped")
    print(f"  the cost model had {piped.planned.prediction.makespan:.4f} s")  # type: ignore[union-attr]
    found = pairs(lambda: one(params, batch), lambda: two(params, batch), steps)
    (walls, other_walls), cores = found[:, :, 0].T, found[:, :, 1].min(axis=0)
    print(f"  native steps take {cores[0]:.4f} s and {cores[1]:.4f} s of all cores,", end=" ")
    print(f"{cores[0] / alone - 1:+.1%} and {cores[1] / work - 1:+.1%} beside the kernels clocked")
    ratios = ", ".join(f"{ratio:.2f}" for ratio in walls / other_walls)
    print(f"  on the wall {walls.min():.4f} s and {other_walls.min():.4f} s; pairs {ratios}")


@click.command()
@click.option("--layers", default=LAYERS, show_default=True)
@click.option("--chunks", default=8, show_default=True)
@click.option("--steps", default=10, show_default=True, help="Pairs of steps.")
def main(layers: int, chunks: int, steps: int) -> None:
    for schedule in ("1f1b", "zb-h1"):
        report(schedule, layers, chunks, steps)


if __name__ == "__main__":
    main()
