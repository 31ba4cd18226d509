"""The text form: both round-trip laws, agreement of the two readers, and errors with their
place.
"""

from __future__ import annotations

import numpy as np
import pytest
from effort import examples
from graphs import arguments, graph
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.config import Config
from graphc.errors import GraphError, ParseError
from graphc.ir import parse as parse_module
from graphc.ir.graph import Builder, Graph
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ir.text import literals, show
from graphc.ir.types import DTYPES, dtype
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.fusion.mark_prologues import mark_prologues

TEXT = """gir 1
graph @mlp(%0 x: f32[8,16], %1 "w \\"quoted\\"": f32[16,4] loc("m.py":2)) {
  %2 = matmul(%0, %1) : f32[8,4] loc("m.py":3)
  %3 = sum(%2) {axes=[1], keepdims=true} : f32[8,1] after %2 loc("m.py":4)
  %4 = const() {value=f32[2](1.0,nan)} : f32[2]
  %5 = call(%0) {name="f"} : f32[8,16] {
    graph @f(%0 x: f32[8,16]) {
      %1 = tanh(%0) : f32[8,16]
      return %1
    }
  }
  %6 = add(%5, %3) : f32[8,16] @?/device:cpu~a
  name hidden = %6
  return y: %6, "a b": %4
}
"""


def slow(text: str) -> object:
    return parse_module._Slow(text, None).read()


def test_print_of_parse_is_the_text() -> None:
    assert show(parse(TEXT)) == TEXT


def test_both_readers_agree() -> None:
    assert show(slow(TEXT)) == TEXT


@pytest.mark.parametrize(
    "loose",
    [
        TEXT.replace(" = ", "="),
        TEXT.replace(", ", " ,\n    "),
        TEXT.replace("gir 1\n", ""),
        TEXT.replace("{\n", "{ # a comment\n\n"),
        "# stage trace: 5 nodes\n" + TEXT,
        TEXT.replace("\n", "\r\n"),
    ],
)
def test_hand_written_spacing_and_comments(loose: str) -> None:
    assert show(parse(loose)) == TEXT


@pytest.mark.parametrize(
    ("wrong", "place", "message"),
    [
        (TEXT.replace("matmul(", "matmul["), "line 3, column 14", "expected"),
        (TEXT.replace("matmul(", "matmull("), "line 3", "did you mean"),
        (TEXT.replace("matmul(%0, %1)", "matmul(%0, %9)"), "line 3", "before it is defined"),
        (TEXT.replace("matmul(%0, %1)", "matmul(%0, %2)"), "line 3", "before it is defined"),
        (TEXT.replace("%3 = sum", "%2 = sum"), "line 4", "defined twice"),
        (TEXT.replace(": f32[8,1] after", ": f32[8] after"), "line 4", r"gives f32\[8,1\]"),
        (TEXT.replace("axes=[1]", "axes=[7]"), "line 4", "out of range|axis"),
        (TEXT.replace("axes=[1]", "axes=1"), "line 4", "kind ints"),
        (TEXT.replace("axes=[1], ", ""), "line 4", "axes"),
        (TEXT.replace("axes=[1]", "axes=[1], axes=[1]"), "line 4", "twice"),
        (TEXT.replace("f32[2](1.0,nan)", "f32[2](1.0)"), "line 5", "2 element"),
        (TEXT.replace("f32[2](1.0,nan)", "i8[1](300)"), "line 5", "no element of i8"),
        (TEXT.replace("f32[8,16], %1", "f33[8,16], %1"), "line 2", "not an element type"),
        (TEXT.replace("f32[8,16], %1", "f32[-8,16], %1"), "line 2", "negative"),
        (TEXT.replace("@?/device:cpu~a", "@???"), "line 12", "device"),
        (TEXT.replace("gir 1", "gir 9"), "", "version 9"),
        (TEXT.replace("return y: %6", "return y: %77"), "line 14", "before it is defined"),
        (TEXT[: TEXT.index("  name")], "line", "expected"),
        (TEXT + TEXT, "line", "grammar"),
        ("", "line 1", "grammar"),
        ("\0\0\0", "line 1", "grammar"),
    ],
)
def test_errors_name_line_and_cause(wrong: str, place: str, message: str) -> None:
    assert wrong != TEXT
    with pytest.raises(GraphError, match=message) as caught:
        parse(wrong)
    assert place in str(caught.value)
    assert len(str(caught.value).split("\n")) <= 12


def test_syntax_errors_show_a_caret() -> None:
    with pytest.raises(ParseError) as caught:
        parse(TEXT.replace("%3 = sum(%2)", "%3 = sum(%2"))
    lines = str(caught.value).split("\n")
    caret = next(k for k, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1][lines[caret].index("^")] == "{"


def test_ids_far_beyond_the_node_count_are_refused() -> None:
    with pytest.raises(ParseError, match="run too far ahead"):
        parse("graph @g(%999999999 x: f32[2]) {\n  return %999999999\n}\n")


@pytest.mark.parametrize(
    "text",
    [
        "gir " + "9" * 5000 + "\n" + TEXT,
        TEXT.replace("%6", "%" + "6" * 5000),
        TEXT.replace("axes=[1]", f"axes=[{'1' * 5000}]"),
        TEXT.replace("f32[8,16], %1", f"f32[{'8' * 5000}], %1"),
        TEXT.replace("axes=[1]", f"axes={'[' * 3000}{']' * 3000}"),
        TEXT.replace("f32[8,16], %1", f"{'(' * 3000}f32[8,16]{')' * 3000}, %1"),
        TEXT.replace("f32[8,16], %1", f"f32[{'+'.join(f'N{k}' for k in range(900))}], %1"),
        TEXT.replace("= matmul(", "= " + "m" * 100_000 + "("),
    ],
    ids=["version", "id", "attribute", "shape", "list", "tuple", "terms", "op"],
)
def test_endless_numbers_and_nestings_are_one_short_error(text: str) -> None:
    assert text != TEXT
    with pytest.raises(GraphError) as caught:
        parse(text)
    assert len(str(caught.value)) < 2000


def test_messages_hold_no_control_characters() -> None:
    name = r'"\u001b[31m\n"'
    with pytest.raises(GraphError) as caught:
        parse(TEXT.replace("matmul(%0, %1)", "matmul(%0)").replace('"m.py":3', f"{name}:3"))
    assert r"\x1b[31m\n:3" in str(caught.value)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    opening = '%1 = call(%0) {name="f"} : f32[2] {\ngraph @f(%0 x: f32[2]) {\n'
    text = (
        "graph @g(%0 x: f32[2]) {\n" + opening * 400 + "return %0\n}\n" + "}\nreturn %1\n}\n" * 400
    )
    with pytest.raises(GraphError, match="nest deeper"):
        parse(text)


@examples(50)
@given(st.data())
def test_every_literal_round_trips_exactly(data: st.DataObject) -> None:
    element = DTYPES[data.draw(st.sampled_from(sorted(DTYPES)))]
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    size = int(np.prod(shape)) * element.itemsize
    raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)) or b"", np.uint8)
    if element.kind == "b":
        raw = raw & 1
    array = raw.view(element.numpy).reshape(shape)
    b = Builder()
    node = b.emit(OPS["const"], (), {"value": literal(array)})
    text = show(Graph("g", (), b.nodes, (node,)))
    made = parse(text)
    assert isinstance(made, Graph)
    got = made.nodes[0].attrs["value"].array
    assert got.tobytes() == array.tobytes()
    assert show(made) == text


def test_large_constants_are_references() -> None:
    big = np.arange(1000, dtype=np.float32)
    g = gc.compile(lambda x: x + big).graph(gc.spec((1000,), "f32"))
    text = show(g)
    assert "sha256:" in text
    assert len(text) < 500
    unresolved = parse(text)
    assert show(unresolved) == text
    with pytest.raises(GraphError, match="not loaded"):
        interpret(unresolved, [big])
    tensors = {found.digest: found.array for found in literals(g)}
    np.testing.assert_array_equal(interpret(parse(text, tensors), [big])[0], big + big)


def test_symbolic_dimensions() -> None:
    text = "gir 1\ngraph @g(%0 x: f32[2*N+1,M]) {\n  %1 = tanh(%0) : f32[2*N+1,M]\n  return %1\n}\n"
    assert show(parse(text)) == text
    assert show(parse(text.replace("2*N+1", "N+1+N"))) == text


@examples(67)
@given(st.text(max_size=80), st.integers(0, len(TEXT)), st.integers(0, 30))
def test_damaged_text_is_an_error_or_a_graph(junk: str, at: int, drop: int) -> None:
    """Whatever is inserted or cut, the reader answers with a graph or a GraphError."""
    try:
        made = parse(TEXT[:at] + junk + TEXT[at + drop :])
    except GraphError:
        return
    show(made)


def test_names_never_reach_generated_code(tmp_path: object) -> None:
    """Names with quotes, newlines or code in them compile and run harmlessly."""
    evil = 'x"); import os; os._exit(7)\n#'
    g = graph("%2 = add(%0, %1) : f32[4]")
    renamed = tuple(
        p.replace(attrs=p.op.coerce({"name": f"{evil}{k}"})) for k, p in enumerate(g.params)
    )
    mapping = dict(zip(g.params, renamed, strict=True))
    nodes = [n.replace(inputs=tuple(mapping[i] for i in n.inputs), loc=(evil, 3)) for n in g.nodes]
    g = g.replace(
        name=evil,
        params=renamed,
        nodes=nodes,
        results=(nodes[0],),
        result_names=(evil,),
        names={evil: nodes[0].id},
    )
    text = show(g)
    assert show(parse(text)) == text
    from graphc.codegen.build import build, kernel_texts

    config = Config(threads=1)
    executable, compiled = build(pipeline.run(g, config)[-1].value, config)
    arrays = arguments(g)
    np.testing.assert_allclose(executable.run(arrays)[0], arrays[0] + arrays[1])
    assert all("os._exit" not in text for text in kernel_texts(compiled, config).values())


def test_marks_are_read_back_and_name_nodes_that_are_there() -> None:
    text = (
        "gir 1\ngraph @g(%0 x: f32[4]) {\n  %1 = neg(%0) : f32[4]\n  %2 = abs(%1) : f32[4]\n"
        "  mark copy = %1, %2\n  mark prologue = %1\n  return %2\n}\n"
    )
    made = parse(text)
    assert isinstance(made, Graph)
    assert made.marks == {"copy": frozenset([1, 2]), "prologue": frozenset([1])}
    assert show(made) == text
    assert show(parse(text.replace(" = ", "  =   "))) == text
    with pytest.raises(ParseError, match="before it is defined"):
        parse(text.replace("mark prologue = %1", "mark prologue = %7"))
    assert mark_prologues(made, Config()).marks.keys() == {"copy"}, (
        "what a file says is not believed"
    )


@pytest.mark.parametrize("text", ["{'a': 5}", "f4,", "(", "f4, {"])
def test_text_that_names_no_dtype_is_refused(text: str) -> None:
    with pytest.raises(gc.GraphError, match="is not an element type"):
        dtype(text)
