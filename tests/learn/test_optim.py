"""Optimisers and schedules against NumPy formulas, and against PyTorch where it is installed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from effort import crossed
from ml_dtypes import bfloat16

import graphc as gc
from graphc.errors import GraphError
from graphc.learn import optim

STEPS = 10


def tree(seed, dtype=np.float32, scale=1.0):
    rng = np.random.default_rng(seed)
    return {
        "w": (rng.normal(size=(4, 3)) * scale).astype(dtype),
        "layers": [rng.normal(size=(5,)).astype(dtype), (rng.normal(size=()).astype(dtype),)],
    }


def leaves(value):
    return [value["w"], value["layers"][0], value["layers"][1][0]]


def run(optimiser, dtype=np.float32, steps=STEPS, compiled=False):
    """Leaves of the parameters after every update."""
    params = tree(0, dtype)
    state = optimiser.init(params)
    update = gc.compile(optimiser.update) if compiled else optimiser.update
    history = []
    for step in range(steps):
        params, state = update(tree(step + 1, dtype), state, params)
        history.append([np.array(leaf) for leaf in leaves(params)])
    assert state["step"] == steps
    return history


# ------------------------------------------------------------------------------- NumPy formulas


def sgd(p, g, s, t, rate=0.1, decay=0.0):
    return p - rate * (g + decay * p), s


def nesterov(p, g, v, t):
    v = 0.9 * v + g
    return p - 0.1 * (g + 0.9 * v), v


def momentum(p, g, v, t):
    v = 0.8 * v + g
    return p - 0.1 * v, v


def adam(p, g, s, t, rate=1e-2, decay=0.0, decoupled=0.0):
    m, v = s if t else (0.0, 0.0)
    p = p - rate * decoupled * p
    g = g + decay * p
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    mean, square = m / (1 - 0.9 ** (t + 1)), v / (1 - 0.999 ** (t + 1))
    return p - rate * mean / (np.sqrt(square) + 1e-8), (m, v)


def adagrad(p, g, total, t):
    total = (total if t else 0.1) + g**2
    return p - 0.1 * g / (np.sqrt(total) + 1e-10), total


def rmsprop(p, g, s, t):
    square, mean, v = s if t else (0.0, 0.0, 0.0)
    square, mean = 0.9 * square + 0.1 * g**2, 0.9 * mean + 0.1 * g
    v = 0.5 * v + g / (np.sqrt(square - mean**2) + 1e-8)
    return p - 0.01 * v, (square, mean, v)


# name, ours, formula, class of torch.optim, its arguments
CASES = [
    ("sgd", optim.sgd(0.1), sgd, "SGD", {"lr": 0.1}),
    (
        "sgd decay",
        optim.sgd(0.1, weight_decay=0.3),
        lambda *a: sgd(*a, decay=0.3),
        "SGD",
        {"lr": 0.1, "weight_decay": 0.3},
    ),
    ("momentum", optim.momentum(0.1, 0.8), momentum, "SGD", {"lr": 0.1, "momentum": 0.8}),
    (
        "nesterov",
        optim.nesterov(0.1),
        nesterov,
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    ("adam", optim.adam(1e-2), adam, "Adam", {"lr": 1e-2}),
    (
        "adam decay",
        optim.adam(1e-2, weight_decay=0.2),
        lambda *a: adam(*a, decay=0.2),
        "Adam",
        {"lr": 1e-2, "weight_decay": 0.2},
    ),
    (
        "adamw",
        optim.adamw(1e-2, weight_decay=0.2),
        lambda *a: adam(*a, decoupled=0.2),
        "AdamW",
        {"lr": 1e-2, "weight_decay": 0.2},
    ),
    (
        "adagrad",
        optim.adagrad(0.1, initial=0.1),
        adagrad,
        "Adagrad",
        {"lr": 0.1, "initial_accumulator_value": 0.1},
    ),
    (
        "rmsprop",
        optim.rmsprop(0.01, 0.9, momentum=0.5, centred=True),
        rmsprop,
        "RMSprop",
        {"lr": 0.01, "alpha": 0.9, "momentum": 0.5, "centered": True},
    ),
    ("rmsprop plain", optim.rmsprop(0.01), None, "RMSprop", {"lr": 0.01}),
]
FORMULAS = [pytest.param(*c[1:3], id=c[0]) for c in CASES if c[2] is not None]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("optimiser", "formula"), FORMULAS)
def test_formula(optimiser, formula, compiled):
    found = run(optimiser, np.float64, compiled=compiled)
    for place, start in enumerate(leaves(tree(0, np.float64))):
        p, state = start, 0.0
        for t in range(STEPS):
            p, state = formula(p, leaves(tree(t + 1, np.float64))[place], state, t)
            np.testing.assert_allclose(found[t][place], p, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "dtype"), crossed(CASES, [np.float32, np.float64]))
def test_equals_torch(case, dtype):
    _, optimiser, _, kind, arguments = case
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(x, requires_grad=True) for x in leaves(tree(0, dtype))]
    reference = getattr(torch.optim, kind)(theirs, **arguments)
    for t, found in enumerate(run(optimiser, dtype)):
        for x, gradient in zip(theirs, leaves(tree(t + 1, dtype))):
            x.grad = torch.tensor(gradient)
        reference.step()
        for ours, x in zip(found, theirs):
            assert ours.dtype == dtype
            np.testing.assert_allclose(ours, x.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [bfloat16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("optimiser", [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_dtypes_stay(optimiser, dtype, compiled):
    update = gc.compile(optimiser.update) if compiled else optimiser.update
    params = tree(0, dtype)
    before = optimiser.init(params)
    made, state = update(tree(1, np.float32), before, params)
    assert all(x.dtype == dtype for x in leaves(made))
    assert sorted(state) == sorted(before)
    assert state["step"].dtype == np.int64
    for name in set(state) - {"step"}:
        assert all(x.dtype == dtype for x in leaves(state[name]))


def test_structure_and_order_of_the_parameters_stay():
    params = {"z": np.ones(2, np.float32), "a": (np.ones(3, np.float32), None)}
    optimiser = optim.adam()
    made, state = optimiser.update(params, optimiser.init(params), params)
    assert list(made) == ["z", "a"]
    assert made["a"][1] is None
    assert list(state["first_moment"]) == ["z", "a"]


def test_no_gradient_no_change():
    params = {"w": np.ones(2, np.float32), "frozen": np.arange(3)}
    optimiser = optim.adamw(0.1)
    state = optimiser.init(params)
    made, state = optimiser.update({"w": params["w"], "frozen": None}, state, params)
    assert made["frozen"] is params["frozen"]
    np.testing.assert_allclose(made["w"], 0.899, rtol=1e-5)


def test_rate_zero_changes_nothing():
    for optimiser in (optim.sgd(0.0), optim.adamw(0.0), optim.rmsprop(0.0)):
        for got, want in zip(run(optimiser)[-1], leaves(tree(0))):
            np.testing.assert_array_equal(got, want)


def test_mask_of_weight_decay():
    params = tree(0)
    zero = {"w": params["w"] * 0, "layers": [params["layers"][0] * 0, (np.float32(0),)]}
    matrices = lambda p: {"w": p["w"].ndim > 1, "layers": [False, (False,)]}
    assert optim.matrices(params) == matrices(params)
    for mask in (matrices, matrices(params), optim.matrices):
        optimiser = optim.adamw(0.1, weight_decay=0.5, mask=mask)
        made, _ = optimiser.update(zero, optimiser.init(params), params)
        np.testing.assert_allclose(made["w"], params["w"] * 0.95, rtol=1e-6)
        np.testing.assert_array_equal(made["layers"][0], params["layers"][0])


def test_rate_may_be_an_argument():
    @gc.compile
    def step(rate, gradients, params):
        optimiser = optim.sgd(rate)
        return optimiser.update(gradients, optimiser.init(params), params)[0]

    params = tree(0)
    for rate in (0.5, np.float64(0.25), np.float32(0.125)):
        made = step(rate, tree(1), params)
        assert made["w"].dtype == np.float32
        np.testing.assert_allclose(made["w"], params["w"] - rate * tree(1)["w"], rtol=1e-6)


# ------------------------------------------------------------------------------- clipping


def test_global_norm_and_clipping():
    gradients = tree(3)
    norm = math.sqrt(sum(float((x.astype(np.float64) ** 2).sum()) for x in leaves(gradients)))
    np.testing.assert_allclose(optim.global_norm(gradients), norm, rtol=1e-6)
    for clip in (optim.clip_by_global_norm, gc.compile(optim.clip_by_global_norm)):
        clipped = clip(gradients, 0.5)
        for got, want in zip(leaves(clipped), leaves(gradients)):
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, want * (0.5 / (norm + 1e-6)), rtol=1e-6)
        for got, want in zip(leaves(clip(gradients, 100.0)), leaves(gradients)):
            np.testing.assert_array_equal(got, want)


def test_clipping_in_half_precision_does_not_overflow():
    made = optim.clip_by_global_norm({"w": np.full(4, 3e4, np.float16), "none": None}, 1.0)
    assert made["w"].dtype == np.float16
    assert made["none"] is None
    np.testing.assert_allclose(made["w"], 0.5, rtol=1e-3)


def test_nothing_to_train():
    optimiser = optim.adam().clipped(1.0)
    made, state = optimiser.update({}, optimiser.init({}), {})
    assert made == {}
    assert state["step"] == 1


def test_optimiser_clips_first():
    params, gradients = tree(0), tree(1, scale=100.0)
    plain, clipping = optim.sgd(1.0), optim.sgd(1.0).clipped(1.0)
    small = optim.clip_by_global_norm(gradients, 1.0)
    want, _ = plain.update(small, plain.init(params), params)
    got, _ = clipping.update(gradients, clipping.init(params), params)
    np.testing.assert_array_equal(got["w"], want["w"])


# ------------------------------------------------------------------------------- schedules

SCHEDULES = [
    (optim.constant(0.5), lambda t: 0.5),
    (optim.linear(1.0, 0.2, 8), lambda t: 1.0 - 0.1 * min(t, 8)),
    (optim.cosine(1.0, 8, 0.1), lambda t: 0.1 + 0.45 * (1 + math.cos(math.pi * min(t, 8) / 8))),
    (optim.exponential(2.0, 0.5, 4), lambda t: 2 * 0.5 ** (t / 4)),
    (optim.exponential(2.0, 0.5, 4, staircase=True), lambda t: 2 * 0.5 ** (t // 4)),
    (optim.piecewise([3, 6], [1.0, 0.1, 0.01]), lambda t: 1.0 if t < 3 else 0.1 if t < 6 else 0.01),
    (optim.warm_up(0.8, 4), lambda t: 0.8 * min(t, 4) / 4),
    (
        optim.warm_up(optim.exponential(0.8, 0.5, 2), 4, 0.4),
        lambda t: 0.4 + 0.1 * t if t < 4 else 0.8 * 0.5 ** ((t - 4) / 2),
    ),
]


@pytest.mark.parametrize(("schedule", "formula"), SCHEDULES)
def test_schedule(schedule, formula):
    compiled = gc.compile(lambda step: schedule(step))
    for t in range(12):
        np.testing.assert_allclose(schedule(t), formula(t), rtol=1e-14)
        np.testing.assert_allclose(schedule(np.int64(t)), formula(t), rtol=1e-14)
        np.testing.assert_allclose(compiled(np.int64(t)), formula(t), rtol=1e-12)


def test_first_update_asks_the_schedule_for_zero():
    params = {"w": np.zeros((), np.float32)}
    optimiser = optim.sgd(optim.piecewise([1, 2], [1.0, 10.0, 100.0]))
    state, one = optimiser.init(params), {"w": np.ones((), np.float32)}
    for want in (-1.0, -11.0, -111.0):
        params, state = optimiser.update(one, state, params)
        assert params["w"].dtype == np.float32
        assert params["w"] == want


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o, s, p: o.update({"w": p["w"]}, s, p), "gradients do not have the structure"),
        (lambda o, s, p: o.update(p, {"step": s["step"]}, p), "the state given is step"),
        (lambda o, s, p: o.update({**p, "w": p["w"][0]}, s, p), "parameter w has shape"),
        (lambda o, s, p: o.update({"n": 1}, o.init({"n": 1}), {"n": 1}), "change floats"),
        (lambda o, s, p: optim.adam(-1.0), "learning rate of -1.0"),
        (lambda o, s, p: optim.adam("fast"), "a learning rate is a number"),
        (lambda o, s, p: optim.adam(beta2=1.0), "beta2 1.0"),
        (lambda o, s, p: optim.piecewise([1], [1.0]), "need 2 rates"),
        (lambda o, s, p: optim.piecewise([2, 1], [1.0, 1, 1]), "do not increase"),
        (lambda o, s, p: optim.cosine(1.0, 0), "over 0 steps"),
        (lambda o, s, p: optim.clip_by_global_norm(p, 0.0), "norm of 0.0"),
        (lambda o, s, p: optim.global_norm({}), "without arrays"),
        (
            lambda o, s, p: optim.adamw(mask={"w": True}).update(p, s, p),
            "mask do not have the structure",
        ),
    ],
)
def test_errors(call, message):
    params = tree(0)
    optimiser = optim.adam()
    with pytest.raises(GraphError, match=message):
        call(optimiser, optimiser.init(params), params)
