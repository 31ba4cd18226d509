"""Reading takes linear time or has a limit that says how to raise it; nothing read stays behind."""

from __future__ import annotations

import gc as collector
import tracemalloc

import pytest

from graphc import limits
from graphc.errors import GraphError, LimitError
from graphc.frontend.files.gir_files import parse, show
from graphc.ir import canonical, reader
from graphc.ir.types import _DIMS, _TYPES

HEAD = "gir 1\ngraph @f(%0 x: f32[4]) {\n"
MANY = 3000


def many(piece: str, separator: str = ", ") -> str:
    return separator.join(piece.replace("#", str(k)) for k in range(MANY))


LONG = {
    "parameters": f"gir 1\ngraph @f({many('%# x#: f32[4]')}) {{\n  return %0\n}}\n",
    "results": f"{HEAD}  return {many('r#: %0')}\n}}\n",
    "tuple": f"{HEAD}  %1 = tuple({many('%0')}) : ({many('f32[4]')})\n  return %0\n}}\n",
    "names": f"{HEAD}{many('  name a# = %0', chr(10))}\n  return %0\n}}\n",
    "nested tuple": f"{HEAD}  %1 = tuple(%0) : (f32[4])\n  %2 = tuple({many('%1')}) : "
    f"({many('(f32[4])')})\n  return %0\n}}\n",
}


@pytest.fixture
def no_lark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, start: str) -> None:
        raise AssertionError(f"{text[:80]!r} went to lark")

    monkeypatch.setattr(canonical, "grammar_tree", refuse)


@pytest.mark.parametrize("what", [name for name in LONG if name != "nested tuple"])
def test_long_canonical_text_needs_no_lark(what: str, no_lark: None) -> None:
    assert show(parse(LONG[what])) == LONG[what]


@pytest.mark.parametrize(
    "attrs",
    [
        "{axes=[1,-2,3], keepdims=true}",
        '{name="a, \\"b\\" }", n=none}',
        "{value=f32[3](1.0,-0.5e-3,inf)}",
        "{value=bool[2](true,false)}",
        "{value=i8[0]()}",
        "{value=f32[](7)}",
        '{names=["a","b\\\\"], type=f32[2,3], dtype=i64}',
        "{value=f32[9](sha256:0123456789abcdef0123456789abcdef)}",
        "{}",
    ],
)
def test_expressions_and_lark_read_the_same(attrs: str) -> None:
    wanted = reader.attr_pairs(reader.grammar_tree(attrs, "attrs"))
    got = canonical._attrs(attrs)
    assert got == wanted
    assert [type(value) for _, value in got] == [type(value) for _, value in wanted]


@pytest.mark.parametrize("attrs", ["{n=2*N}", "{n=[1, 2]}", "{a=1,b=2}", "{a=1, }", "{a=0x7fc1}"])
def test_what_is_not_canonical_goes_to_lark(attrs: str) -> None:
    with pytest.raises(canonical._Loose):
        canonical._attrs(attrs)


def with_dimension(text: str) -> str:
    return f"gir 1\ngraph @f(%0 x: f32[{text}]) {{\n  return %0\n}}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("parameters", LONG["parameters"]),
        ("results", LONG["results"]),
        ("text_lines", LONG["names"]),
        ("loose_tokens", LONG["results"].replace(", ", ",")),
        (
            "inline_elements",
            f"{HEAD}  %1 = const() {{value=f32[{MANY}]({many('0.5', ',')})}} : "
            f"f32[{MANY}]\n  return %1\n}}\n",
        ),
        ("dimension_factors", with_dimension("*".join(["N"] * 2000))),
        ("dimension_terms", with_dimension("+".join(f"N{k}" for k in range(900)))),
        (
            "region_depth",
            HEAD + '  %1 = call(%0) {name="f"} : f32[4] {\n    graph @f(%0 x: f32[4]) {\n' * 3000,
        ),
    ],
)
def test_every_limit_names_itself(name: str, text: str) -> None:
    before = limits.limit(name)
    limits.set_limit(name, min(before, 1000))
    try:
        with pytest.raises(GraphError, match=f"GRAPHC_LIMITS={name}=N|--limit {name}=N"):
            parse(text)
    finally:
        limits.set_limit(name, before)


@pytest.mark.parametrize(
    "attrs",
    [
        "offset=" + "*".join(["9" * 40] * 150),
        f"offset={'9' * 40}",
        f"offset=-{'9' * 40}",
        f"offset={2**64}",
        "offset=" + "+".join(["9" * 19] * 60),
    ],
)
def test_integers_have_64_bits(attrs: str) -> None:
    text = f"{HEAD}  %1 = diagonal(%0) {{{attrs}}} : f32[4]\n  return %1\n}}\n"
    with pytest.raises(GraphError, match="bits"):
        parse(text)


@pytest.mark.parametrize(
    "where",
    [
        'graph @"\\ud800"(',
        '(%0 "\\ud800":',
        'loc("\\ud800":3)',
        'name "\\ud800" =',
        'return "\\ud800": %1',
    ],
)
@pytest.mark.parametrize("spaces", [" ", "  "], ids=["canonical", "loose"])
def test_half_a_character_is_refused_with_its_line(where: str, spaces: str) -> None:
    text = 'gir 1\ngraph @f(%0 x: f32[4]) {\n  %1 = neg(%0) : f32[4] loc("a":3)\n'
    text += "  name n = %1\n  return r: %1\n}\n"
    plain = where.replace(
        '"\\ud800"', {"g": "f", "(": "x", "l": '"a"', "n": "n", "r": "r"}[where[0]]
    )
    assert plain in text
    with pytest.raises(GraphError, match="half of a character") as caught:
        parse(text.replace(plain, where).replace("%1 = neg", f"%1{spaces}= neg"))
    assert "line" in str(caught.value)
    paired = where.replace("\\ud800", "\\ud83d\\ude00")
    assert "\\ud83d\\ude00" in show(parse(text.replace(plain, paired)))


def test_settings_are_checked() -> None:
    for wrong in ("nothing=1", "results=many", "results=-1", "results"):
        with pytest.raises(GraphError, match="limit"):
            limits.set_limits([wrong])
    assert set(limits.MEANING) == set(limits.DEFAULTS)


@pytest.mark.slow
@pytest.mark.usefixtures("frozen")
def test_nothing_of_a_graph_stays_when_it_is_dropped() -> None:
    def read(k: int) -> None:
        lines = "".join(
            f"  %{i} = slice(%0) {{starts=[0], stops=[{9 * k + i}], steps=[1]}} : f32[{9 * k + i}]"
            f' loc("f{k}.py":{i})\n'
            for i in range(1, 6)
        )
        size = 9 * k + 1000
        parse(f"gir 1\ngraph @f(%0 x: f32[{size},N+{k}]) {{\n  return %0\n}}\n")
        text = f"gir 1\ngraph @f(%0 x: f32[{size}]) {{\n{lines}  return %5\n}}\n"
        parse(text)

    def grown(first: int) -> tuple[int, int, int]:
        """How many types, dimensions and bytes a hundred graphs leave behind."""
        collector.collect()
        before = len(_TYPES), len(_DIMS), tracemalloc.get_traced_memory()[0]
        for k in range(first, first + 100):
            read(k)
        collector.collect()
        types, dims, size = len(_TYPES), len(_DIMS), tracemalloc.get_traced_memory()[0]
        return types - before[0], dims - before[1], size - before[2]

    tracemalloc.start()
    try:
        for warm in range(5000, 5300):  # what is remembered of short texts has its full size then
            read(warm)
        for first in (6000, 6100, 6200):  # other tests' threads may allocate
            types, dims, size = grown(first)
            if types <= 64 and dims <= 8 and size < 50_000:
                return
    finally:
        tracemalloc.stop()
    raise AssertionError(f"{types} types, {dims} dimensions and {size} bytes stay")


def test_a_limit_error_is_a_graph_error() -> None:
    assert issubclass(type(limits.exceeded("results", "x")), LimitError)
