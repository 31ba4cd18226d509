"""Random programs in NumPy's in-place style: traced and evaluated, they do what NumPy does.

A program keeps a list of arrays. Steps append a view, a copy or a result, or write into one of
them; in the end every array of the list is compared.
"""

from __future__ import annotations

import numpy as np
import pytest
from effort import rounds

import graphc as gc
from graphc.errors import TypeRuleError
from graphc.frontend.trace.trace import Parameter, trace_function
from graphc.ir.sizes import Scope
from graphc.ir.specialise import specialise
from graphc.ir.types import F64, tensor
from graphc.ops.reference.interpreter import interpret

STEPS = 14


def view_of(rng, x):
    """A random view (or, where NumPy copies, a copy) of an array."""
    rank = x.ndim
    kind = rng.integers(0, 9)
    if kind == 0 or rank == 0:
        return x.reshape(-1)
    if kind == 1:
        return x.T
    if kind == 2:
        return np.expand_dims(x, int(rng.integers(0, rank + 1)))
    if kind == 3:
        return np.flip(x, int(rng.integers(0, rank)))
    if kind == 4:
        return np.swapaxes(x, 0, rank - 1)
    if kind == 5:
        return x.reshape(x.shape[::-1])
    if kind == 6:
        return np.squeeze(x)
    if kind == 7:
        return np.array_split(x, 2)[int(rng.integers(0, 2))] if x.shape[0] else x.ravel()
    return x[random_index(rng, x.shape)]


def random_index(rng, shape):
    parts = []
    for extent in shape[: int(rng.integers(1, len(shape) + 1))]:
        if rng.random() < 0.3 and extent and len(shape) > 1:
            parts.append(int(rng.integers(-extent, extent)))
            continue
        start = int(rng.integers(0, max(extent - 1, 1)))
        step = int(rng.choice([1, 1, 2, -1]))
        parts.append(slice(None, None, step) if step < 0 else slice(start, None, step))
    if rng.random() < 0.2:
        parts.append(Ellipsis)
    return tuple(parts)


def write_to(rng, arrays, x):
    kind = rng.integers(0, 6)
    value = float(rng.integers(1, 100))
    if x.ndim == 0:
        return
    if kind == 0:
        x += value
    elif kind == 1:
        x *= 2
    elif kind == 2:
        x[...] = value
    elif kind == 3:
        x[random_index(rng, x.shape)] = value
    elif kind == 4:
        x[random_index(rng, x.shape)] += value
    else:
        fits = [a for a in arrays if a.shape == x.shape]
        x[...] = fits[int(rng.integers(0, len(fits)))] * 1 + 1


def program(seed):
    def run(x):
        rng = np.random.default_rng(seed)
        arrays = [x * 1]
        for _ in range(STEPS):
            x = arrays[int(rng.integers(0, len(arrays)))]
            if rng.random() < 0.5:
                made = view_of(rng, x)
                if made.ndim > 4:
                    made = made.reshape(-1)
                arrays.append(made if rng.random() < 0.85 else made.copy())
            else:
                write_to(rng, arrays, x)
        return arrays

    return run


@pytest.mark.parametrize("block", range(rounds(4)))
def test_random_programs(block):
    x = np.arange(24.0).reshape(2, 3, 4)
    for seed in range(40 * block, 40 * block + 40):
        expected = program(seed)(x.copy())
        graph = gc.compile(program(seed)).graph(x)
        for mine, wanted in zip(interpret(graph, [x]), expected):
            np.testing.assert_array_equal(mine, wanted, err_msg=f"seed {seed}")


def test_a_loop_body_reads_views_of_outer_arrays_and_does_not_write_through_them():
    rows, xs = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 3), np.float32)

    def reads(rows, xs):
        first = rows[0]
        return gc.scan(lambda c, x: (c + x * rows[1] + first, rows.T[2]), rows[0] * 0, xs)

    for got, want in zip(gc.compile(reads)(rows, xs), reads(rows, xs), strict=True):
        np.testing.assert_array_equal(got, want)

    def writes(rows, xs):
        def body(carry, x):
            row = rows[1]
            row += x
            return carry + row, None

        return gc.scan(body, xs[0], xs)

    with pytest.raises(gc.TraceError, match="cannot be written"):
        gc.compile(writes)(rows, xs)


def chain(seed):
    """Views of views, in the end writes to one or two of them."""

    def run(x):
        rng = np.random.default_rng(seed)
        views = [x * 1]
        for _ in range(4):
            v, kind = views[-1], rng.integers(0, 9)
            axis = int(rng.integers(0, max(v.ndim, 1)))
            part = [slice(0, 2), slice(None, None, 2), slice(None, None, -1), None, 0][kind % 5]
            if kind == 0:
                v = v.T
            elif kind == 1:
                v = v.reshape(-1)
            elif kind == 2 and v.ndim > 1:
                v = v.reshape(v.shape[0] * v.shape[1], *v.shape[2:])
            elif kind == 3 and v.ndim > 1:
                v = v[v.shape[0] - 1]
            elif v.ndim > 1:
                v = v[(slice(None),) * axis + (part,)]
            views.append(v)
        for k in rng.integers(0, 5, 1 + seed % 2):
            written = views[k]
            written *= 3
        return [v * 1 for v in views]

    return run


@pytest.mark.parametrize("shape", [("n", "m"), ("n", 4), (2, "n", "m"), ("n", "n")])
def test_views_of_open_sizes_are_views(shape):
    """What is written through them, or to what they are views of, is seen; for sizes for which an
    array is a copy where it was a view, a guard says so."""
    served = 0
    for seed in range(60):
        scope = Scope()
        sizes = {"n": scope.symbol("n", 6), "m": scope.symbol("m", 4)}
        kind = tensor(F64, (sizes.get(d, d) for d in shape))
        try:
            call = [Parameter("x", kind)], lambda xs, s=seed: chain(s)(*xs)
            graph = trace_function("f", *call).graph
        except TypeRuleError:  # a write at a position that is open: it is compiled for each size
            continue
        for n, m in ((6, 4), (3, 2), (1, 4), (5, 1), (2, 2)):
            values = {"n": n, "m": m}
            given = [(g.difference.value(values), g) for g in scope.guards.values()]
            if any((v > 0 if g.relation == ">" else v == 0) != g.holds for v, g in given):
                continue
            served += 1
            x = np.arange(1.0, 1 + np.prod(dims := [values.get(d, d) for d in shape]))
            x = x.reshape(dims)
            made = interpret(specialise(graph, values), [x])
            for mine, wanted in zip(made, chain(seed)(x.copy()), strict=True):
                np.testing.assert_array_equal(mine, wanted, err_msg=f"seed {seed}, {values}")
    assert served > 30
