"""Many small models, and what the dumps of their late stages hold."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from graphc.ir.graph import Graph, Program
from graphc.ir.parse import parse
from graphc.ir.text import literals, show
from graphc.passes.tiling import block

LATE = ("partition", "schedule", "fuse", "block", "pack_constants", "add_workspace", "plan")


def attention(q: Any, k: Any, v: Any) -> Any:
    powers = np.exp(q @ np.swapaxes(k, -1, -2))
    return (powers / powers.sum(-1, keepdims=True)) @ v


def scanned(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = np.maximum(h + row @ w, 0)
        return h, h * 2

    return gc.scan(step, 0 * x[0], x)


def looped(x: Any, w: Any) -> Any:
    def body(state: Any) -> Any:
        k, y = state
        return k + 1, np.sort(np.where(y > 0, y @ w, y), axis=0)

    return gc.while_loop(lambda state: state[0] < 3, body, (0, x))


def branch(x: Any, w: Any) -> Any:
    return gc.cond(x.sum() > 0, lambda a, b: (a @ b, a.sum(0)), lambda a, b: (a * 2, b[0]), x, w)


def placed(x: Any, w: Any) -> Any:
    with gc.device("cpu:1"):
        h = np.abs(x @ w)
    return h.sum(0) + np.cumsum(x, axis=1)[0], h


def indexed(x: Any, w: Any) -> Any:
    order = np.argsort(x[:, 0])
    return np.concatenate([x[order], w[:2]]), np.pad(w, 1), np.take_along_axis(x, order[:, None], 1)


def updated(x: Any, w: Any) -> Any:
    def body(k: Any, y: Any) -> Any:
        y[k] = y[k] + w[k]
        return y

    return gc.fori(0, 3, body, x * 1)


STATE = np.arange(8, dtype=np.float32)
variable = gc.Variable(STATE, name="hostile")


def stateful(x: Any) -> Any:
    before = variable * 1
    return variable.assign_add(x.sum(0)) * 2, before


def half(x: Any, w: Any) -> Any:
    return (x.astype("bfloat16") @ w.astype("bfloat16")).astype(np.float32)


X, W = (6, 8), (8, 8)
CONSTANT = np.arange(1600, dtype=np.float32).reshape(40, 40) % 5 - 2
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "chain": (lambda x, w: np.abs(x * 2 - w[0]) + x[::-1], (X, W)),
    "sums": (lambda x, w: (x.sum(1), (x - x.max(1, keepdims=True)) / 4, w.sum(0)), (X, W)),
    "columns": (lambda x, w: (x.max(0), (x * x).sum(0), x + 1), ((40, 3), W)),
    "product": (lambda x, w: np.maximum(x @ w + w[0], 0) @ w.T, (X, W)),
    "packed": (lambda x: np.maximum(x @ CONSTANT, 0), ((6, 40),)),
    "turned": (lambda x, w: (x @ w).T + 1, (X, W)),
    "batch": (lambda x, w: np.einsum("abc,acd->abd", x, w), ((3, 4, 5), (3, 5, 2))),
    "rows": (lambda x, w: gc.nn.softmax(x @ w, axis=-1), ((130, 8), (8, 16))),
    "conv": (lambda x, w: gc.conv(x, w, padding=1), ((2, 3, 6, 6), (4, 3, 3, 3))),
    "winograd": (lambda x, w: gc.conv(x, w, padding=1), ((2, 16, 12, 12), (16, 16, 3, 3))),
    "pooled": (lambda x: gc.max_pool(x, 2), ((2, 3, 6, 6),)),
    "attention": (attention, ((2, 12, 4), (2, 12, 4), (2, 12, 4))),
    "scan": (scanned, (X, W)),
    "while": (looped, (X, W)),
    "cond": (branch, (X, W)),
    "devices": (placed, (X, W)),
    "index": (indexed, (X, W)),
    "update": (updated, (X, W)),
    "totals": (lambda x: np.cumsum(x, axis=1) + np.sort(x, axis=0), (X,)),
    "solve": (lambda x: np.linalg.solve(x + 9 * np.eye(8, dtype=x.dtype), x), (W,)),
    "state": (stateful, (X,)),
    "views": (lambda x, w: x[::-1, 2:6] @ w[4:, ::2] + x[:, :4], (X, W)),
    "axes": (lambda x: (x.reshape(2, 3, 8).sum((0, 2)), x.mean(), x - x.mean()), (X,)),
    "half": (half, (X, W)),
    "complex": (lambda x, w: np.abs((x + 1j * x[::-1]) * 2).sum(1) + w[0, 0], (X, W)),
    "taken": (lambda x, w: (np.take(w, np.argmax(x, 1), axis=0), x.std(1)), (X, W)),
    "joined": (lambda x, w: (np.concatenate([x, w]) * 2, np.concatenate([x, w])), (X, W)),
    "tall": (lambda x: (x.sum(0), x.max()), ((3000, 3),)),
    "gradient": (gc.grad(lambda x, w: (np.abs(x @ w) + x[0]).sum(), wrt=(0, 1)), (X, W)),
    "back": (gc.grad(lambda x, w: (scanned(x, w)[0] ** 2).sum(), wrt=(0, 1)), (X, W)),
    "backs": (gc.grad(lambda x, w: (looped(x, w)[1]).sum(), wrt=0), (X, W)),
    "deviced": (gc.grad(lambda x, w: (placed(x, w)[1] ** 2).sum(), wrt=1), (X, W)),
}


def cut(x: Any, w: Any) -> Any:
    return np.maximum(x[::2] @ w, 0), x[: len(x) // 3].sum(axis=1), np.pad(x, ((1, 2), (0, 0)))


def decided(x: Any, w: Any) -> Any:
    return (x * 2 if len(x) > 3 else x) @ w + x[len(x) // 2]


def rolled(x: Any, w: Any) -> Any:
    return gc.scan(lambda c, row: (np.maximum(c + row @ w, 0), c.sum()), 0 * w[0], x)


SIZED = (X, ("n", 8))  # the first argument, and what its sizes are called
OPEN: dict[str, Callable[..., Any]] = {
    "cut of n": cut,
    "decided by n": decided,
    "scan of n": rolled,
    "sort of n": lambda x, w: np.sort(x @ w, axis=0) + np.cumsum(x, axis=0),
    "sums of n": lambda x, w: ((x - x.max(0)).sum(0), (x * w[0]).sum(1), x.max()),
    "gradient of n": gc.grad(lambda x, w: (np.maximum(x[1:] @ w, 0) ** 2).sum(), wrt=(0, 1)),
    "joined of n": lambda x, w: (np.concatenate([x, w, x[::-1]]), x.reshape(-1, 4).max(1)),
    "found of n": lambda x, w: np.sort(x[x[:, 0] > 0] @ w, axis=0),
}


@dataclass
class Dump:
    """A stage of a model."""

    model: str
    stage: str
    value: Graph | Program
    text: str
    tensors: dict[str, Any] = field(repr=False)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Chains of a few kilobytes run in blocks."""
    kept = block.room_of
    block.room_of = lambda config: block.Room(1, 1 << 9, 1, 1, ((np.inf, np.inf),))
    try:
        yield
    finally:
        block.room_of = kept


@cache
def dumps(model: str) -> list[Dump]:
    """What a dump of a model holds, as text that is read back."""
    if model in OPEN:
        return open_dumps(model)
    function, shapes = FUNCTIONS[model]
    specs = [gc.spec(shape, "f32") for shape in shapes]
    devices = ("cpu:0", "cpu:1") if model.startswith("device") else ("cpu:0",)
    compiled = gc.compile(function, threads=1, devices=devices)
    if model == "attention":
        with small_blocks():
            records = compiled.stages(*specs)
    else:
        records = compiled.stages(*specs)
    made = []
    for record in records:
        if record.name in LATE:
            tensors = {found.digest: found.array for found in literals(record.value)}
            made.append(Dump(model, record.name, record.value, show(record.value), tensors))
    return made


def open_dumps(model: str) -> list[Dump]:
    """The same of a model whose first argument has any number of rows."""
    shape, sizes = SIZED
    with tempfile.TemporaryDirectory() as folder:
        compiled = gc.compile(OPEN[model], threads=1, sizes={"x": sizes}, dump=folder)
        compiled(np.ones(shape, np.float32), np.ones(W, np.float32))
        found = [(stage, path) for stage in LATE for path in Path(folder).rglob(f"*-{stage}.gir")]
        texts = [(stage, path.read_text()) for stage, path in found]
    return [Dump(model, stage, parse(text), text, {}) for stage, text in texts]
