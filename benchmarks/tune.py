"""`make tune`: every tuned number again, at a few neighbours; where another value is faster.

    python -m benchmarks.tune                        a table of what would be chosen otherwise
    python -m benchmarks.tune codegen.tile --json    numbers whose names begin so, a line for each

The case of a number is compiled with the value of today and with each neighbour: half, twice, and
the ends of its range if these are nearer. Where nothing that runs differs, nothing is timed.
Otherwise the two take turns, and the median of their ratios counts; a gain is believed if it comes
twice.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import graphc as gc
from benchmarks.suite import CASES as SUITE
from graphc import tuning
from graphc.tuning import Number

TURNS = 9
BLOCK = 0.01  # seconds of calls between two looks at the clock
IN_PROCESS = ("runtime.", "native.")  # what has to be there when graphc is imported
# Cases without a time of calls to judge by, and why.
UNTIMED = {
    "gpu": "needs a GPU",
    "compile": "compile time, which `make gates` watches",
    "placement": "how good a placement is, which `python -m benchmarks.placement` shows",
    "compression": "bytes saved, which `python -m benchmarks.compression` shows",
    "memory-limit": "memory, by the tests of limits",
    "variables": "waiting for other threads",
    "interrupt": "how soon Ctrl-C is heard, which the tests of interrupts show",
}
Run = Callable[[], object]
F4 = np.float32


class Judge(NamedTuple):
    """A function, arguments, and options of the compilation."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    devices: tuple[str, ...] = ()
    precision: str = "f32"
    sizes: dict[str, tuple[str, ...]] | None = None
    threads: int | None = None


def normal(*dims: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=dims).astype(F4)


def whole_numbers(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 1 << 60, count)


def wide(side: int, channels: int, groups: int = 1, window: int = 3) -> Judge:
    x, w = normal(4, channels, side, side), normal(channels, channels // groups, window, window)
    pad = window // 2
    return Judge(lambda x, w: gc.conv(x, w, padding=pad, groups=groups), (x, w))


def dilated(*rows: tuple[int, int, int]) -> Judge:
    """Convolutions by constants, windows of 3 x 3 that reach far beyond the image: channels, side
    and dilation."""
    images = [normal(1, channels, side, side) for channels, side, _ in rows]
    weights = [normal(channels, channels, 3, 3) for channels, _, _ in rows]

    def each(images: list[Any]) -> list[Any]:
        layers = zip(images, weights, rows)
        return [gc.conv(x, w, padding=gap, dilation=gap) for x, w, (_, _, gap) in layers]

    return Judge(each, (images,))


def layers(*rows: tuple[int, int, int, int], finish: bool = True) -> Judge:
    """Convolutions by constants, which are packed ahead: channels in and out, side, window; an
    epilogue `finish`es each."""
    weights = [normal(out, given, window, window) for given, out, _, window in rows]

    def each(images: list[Any]) -> list[Any]:
        made = [gc.conv(x, w, padding=w.shape[-1] // 2) for x, w in zip(images, weights)]
        return [np.maximum(y, 0) for y in made] if finish else made

    return Judge(each, ([normal(1, given, side, side) for given, _, side, _ in rows],))


def layers_of_bytes(*rows: tuple[int, int, int]) -> Judge:
    """The same of quantised numbers: channels in and out, side of images whose pixels are alone."""
    weights = [np.tanh(normal(out, given, 1, 1)) * 120 for given, out, _ in rows]

    def each(images: list[Any]) -> list[Any]:
        sums = [gc.conv(x.astype("i4"), w.astype("i4")) for x, w in zip(images, weights)]
        steps = [np.rint(y.astype(np.float32) * np.float32(1e-3)) for y in sums]
        return [np.clip(y, np.float32(0), np.float32(255)).astype(np.uint8) for y in steps]

    images = [np.abs(np.tanh(normal(1, given, side, side)) * 250) for given, _, side in rows]
    return Judge(each, ([x.astype("u1") for x in images],))


def spread(x: Any) -> Any:
    with gc.device("cpu:0"):
        y = np.tanh(x)
    with gc.device("cpu:1"):
        z = y * 2
    return y.sum() + z.sum()


def attend(q: Any, k: Any, v: Any) -> Any:
    return gc.attention(q, k, v, causal=True)


def scattered(x: Any, places: Any, updates: Any) -> Any:
    total = x.copy()
    np.add.at(total, places, updates)
    return total


SMALL: dict[str, Callable[[], Judge]] = {
    "sum-f64": lambda: Judge(lambda x: x.sum(), (normal(1 << 20).astype("f8"),)),
    "small-loops": lambda: Judge(lambda x: x.sum(2).max(1), (normal(4096, 6, 5),)),
    "sum-tall": lambda: Judge(lambda x: x.sum(0), (normal(1 << 18, 7),)),
    "sum-few-rows": lambda: Judge(lambda x: x.sum(1), (normal(100, 30, 200),)),
    "sum-columns": lambda: Judge(lambda x: x.sum(0), (normal(2048, 1000),)),
    "distances": lambda: Judge(
        lambda x, y: np.sqrt(np.sum((x[:, None] - y) ** 2, -1)), (normal(300, 50), normal(200, 50))
    ),
    "transpose": lambda: Judge(lambda x: x.T + 1, (normal(1000, 1024),)),
    "few-columns": lambda: Judge(lambda x: np.max(x, 1) + x.sum(1), (normal(500, 512, 4),)),
    "transpose-narrow": lambda: Judge(lambda x: x.T + 1, (normal(50_000, 5),)),
    "concat": lambda: Judge(
        lambda x, y: np.concatenate([x, y * 2, x[:, :7], y], 1), (normal(512, 100), normal(512, 60))
    ),
    "dot": lambda: Judge(lambda x, y: x @ y, (normal(1 << 18), normal(1 << 18))),
    "open-rows": lambda: Judge(
        lambda x: x - x.mean(1, keepdims=True), (normal(200, 33),), sizes={"x": ("n", "m")}
    ),
    "short-open-rows": lambda: Judge(
        lambda x, y: (x - x.max(1, keepdims=True), y - y.mean(1, keepdims=True)),
        (normal(4096, 6), normal(4096, 12)),
        sizes={"x": ("n", "m"), "y": ("n", "k")},
    ),
    "short-open-softmax": lambda: Judge(
        lambda x: gc.softmax(np.tanh(x), -1), (normal(4096, 7),), sizes={"x": ("n", "m")}
    ),
    "short-lines": lambda: Judge(
        lambda x, y: np.tanh(x[:, None] - y), (normal(300, 4), normal(300, 4))
    ),
    "eight-columns": lambda: Judge(lambda x, b: np.tanh(x + b), (normal(4096, 8), normal(8))),
    "few-terms": lambda: Judge(lambda x, y: x @ y, (normal(600, 3), normal(3, 600))),
    "small-products": lambda: Judge(
        lambda x, w: gc.fori(0, 200, lambda _, h: np.tanh(h @ w), x), (normal(8, 8), normal(8, 8))
    ),
    "short-rows": lambda: Judge(lambda x, v: x @ v, (normal(8192, 24), normal(24))),
    "matvec": lambda: Judge(lambda x, v: np.tanh(x) @ v, (normal(1024, 1024), normal(1024))),
    "thin": lambda: Judge(lambda x, w: x @ w.T, (normal(12, 1024), normal(1024, 1024))),
    "wide": lambda: Judge(lambda x, w: x @ w, (normal(64, 512), normal(512, 1 << 16)), threads=1),
    "narrow": lambda: Judge(lambda x, w: x @ w, (normal(512, 512), normal(512, 12))),
    "bf16": lambda: Judge(gc.conv, (normal(1, 64, 56, 56), normal(64, 64, 1, 1)), precision="bf16"),
    "outer": lambda: Judge(lambda x, w: x @ w, (normal(1024, 24), normal(24, 1024))),
    "batch": lambda: Judge(lambda x, y: x @ y, (normal(256, 16, 16), normal(256, 16, 16))),
    "split-k": lambda: Judge(lambda x, w: x @ w, (normal(1, 1 << 14), normal(1 << 14, 64))),
    "split-k-of-rows": lambda: Judge(
        lambda x, w: x @ w, (normal(64, 1 << 13), normal(1 << 13, 64))
    ),
    "updates": lambda: Judge(
        lambda x, y: np.concatenate([x[:9] + y, x[9:]]) * 2, (normal(900, 99), normal(9, 99))
    ),
    "sort-rows": lambda: Judge(lambda x: np.sort(x, -1), (normal(512, 500),)),
    "sort-short": lambda: Judge(lambda x: np.sort(x, -1), (normal(4000, 20),)),
    "isin": lambda: Judge(np.isin, (whole_numbers(1 << 14), whole_numbers(100))),
    "argmax": lambda: Judge(np.argmax, (normal(1 << 20),)),
    "sort-long": lambda: Judge(lambda x: np.sort(x), (normal(1 << 20),)),
    "argsort-long": lambda: Judge(
        lambda x: np.argsort(x, kind="stable"), (whole_numbers(1 << 17),)
    ),
    "sort-one": lambda: Judge(lambda x: np.sort(x, -1), (normal(7, 40),)),
    "topk": lambda: Judge(lambda x: gc.topk(x, 50), (normal(64, 2000),)),
    "cumsum": lambda: Judge(lambda x: np.cumsum(x, 0), (normal(256, 1000),)),
    "cumsum-rows": lambda: Judge(lambda x: np.cumsum(x, 1), (normal(512, 300),)),
    "solve": lambda: Judge(
        np.linalg.solve, (normal(4, 128, 128) + 20 * np.eye(128, dtype=F4), normal(4, 128, 10))
    ),
    "solve-large": lambda: Judge(
        np.linalg.solve, (normal(4, 300, 300) + 40 * np.eye(300, dtype=F4), normal(4, 300, 10))
    ),
    "eigenvalues": lambda: Judge(np.linalg.eigvalsh, (normal(600, 600) + normal(600, 600).T,)),
    "fft": lambda: Judge(np.fft.fft, (normal(64, 120),)),
    "long-fft": lambda: Judge(
        lambda x, y: (np.fft.fft(x), np.fft.fft(y)), (normal(56, 4096), normal(96, 4096))
    ),
    "scatter": lambda: Judge(
        scattered, (normal(4096, 64), np.arange(4096) * 257 % 4096, normal(4096, 64))
    ),
    "images": lambda: Judge(lambda x: gc.resize(x, (64, 64, 64)), (normal(64, 16, 16),)),
    "pool": lambda: Judge(lambda x: gc.max_pool(x, 2), (normal(4, 16, 28, 28),)),
    "depthwise": lambda: wide(28, 32, groups=32),
    "winograd": lambda: wide(14, 32),
    "grouped": lambda: wide(14, 288, groups=18),
    "dilated": lambda: dilated((256, 14, 12), (64, 16, 6), (64, 33, 6), (32, 20, 12)),
    "small-images": lambda: layers(
        (256, 64, 3, 1), (256, 64, 4, 1), (256, 32, 5, 1), (512, 32, 5, 1), finish=False
    ),
    "packed-rows": lambda: layers((128, 32, 9, 1), (128, 32, 10, 1), (128, 32, 11, 1)),
    "packed-bytes": lambda: layers_of_bytes((320, 1280, 7), (256, 512, 7), (1024, 256, 14)),
    "packed-sums": lambda: layers((512, 64, 6, 1), (288, 32, 7, 1), (1152, 64, 5, 1), finish=False),
    "packed-windows": lambda: layers((6, 32, 9, 5), (8, 32, 7, 5), (16, 64, 5, 5)),
    "long-loop": lambda: Judge(np.tanh, (normal(1 << 22),)),
    "attention": lambda: Judge(attend, tuple(normal(4, 512, 32) for _ in "qkv")),
    "devices": lambda: Judge(spread, (normal(64, 64),), ("cpu:0", "cpu:1")),
}


def judge(name: str) -> Judge:
    """A case by name: of this module or of the benchmark tables."""
    if name in SMALL:
        return SMALL[name]()
    case = SUITE[name]
    function = case.native(gc) if case.native else case.function
    assert function is not None
    if case.function is None:  # of a training step, the loss and its gradients
        function = gc.value_and_grad(function)
    return Judge(function, case.arguments(np.random.default_rng(0)))


def neighbours(number: Number) -> list[Any]:
    """Half and twice the value within its range; the other ends of tuples."""
    value, least, most = number.value, number.least, number.most
    if isinstance(value, tuple):
        return [end for end in (least, most) if end != value]
    near = (value / 2, value * 2) if isinstance(value, float) else (value // 2, value * 2)
    return [v for v in dict.fromkeys(min(max(v, least), most) for v in near) if v != value]


# ------------------------------------------------------------------------------------- timing


class Compiled(NamedTuple):
    """What runs a case, and what tells whether two are the same."""

    run: Run
    content: tuple[Any, ...]


def compiled(case: Judge) -> Compiled:
    options: dict[str, Any] = {"devices": list(case.devices)} if case.devices else {}
    options |= {"threads": case.threads} if case.threads else {}
    function = gc.compile(case.function, precision=case.precision, sizes=case.sizes, **options)
    run = lambda: function(*case.arguments)  # noqa: E731
    run()
    images = function.executable(*case.arguments).image.images
    words = [(i.table.tobytes(), i.words.tobytes(), i.kernels, i.threads) for i in images]
    code = {hash(code) for image in images for code, _ in image.objects}
    return Compiled(run, (words, code))


def block_of(run: Run) -> int:
    began = time.perf_counter()
    run()
    return max(1, min(1000, int(BLOCK / max(time.perf_counter() - began, 1e-7))))


def seconds(run: Run, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - began


def ratio(ours: Run, other: Run) -> float:
    """How many times faster the other one is: the median over turns."""
    count = block_of(ours)
    seconds(other, 1)
    return statistics.median(
        seconds(ours, count) / max(seconds(other, count), 1e-9) for _ in range(TURNS)
    )


class Process:
    """A case in a process of its own, with numbers that are read when graphc is imported."""

    def __init__(self, case: str, wishes: str) -> None:
        command = [sys.executable, "-m", "benchmarks.tune", "--serve", case]
        environment = {**os.environ, "GRAPHC_TUNING": wishes}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=pipe, stdout=pipe
        )

    def run(self) -> None:
        """Some calls, so many that what the two processes tell each other does not count."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(name: str) -> None:
    """Run a case a block of times for every line that comes."""
    run = compiled(judge(name)).run
    count = 5 * block_of(run)
    for _ in sys.stdin:
        seconds(run, count)
        print("done", flush=True)


def gain(name: str, number: Number, value: Any) -> Iterator[float]:
    """How many times faster a value is, as often as one asks; nothing where nothing changes."""
    if name.startswith(IN_PROCESS):
        processes = Process(number.case, ""), Process(number.case, f"{name}={value}")
        try:
            while True:
                yield ratio(processes[0].run, processes[1].run)
        finally:
            for process in processes:
                process.close()
    case = judge(number.case)
    ours = compiled(case)
    with tuning.chosen({name: value}):
        other = compiled(case)
    while other.content != ours.content:
        yield ratio(ours.run, other.run)


def measured(name: str, number: Number, value: Any, least: float) -> dict[str, Any]:
    """A row: the first ratio, and whether the second one says the same."""
    row = {"name": name, "now": number.value, "tried": value, "case": number.case, "gain": None}
    ratios = gain(name, number, value)
    for turn, found in enumerate(ratios):
        row["gain"] = min(found, row["gain"] or found)
        if found < 1 + least or turn:
            break
    ratios.close()  # type: ignore[attr-defined]
    row["better"] = bool(row["gain"] and row["gain"] >= 1 + least)
    return row


@click.command()
@click.argument("only", default="")
@click.option("--gain", "least", default=0.05, help="what must be won, of the time")
@click.option("--json", "as_json", is_flag=True, help="every measurement, for programs")
@click.option("--all", "every", is_flag=True, help="also what would not be chosen")
@click.option("--serve", "served", default="", hidden=True)
def main(only: str, least: float, as_json: bool, every: bool, served: str) -> None:
    """Measure the tuned numbers whose names begin with ONLY at their neighbours."""
    if served:
        return serve(served)
    known = {n: k for n, k in tuning.numbers().items() if n.startswith(only)}
    timed = [(n, k, v) for n, k in known.items() if k.case not in UNTIMED for v in neighbours(k)]
    console = Console(stderr=True)
    shown = track(timed, "measuring", console=console, disable=not console.is_terminal)
    rows = []
    for name, number, value in shown:
        rows.append(measured(name, number, value, least))
        if as_json:
            print(json.dumps(rows[-1]), flush=True)
    left = {n: UNTIMED[k.case] for n, k in known.items() if k.case in UNTIMED}
    if as_json:
        print(json.dumps({"not timed": left}))
        return None
    table = Table("number", "now", "tried", "case", "times as fast")
    for row in rows:
        if row["better"] or every:
            found = f"{row['gain']:.2f}" if row["gain"] else "the same code"
            table.add_row(row["name"], str(row["now"]), str(row["tried"]), row["case"], found)
    Console().print(table)
    same = sum(row["gain"] is None for row in rows)
    better = sum(row["better"] for row in rows)
    print(f"{len(rows)} tried: {better} better, {same} change nothing of their case")
    print(f"{len(left)} numbers have no time of calls to judge by (--json says why)")
    return None


if __name__ == "__main__":
    main()
