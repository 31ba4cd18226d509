"""Random programs to differentiate under memory limits: dropout, unrolled loops, sorts and more.

    python tests/support/gradient_programs.py 300 [FIRST]

runs every limit of so many programs, one by one.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import graphc as gc
from graphc.ir.graph import Graph
from graphc.ir.liveness import planned_bytes
from graphc.ir.text import show
from graphc.passes.memory import remat

SHARES = (0.95, 0.8, 0.65, 0.5, 0.35, 0.2)  # of the memory that is planned without a limit

Layer = Callable[..., Any]  # (x, w, b, key) -> x, all of the shape of x


def dense(x: Any, w: Any, b: Any, key: Any) -> Any:
    return np.tanh(x @ w + b)


def residual(x: Any, w: Any, b: Any, key: Any) -> Any:
    return x + gc.gelu(x @ w) * b


def dropout(x: Any, w: Any, b: Any, key: Any) -> Any:
    return np.where(gc.random.bernoulli(key, 0.7, x.shape), x * b, 0) + np.sin(x @ w)


def noise(x: Any, w: Any, b: Any, key: Any) -> Any:
    return x + 0.1 * gc.random.normal(key, x.shape, dtype=x.dtype) * np.tanh(x @ w)


def normalised(x: Any, w: Any, b: Any, key: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 0.1) @ w + b


def recurrent(x: Any, w: Any, b: Any, key: Any) -> Any:
    h = c = x * 0.5
    for _ in range(4):
        gate = gc.sigmoid(h @ w + b)
        c = gate * c + (1 - gate) * np.tanh(h + x)
        h = gate * np.tanh(c)
    return h


def ordered(x: Any, w: Any, b: Any, key: Any) -> Any:
    return np.sort(x @ w, axis=0) * b + np.take_along_axis(x, np.argsort(x, axis=1), axis=1)


def median(x: Any, w: Any, b: Any, key: Any) -> Any:
    return np.tanh(x - np.median(x, axis=1, keepdims=True)) @ w


def attended(x: Any, w: Any, b: Any, key: Any) -> Any:
    scores = (x @ w) @ x.T / 8
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True) @ x + b


def totals(x: Any, w: Any, b: Any, key: Any) -> Any:
    return np.cumsum(np.maximum(x @ w, 0), axis=1) / x.shape[1] - x.max(0)


def stepped(x: Any, w: Any, b: Any, key: Any) -> Any:
    return gc.fori(0, 3, lambda i, s: np.tanh(s @ w + b) + 0.1 * s, x)


def scanned(x: Any, w: Any, b: Any, key: Any) -> Any:
    def body(state: Any, row: Any) -> Any:
        state = np.tanh(state @ w + row)
        return state, state * b

    return gc.scan(body, b, x)[1]


def looped(x: Any, w: Any, b: Any, key: Any) -> Any:
    return gc.while_loop(lambda s: np.abs(s).sum() < 40, lambda s: s * 1.5 + np.sin(s), x) @ w


def chosen(x: Any, w: Any, b: Any, key: Any) -> Any:
    def twice() -> Any:
        return dense(dense(x, w, b, key), w, b, key)

    return gc.cond(x.sum() > 0, lambda: np.cos(x @ w), twice)


def segment(x: Any, w: Any, b: Any, key: Any) -> Any:
    return gc.checkpoint(lambda x, w: np.tanh(np.tanh(x @ w) @ w) * b)(x, w)


def bent(x: Any, w: Any, b: Any, key: Any) -> Any:
    h = x @ w
    return np.where(h > 0, h, 0.1 * np.expm1(np.minimum(h, 0))) + np.exp(-h * h) * b


def turned(x: Any, w: Any, b: Any, key: Any) -> Any:
    return np.concatenate([x[1:], x[:1]])[:, ::-1] * b + np.roll(x, 3, axis=1) @ w


def solved(x: Any, w: Any, b: Any, key: Any) -> Any:
    matrix = w @ w.T + 3 * np.eye(len(b), dtype=w.dtype)
    return np.linalg.solve(matrix, x.T).T + b


LAYERS: tuple[Layer, ...] = (
    dense, residual, dropout, noise, normalised, recurrent, ordered, median, attended, totals,
    stepped, scanned, looped, chosen, segment, bent, turned, solved,
)  # fmt: skip
COMMON: tuple[Layer, ...] = (dropout, recurrent, ordered, median)


class Case(NamedTuple):
    """A function of (x, weights, biases) to compile, its arguments, and what it is made of."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    layers: list[str]


def program(seed: int) -> Case:
    """The gradient of a random chain of layers."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    layers = [draw.choice(draw.choice((LAYERS, COMMON))) for _ in range(draw.randint(2, 5))]
    rows, width = draw.choice(((64, 16), (128, 32), (7, 5), (257, 12)))
    dtype = draw.choice((np.float32, np.float64))
    shared, sorts = draw.random() < 0.3, draw.random() < 0.3

    def loss(x: Any, weights: Any, biases: Any) -> Any:
        key, kept = gc.random.key(seed), x
        for number, layer in enumerate(layers):
            own = 0 if shared else number
            x = layer(x, weights[own], biases[own], gc.random.fold_in(key, number))
            if number % 3 == 2:
                x = x + kept
        return (x * x).mean() + (np.sort(x, axis=None)[:5].sum() if sorts else x.max())

    def made(*dims: int) -> Any:
        return (rng.normal(size=dims) / np.sqrt(dims[-1])).astype(dtype)

    weights, biases = [made(width, width) for _ in layers], [made(width) for _ in layers]
    wrt = draw.choice((1, (0, 1), (1, 2)))
    names = [layer.__name__ for layer in layers]
    return Case(gc.grad(loss, wrt), (made(rows, width), weights, biases), names)


def flat(tree: Any) -> list[Any]:
    branches = tree if isinstance(tree, list | tuple) else ()
    return [leaf for one in branches for leaf in flat(one)] if branches else [tree]


def under_limits(case: Case, shares: tuple[float, ...] = SHARES, **options: Any) -> Counter[str]:
    """How often the bits were the same, the last ones differed, or a limit was refused.

    Raises AssertionError where a result is wrong, a limit exceeded, or a refusal says too little.
    """
    plain = gc.compile(case.function, threads=1, **options)
    wanted = flat(plain(*case.arguments))
    most = planned_bytes(plain.lower(*case.arguments))
    found: Counter[str] = Counter()
    for share in shares:
        limit = int(share * most)
        limited = gc.compile(case.function, threads=1, memory_limit=limit, **options)
        try:
            made = flat(limited(*case.arguments))
        except gc.LimitError as refusal:
            check_refusal(refusal, limit)
            found["refused"] += 1
            continue
        assert planned_bytes(limited.lower(*case.arguments)) <= limit
        found[compared(wanted, made)] += 1
    return found


def check_refusal(refusal: gc.LimitError, limit: int) -> None:
    """It names the limit and up to five values, the largest first; or that of stacks, which are
    known to outgrow it only when they do."""
    if refusal.message.startswith("the stacks of loops are limited to"):
        assert "push(" in str(refusal) and "memory_limit" in str(refusal)
        return
    assert f"memory_limit is {limit}" in refusal.message
    sizes = [int(line.split()[0]) for line in refusal.details if " bytes: " in line]
    assert 3 <= len(sizes) <= 5, refusal  # fewer are there when that is all
    assert sizes == sorted(sizes, reverse=True), refusal


def compared(wanted: list[Any], made: list[Any]) -> str:
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(wanted, made, strict=True)):
        return "same bits"
    for a, b in zip(wanted, made, strict=True):
        exact = 1e-4 if a.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(a, b, rtol=exact, atol=exact * max(1.0, float(np.abs(a).max())))
    return "last bits"


def remembered(function: Callable[..., int]) -> Callable[..., int]:
    """The function, asked once about equal graphs: all limits of a program try the same ones."""
    known: dict[str, int] = {}

    def answer(graph: Graph, *others: Any) -> int:
        text = show(graph)
        if text not in known:
            known[text] = function(graph, *others)
        return known[text]

    return answer


def main(count: int, first: int = 0) -> None:
    total: Counter[str] = Counter()
    plainly = remat.bytes_of
    for seed in range(first, first + count):
        case = program(seed)
        remat.bytes_of = remembered(plainly)
        try:
            found = under_limits(case)
        except (AssertionError, gc.GraphError) as error:
            found = Counter(["WRONG"])
            print(f"program {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        if set(found) - {"same bits", "refused"}:
            print(f"program {seed}: {dict(found)} {' '.join(case.layers)}", flush=True)
        total += found
    print(dict(total))
    sys.exit(bool(total["WRONG"]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
