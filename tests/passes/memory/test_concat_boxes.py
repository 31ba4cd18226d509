"""Results that put computed arrays in a row: the arrays lie there from the beginning."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import graphc as gc
from graphc.ir.liveness import peak_bytes
from graphc.ir.place import Buffer

rng = np.random.default_rng(0)
w = rng.standard_normal((16, 16), np.float32) / 4


def chain(h, w, steps=6):
    states = []
    for _ in range(steps):
        h = np.tanh(h @ w)
        states.append(h)
    return np.stack(states)


def planned(function, *arguments, **options):
    value = gc.compile(function, **options).stages(*arguments)[-1][1]
    return getattr(value, "graphs", (value,))[0]


def test_states_are_written_where_they_are_stacked():
    h = rng.standard_normal((16, 16), np.float32)
    graph = planned(chain, h, w)
    places = [n.place.regions[0] for n in graph.nodes if isinstance(n.place, Buffer)]
    starts = sorted({p.offset for p in places if p.base == "r0"})
    assert starts == [k * h.nbytes for k in range(6)]
    inside = {p for p in places if p.base == "arena" and p.nbytes == h.nbytes}
    assert not inside and peak_bytes(graph) < 6 * h.nbytes
    np.testing.assert_allclose(gc.compile(chain)(h, w), chain(h, w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("donate", [(), "x"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: np.concatenate([x[:8] @ w, x[8:] @ w]),
        lambda x, w: np.concatenate([x[8:] @ w, x[:8] @ w]),
        lambda x, w: np.concatenate([x[:5] @ w, np.tanh(x[5:10]), x[10:] @ w]),
        lambda x, w: np.concatenate([y := x[:8] @ w, y]),
        lambda x, w: (np.concatenate([y := x[8:] @ w, np.exp(y)]), y, x.sum()),
        lambda x, w: (np.concatenate([y := x[8:] @ w, x[:8]]), np.concatenate([x[:8], y])),
        lambda x, w: np.concatenate([gc.fori(0, 3, lambda _, h: h @ w, x[8:]), x[8:] @ w]),
        lambda x, w: gc.fori(0, 3, lambda _, h: np.concatenate([h[8:] @ w, h[:8] @ w]), x),
        lambda x, w: gc.cond(
            x[0, 0] > 9, lambda: x + 1, lambda: np.concatenate([x[8:] @ w, x[:8] @ w])
        ),
    ],
)
def test_every_kind_of_part(function, donate):
    x = rng.standard_normal((16, 16), np.float32)
    wanted = gc.compile(function, opt=0)(x, w)
    made = gc.compile(function, donate=donate)(x.copy(), w)
    pairs = zip(made, wanted, strict=True) if isinstance(wanted, tuple) else [(made, wanted)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_variable_of_parts_is_read_before_it_changes(home):
    v = gc.Variable(rng.standard_normal((16, 16), np.float32), name="v")

    @gc.compile
    def step(w):
        old = v.value
        v.assign(np.concatenate([old[8:] @ w, old[:8] @ w]))
        return v.value

    values = [v.value]
    for _ in range(3):
        step(w)
        values.append(v.value)
    for old, new in pairwise(map(np.asarray, values)):
        wanted = np.concatenate([old[8:] @ w, old[:8] @ w])
        np.testing.assert_allclose(new, wanted, rtol=1e-4, atol=1e-5)
