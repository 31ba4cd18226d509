"""Names and lines of a file are data in whatever shows them: 500 texts, every sink.

All of them stand in one graph, as names of parameters, values and results, and as files of lines.
"""

from __future__ import annotations

import ast
import html
import itertools
import json
import random
import re
from contextlib import suppress

import numpy as np
import pytest
from browser import opened
from viewer_pages import assert_alone, data_of

import graphc as gc
from graphc.cli.commands import main
from graphc.config import Config
from graphc.errors import printable
from graphc.frontend.diagnosis.bisect import Culprit
from graphc.frontend.diagnosis.report import test_file
from graphc.passes.trial import Trial
from graphc.runtime.observe.trace import chrome, trace
from graphc.viewer import traces
from graphc.viewer.traces import trace_page

PIECES = [
    *(
        "</script>",
        "<script>",
        "<!--",
        "-->",
        "]]>",
        "<svg onload=",
        "<img src=x onerror=",
        "</title>",
    ),
    *("alert(1)", "';", '"', "`", "${1}", "{{1}}", "\\", "\\u003c", "&lt;", "&#60;", "javascript:"),
    *("\x00", "\x07", "\x08", "\x1b[31m", "\x1b]0;t\x07", "\x9b31m", "\r", "\n", "\t", "\x7f"),
    *("\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\ufeff", "\ufffe", "e\u0301" * 40, "😀"),
    *(
        "[red]",
        "[/]",
        "[link=x]",
        "%s",
        "{0}",
        "%n",
        "#",
        "//",
        "https://x.y/z.js",
        "@import url(x)",
    ),
    *(
        "-->digraph{",
        "\\N",
        "=HYPERLINK(1)",
        "a" * 800,
        " ",
        "",
        "__proto__",
        "constructor",
        "null",
    ),
]


def hostile_texts(count=500):
    rng, found = random.Random(7), dict.fromkeys(PIECES)
    while len(found) <= count:  # the empty one does not count
        found["".join(rng.choices(PIECES, k=rng.randint(1, 5)))] = None
    return [text for text in found if text][:count]


TEXTS = hostile_texts()
SHOWN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*")


@pytest.fixture(scope="module")
def graph():
    """Every text as a parameter, a name of a value, the file of its line, and a result."""
    names = [json.dumps(text) for text in TEXTS]
    params = ", ".join(f"%{k} {name}: f32[4]" for k, name in enumerate(names))
    first = len(names)
    nodes = "".join(
        f"  %{first + k} = exp(%{k}) : f32[4] loc({n}:7)\n" for k, n in enumerate(names)
    )
    named = "".join(f"  name {n} = %{first + k}\n" for k, n in enumerate(names))
    results = ", ".join(f"{n}: %{first + k}" for k, n in enumerate(names))
    return gc.parse(
        f'gir 1\ngraph @"</title>"({params}) {{\n{nodes}{named}  return {results}\n}}\n'
    )


@pytest.fixture(scope="module")
def text(graph):
    return gc.view(graph).html


def test_the_page_has_them_as_data_alone(text):
    assert_alone(text)
    assert html.escape("</title>") in text and text.count("</title>") == 1
    assert set(TEXTS) <= set(data_of(text)["strings"])


@pytest.mark.slow
def test_a_browser_shows_them_as_text(text, tmp_path):
    with opened(text, tmp_path) as page:
        before = page.evaluate("document.querySelectorAll('*').length")
        shown = page.evaluate(
            """() => { app.stage(0); app.picture.all(true); return app.story.shown; }"""
        )
        assert all(SHOWN.fullmatch(each) for each in shown)
        page.evaluate("app.node(app.picture.graph.nodes[600].id)")
        page.fill("#search", "script")
        page.wait_for_selector("#found .row")
        page.evaluate("for (let k = 0; k < app.story.stages.length; k++) app.stage(k)")
        assert page.query_selector_all("img, svg, iframe, a[href]") == []
        assert page.evaluate("document.title") == "</title>"
        assert before > 20


def test_terminals_get_no_control_characters(graph, tmp_path, capsys):
    gc.save(tmp_path / "m.gir", graph)
    np.savez(tmp_path / "in.npz", none=np.ones(4))
    model = str(tmp_path / "m.gir")
    commands = [
        ["show", model],
        ["show", model, "--after", "plan"],
        ["audit", model],
        ["audit", model, "--json"],
        ["diff", model, model],
        ["run", model, "--seed", "1"],
        ["run", model, "--feed", str(tmp_path / "in.npz")],
        ["view", model, "-o", str(tmp_path / "x.html")],
    ]
    for command in commands:
        with suppress(SystemExit):
            main(command)
        said = capsys.readouterr()
        for line in itertools.chain(said.out.split("\n"), said.err.split("\n")):
            assert line == printable(line), command


@pytest.mark.slow
def test_traces_hold_them_as_strings(graph, tmp_path):
    built, arrays = gc.LoadedGraph(graph).prepared(tuple(np.ones((500, 4), np.float32)), {})
    _, found = trace(built.executable, arrays)
    titles = {e.origin.node: TEXTS[k % 500] for k, e in enumerate(found.events) if e.origin}
    told = json.dumps(chrome(found, titles))
    assert json.loads(told)["traceEvents"]
    assert told.isascii() and told == told.replace("\n", "")
    text = trace_page("</title>", json.loads(told))
    assert_alone(text, traces.SCRIPTS)
    assert text.count("</title>") == 1
    with opened(text, tmp_path) as page:
        assert page.query_selector_all("img, svg, iframe, a[href]") == []
        assert page.evaluate("document.title") == "</title>"
        assert SHOWN.fullmatch(page.inner_text("body"))


# ------------------------------------------------------------------------------------ every file


def drawn(graph, folder):
    """Statements of quoted strings with escapes of their own alone, and numbered names."""
    gc.convert(graph, folder / "m.dot")
    text = (folder / "m.dot").read_text()
    string = r'"(?:[^"\\]|\\.)*"'
    plain = re.sub(string, '""', text)
    assert re.fullmatch(r'[\w\s{}\[\]=;,.>"-]*', plain)
    assert plain.count("{") == plain.count("}") and plain.startswith("digraph {")
    labels = [label[1:-1] for label in re.findall(f"label=({string})", text)]
    assert len(labels) == 1 + 2 * len(TEXTS)
    lines = [line for label in labels for line in re.split(r"(?<!\\)(?:\\\\)*\\n", label)]
    assert all(line == printable(line) for line in lines)
    shown = {re.sub(r"\\(.)", r"\1", label).replace("&amp;", "&") for label in labels}
    assert all(any(each.startswith(f"{printable(t)}nf32") for each in shown) for t in TEXTS)


def summarised(graph, folder):
    """Lines of JSON, and messages, whose texts are what they were."""
    with gc.summary.to(folder / "s.jsonl"):
        gc.summary.graph(graph)
        for text in TEXTS:
            gc.summary.text(text[:200], text.replace("{", "{{").replace("}", "}}"))
    told = [json.loads(line) for line in (folder / "s.jsonl").read_text().splitlines()]
    assert [line["value"] for line in told[1:]] == TEXTS
    assert gc.parse(told[0]["value"]).result_names == graph.result_names


def recorded(graph, folder):
    """One line of JSON of numbers and digests."""
    gc.save(folder / "m.gir", graph)
    main(["record", str(folder / "m.gir"), "--seed", "0", "-o", str(folder / "r.json")])
    main(["replay", str(folder / "m.gir"), str(folder / "r.json")])
    assert set(json.loads((folder / "r.json").read_text())["results"])


def profiled(graph, folder):
    """A flame graph of the names of stages."""
    gc.save(folder / "m.gir", graph)
    out = folder / "flame.json"
    with suppress(SystemExit):
        main(["profile", str(folder / "m.gir"), "--runs", "1", "--compile-time", str(out)])
    assert json.loads(out.read_text())["shared"]["frames"]


def dumped(graph, folder):
    """Lines without control characters."""
    gc.save(folder / "m.gir", graph)
    with suppress(SystemExit):
        main(["compile", str(folder / "m.gir"), "-o", str(folder / "m.gcx"), "--dump", str(folder)])
    lines = (folder / "index.txt").read_text().split("\n")
    assert all(line == printable(line) for line in lines)
    assert all(path.resolve().is_relative_to(folder) for path in folder.rglob("*"))


def reported(graph, folder):
    """A module of names that hold literals, and one test."""
    trial = Trial(graph, [np.ones(4, np.float32)] * len(TEXTS), {}, Config())
    culprit = Culprit("cse", "differs", reason=TEXTS[0] + '"""\n' + TEXTS[1])
    tree = ast.parse(test_file(trial, culprit, {}))
    kinds = [type(each).__name__ for each in tree.body]
    assert kinds == ["Expr", "Import", "Import", "Assign", "Assign", "FunctionDef"]
    literal = next(each.value for each in tree.body if isinstance(each, ast.Assign))
    assert gc.parse(ast.literal_eval(literal)).result_names == graph.result_names


@pytest.mark.slow
@pytest.mark.parametrize(
    "sink", [drawn, summarised, recorded, profiled, dumped, reported], ids=lambda f: f.__name__
)
def test_every_file_holds_them_as_data(graph, sink, tmp_path, capsys):
    sink(graph, tmp_path)
    said = capsys.readouterr()
    assert all(line == printable(line) for line in (said.out + said.err).split("\n"))
