"""Twelve questions about real models, each with the right reason."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import graphc as gc
from graphc.frontend.diagnosis.roofline import Limits
from graphc.frontend.diagnosis.why import Why

rng = np.random.default_rng(3)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


WIDTH = 48
X = f32(16, WIDTH)
P = {k: f32(WIDTH, WIDTH) for k in ("q", "k", "v")}


@gc.compile
def attention(x, p):
    h = gc.name((x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5), "h")
    q = gc.name(h @ p["q"], "query")
    scores = gc.softmax(q @ (h @ p["k"]).T / 7, axis=-1)
    unused = gc.name(np.sin(scores), "unused")  # noqa: F841
    again = gc.name(h @ p["q"], "again")
    return gc.name(scores @ (h @ p["v"]) + again, "out")


def step(p, x, y):
    def loss(p):
        return ((np.tanh(x @ p["a"]) @ p["b"] - y) ** 2).mean()

    value, g = gc.value_and_grad(loss)(p)
    return value, {k: p[k] - 0.1 * g[k] for k in p}


def pipelined(x, w):
    with gc.device("cpu:0"):
        h = gc.name(np.tanh(x @ w), "h")
    with gc.device("cpu:1"):
        g = gc.name(np.exp(h) @ w, "g")
    return h.sum() + gc.name(g.sum(), "free")


def told(answers, question):
    """The answer to the first question that begins so, and its evidence, as one text."""
    return next(str(a) for a in answers if a.question.startswith(question))


@pytest.fixture(scope="module")
def whole():
    return gc.why(attention, X, P)


@pytest.fixture(scope="module")
def spread():
    f = gc.compile(pipelined, devices=["cpu:0", "cpu:1"], compress=True)
    return gc.why(f, f32(64, 64), f32(64, 64))


def test_1_why_was_this_not_fused(whole):
    text = told(whole.of("h"), "Why is")
    assert "matmul" in text
    assert "a product reads its operands many times over" in text
    text = told(whole.of("again"), "Why is %")
    assert "product" in text


def test_2_why_did_these_not_become_one_kernel():
    f = gc.compile(lambda x: np.tanh(x).sum(axis=0) + np.exp(x.sum(axis=1)))
    answers = gc.why(f, np.ones((9, 9), np.float32)).of("add")
    assert "not in one kernel" in answers[1].question
    assert answers[1].answer.startswith(("it runs beside another operand", "its elements"))
    g = gc.compile(lambda x: np.sort(x * 2) + 1)
    found = str(gc.why(g, np.ones((4, 40), np.float32)).kernels())
    assert "sort_keys is a kernel of its own" in found
    h = gc.compile(lambda x: np.exp(x) + 1, opt=0)
    assert "opt=0" in str(gc.why(h, np.ones(4)).kernels())


def test_3_what_became_of_it(whole):
    assert "cse: " in told(whole.of("again"), "What became")
    assert "same as" in told(whole.of("again"), "What became")
    assert "sin has no reader" in told(whole.of("unused"), "What became")
    softmax = told(whole.of("softmax"), "What became")
    assert "softmax written out" in softmax
    assert "exp" in softmax
    line = inspect.unwrap(attention).__code__.co_firstlineno + 3
    assert "query" not in softmax
    assert told(whole.of(f"test_why.py:{line}"), "What became")


def test_4_why_is_this_recv_here(spread):
    text = told(spread.of("h"), "Why is there a recv")
    assert "goes to cpu:1" in text
    assert "exp" in text
    assert "slack" in text
    assert "cross between devices" in str(spread.messages())


def test_5_why_is_this_transfer_short_or_not(spread):
    assert "saves 8,192 bytes a message" in told(spread.of("h"), "Why is there a recv")
    assert "it is a feed" in told(spread.of("w"), "Why is there a recv")


def test_6_why_is_it_on_this_device(spread):
    assert "the only device that its constraints allow" in told(
        spread.of("g"), "Why is it on cpu:1"
    )
    assert "rejected cpu:" in told(spread.of("free"), "Why is it on")
    assert "makespan" in str(spread.devices())


def test_7_why_was_it_compiled_again():
    f = gc.compile(lambda x: x + 1)
    f(np.ones((2, 3)))
    f(np.ones((2, 4)))
    text = str(f.why().again())
    assert "argument x: shape (2, 3) -> (2, " in text  # x_1: one for every size, or 4
    assert "first call" in text
    assert "it is computed in" in told(f.why().of("add"), "What became")
    assert str(gc.why(f, np.ones((2, 7)), runs=1))


class Known(Limits):
    """A machine that is known: 1 Gflop/s, 1 GB/s, 1 us to start."""

    flops = 1e9  # type: ignore[assignment]
    launch = 1e-6  # type: ignore[assignment]

    def copy(self, nbytes):
        return nbytes / 1e9


def judged(function, *arrays, share=0.8):
    """The answer about a function of one kernel that takes what its limit says over a share."""
    f = gc.compile(function)
    why = gc.why(f, *arrays)
    why.limits = Known(f.config)
    (load,) = why.loads()
    ideal = max(load.flops / 1e9, load.bytes / 1e9, 1e-6)
    why.times = {("cpu:0", load.node.summary()): (6 * ideal / share, 6)}
    return str(why.slow())


def test_8_bound_by_memory():
    text = judged(lambda x: x + 1, f32(100, 100))
    assert "bound by memory: a copy of as many bytes takes 80 % of its time" in text
    assert "100 % of" in text
    part = judged(lambda x: x[:, :2] * 2, f32(100, 100))
    assert "1,600 bytes" in part  # what it shows of its operand


def test_9_bound_by_compute():
    text = judged(lambda x, y: x @ y, f32(64, 64), f32(64, 64))
    assert "bound by compute: a product of matrices does as many flops in 80 %" in text


def test_10_bound_by_latency_or_its_own_instructions():
    assert "bound by latency" in judged(lambda x: x + 1, f32(3))
    text = judged(np.exp, f32(100, 100), share=0.1)
    assert "bound by its own instructions (exp)" in text


def test_11_where_does_the_memory_peak_come_from():
    p = {"a": f32(64, 128), "b": f32(128, 8)}
    why = gc.why(gc.compile(step), p, f32(32, 64), f32(32, 8))
    text = str(why.memory())
    assert "bytes at once" in text
    assert "read last by" in text
    assert "tanh" in text  # what the backward pass reads
    assert "No value needs memory" in str(gc.why(gc.compile(lambda x: x + 1), f32(3)).memory())


def test_12_why_is_it_not_written_in_place():
    p = {"a": f32(64, 128), "b": f32(128, 8)}
    arguments = p, f32(32, 64), f32(32, 8)
    assert "it was not given away" in told(
        gc.why(gc.compile(step), *arguments).of("p.a"), "Why is its"
    )
    donated = gc.why(gc.compile(step, donate="p"), *arguments)
    assert "lies there" in told(donated.of("p.a"), "Why is its memory")
    kept = gc.compile(lambda x: (gc.index_update(np.tanh(x), 0, 1.0), np.tanh(x) @ x))
    text = "\n".join(str(a) for a in gc.why(kept, f32(40, 40)).of("slice_update"))
    assert "Why is an array copied?" in text


def test_measured_kernels_have_a_limit():
    why = gc.why(attention, X, P, runs=1)
    assert "(measured) is in" in str(why.slow())
    assert "bound by" in str(why.slow())


def test_loaded_graphs_loops_and_wrong_names(tmp_path):
    def recurrent(x, w):
        return gc.scan(lambda c, z: (np.tanh(c @ w + z), c.sum()), x[0], x)[0]

    gc.compile(recurrent).save(tmp_path / "m.gir", f32(5, 4, 4), f32(4, 4))
    loaded = gc.load(tmp_path / "m.gir")
    why = gc.why(loaded, f32(5, 4, 4), f32(4, 4))
    assert isinstance(why, Why)
    assert "tanh" in told(why.of("tanh"), "What became")
    assert {load.calls for load in why.loads()} >= {5}
    assert len(str(why).split("\n\n")) == 3
    with pytest.raises(gc.GraphError, match="there is no node 'nosuch'"):
        why.of("nosuch")
    for name in ("%999", ":999", "", "a:b", "\x1b[31m"):
        with pytest.raises(gc.GraphError):
            why.of(name)
    with pytest.raises(gc.GraphError, match="takes a compiled function"):
        gc.why(np.tanh, 1)
    empty = gc.compile(lambda x: x)
    assert "nothing to compute" in str(gc.why(empty, f32(0, 3)))
