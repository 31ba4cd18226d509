"""Hostile graphs by the hundred: every way a file can ask for more than it should, small or large.

`graphs(size)` yields (name, text).  With size 1 a graph asks for a little more than is usual, with
10,000 for what would take hours or all memory if nobody refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

Graphs = Iterator[tuple[str, str]]
HEAD = "gir 1\n"


def graph(body: str, params: str = "%0 x: f32[4]", result: str = "%1") -> str:
    return f"{HEAD}graph @f({params}) {{\n{body}\n  return {result}\n}}\n"


def listed(piece: str, count: int, separator: str = ", ") -> str:
    return separator.join(piece.replace("#", str(k)) for k in range(count))


def long_texts(size: int) -> Graphs:
    """Many of everything that a text may have many of, canonical and not."""
    many = 30 * size
    neg = "  %1 = neg(%0) : f32[4]"
    texts = {
        "parameters": f"{HEAD}graph @f({listed('%# x#: f32[4]', many)}) {{\n  return %0\n}}\n",
        "results": graph(neg, result=listed("r#: %1", many)),
        "aliases": graph(neg + "\n" + listed("  name a# = %1", many, "\n")),
        "nodes": graph(
            "\n".join(f"  %{k + 1} = neg(%{k}) : f32[4]" for k in range(many)), result=f"%{many}"
        ),
        "constants": graph(
            "\n".join(f"  %{k + 1} = const() {{value=f32[]({k}.0)}} : f32[]" for k in range(many))
        ),
        "tuple": graph(
            f"  %1 = tuple({listed('%0', many)}) : ({listed('f32[4]', many)})\n"
            f"  %2 = item(%1) {{index={many - 1}}} : f32[4]",
            result="%2",
        ),
        "operands": graph(f"  %1 = concat({listed('%0', many)}) {{axis=0}} : f32[{4 * many}]"),
        "attributes": graph("  %1 = neg(%0) {" + listed("a#=1", many) + "} : f32[4]"),
        "integers": graph(
            "  %1 = sum(%0) {axes=[" + listed("#", many, ",") + "], keepdims=false} : f32[]"
        ),
        "literal": graph(
            f"  %1 = const() {{value=f32[{many}]({listed('0.5', many, ',')})}} : f32[{many}]"
        ),
        "string": graph(
            '  %1 = call(%0) {name="' + "a" * (10 * many) + '"} : f32[4] {\n'
            "    graph @g(%0 x: f32[4]) {\n      return %0\n    }\n  }"
        ),
        "location": graph('  %1 = neg(%0) : f32[4] loc("' + "a" * (10 * many) + '":1)'),
        "after": graph(neg + "\n  %2 = neg(%1) : f32[4] after " + listed("%1", many), result="%2"),
        "comments": HEAD + "# nothing\n" * many + graph(neg),
        "blank lines": HEAD + "\n" * many + graph(neg)[6:],
        "lists": graph("  %1 = neg(%0) {a=" + "[" * many + "]" * many + "} : f32[4]"),
        "tuples": graph(f"  %1 = neg(%0) : {'(' * many}f32[4]{')' * many}"),
        "braces": graph("  %1 = neg(%0) " + "{" * many),
        "rank": graph(f"  %1 = neg(%0) : f32[{listed('1', many, ',')}]"),
        "one line": HEAD + "graph" + " " * (100 * many),
        "no end": HEAD + "graph @f(" + listed("%# x#: f32[4]", many),
        "quotes": HEAD + 'graph @"' + '\\"' * many + '"(%0 x: f32[4]) {\n  return %0\n}\n',
    }
    for name, text in texts.items():
        yield name, text
        yield f"{name}, spaced", text.replace(" = ", "  =  ").replace(", ", " , ")


def dimensions(size: int) -> Graphs:
    """Extents and polynomials that no array has."""
    many = 4 * size
    for name, extent in {
        "product": "*".join(["N"] * many),
        "sum": "+".join(["N"] * many),
        "terms": "+".join(f"N{k}" for k in range(many)),
        "nines": "*".join(["9" * 40] * many),
        "digits": "9" * many,
        "minus": "-N",
        "huge": str(2**62),
        "ten": str(10**30),
        "square": "*".join(f"N{k}" for k in range(many)) + "+1",
        "zero": "0*N",
        "limit": str(2**48),
        "over": str(2**48 + 1),
        "negative": "-1",
    }.items():
        yield (
            f"extent {name}",
            graph(f"  %1 = neg(%0) : f32[{extent}]", params=f"%0 x: f32[{extent}]"),
        )
        yield (
            f"square {name}",
            graph(
                f"  %1 = matmul(%0, %0) : f32[{extent},{extent}]",
                params=f"%0 x: f32[{extent},{extent}]",
            ),
        )


NUMBERS = ("0", "-1", str(2**31), str(2**32), str(2**62), str(2**63), str(-(2**63)), str(10**30),
           "1.0", "nan", "inf", "-inf", "1e308", "none")  # fmt: skip
ATTRIBUTES = {
    "diagonal": ("%0 x: f32[4,4]", "diagonal(%0) {offset=#}", "f32[4]"),
    "celu": ("%0 x: f32[4]", "celu(%0) {alpha=#}", "f32[4]"),
    "leaky_relu": ("%0 x: f32[4]", "leaky_relu(%0) {slope=#}", "f32[4]"),
    "conv": (
        "%0 x: f32[1,1,4], %5 w: f32[1,1,3]",
        "conv(%0, %5) {stride=[#], dilation=[1], groups=1}",
        "f32[1,1,2]",
    ),
    "pool": (
        "%0 x: f32[1,1,9,9]",
        'pool(%0) {kind="max", window=[2,2], stride=[#,1], dilation=[1,1]}',
        "f32[1,1,8,8]",
    ),
    "iota": ("%0 x: f32[4]", "iota() {extent=#, dtype=i64}", "i64[4]"),
    "softmax": ("%0 x: f32[4]", "softmax(%0) {axis=#}", "f32[4]"),
    "slice": ("%0 x: f32[4]", "slice(%0) {starts=[0], stops=[4], steps=[#]}", "f32[4]"),
    "broadcast": ("%0 x: f32[4]", "broadcast(%0) {dims=[#,4]}", "f32[1,4]"),
    "reshape": ("%0 x: f32[4]", "reshape(%0) {dims=[#,2]}", "f32[2,2]"),
    "pad": ("%0 x: f32[4]", 'pad(%0) {low=[#], high=[0], mode="constant", value=0.0}', "f32[4]"),
    "roll": ("%0 x: f32[4]", "roll(%0) {shifts=[#], axes=[0]}", "f32[4]"),
}


def attributes(size: int) -> Graphs:
    """Numbers where they do not belong, in what the type says and in what is folded."""
    for (op, (params, text, kind)), number in itertools.product(ATTRIBUTES.items(), NUMBERS):
        yield f"{op} {number}", graph(f"  %1 = {text.replace('#', number)} : {kind}", params=params)
    for number in NUMBERS[:8]:
        yield (
            f"folded diagonal {number}",
            graph(
                "  %0 = const() {value=f32[2,2](1.0,2.0,3.0,4.0)} : f32[2,2]\n"
                f"  %1 = diagonal(%0) {{offset={number}}} : f32[0]",
                params="",
            ),
        )


NAMES = ("\\ud800", "\\u001b[31m", "\\n", "\\u0000", "../../x", "", "%s", "\\ud83d\\ude00")


def names(size: int) -> Graphs:
    """Names that a terminal, a file system or an encoder would choke on."""
    for number, name in enumerate(NAMES):
        yield (
            f"name {number}",
            graph(
                f'  %1 = neg(%0) : f32[4] loc("{name}":3)\n  name "{name}" = %1',
                params=f'%0 "{name}": f32[4]',
                result=f'"{name}": %1',
            ),
        )


def regions(size: int) -> Graphs:
    """Loops and gradients in one another, and loops that never end."""
    depth = 2 + size // 50
    opening = '%1 = call(%0) {name="f"} : f32[4] {\ngraph @g(%0 x: f32[4]) {\n'
    for count in sorted({1, depth, 10 * depth, 100 * depth}):
        yield (
            f"calls {count}",
            graph(opening * count + "return %0\n}\n" + "}\nreturn %1\n}\n" * (count - 1) + "}"),
        )
    seed = "%9 = const() {value=f32[](1.0)} : f32[]\n"
    grad = "%1 = grad(%0, %9) {wrt=[0], seeds=1} : (f32[], f32[]) {\ngraph @g(%0 x: f32[]) {\n"
    close = "}\n%2 = item(%1) {index=1} : f32[]\n"
    for count, op in itertools.product(range(1, 4 + depth), ("sin", "tanh", "exp")):
        inner = f"%1 = {op}(%0) : f32[]\n%2 = mul(%1, %0) : f32[]\nreturn %2\n}}\n"
        body = (seed + grad) * count + inner + (close + "return %2\n}\n") * (count - 1) + close
        yield f"gradients of {op} {count}", graph(body, params="%0 x: f32[]", result="%2")
    for length in (0, 3, 2**31, 2**48, 10**30):
        yield (
            f"scan {length}",
            graph(
                f"  %1 = scan(%0) {{carries=1, scanned=0, length={length}, reverse=false}} : f32[]"
                " {\n    graph @b(%0 a: f32[]) {\n      %1 = neg(%0) : f32[]\n      return %1\n"
                "    }\n  }",
                params="%0 x: f32[]",
            ),
        )
    for width in (1, 1000, 100_000):
        yield f"push {width}", pushes(width)


def pushes(width: int) -> str:
    kind = f"f32[{width}]"
    carried = f"%0 a: {kind}, %1 s: stack<{kind}>, %3 i: i64[]"
    return graph(
        f"""
  %1 = stack() {{type={kind}}} : stack<{kind}>
  %9 = const() {{value=i64[](0)}} : i64[]
  %2 = while(%0, %1, %9) {{carries=3}} : ({kind}, stack<{kind}>, i64[]) {{
    graph @t({carried}) {{
      %2 = const() {{value=i64[](1000000000)}} : i64[]
      %4 = lt(%3, %2) : bool[]
      return %4
    }}
    graph @b({carried}) {{
      %2 = push(%1, %0) : stack<{kind}>
      %5 = const() {{value=i64[](1)}} : i64[]
      %6 = add(%3, %5) : i64[]
      return %0, %2, %6
    }}
  }}
  %3 = item(%2) {{index=1}} : stack<{kind}>
  %4 = pop(%3) : (stack<{kind}>, {kind})
  %5 = item(%4) {{index=1}} : {kind}""",
        params=f"%0 x: {kind}",
        result="%5",
    )


def long_runs(size: int) -> Graphs:
    """One kernel that runs for hours, and programs of very many."""
    extent = min(2**48, 1000 * size**3)
    yield (
        "huge sum",
        graph(
            f"  %1 = iota() {{extent={extent}, dtype=i64}} : i64[{extent}]\n"
            "  %2 = sum(%1) {axes=[0], keepdims=false} : i64[]",
            result="%2",
        ),
    )
    side = min(2**23, 40 * size)
    yield (
        "huge product",
        graph(
            f"  %2 = matmul(%0, %1) : f32[{side},{side}]\n"
            "  %3 = sum(%2) {axes=[0,1], keepdims=false} : f32[]",
            params=f"%0 x: f32[{side},1], %1 y: f32[1,{side}]",
            result="%3",
        ),
    )
    kernels = 3 + size // 3
    lines = [f"  %{k} = cumsum(%0) {{axis=0}} : f32[4]" for k in range(1, 3)]
    yield "same kernels", graph("\n".join(lines))
    chain = [
        f"  %{2 * k - 1} = slice(%0) {{starts=[0], stops=[{k}], steps=[1]}} : f32[{k}]\n"
        f"  %{2 * k} = softmax(%{2 * k - 1}) {{axis=0}} : f32[{k}]"
        for k in range(1, kernels)
    ]
    yield (
        "distinct kernels",
        graph(
            "\n".join(chain),
            params=f"%0 x: f32[{kernels}]",
            result=listed("%#", 2 * kernels, ", ").split(", ", 1)[1].rsplit(", ", 1)[0],
        ),
    )


SOURCES: tuple[Callable[[int], Graphs], ...] = (
    long_texts,
    dimensions,
    attributes,
    names,
    regions,
    long_runs,
)


def graphs(size: int) -> Graphs:
    for source in SOURCES:
        for name, text in source(size):
            yield f"{source.__name__}: {name}", text
