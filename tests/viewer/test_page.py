"""The page: one file that asks for nothing, in which the text of a model is data."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest
from viewer_pages import DATA, assert_alone, data_of

import graphc as gc
from graphc.cli.commands import main
from graphc.viewer.page import SCRIPTS, asset, page


@gc.compile
def model(x, w):
    h = np.tanh(x @ w)
    return (h * h).sum(axis=1)


X, W = np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)


@pytest.fixture(scope="module")
def text():
    return gc.view(model, X, W, runs=2).html


def test_a_page_needs_nothing_else(text):
    assert_alone(text)
    assert "default-src 'none'" in text
    for script in SCRIPTS:
        assert asset(script) in text


def test_a_page_tells_all(text):
    found = data_of(text)
    names = [stage["name"] for stage in found["stages"]]
    assert names[0] == "trace" and names[-1] == "plan"
    assert {kernel["symbol"] for kernel in found["kernels"] if kernel["calls"]}
    assert found["memory"][0]["bytes"] > 0
    assert found["simulated"]["seconds"] > 0
    assert len(found["measured"]) == 2
    (source,) = found["sources"]
    assert __file__.endswith(found["strings"][source[0]])
    assert "np.tanh(x @ w)" in source[1]


def test_a_notebook_shows_it_in_a_frame_that_may_only_run_its_script():
    shown = model.view(X, W)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" ')
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert data_of(inside)["name"] == "model"


def test_what_was_compiled_last_needs_no_arguments():
    f = gc.compile(lambda x: x + 1)
    f(np.ones(3))
    f(np.ones((4, 2)))
    assert "f64[4,2]" in data_of(f.view().html)["strings"]


def test_a_compilation_for_many_sizes_has_a_page():
    f = gc.compile(lambda x: np.tanh(x) @ x.T)
    for rows in (3, 4, 5):
        f(np.ones((rows, 8), np.float32))
    guards = len(f.compiles)
    found = data_of(f.view().html)
    assert "f32[x_0,8]" in found["strings"]
    assert found["memory"] and found["simulated"]["seconds"] > 0
    f(np.ones((7, 8), np.float32))
    assert len(f.compiles) == guards


def test_methods_have_pages():
    class Net:
        @gc.compile
        def __call__(self, x):
            return x * 2

    assert data_of(Net().__call__.view(gc.spec((3,), "f32")).html)["name"] == "call"


def test_a_compiled_file_that_was_loaded_has_the_page_of_its_graph(tmp_path):
    gc.compile(lambda x: np.tanh(x) + 1).save(tmp_path / "m.gir", X)
    main(["compile", str(tmp_path / "m.gir"), "-o", str(tmp_path / "m.gcx")])
    found = data_of(gc.view(gc.load(tmp_path / "m.gcx")).html)
    assert len(found["stages"]) > 10
    assert found["kernels"]


def test_the_command_writes_a_page(tmp_path, capsys):
    model.save(tmp_path / "m.gir", X, W)
    out = tmp_path / "m.html"
    for given in ([], ["--seed", "1", "--runs", "2"], ["--devices", "cpu:0,cpu:1"]):
        main(["view", str(tmp_path / "m.gir"), "-o", str(out), "--json", *given])
        assert json.loads(capsys.readouterr().out)["bytes"] == out.stat().st_size
        assert_alone(out.read_text())
    assert data_of(out.read_text())["sources"] == []  # a file only says where its lines are from


def test_lines_are_read_from_a_folder_that_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.py").write_text("y = x + 1\n")
    (tmp_path / "secret.py").write_text("password\n")
    (tmp_path / "in" / "link.py").symlink_to(tmp_path / "secret.py")
    lines = "".join(
        f'  %{k} = add(%0, %0) : f32[4] loc("{name}":1)\n'
        for k, name in enumerate(["a.py", "../secret.py", "link.py", "/etc/passwd", "no.py"], 1)
    )
    text = f"gir 1\ngraph @f(%0 x: f32[4]) {{\n{lines}  return %1, %2, %3, %4, %5\n}}\n"
    (tmp_path / "f.gir").write_text(text)
    main(
        [
            "view",
            str(tmp_path / "f.gir"),
            "-o",
            str(tmp_path / "f.html"),
            "--sources",
            str(tmp_path / "in"),
        ]
    )
    found = data_of((tmp_path / "f.html").read_text())
    assert [[found["strings"][file], text] for file, text in found["sources"]] == [
        ["a.py", "y = x + 1\n"]
    ]


def test_a_dump_is_viewed_as_it_was_written(tmp_path):
    f = gc.compile(lambda x, w: np.tanh(x @ w) + np.tanh(x @ w), dump=tmp_path / "dump")
    stages = f.stages(X, W)
    found = data_of(gc.view(tmp_path / "dump").html)
    assert found["stages"][0]["name"] == "trace"
    merged = next(s for s in found["stages"] if s["name"] == "cse")
    assert merged["changes"][0]["merged"]
    assert found["stages"][-1]["nodes"] == len(stages[-1].value)
    assert any(stage["seconds"] > 0 for stage in found["stages"])
    kernels = [kernel for kernel in found["kernels"] if kernel["calls"]]
    built = f.prepared((X, W), {})[0]
    assert {kernel["symbol"] for kernel in kernels} == set(built.image.kernels)
    assert all(k["llvm"] and k["assembly"] and k["calls"][0]["seconds"] > 0 for k in kernels)


def test_a_dump_of_a_stranger_is_text_alone(tmp_path):
    (tmp_path / "kernels").mkdir()
    gc.save(tmp_path / "00-trace.gir", model.graph(X, W))
    (tmp_path / "kernels" / "k1.ll").write_text("define void @f() {\n  \x00</script>\n}")
    (tmp_path / "kernels" / "../no.ll").write_text("no")
    (tmp_path / "index.txt").write_text(
        "00 trace 9.9.9 x\n00    trace 9.9 1  </script>\n   k1  1 x  %999: x\n"
    )
    text = gc.view(tmp_path).html
    assert_alone(text)
    (kernel,) = data_of(text)["kernels"]
    assert kernel["llvm"].startswith("define") and kernel["calls"] == []


def test_a_graph_whose_sizes_are_not_known_has_a_page_of_its_first_stage(tmp_path):
    graph = model.graph(gc.spec(("N", 16), "f32"), gc.spec((16, 4), "f32"))
    found = data_of(gc.view(graph).html)
    assert [stage["name"] for stage in found["stages"]] == ["trace"]
    assert len(data_of(gc.view(graph, x=X, w=W).html)["stages"]) > 10


@pytest.mark.parametrize("given", [3, object(), np.ones(3)])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(gc.GraphError, match="view takes"):
        gc.view(given)


@pytest.mark.parametrize("name", ["missing.gir", "empty", "missing.onnx"])
def test_what_cannot_be_read_is_a_graph_error(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(gc.GraphError):
        gc.view(tmp_path / name)


# ------------------------------------------------------------------------- hostile text

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'-alert(1)-'",
    "\\u003c/script>",
    "${alert(1)}",
    "{{7*7}}",
    "javascript:alert(1)",
    "\u2028\u2029alert(1)",
    "\x00\x07\x1b[31m",
    "\u202etxt.exe",
    "https://example.com/x.js",
    "a" * 5000,
    "é" * 300,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_model_is_text_of_the_page(name):
    data = {"name": name, "strings": [name], "kernels": [{"python": name}]}
    text = page(name, data)
    assert_alone(text.replace(html.escape(_shown(name)), "TITLE"))
    assert data_of(text) == data
    calm = page("TITLE", {**data, "name": "", "strings": [], "kernels": []})
    assert DATA.sub("", text).replace(html.escape(_shown(name)), "TITLE") == DATA.sub("", calm)


def _shown(name):
    from graphc.errors import printable

    return printable(name)
