"""The page of a traced run: its lanes in a browser, and the numbers beside them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from browser import opened, picture
from device_programs import TWO, X, made, ping_pong
from viewer_pages import assert_alone, data_of

from graphc.runtime.observe.trace import chrome, trace
from graphc.viewer import traces
from graphc.viewer.traces import write_trace

COLOURS = """() => {
    const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
    const points = pen.getImageData(0, 0, canvas.width, canvas.height).data, found = new Set();
    for (let k = 0; k < points.length; k += 4) found.add(points.slice(k, k + 3).join());
    return found.size; }"""


@pytest.mark.slow
def test_the_lanes_of_a_run(tmp_path):
    _, found = trace(made(ping_pong, X), [X])
    write_trace(found, tmp_path / "t.html", {})
    text = (tmp_path / "t.html").read_text()
    assert_alone(text, traces.SCRIPTS)
    told = json.loads(json.dumps(chrome(found, {})))
    assert data_of(text) == told
    with opened(text, tmp_path) as page:
        picture(page, "trace")
        rows = [row.inner_text().split("\t") for row in page.query_selector_all("tr")]
        assert rows[0][0] == "device" and [row[0] for row in rows[1:]] == TWO
        run = page.evaluate("told => runOf(told)", told)
        assert run["devices"] == TWO and len(run["events"]) == len(found.events)
        np.testing.assert_allclose(run["end"], found.seconds, rtol=1e-3, atol=2e-9)
        sends = sum(event.kind == "send" for event in found.events)
        assert len(run["messages"]) == sends >= 400
        assert all(m["source"] != m["target"] for m in run["messages"])
        assert page.evaluate(COLOURS) > 4
        page.hover("canvas", position={"x": 600, "y": 40})
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.classList.contains('dark')")
