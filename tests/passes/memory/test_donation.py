"""donate=: results in the memory of arguments, answered by the native entry alone."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

import graphc as gc
from graphc.errors import RunError
from graphc.frontend.compile.decorator import CompiledFunction

rng = np.random.default_rng(0)


def parameters():
    return {
        "dense": {"w": rng.normal(size=(40, 60)).astype("f4"), "b": np.zeros(60, "f4")},
        "frozen": np.ones(3),
        "count": np.array(0),
    }


def adam(state, x, y):
    params, m, v = state["params"], state["m"], state["v"]

    def loss(dense):
        return gc.mean((x @ dense["w"] + dense["b"] - y) ** 2)

    value, slopes = gc.value_and_grad(loss)(params["dense"])
    made = {"params": {**params, "count": params["count"] + 1, "dense": {}}, "m": {}, "v": {}}
    for k, g in slopes.items():
        made["m"][k] = 0.9 * m[k] + 0.1 * g
        made["v"][k] = 0.99 * v[k] + 0.01 * g * g
        step = made["m"][k] / (np.sqrt(made["v"][k]) + 1e-3)
        made["params"]["dense"][k] = params["dense"][k] - 0.01 * step
    return made, value


def training():
    params = parameters()
    zeros = {k: np.zeros_like(a) for k, a in params["dense"].items()}
    state = {"params": params, "m": zeros, "v": {k: a.copy() for k, a in zeros.items()}}
    return state, rng.normal(size=(8, 40)).astype("f4"), rng.normal(size=(8, 60)).astype("f4")


def leaves(state):
    parts = [state[key] for key in sorted(state)]
    return [a for part in parts for a in (leaves(part) if type(part) is dict else [part])]


def test_a_training_step_is_one_native_call(monkeypatch):
    state, x, y = training()
    plain, step = gc.compile(adam), gc.compile(adam, donate="state")
    other = gc.compile(lambda state: state)(state)
    for _ in range(4):
        other, value = plain(other, x, y)
        made, donated = step(state, x, y)
        assert all(a is b for a, b in zip(leaves(made), leaves(state), strict=True))
        np.testing.assert_allclose(donated, value, rtol=1e-5)
    for a, b in zip(leaves(other), leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    def fail(*_):
        raise AssertionError("the Python path was taken")

    monkeypatch.setattr(CompiledFunction, "_call", fail)
    monkeypatch.setattr(type(step.executable(state, x, y)), "run", fail)
    counts = [sys.getrefcount(a) for a in leaves(state)]
    tracemalloc.start()
    for _ in range(50):
        state, _ = step(state, x, y)
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest < min(a.nbytes for a in leaves(state) if a.ndim == 2)
    assert [sys.getrefcount(a) for a in leaves(state)] == counts


def test_kernels_that_compute_several_values_write_in_place():
    state, x, y = training()
    step = gc.compile(adam, donate="state")
    donated = step.executable(state, x, y).image.donated
    assert sorted(donated) == [-1, *range(len(leaves(state)))]


def scale(p, x):
    return {"a": p["a"] * x[0], "b": p["b"] + p["a"] * x[-1]}


def both_ways(arguments):
    """What donating gives, beside what not donating gives on copies."""
    donating, plain = gc.compile(scale, donate="p"), gc.compile(scale)
    for make in arguments:
        p, x = make()
        wanted = plain({k: np.array(a) for k, a in p.items()}, np.array(x))
        made = donating(p, x)
        for k in wanted:
            np.testing.assert_array_equal(made[k], wanted[k])
        yield p, made


def test_arguments_that_overlap_or_are_fixed():
    memory = np.arange(40.0)

    def apart():
        return {"a": np.arange(8.0), "b": np.ones(8)}, np.arange(1.0, 4)

    def overlapping():
        return {"a": memory[:8], "b": memory[4:12]}, np.arange(1.0, 4)

    def same():
        return {"a": memory[:8], "b": memory[:8]}, np.arange(1.0, 4)

    def view():
        p = apart()[0]
        return p, p["a"][2:5]

    def neighbours():
        return {"a": memory[:8], "b": memory[8:16]}, memory[16:19]

    def fixed():
        p, x = apart()
        p["b"].flags.writeable = False
        return p, x

    cases = [apart] * 3 + [overlapping, same, view, neighbours, fixed, apart] * 3
    for make, (p, made) in zip(cases, both_ways(cases), strict=True):
        if make in (apart, neighbours):
            assert made["a"] is p["a"] and made["b"] is p["b"]
        if make is fixed:
            assert made["b"] is not p["b"] and (p["b"] == 1).all()


def test_buffers_that_change_places():
    blocks = [np.arange(8.0) + k for k in range(4)]

    def draw():
        a, b = rng.permutation(4)[:2]
        block = blocks[rng.integers(4)]
        x = block[:3] if rng.integers(2) else rng.integers(1, 3, 3) / 2.0
        return {"a": blocks[a], "b": blocks[b]}, x

    assert sum(made["a"] is p["a"] for p, made in both_ways([draw] * 200)) > 50


def test_what_is_read_elsewhere_is_not_overwritten():
    w = rng.normal(size=(16, 16))
    x = rng.normal(size=(16, 16))

    def f(w, x):
        return w - 0.1 * (w.T @ x), w.sum()

    for _ in range(4):
        mine = w.copy()
        made, total = gc.compile(f, donate="w")(mine, x)
        np.testing.assert_allclose(made, w - 0.1 * (w.T @ x))
        np.testing.assert_allclose(total, w.sum())


def test_sums_are_kept_apart_from_what_an_update_reads():
    w = rng.normal(size=(64, 48)).astype("f4")
    x, g = (rng.normal(size=(2000, n)).astype("f4") for n in (64, 48))
    step = gc.compile(lambda w, x, g: w - 0.001 * (x.T @ g), donate="w")
    mine, wanted = w.copy(), w.astype("f8")
    for _ in range(4):
        made = step(mine, x, g)
        assert made is mine
        wanted = wanted - 0.001 * (x.T.astype("f8") @ g)
        np.testing.assert_allclose(made, wanted, rtol=1e-3, atol=1e-4)
    kinds = {n.attrs["kind"] for n in step.lower(w, x, g).graphs[0].nodes if n.op.name == "fused"}
    assert "staged" in kinds


def test_failures_are_raised_once():
    step = gc.compile(lambda p, i: (p + 1, gc.take(p, i, mode="raise")), donate="p")
    p = np.arange(4.0)
    for _ in range(4):
        p, _ = step(p, np.array([0]))
    with pytest.raises(RunError, match="out of range"):
        step(p, np.array([9]))
    p, taken = step(np.arange(4.0), np.array([3]))
    np.testing.assert_array_equal(p, [1, 2, 3, 4])
    assert taken == 3


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_argument_that_a_later_pass_over_a_row_reads_is_not_overwritten_by_an_earlier_one(order):
    def function(h, x):
        both = h + x, h * (x - gc.max(x, axis=-1, keepdims=True))
        return both[order[0]], both[order[1]]

    h, x = rng.normal(size=(2, 40, 64)).astype("f4")
    wanted = function(h, x)
    for made, value in zip(gc.compile(function, donate="h")(h.copy(), x), wanted, strict=True):
        np.testing.assert_allclose(made, value, rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 0.5).reshape(4, 6),
        lambda x: (np.exp(x).reshape(-1), x.sum()),
        lambda x: gc.cond(x[0, 0] > 0, lambda: x * 2, lambda: x + 1).reshape(6, 4),
    ],
)
def test_a_result_of_another_shape_has_memory_of_its_own(function):
    x = rng.normal(size=(2, 12))
    parts = lambda made: made if isinstance(made, tuple) else (made,)
    for opt in (0, 2):
        made = gc.compile(function, donate="x", opt=opt)(x.copy())
        wanted = gc.compile(function)(x)
        for one, other in zip(parts(made), parts(wanted), strict=True):
            np.testing.assert_array_equal(one, other)
