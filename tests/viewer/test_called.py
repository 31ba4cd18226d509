"""Calls inside of loops and branches: the page knows their nodes, how often they ran, how long."""

from __future__ import annotations

import numpy as np
import pytest
from browser import opened
from viewer_pages import data_of

import graphc as gc

ROUNDS = 40


def looped(x, u, h):
    def step(state, row):
        state = np.tanh(state @ u + row)
        return state, state.sum()

    return gc.scan(step, h, np.abs(x))


def nested(x, u, h):
    def outer(state, row):
        inner, _ = gc.scan(lambda s, r: (np.tanh(s @ u + r), s.sum()), state, row)
        return inner, inner.sum()

    return gc.scan(outer, h, x.reshape(8, ROUNDS // 8, -1))


def branched(x, u, h):
    return gc.cond(x.sum() > 0, lambda: np.tanh(h @ u), lambda: np.exp(h @ u).sum() + h)


def parallel_sums(x, u, h):
    return np.exp(x).sum(), (x @ u).max(axis=0) + h


ARGS = np.ones((ROUNDS, 24), np.float32), np.ones((24, 24), np.float32), np.zeros(24, np.float32)


@pytest.mark.parametrize("model", [looped, nested, branched, parallel_sums])
def test_every_kernel_that_ran_is_a_kernel_of_the_page(model):
    found = data_of(gc.view(gc.compile(model, threads=1), *ARGS, runs=2).html)
    known = {
        (call["device"], str(call["node"]), kernel["symbol"])
        for kernel in found["kernels"]
        for call in kernel["calls"]
    }
    for run in found["measured"]:
        ran = {(e[0], str(e[4]), e[5]) for e in run["events"] if e[1] == "kernel"}
        assert ran and ran <= known


@pytest.mark.parametrize("model", [looped, nested])
def test_a_kernel_in_a_loop_is_called_in_every_round(model):
    found = data_of(gc.view(gc.compile(model, threads=1), *ARGS, runs=1).html)
    events = [(e[4], e[5]) for e in found["measured"][0]["events"] if e[1] == "kernel"]
    for kernel in found["kernels"]:
        for call in kernel["calls"]:
            assert isinstance(call["node"], list) == (call["rounds"] > 1)
            assert events.count((call["node"], kernel["symbol"])) == call["rounds"]
    assert max(c["rounds"] for kernel in found["kernels"] for c in kernel["calls"]) == ROUNDS


TOLD = """() => app.story.data.kernels.filter(k => k.calls.length).map(
  k => [k.times, k.took, app.story.nodeAt(k.calls[0].device, k.calls[0].node).line > 0])"""


@pytest.mark.slow
def test_what_ran_in_a_loop_is_timed_and_leads_to_its_box(tmp_path):
    with opened(gc.view(gc.compile(nested, threads=1), *ARGS, runs=3).html, tmp_path) as page:
        page.click("#tab-kernels")
        told = page.evaluate(TOLD)
        assert max(times for times, _, _ in told) == ROUNDS
        assert all(took > 0 and lined for _, took, lined in told)
        assert f"{ROUNDS} ×" in page.inner_text("#kernels .list")
        page.click("#kernels .top .link")
        assert page.is_visible("#graph")
        assert page.inner_text("#side h2").startswith("%")
        page.click("#tab-timeline")
        assert "scan" in page.inner_text("#timeline table")


@pytest.mark.slow
def test_kernels_of_one_node_do_not_count_twice(tmp_path):
    x = np.ones((1 << 20,), np.float32)
    f = gc.compile(lambda x: (np.exp(x).sum(), np.sort(x)), threads=2)
    shown = gc.view(f, x, runs=1).html
    events = data_of(shown)["measured"][0]["events"]
    with opened(shown, tmp_path) as page:
        page.click("#tab-kernels")
        told = page.evaluate(TOLD)
    assert sum(took for _, took, _ in told) == pytest.approx(
        sum(e[3] - e[2] for e in events if e[1] == "kernel")
    )
