"""Writing token by token with a model of GPT-2's shape, beside torch, ONNX Runtime and OpenVINO.

    python -m benchmarks.decoding                       one thread, batches of 1 and 8
    python -m benchmarks.decoding --bits 4 --batch 1 --quick
    python -m benchmarks.decoding --bits 8,4 --precision bf16    graphc reads rows in 16 bits

A step takes the token after 48 others and gives the likeliest next one.  All have the same 124
million weights, drawn at random, in 8 and 4 bits the same integers: those of `gc.quantize`.  The
limit is the time of copying so many bytes as the weights have, half of them read and half written.
All take turns in one process, the limit among them; a figure is the median of its kind, on one
thread of what the process takes of a processor, which other work on the machine lengthens less.
Results are compared with those of the reference in f32 of the same rounded weights.  A peer that is
not there, or cannot do it, is named with the reason.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from benchmarks import decoding_peers, roofline
from benchmarks.worker import limit_threads

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gpt

PAST, LENGTH = 48, 64
KINDS = {32: "f32", 16: "bf16", 8: "i8", 4: "i4"}
Run = Callable[[], Any]  # the scores of the next token of each text


def graphc(
    held: Any, bits: int, threads: int, tokens: Any, past: Any, precision: str = "f32"
) -> Run:
    """Weights are constants, as they are to the runtimes: products by them are packed once."""
    heads = past.shape[3]

    def step(cache: Any, tokens: Any) -> Any:
        made, cache = gpt.scores(held, cache, tokens, np.int32(PAST), heads)
        return made[:, -1], cache

    precision = "bf16" if bits == 16 else precision
    run = gc.compile(step, donate="cache", precision=precision, sizes="exact", threads=threads)
    spare = [(0, 0)] * 4 + [(0, LENGTH - PAST), (0, 0)]
    cache = [dict(zip(("keys", "values"), pair)) for pair in np.pad(past, spare)]
    kept = [cache]

    def once() -> Any:
        made, kept[0] = run(kept[0], tokens)
        return made

    return once


def limit(size: int, threads: int) -> Run:
    """Moves so many bytes in all, as `roofline` does: half of them are read, half written."""
    source = np.ones(size // 8, np.float32)
    target, part = np.zeros_like(source), len(source) // threads // 64 * 64
    copy: Any = roofline.loops()["copy_loop"]
    pool = ThreadPoolExecutor(threads)

    def share(number: int) -> None:
        away = 4 * part * number
        copy(part, source.ctypes.data + away, target.ctypes.data + away)

    return lambda: share(0) if threads == 1 else list(pool.map(share, range(threads)))


def rows(
    shape: dict[str, int], bits: int, batch: int, threads: int, rounds: int, precision: str
) -> dict[str, dict[str, Any] | str]:
    """For each that ran: seconds of a step, and how far its scores are from those in f32."""
    rng = np.random.default_rng(0)
    exact = gpt.random_weights(shape, rng)
    tokens = rng.integers(0, shape["words"], (batch, 1)).astype(np.int32)
    half = (batch, shape["heads"], PAST, shape["width"] // shape["heads"])
    past = rng.standard_normal((shape["layers"], 2, *half), dtype=np.float32)
    held = gpt.in_bits(exact, bits)
    peers = {"graphc": partial(graphc, precision=precision), **decoding_peers.PEERS}
    runs: dict[str, Run] = {"limit": limit(gpt.bytes_of(held), threads)}
    found: dict[str, dict[str, Any] | str] = {}
    wanted = None
    for name, prepare in peers.items():
        try:
            run = prepare(held, bits, threads, tokens, past)
            scores = np.asarray(run(), np.float32)
        except Exception as problem:  # noqa: BLE001 - any failure of a peer is a result to report
            found[name] = f"{type(problem).__name__}: {problem}".splitlines()[0][:100]
            continue
        wanted = scores if wanted is None else wanted
        runs[name] = run
        found[name] = {"error": float(np.abs(scores - wanted).max() / np.abs(wanted).max())}
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds = in_turn(runs, rounds, clock)
    for name, times in seconds.items():
        entry = found.setdefault(name, {})
        assert isinstance(entry, dict)
        shares = [a / b for a, b in zip(seconds["limit"], times)]
        ratios = [b / a for a, b in zip(seconds["graphc"], times)]
        entry |= {
            "ms": statistics.median(times) * 1e3,
            "share": statistics.median(shares),
            "times": statistics.median(ratios),
        }
    return found


def in_turn(
    runs: dict[str, Run], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return seconds


def cell(found: dict[str, Any] | str | None) -> str:
    if found is None or isinstance(found, str):
        return found or ""
    return f"{found['ms']:.2f} ms, {found['times']:.2f}x"


def table(
    shape: dict[str, int], bits: list[int], batch: int, threads: int, rounds: int, precision: str
) -> list[str]:
    names = list(decoding_peers.PEERS)
    lines = [
        f"## {threads} thread{'s' * (threads > 1)}, batch {batch}",
        "",
        f"| weights | limit | graphc | of the limit | {' | '.join(names)} |",
        "|---" * (len(names) + 4) + "|",
    ]
    for each in bits:
        found = rows(shape, each, batch, threads, rounds, precision)
        print(KINDS[each], found, file=sys.stderr)
        own, most = found["graphc"], found["limit"]
        assert isinstance(own, dict)
        assert isinstance(most, dict)
        cells = " | ".join(cell(found.get(name)) for name in names)
        lines.append(
            f"| {KINDS[each]} | {most['ms']:.2f} ms | {own['ms']:.2f} ms | {own['share']:.0%} |"
            f" {cells} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bits", default="32,16,8,4")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a small model")
    given = parser.parse_args()
    limit_threads(given.threads)
    shape = gpt.QUICK if given.quick else gpt.FULL
    for batch in map(int, given.batch.split(",")):
        bits = [int(each) for each in given.bits.split(",")]
        made = table(shape, bits, batch, given.threads, given.rounds, given.precision)
        print(*made, sep="\n", flush=True)


if __name__ == "__main__":
    main()
