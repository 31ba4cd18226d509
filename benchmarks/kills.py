"""Kill -9 at random moments of training with checkpoints: is one ever torn, is a bit ever lost?

    python -m benchmarks.kills --count 300

A child process trains a small model with NumPy, saves after every update or every tenth and is
killed after a random time; the next child goes on from the newest checkpoint.  After each kill
every file that bears the name of a checkpoint must be whole, and the newest one no older than the
last that was due two updates before; at the end the parameters must be those of a run that was
never disturbed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from graphc.errors import CheckpointError
from graphc.learn.checkpoints import Checkpoints, load_checkpoint
from graphc.learn.data import Loader, arrays

SIZE = 2_000
MARGIN = 50  # updates after the last kill


def beginning() -> dict[str, np.ndarray]:
    return {"w": np.zeros(SIZE), "velocity": np.zeros(SIZE), "key": np.array([1, 2], np.uint32)}


def samples() -> Loader:
    """67 samples in batches of 8: epochs that end with a short batch."""
    draw = np.random.default_rng(0)
    return arrays((draw.normal(size=(67, 16)), draw.normal(size=67)), 8, shuffle=True, seed=5)


def update(tree: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> None:
    """One noisy update with momentum; the arrays are written in place."""
    noise = np.random.Philox(key=tree["key"].astype(np.uint64)).random_raw(SIZE)
    gradient = tree["w"] - np.resize(x.T @ y, SIZE) + 1e-3 * (noise % 97)
    tree["velocity"] *= 0.9
    tree["velocity"] += gradient
    tree["w"] -= 1e-2 * tree["velocity"]
    tree["key"] += np.array([1, 3], np.uint32)


def train(
    folder: Path | None, until: int, every: int = 1, begun: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Train up to an update, from the newest checkpoint of the folder if there is one; `begun` gets
    the number that the run goes on from, and that of the update which has begun."""
    tree, loader, step = beginning(), samples(), 0
    checkpoints = None if folder is None else Checkpoints(folder, every_steps=every)
    found = checkpoints.latest(tree) if checkpoints else None
    if found is not None:
        tree, step = found.tree, found.step
        loader.restore(found.values)
    if begun is not None:
        begun[:] = step
    while step < until:
        for x, y in loader:
            if begun is not None:
                begun[1] = step + 1
            update(tree, x, y)
            step += 1
            if checkpoints:
                checkpoints.offer(step, tree, loader.state())
            if step == until:
                break
    if checkpoints:
        checkpoints.close()
    return tree


def child(folder: Path, until: int, every: int = 1, begun: np.ndarray | None = None) -> int:
    """Train in a process of its own; its number."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        train(folder, until, every, begun)
        status = 0
    finally:
        os._exit(status)


def torn_files(folder: Path) -> int:
    """How many files bear the name of a checkpoint and are none."""
    torn = 0
    for path in folder.glob("step-*.safetensors"):
        try:
            load_checkpoint(path, beginning())
        except CheckpointError:
            torn += 1
    return torn


def is_late(folder: Path, every: int, start: int, update: int) -> bool:
    """Is a checkpoint missing that was due two updates before the one that had begun?"""
    due = start + (update - 2 - start) // every * every
    return due > start and newest(folder) < due


def newest(folder: Path) -> int:
    return max((int(p.stem[5:]) for p in folder.glob("step-*.safetensors")), default=0)


def kill_often(folder: Path, count: int, longest: float) -> dict[str, int | bool]:
    """The report: kills, torn and late files, files killed writers left, updates made, equal in the
    end."""
    moments, torn, late, leftovers = random.Random(7), 0, 0, 0
    begun = np.frombuffer(mmap.mmap(-1, 16), np.int64)  # shared with the children
    for _ in range(count):
        every = moments.choice((1, 10))
        begun[:] = 0
        number = child(folder, 10**9, every, begun)
        time.sleep(moments.uniform(0, longest))
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        if folder.exists():
            torn += torn_files(folder)
            late += is_late(folder, every, *begun.tolist())
            leftovers = max(leftovers, len(list(folder.glob(".*.tmp"))))
    steps = newest(folder) + MARGIN
    _, status = os.waitpid(child(folder, steps), 0)
    resumed, whole = Checkpoints(folder).latest(beginning()), train(None, steps)
    equal = resumed is not None and all(
        resumed.tree[name].tobytes() == whole[name].tobytes() for name in whole
    )
    return {
        "kills": count,
        "updates": steps,
        "torn": torn,
        "late": late,
        "leftovers at once": leftovers,
        "leftovers in the end": len(list(folder.glob(".*.tmp"))),
        "resumed bit-equal": status == 0 and equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--longest", type=float, default=0.05, help="seconds until a kill")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = kill_often(Path(folder) / "run", options.count, options.longest)
    print(json.dumps(report))
    raise SystemExit(report["torn"] != 0 or report["late"] != 0 or not report["resumed bit-equal"])


if __name__ == "__main__":
    main()
