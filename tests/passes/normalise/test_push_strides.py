"""What only 1x1 convolutions in steps read is computed in those steps, whatever lies between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds, slow

import graphc as gc
from graphc.config import Config
from graphc.ir.graph import Node, Rewriter, rebuild
from graphc.ops.reference.interpreter import interpret
from graphc.passes.measured_error import result_error
from graphc.passes.normalise.push_strides import push_strides

RNG = np.random.default_rng(5)


def normal(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype("f4")


def convolutions(function: Any, *given: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The steps and results of convolutions, when all rewrites of theirs are done."""
    stages = {name: value for name, value, _, _ in gc.compile(function).stages(*given)}
    names = "conv", "conv_windows"
    nodes = [node for node in stages["cse"].nodes if node.op.name in names]
    return [(node.attrs["stride"], node.type.dims) for node in nodes]


def test_a_residual_block_computes_what_the_next_one_reads() -> None:
    w, v = normal(64, 64, 3, 3) / 24, normal(64, 64, 1, 1) / 8
    u, t = normal(96, 64, 1, 1) / 8, normal(128, 64, 1, 1) / 8
    bias = normal(64, 1, 1)

    def network(x: Any) -> Any:
        h = np.maximum(gc.conv(x, w, padding=1) + bias, 0)
        h = np.maximum(gc.conv(h, v) + x, 0)
        return gc.conv(h, u, stride=2), gc.conv(h, t, stride=2)

    x = normal(2, 64, 13, 14)
    found = convolutions(network, x)
    assert sorted(dims for _, dims in found) == [(2, c, 7, 7) for c in (64, 64, 96, 128)]
    assert sorted(steps for steps, _ in found) == [(1, 1), (1, 1), (1, 1), (2, 2)]
    for made, wanted in zip(gc.compile(network)(x), interpret(gc.compile(network).graph(x), [x])):
        assert result_error(wanted, made) < 1e-5


def test_what_waits_for_others_stays_whole() -> None:
    w, v = normal(8, 8, 1, 1), normal(8, 8, 1, 1)

    def network(x: Any) -> Any:
        return gc.conv(np.maximum(gc.conv(x, w), 0), v, stride=2)

    def waiting(node: Node, r: Rewriter) -> Node | None:
        if node.op.name != "maximum":
            return None
        (image, *_) = node.inputs[0].inputs
        return r.emit(node.op, node.inputs, node.attrs, after=(image,))

    graph = rebuild(gc.compile(network).graph(normal(1, 8, 6, 6)), waiting)
    made = push_strides(graph, Config())
    assert [str(n.type) for n in made.nodes] == [str(n.type) for n in graph.nodes]


@pytest.mark.parametrize("reader", ["result", "other", "steps", "window"])
def test_what_something_else_reads_stays_whole(reader: str) -> None:
    w, v, u = normal(8, 8, 3, 3), normal(8, 8, 1, 1), normal(8, 8, 3, 3)

    def network(x: Any) -> Any:
        h = np.tanh(gc.conv(x, w, padding=1))
        y = gc.conv(h, v, stride=2)
        others = {
            "result": lambda: h,
            "other": lambda: h.max(axis=3),
            "steps": lambda: gc.conv(h, v, stride=(2, 1)),
            "window": lambda: gc.conv(h, u, stride=2),
        }
        return y, others[reader]()

    x = normal(1, 8, 12, 12)
    assert (1, 8, 12, 12) in [dims for _, dims in convolutions(network, x)]


class Network:
    """Random convolutions with element by element functions and sums between them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.axes = int(self.pick(1, 2, 2, 3))
        sides = [int(self.rng.integers(5, 12)) for _ in range(self.axes)]
        self.x = self.array(int(self.pick(1, 3)), 4, *sides)

    def pick(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def array(self, *dims: int) -> Any:
        return self.rng.standard_normal(dims).astype("f4")

    def conv(self, x: Any, window: int, step: Any = 1) -> Any:
        groups = int(self.pick(1, 1, 2, 4))
        w = self.array(4, 4 // groups, *(window,) * self.axes) / window
        return gc.conv(x, w, stride=step, padding=window // 2, groups=groups)

    def __call__(self, x: Any) -> Any:
        self.rng = np.random.default_rng(self.seed + 1)
        for _ in range(int(self.pick(1, 2, 3))):
            h = self.conv(x, int(self.pick(1, 3)), int(self.pick(1, 1, 2)))
            h = self.pick(np.tanh, lambda h: np.maximum(h, 0), lambda h: h)(h)
            h = h + self.array(*self.pick((1,), h.shape[1:], h.shape[-1:], (4, *(1,) * self.axes)))
            h = self.conv(h, 1, int(self.pick(1, 2)))
            h = h * self.array(*h.shape) if self.pick(True, False) else h
            x = np.sin(h)
        steps = [int(self.pick(1, 2, 2, 3)) for _ in range(self.axes)]
        last = self.conv(x, 1, steps)
        return (last, self.conv(x, 1, steps)) if self.pick(True, False) else last


@pytest.mark.parametrize("seed", [*range(6), *map(slow, range(6, rounds(20)))])
def test_random_networks_and_their_gradients(seed: int) -> None:
    network = Network(seed)
    for function in (network, gc.grad(lambda x: (network(x)[0] ** 2).sum())):
        compiled = gc.compile(function)
        results = interpret(compiled.graph(network.x), [network.x])
        made = compiled(network.x)
        for wanted, got in zip(results, made if isinstance(made, tuple) else (made,)):
            assert result_error(wanted, got) < 2e-5
