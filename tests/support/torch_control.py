"""Random control flow over a state of a vector, a matrix and a number: as ops in graphc, as plain
Python in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_ops import Choose, constant

import graphc as gc

State = tuple[Any, Any, Any]  # a vector [3], a matrix [2, 3], a number
Block = Callable[["Library", State, "Around"], State]


class Around:
    """What a body can use besides its own state: inputs, and the state of the block around it."""

    def __init__(self, weight: Any, bias: Any, table: Any, outer: State) -> None:
        self.weight = weight
        self.bias = bias
        self.table = table
        self.outer = outer

    def inside(self, state: State) -> Around:
        return Around(self.weight, self.bias, self.table, state)


class InGraphc:
    """Control flow as nodes."""

    f = np
    cond = staticmethod(gc.cond)
    switch = staticmethod(gc.switch)
    while_loop = staticmethod(gc.while_loop)
    fori = staticmethod(gc.fori)
    scan = staticmethod(gc.scan)
    checkpoint = staticmethod(gc.checkpoint)

    @staticmethod
    def call(block: Any) -> Any:
        return gc.compile(block)

    @staticmethod
    def grad(function: Any, at: Any) -> Any:
        return gc.grad(function)(at)

    @staticmethod
    def vjp(function: Any, at: Any) -> Any:
        result, pullback = gc.vjp(function, at)
        return pullback(np.sin(result))[0]

    @staticmethod
    def integer(x: Any) -> Any:
        return gc.astype(x, np.int64)


class InTorch:
    """Control flow on what the values are."""

    f = torch

    @staticmethod
    def cond(pred: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
        return (then if pred else otherwise)(*operands)

    @staticmethod
    def switch(index: Any, branches: Any, *operands: Any) -> Any:
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)

    @staticmethod
    def while_loop(test: Any, body: Any, state: Any) -> Any:
        while test(state):
            state = body(state)
        return state

    @staticmethod
    def fori(start: Any, stop: Any, body: Any, state: Any) -> Any:
        for k in range(int(start), int(stop)):
            state = body(k, state)
        return state

    @staticmethod
    def scan(body: Any, state: Any, xs: Any, reverse: bool = False) -> Any:
        rows = []
        for k in reversed(range(len(xs))) if reverse else range(len(xs)):
            state, y = body(state, xs[k])
            rows.append(y)
        rows = rows[::-1] if reverse else rows
        return state, torch.stack(rows) if rows else torch.zeros((0, 3), dtype=torch.float64)

    @staticmethod
    def checkpoint(block: Any) -> Any:
        return block

    @staticmethod
    def call(block: Any) -> Any:
        return block

    @staticmethod
    def grad(function: Any, at: Any) -> Any:
        return InTorch._pulled(function, at, lambda result: torch.ones(()).double())

    @staticmethod
    def vjp(function: Any, at: Any) -> Any:
        return InTorch._pulled(function, at, torch.sin)

    @staticmethod
    def _pulled(function: Any, at: Any, seed: Any) -> Any:
        at = at if at.requires_grad else at.clone().requires_grad_()
        point = at * 1
        result = function(point)
        if not result.requires_grad:
            return torch.zeros_like(at)
        return torch.autograd.grad(
            result,
            point,
            seed(result),
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )[0]

    @staticmethod
    def integer(x: Any) -> Any:
        return x.detach().to(torch.int64)


Library = type[InGraphc] | type[InTorch]

# ------------------------------------------------------------------------------------------- steps


STEPS: list[Callable[[Any, Any, Any, Any, Around], State]] = [
    lambda f, v, m, s, a: (f.tanh(a.weight @ v + a.bias * s), m, s),
    lambda f, v, m, s, a: (v, f.sin(m * a.bias + v) * 0.8, s),
    lambda f, v, m, s, a: (v, m, f.tanh(f.sum(m) * 0.3 + v @ a.bias)),
    lambda f, v, m, s, a: (v, f.tanh(m @ a.weight) + 0.1 * m, s),
    lambda f, v, m, s, a: (f.cumsum(v, 0) * 0.5, m, s + f.sum(f.exp(-m * m)) * 0.1),
    lambda f, v, m, s, a: (v + 0.3 * f.cos(s), m, -s),
    lambda f, v, m, s, a: (m[1] * s + m[0], m, s),
    lambda f, v, m, s, a: (v * a.outer[0] * 0.7 + 0.2, m - a.outer[2], s),
    lambda f, v, m, s, a: (v, f.where(m > v, m * v, f.sin(v) + s), s),
    lambda f, v, m, s, a: (f.exp(-v * v), f.stack((m[1], a.outer[0])), s * v[1]),
    lambda f, v, m, s, a: (a.table[1] * v + a.table[0], m, s / (1 + s * s)),
    lambda f, v, m, s, a: (v, f.outer(f.sin(m[:, 1]), v), f.sum(a.outer[1] * m) * 0.2),
    lambda f, v, m, s, a: (a.outer[0], m, s),
]

TESTS: list[Callable[[Any, State, Around], Any]] = [
    lambda f, x, a: x[2] > 0.05,
    lambda f, x, a: x[0][1] < x[1][0, 2],
    lambda f, x, a: f.sum(x[1]) > a.outer[2],
]


def step(choose: Choose) -> Block:
    function = choose(STEPS)
    return lambda lib, state, around: function(lib.f, *state, around)


def block_of(choose: Choose, depth: int, most: int = 3) -> Block:
    """A few steps one after the other; those of depth 0 are without control flow."""
    kinds = [step, *(CONTROL if depth else [])] if depth else [step]
    parts = []
    for _ in range(choose(range(1, most + 1))):
        kind = choose(kinds)
        parts.append(kind(choose) if kind is step else kind(choose, depth))

    def run(lib: Library, state: State, around: Around) -> State:
        for part in parts:
            state = part(lib, state, around)
        return state

    return run


# ------------------------------------------------------------------------------------ control flow


def branch(choose: Choose, depth: int) -> Block:
    test = choose(TESTS)
    then, otherwise = block_of(choose, depth - 1), block_of(choose, depth - 1, 1)

    def run(lib: Library, state: State, around: Around) -> State:
        inner = around.inside(state)
        chosen = lib.cond(
            test(lib.f, state, around),
            lambda *s: then(lib, s, inner),
            lambda *s: otherwise(lib, s, inner),
            *state,
        )
        return tuple(chosen)

    return run


def cases(choose: Choose, depth: int) -> Block:
    blocks = [block_of(choose, depth - 1, 2) for _ in range(choose((3, 1, 2)))]

    def run(lib: Library, state: State, around: Around) -> State:
        index = lib.integer(state[0][0] * 3 + 1)
        branches = [lambda *s, b=b: b(lib, s, around) for b in blocks]
        return tuple(lib.switch(index, branches, *state))

    return run


def folded(choose: Choose, depth: int) -> Block:
    """A scan over rows of the table or of something computed."""
    body, reverse, rows = block_of(choose, depth - 1, 2), choose((False, True)), choose((3, 1, 0))
    computed, own = choose((False, True)), choose((False, True))

    def run(lib: Library, state: State, around: Around) -> State:
        table = around.table * state[2] if computed else around.table

        def one(carry: State, x: Any) -> Any:
            inner = around.inside(state if own else carry)
            v, m, s = body(lib, (carry[0] + x, carry[1], carry[2]), inner)
            return (v, m, s), v * x

        last, ys = lib.scan(one, state, table[:rows], reverse=reverse)
        return last[0], last[1], last[2] + lib.f.sum(ys * 0.3)

    return run


def mapped(choose: Choose, depth: int) -> Block:
    """Rows of the matrix, each on its own."""
    body = block_of(choose, depth - 1, 1)

    def run(lib: Library, state: State, around: Around) -> State:
        def one(_: Any, row: Any) -> Any:
            return (), body(lib, (row, state[1], state[2]), around)[0]

        return state[0], lib.scan(one, (), state[1])[1], state[2]

    return run


def repeated(choose: Choose, depth: int) -> Block:
    """A loop that ends by what it computed."""
    body, limit = block_of(choose, depth - 1, 2), choose((2, 0, 4))

    def run(lib: Library, state: State, around: Around) -> State:
        def test(s: Any) -> Any:
            return (s[0] < limit) & (lib.f.sum(s[1][0] ** 2) < 8)

        made = lib.while_loop(
            test, lambda s: (s[0] + 1, body(lib, s[1], around.inside(state))), (0, state)
        )
        return made[1]  # type: ignore[no-any-return]

    return run


def counting(choose: Choose, depth: int) -> Block:
    """A number of turns that is known, or depends on the data."""
    body, known = block_of(choose, depth - 1, 2), choose((True, False))

    def run(lib: Library, state: State, around: Around) -> State:
        stop = 2 if known else lib.integer(abs(state[2]) * 3)
        return lib.fori(0, stop, lambda k, s: body(lib, (s[0] * (k + 1), *s[1:]), around), state)  # type: ignore[no-any-return]

    return run


def again(choose: Choose, depth: int) -> Block:
    body, how = block_of(choose, depth - 1, 2), choose(("checkpoint", "call"))

    def run(lib: Library, state: State, around: Around) -> State:
        if how == "call":
            inner = lib.call(lambda state, w, b, t, o: body(lib, state, Around(w, b, t, o)))
            return tuple(inner(state, around.weight, around.bias, around.table, around.outer))
        inner = lib.checkpoint(lambda *state: body(lib, state, around))
        return tuple(inner(*state))

    return run


def inner_gradient(choose: Choose, depth: int) -> Block:
    """The gradient of a block within the function that is differentiated."""
    body, scalar = block_of(choose, depth - 1, 2), choose((True, False))

    def run(lib: Library, state: State, around: Around) -> State:
        def loss(v: Any) -> Any:
            v, m, s = body(lib, (v, state[1], state[2]), around)
            return s + lib.f.sum(v) + lib.f.sum(m * m) if scalar else m

        slope = lib.grad(loss, state[0]) if scalar else lib.vjp(loss, state[0])
        return lib.f.tanh(slope), state[1], state[2]

    return run


CONTROL = [branch, cases, folded, mapped, repeated, counting, again, inner_gradient]


def controlled(choose: Choose, depth: int) -> tuple[Any, Any, list[Any]]:
    """A function in both libraries and its inputs: the state, a weight, a bias and a table."""
    blocks = [block_of(choose, depth), choose(CONTROL)(choose, depth)]

    def function(lib: Library) -> Callable[..., Any]:
        def run(v: Any, m: Any, s: Any, weight: Any, bias: Any, table: Any) -> Any:
            state = (v, m, s)
            for block in blocks:
                state = block(lib, state, Around(weight, bias, table, (v, m, s)))
            return lib.f.sum(state[0] * v) + lib.f.sum(state[1]) * 0.7 + state[2]

        return run

    shapes = ((3,), (2, 3), (), (3, 3), (3,), (3, 3))
    inputs = [torch.from_numpy(np.asarray(constant(d, 0.2 * k))) for k, d in enumerate(shapes)]
    return function(InGraphc), function(InTorch), inputs
