"""Random programs that are compiled with tuned numbers at the ends of their ranges and between.

PYTHONPATH=.:tests/support python -m tuned_programs 500      a long run; prints what differs
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import click
import numpy as np
from chains import chain
from gradient_programs import flat
from gradient_programs import program as gradient_program

import graphc as gc
from benchmarks.cases import erf
from graphc import tuning

SIZES = (1, 2, 3, 7, 8, 16, 17, 31, 33, 64, 100, 130, 300)
COMPILING = ("loops.", "ops.", "passes.", "codegen.")  # rooms whose numbers are read then
Array = np.ndarray[Any, Any]


class Program(NamedTuple):
    """A function, its arguments, and how much its results may differ, by their largest."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    tolerance: float = 1e-4


class Draw:
    """Arrays and sizes of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.choice = self.random.choice
        self.dtype = self.choice(("f4", "f4", "f4", "f8"))

    def size(self) -> int:
        return self.choice(SIZES)

    def array(self, *dims: int) -> Array:
        return self.rng.uniform(-1, 1, dims).astype(self.dtype)


def activated(x: Any, kind: int) -> Any:
    return (x, np.tanh(x), np.maximum(x, 0), x * (1 + erf(x)))[kind]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


AFTER_PRODUCTS: tuple[Callable[[Any], Any], ...] = (
    lambda y: y,
    softmax,
    lambda y: y - y.mean(-1, keepdims=True),
)


def product(d: Draw) -> Program:
    """(x w + b) with transposed operands, few or many rows, and a function of the result."""
    m, k, n, kind = d.size(), d.choice((*SIZES, 700)), d.size(), d.choice(range(4))
    left, right = d.choice((True, False)), d.choice((True, False))
    x, w = d.array(*((k, m) if left else (m, k))), d.array(*((n, k) if right else (k, n)))
    after = d.choice(AFTER_PRODUCTS)

    def function(x: Any, w: Any, b: Any) -> Any:
        made = (x.T if left else x) @ (w.T if right else w) + b
        return after(activated(made, kind))

    return Program(f"product {m} {k} {n}", function, (x, w, d.array(n)))


def constant_product(d: Draw) -> Program:
    w, v = d.array(d.size(), 64), d.array(64, d.size())
    return Program("constants", lambda x: np.tanh(x @ w) @ v, (d.array(d.size(), len(w)),))


def computed_product(d: Draw) -> Program:
    """Operands that are computed, and a chain of products."""
    m, k, n = d.size(), d.size(), d.size()

    def function(x: Any, w: Any, v: Any) -> Any:
        return softmax((np.tanh(x) @ (w * 2 + 1)) @ v) @ v.T

    return Program(f"computed {m} {k} {n}", function, (d.array(m, k), d.array(k, n), d.array(n, m)))


def batched(d: Draw) -> Program:
    b, m, k, n = d.choice((1, 3, 40)), *(d.choice((1, 4, 7, 16, 33)) for _ in "mkn")
    way = d.choice(("bij,bjk->bik", "bij,bjk->bki", "ij,bjk->bik", "bij,jk->ibk"))
    dims = {"b": b, "i": m, "j": k, "k": n}
    arrays = [d.array(*(dims[c] for c in part)) for part in way.split("->")[0].split(",")]
    return Program(f"einsum {way}", lambda x, y: np.einsum(way, x, y) * 2, tuple(arrays))


def narrow(d: Draw) -> Program:
    """Half floats and small integers."""
    m, k, n = d.size(), d.size(), d.size()
    if d.choice((True, False)):
        x, w = d.array(m, k).astype("f2"), d.array(k, n).astype("f2")
        return Program("half", lambda x, w: (x @ w).astype("f4"), (x, w), 2e-2)
    x, w = (d.rng.integers(-100, 100, dims).astype("i1") for dims in ((m, k), (k, n)))
    return Program("i8", lambda x, w: x.astype("i4") @ w.astype("i4"), (x, w), 0.0)


def rows(d: Draw) -> Program:
    m, n = d.choice((*SIZES, 1000)), d.choice((*SIZES, 2000))
    scale, shift = d.array(n), d.array(n)

    def layer_norm(x: Any) -> Any:
        y = x - x.mean(-1, keepdims=True)
        return y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * scale + shift

    ways = (softmax, layer_norm, lambda x: x.max(1) - x.min(1), lambda x: np.exp(x).sum(1))
    return Program(f"rows {m} {n}", d.choice(ways), (d.array(m, n),), 1e-3)


def columns(d: Draw) -> Program:
    m, n, p = d.choice((*SIZES, 3000)), d.choice((*SIZES, 600)), d.choice((1, 1, 4))
    axes = d.choice(((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)))
    ways = (
        lambda x: x.sum(axes),
        lambda x: (x * x).mean(axes),
        lambda x: (x.max(axes), (x + 1).sum(axes)),
        lambda x: x - x.sum(axes, keepdims=True),
    )
    return Program(f"fold {m} {n} {p} {axes}", d.choice(ways), (d.array(m, n, p),), 1e-3)


def moved(d: Draw) -> Program:
    a, b, c = d.size(), d.size(), d.choice((1, 3, 8))
    order = d.choice(((2, 1, 0), (1, 0, 2), (0, 2, 1)))
    parts = d.choice((2, 5, 14, 40))

    def function(x: Any, y: Any) -> Any:
        pieces = [x[:, : 1 + k % b] * (k + 1) for k in range(parts)]
        joint = np.concatenate([*pieces, y], 1)
        return np.tanh(x.transpose(order)), joint + 1, np.concatenate([x, x[::-1]], 0)[:, None]

    return Program(f"moved {a} {b} {c}", function, (d.array(a, b, c), d.array(a, b, c)))


def pointwise(d: Draw) -> Program:
    n = d.choice((*SIZES, 5000, 50_000))
    kinds = ("f4", "f8", "i4", "i1", "f2")
    x, y = (d.rng.integers(-9, 9, n).astype(d.choice(kinds)) for _ in "xy")

    def function(x: Any, y: Any) -> Any:
        far = np.exp(-(x * x).astype("f4")) + y
        return far, x + y, np.where(x > y, x, y) * 2, np.sin(far) * np.cos(far)

    return Program(f"pointwise {n}", function, (x, y), 1e-2)


def sorted_rows(d: Draw) -> Program:
    m, n = d.choice((1, 3, 40)), d.choice((*SIZES, 1000))
    kind = d.choice(("f4", "i1", "u2", "i8", "f8"))
    x = d.rng.integers(0, 200, (m, n)).astype(kind)
    k = 1 + d.random.randrange(n)

    def function(x: Any) -> Any:
        return np.sort(x, -1), np.argsort(x, -1, kind="stable"), *gc.topk(x, k)

    return Program(f"sort {m} {n} {k} {kind}", function, (x,), 0.0)


def running(d: Draw) -> Program:
    dims = d.size(), d.size(), d.choice((1, 5))
    axis = d.choice((0, 1, 2))
    return Program(
        f"cumsum {dims} {axis}",
        lambda x: (np.cumsum(x, axis), np.cumprod(x * 0.1 + 1, axis)),
        (d.array(*dims),),
        1e-3,
    )


def solved(d: Draw) -> Program:
    n, width = d.choice((1, 2, 5, 16, 33, 70)), d.choice((1, 3, 9, 20))
    a = (d.array(3, n, n) + 2 * n * np.eye(n)).astype(d.dtype)

    def function(a: Any, b: Any) -> Any:
        spd = a @ a.swapaxes(-1, -2)
        return np.linalg.solve(a, b), np.linalg.cholesky(spd), np.linalg.slogdet(a)[1]

    return Program(f"solve {n} {width}", function, (a, d.array(3, n, width)), 1e-2)


def convolved(d: Draw) -> Program:
    groups, per, out = d.choice((1, 1, 2, 8)), d.choice((1, 2, 16, 24)), d.choice((1, 8, 16))
    side, window = d.choice((5, 9, 16, 28)), d.choice((1, 3, 5))
    options = {"stride": d.choice((1, 1, 2)), "padding": window // 2, "groups": groups}
    images = d.choice((1, 2, 5))
    x = d.array(images, groups * per, side, side)
    w = d.array(groups * out, per, window, window)

    def loss(x: Any, w: Any) -> Any:
        return np.tanh(gc.conv(x, w, **options)).sum()

    plain = Program(
        f"conv {x.shape} {w.shape} {options}", lambda x, w: gc.conv(x, w, **options), (x, w), 1e-3
    )
    inputs = plain.name, (x, w)
    gradient = Program(f"grad of {inputs[0]}", gc.grad(loss, wrt=(0, 1)), inputs[1], 1e-2)
    return d.choice((plain, gradient))


def pooled(d: Draw) -> Program:
    window = d.choice((2, 3, 5, 9))
    x = d.array(2, 3, d.choice((9, 16, 40)), d.choice((9, 12, 40)))
    stride = d.choice((1, 2, window))

    def function(x: Any) -> Any:
        return gc.max_pool(x, window, stride), gc.avg_pool(x, window, stride)

    def loss(x: Any) -> Any:
        return gc.max_pool(x, window, stride).sum() + (gc.avg_pool(x, window, stride) ** 2).sum()

    made = d.choice((function, gc.grad(loss)))
    return Program(f"pool {x.shape} {window} {stride}", made, (x,), 1e-3)


def transformed(d: Draw) -> Program:
    n = d.choice((1, 5, 8, 30, 64, 100, 128, 210))
    x = d.array(3, n)
    return Program(f"fft {n}", lambda x: (np.fft.fft(x), np.fft.irfft(np.fft.rfft(x), n)), (x,))


def resized(d: Draw) -> Program:
    x = d.array(2, d.choice((4, 17, 40)), d.choice((3, 16)))
    shape = (2, d.choice((2, 9, 33)), d.choice((5, 31)))
    return Program(f"resize {x.shape} {shape}", lambda x: gc.resize(x, shape), (x,), 1e-3)


def attended(d: Draw) -> Program:
    length, width, causal = d.choice((5, 64, 130, 300)), d.choice((4, 16)), d.choice((True, False))
    q, k, v = (d.array(2, length, width) for _ in "qkv")

    def function(q: Any, k: Any, v: Any) -> Any:
        return gc.attention(q, k, v, causal=causal)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (function(q, k, v) ** 2).sum()

    made = d.choice((function, gc.grad(loss, wrt=(0, 1, 2))))
    return Program(f"attention {length} {width} {causal}", made, (q, k, v), 1e-3)


def recurrent(d: Draw) -> Program:
    steps, batch, width = d.choice((1, 3, 5, 20)), d.choice((1, 4, 70)), d.choice((3, 16, 33))

    def loss(x: Any, w: Any, u: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = np.tanh(row @ w + h @ u + (w @ u)[0])
            return h, h * h

        last, all_of_them = gc.scan(step, np.zeros((batch, width), x.dtype), x)
        return last.sum() + all_of_them.mean()

    arrays = (d.array(steps, batch, width), d.array(width, width), d.array(width, width))
    made = d.choice((loss, gc.grad(loss, wrt=(1, 2))))
    return Program(f"scan {steps} {batch} {width}", made, arrays, 1e-2)


def updated(d: Draw) -> Program:
    n, m = d.size(), d.choice((3, 8, 40))

    def function(x: Any, y: Any, ids: Any) -> Any:
        x = x.copy()
        x[1:] = x[1:] * 2 + y[:-1]
        np.add.at(x, ids, y[: len(ids)])
        x[0] += y[ids].sum(0)
        return x, x[ids], np.take(y, ids, 0).T

    ids = d.rng.integers(0, n, min(n, 5))
    return Program(f"update {n} {m}", function, (d.array(n, m), d.array(n, m), ids))


def trained(d: Draw) -> Program:
    """A step of gradient descent: losses, updates, values that may be made again."""
    m, widths = d.choice((5, 64, 130)), [d.choice((4, 16, 33)) for _ in range(4)]

    def loss(p: Any, x: Any) -> Any:
        for w, b in p:
            x = np.tanh(x @ w + b)
        return (softmax(x) * x).sum()

    def step(p: Any, x: Any) -> Any:
        value, slopes = gc.value_and_grad(loss)(p, x)
        return value, [(w - dw, b - db) for (w, b), (dw, db) in zip(p, slopes, strict=True)]

    p = [(d.array(i, o), d.array(o)) for i, o in pairwise(widths)]
    return Program(f"train {m} {widths}", step, (p, d.array(m, widths[0])), 1e-2)


def chained(d: Draw) -> Program:
    seed, dims = d.random.randrange(10_000), d.choice(((5,), (33, 7), (1000,)))
    function, arguments = chain(seed, d.choice((6, 20)), dims)
    return Program(f"chain {seed}", function, tuple(arguments), 1e-2)


def differentiated(d: Draw) -> Program:
    seed = d.random.randrange(10_000)
    case = gradient_program(seed)
    return Program(f"gradient {seed} {case.layers}", case.function, case.arguments, 1e-2)


FAMILIES = (
    product, constant_product, computed_product, batched, narrow, rows, columns, moved, pointwise,
    sorted_rows, running, solved, convolved, pooled, transformed, resized, attended, recurrent,
    updated, trained, chained, differentiated,
)  # fmt: skip


def program(seed: int) -> Program:
    return FAMILIES[seed % len(FAMILIES)](Draw(seed))


# ------------------------------------------------------------------------------------ numbers


def others(
    seed: int, rooms: tuple[str, ...] = ("loops", "ops", "passes", "codegen")
) -> dict[str, Any]:
    """Other values of a single number, of a few, or of half of them."""
    draw = random.Random(seed)
    known = {n: k for n, k in tuning.numbers().items() if n.split(".")[0] in rooms}
    count = draw.choice((1, 3, 12, len(known) // 2))
    return {n: other(known[n], draw) for n in draw.sample(list(known), count)}


def other(known: tuning.Number, draw: random.Random) -> Any:
    """An end of a number's range or, a third of the time, a value near it: 3, 6 and 7 for an 8."""
    ends = known.least, known.most
    if isinstance(known.value, tuple) or draw.randrange(3):
        return draw.choice(ends)
    near = known.value * draw.uniform(0.25, 2)
    return min(max(type(known.value)(near), known.least), known.most)


def results(made: Program, threads: int, numbers: dict[str, Any]) -> list[Array]:
    with tuning.chosen(numbers), np.errstate(all="ignore"):
        return [
            np.asarray(x) for x in flat(gc.compile(made.function, threads=threads)(*made.arguments))
        ]


def difference(made: Program, wanted: list[Array], found: list[Array]) -> str | None:
    """What differs by more than rounding."""
    for number, (a, b) in enumerate(zip(wanted, found, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {b.dtype}{b.shape}, not {a.dtype}{a.shape}"
        with np.errstate(all="ignore"):
            finite = np.isfinite(a)
            largest = float(np.abs(a[finite]).max(initial=0)) if a.size else 0.0
            near = np.isclose(
                a, b, rtol=made.tolerance, atol=made.tolerance * largest, equal_nan=True
            )
        if not near.all():
            return f"result {number}: {a[~near].ravel()[:3]} became {b[~near].ravel()[:3]}"
    return None


def check(seed: int) -> str | None:
    """None, or what the numbers of a seed have changed about its program."""
    made, numbers, threads = program(seed), others(seed), 1 + seed // len(FAMILIES) % 2
    wanted = results(made, threads, {})
    problem = tried(made, threads, numbers, wanted)
    if problem is None:
        return None
    for name in list(numbers):  # which of them it takes
        fewer = {n: v for n, v in numbers.items() if n != name}
        if again := tried(made, threads, fewer, wanted):
            numbers, problem = fewer, again
    return f"seed {seed}, {made.name}, {threads} threads, {numbers}: {problem}"


def tried(made: Program, threads: int, numbers: dict[str, Any], wanted: list[Array]) -> str | None:
    try:
        return difference(made, wanted, results(made, threads, numbers))
    except Exception as error:  # noqa: BLE001 - whatever a number breaks is a finding
        return f"{type(error).__name__}: {error}"


@click.command()
@click.argument("count", type=int)
@click.option("--first", default=0)
def main(count: int, first: int) -> None:
    for seed in range(first, first + count):
        if problem := check(seed):
            print(problem, flush=True)
        if seed % 100 == 99:
            print(f"{seed + 1 - first} tried", flush=True)


if __name__ == "__main__":
    main()
