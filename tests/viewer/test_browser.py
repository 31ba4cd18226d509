"""Pages driven in a browser: every panel opened, clicked, searched; the console stays empty."""

from __future__ import annotations

import re

import numpy as np
import pytest
from browser import opened, picture

import graphc as gc

rng = np.random.default_rng(0)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def block(x, q):
    h = x @ q["w"] + q["b"]
    h = h / (1 + np.exp(-h))
    return x + (h - h.mean(axis=-1, keepdims=True)) * q["s"]


def network(params, x):
    for q in params["layers"]:
        x = block(x, q)
    return x


PARAMS = {"layers": [{"w": f32(16, 16), "b": f32(16), "s": f32(16)} for _ in range(6)]}


@gc.compile
def train(params, x):
    def loss(p):
        return (network(p, x) ** 2).mean()

    value, slopes = gc.value_and_grad(loss)(params)
    pairs = zip(params["layers"], slopes["layers"])
    return {"layers": [{k: q[k] - 0.1 * g[k] for k in q} for q, g in pairs]}, value


def walk_through(page, name):
    """Every panel, with what one does in it."""
    for tab in ("graph", "kernels", "memory", "timeline"):
        page.click(f"#tab-{tab}")
        assert page.is_visible(f"#{tab}")
        picture(page, f"{name}-{tab}")
    page.click("#tab-graph")
    count = page.evaluate("app.story.stages.length")
    for k in range(count):
        page.evaluate("k => app.stage(k)", k)
        assert page.inner_text("#side h2") == page.evaluate("k => app.story.stages[k].name", k)
    page.keyboard.press("t")
    page.evaluate("app.stage(0)")
    page.click("#open")
    page.click("#fit")
    page.click("#close")
    page.keyboard.press("]")
    page.keyboard.press("[")
    page.keyboard.press("?")
    page.click("#keys button")


@pytest.fixture(scope="module")
def text():
    return gc.view(train, PARAMS, f32(8, 16), runs=2).html


@pytest.mark.slow
def test_every_panel_of_a_training_step(text, tmp_path):
    with opened(text, tmp_path) as page:
        walk_through(page, "train")
        assert page.evaluate("app.picture.items.length") > 3


@pytest.mark.slow
def test_a_graph_is_searched_opened_and_read(text, tmp_path):
    with opened(text, tmp_path) as page:
        page.evaluate("app.stage(app.story.stages.findIndex(s => s.name === 'gradient'))")
        page.keyboard.press("/")
        page.keyboard.type("exp np.exp")  # an op, and a word of the user's line
        page.wait_for_selector("#found .row")
        page.keyboard.press("Enter")
        shown = page.inner_text("#side")
        assert "exp" in shown.splitlines()[0]
        assert "h / (1 + np.exp(-h))" in shown  # the user's line beside the node
        page.focus("#canvas")
        before = page.inner_text("#side h2")
        page.keyboard.press("ArrowDown")
        assert page.inner_text("#side h2") != before


@pytest.mark.slow
def test_what_repeats_is_one_colour(tmp_path):
    page_of = gc.compile(network).view(PARAMS, f32(8, 16))
    with opened(page_of.html, tmp_path) as page:
        blocks = "app.picture.items.filter(item => item.kind === 'block')"
        assert page.evaluate(f"{blocks}.length") == 6
        assert page.evaluate(f"new Set({blocks}.map(item => item.colour)).size") == 1
        titles = page.evaluate(f"{blocks}.map(item => item.title)")
        assert titles == [f"params.layers.{k}" for k in range(6)]


LINKED = """([kernel, from, to]) => {
  app.views.kernels.choose(app.story.data.kernels[kernel]);
  const rows = [...document.querySelectorAll(`.pane[data-pane=${from}] .l.linked`)];
  const lit = rows.map(row => {
    row.click();
    return document.querySelectorAll(`.pane[data-pane=${to}] .l.lit`).length;
  });
  return [rows.length, lit.filter(Boolean).length];
}"""


@pytest.mark.slow
def test_lines_of_a_kernel_are_linked_both_ways(text, tmp_path):
    with opened(text, tmp_path) as page:
        page.click("#tab-kernels")
        for here, there in (("llvm", "assembly"), ("assembly", "llvm"), ("user", "nodes")):
            for kernel in range(6):
                rows, lit = page.evaluate(LINKED, [kernel, here, there])
                assert not rows or lit, (kernel, here, there)


@pytest.mark.slow
def test_the_slowest_kernel_and_its_line_are_found_from_the_page_alone(tmp_path):
    @gc.compile
    def f(x, w):
        y = x + 1
        z = y @ w @ w @ w  # the slowest
        return z.sum()

    with opened(gc.view(f, f32(40, 40), f32(40, 40)).html, tmp_path) as page:
        first = page.inner_text("#costliest .row")  # on the view that opens
        assert re.search(r"\d+ %\s+matmul\s+test_browser.py:\d+", first)
        page.click("#costliest .row")
        assert page.inner_text("#kernels .item.at b") == "matmul"
        assert re.search(r"test_browser.py:\d+", page.inner_text("#kernels .item"))


@pytest.mark.slow
def test_hostile_text_is_shown_as_text(tmp_path):
    name = "</script><img src=x onerror=alert(1)><b>\u202e"
    graph = gc.parse(
        f'gir 1\ngraph @"{name}"(%0 "{name}": f32[4]) {{\n'
        f'  %1 = exp(%0) : f32[4] loc("{name}":7)\n'
        f'  name "{name}" = %1\n  return "{name}": %1\n}}\n'
    )
    with opened(gc.view(graph).html, tmp_path) as page:
        walk_through(page, "hostile")
        page.evaluate("app.stage(0); app.node(1)")
        assert "<img src=x onerror=alert(1)>" in page.inner_text("#side")
        assert "\\u202e" in page.inner_text("#side")
        assert page.query_selector_all("img, b:not(#stagename b, .row b)") == []
