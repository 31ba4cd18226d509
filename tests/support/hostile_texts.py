"""Hostile texts of graphs: ops that have no samples, as they hold regions, do something beside
computing, or are the compiler's own.

`hostile_texts()` puts another value in the place of each attribute of small graphs that hold them.
`attempt_text(text)` returns None where that is refused with a GraphError, or computes what the
interpreter does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from guarded_arrays import guarded

import graphc as gc
from graphc.errors import GraphError
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.ir.graph import Graph
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ir.types import Type
from graphc.ir.verify import verify
from graphc.ops.reference.interpreter import interpret

NUMBERS = (0, 1, -1, 2, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 10**40)
WORDS = ("", "x" * 5000, "no such", "gpu:7", "/job:none/task:9/device:cpu:0", r"\u0000", "{}{}{}")
WORD = r'"(?:[^"\\]|\\.)*"'
ATTRIBUTES = rf'\{{(\w+=(?:{WORD}|[^{{}}"])*)\}}'
LONGEST = 1000  # steps of a loop that is run

WRITTEN = (
    """graph @f(%0 x: f32[3,4], %1 s: f32[4]) {
  %2 = scan(%1, %0) {carries=1, scanned=1, length=3, reverse=false} : (f32[4], f32[3,4]) {
    graph @body(%0 c: f32[4], %1 x: f32[4]) {
      %2 = add(%0, %1) : f32[4]
      return %2, %2
    }
  }
  %3 = item(%2) {index=1} : f32[3,4]
  return %3
}""",
    """graph @f(%0 x: f32[3,4], %1 i: i64[]) {
  %2 = while(%1, %0) {carries=1} : i64[] {
    graph @test(%0 i: i64[], %1 x: f32[3,4]) {
      %2 = const() {value=i64[](5)} : i64[]
      %3 = lt(%0, %2) : bool[]
      return %3
    }
    graph @body(%0 i: i64[], %1 x: f32[3,4]) {
      %2 = const() {value=i64[](2)} : i64[]
      %3 = add(%0, %2) : i64[]
      return %3
    }
  }
  return %2
}""",
    """graph @f(%0 x: f32[3,4], %1 ct: f32[3,4]) {
  %2 = grad(%0, %1) {wrt=[0], seeds=1} : (f32[3,4], f32[3,4]) {
    graph @g(%0 x: f32[3,4]) {
      %1 = mul(%0, %0) : f32[3,4]
      return %1
    }
  }
  %3 = item(%2) {index=1} : f32[3,4]
  return %3
}""",
    """graph @f(%0 x: f32[3,4]) {
  %1 = blocked(%0) {dims=[3,4], counts=[3], steps=[4,4]} : f32[3,4] {
    graph @g(%0 x: f32[3,4]) {
      %1 = slice(%0) {starts=[0,0], stops=[1,4], steps=[1,1]} : f32[1,4]
      %2 = neg(%1) : f32[1,4]
      return %2
    }
  }
  return %1
}""",
    """graph @f(%0 x: f32[3,4]) {
  %1 = pack() {value=f32[2,3](1.0,2.0,3.0,4.0,5.0,6.0), batch=[1,6], k=[2,3], n=[3,1], \
offset=0, columns=2, step=4, together=1} : f32[8]
  return %1
}""",
    """graph @f(%0 x: f32[3,3,4]) {
  %1 = vmap(%0) {mapped=[0], size=3, stacked=1, axis_name="i", devices=[]} : f32[3,4] {
    graph @row(%0 r: f32[3,4]) {
      %1 = axis_slice(%0) {axis_name="i", size=3} : f32[4]
      return %1
    }
  }
  return %1
}""",
    """graph @f(%0 x: f32[3,4]) {
  %1 = barrier(%0) : f32[3,4]
  %2 = call(%1) {name="twice"} : (f32[3,4], f32[3,4]) {
    graph @twice(%0 x: f32[3,4]) {
      %1 = tuple(%0, %0) : (f32[3,4], f32[3,4])
      return %1
    }
  }
  %3 = item(%2) {index=1} : f32[3,4]
  %4 = summary(%3) {kind="histogram", tag="t", text="", stepped=false, threaded=false} : ()
  return %3
}""",
    """graph @f(%0 x: f32[3,4]) {
  %1 = outlined(%0) {function="f#7", dtypes=["f32"], ranks=[2], dims=[3,4]} : f32[3,4]
  return %1
}""",
)

X = np.ones((3, 4), np.float32)


@gc.custom_grad
def doubled(x: Any) -> Any:
    return x * 2, lambda cotangent: (cotangent * 3,)


def chosen(x: Any, k: Any) -> Any:
    x = gc.cond(k > 0, lambda v: v + 1, lambda v: v * 2, x)
    return gc.switch(k, [lambda v: v - 1, lambda v: v * 3, lambda v: v], x)


def differentiated(x: Any) -> Any:
    def loss(v: Any) -> Any:
        return (doubled(v) * gc.checkpoint(lambda u: np.sin(u) * u)(v)).sum()

    return gc.grad(loss)(x)


def told(x: Any) -> Any:
    gc.print("rows {}", x.sum())
    gc.assert_(x.sum() > 0, "no rows")  # noqa: PT009
    return gc.callback(np.sin, gc.spec((3, 4), "f32"), x)


def mapped(x: Any) -> Any:
    def row(r: Any) -> Any:
        every = gc.all_gather(r, "i")
        return r - gc.psum(r, "i") + every[0]

    return gc.vmap(row, axis_name="i")(x)


def kept(x: Any) -> Any:
    total = gc.Variable(np.zeros(4, np.float32), name="total", container="hostile")
    total.assign(total + x.sum(axis=0))
    return total + 1


def queued(x: Any) -> Any:
    rows = gc.Queue(gc.spec((4,), "f32"), capacity=9)
    rows.enqueue(x[0])
    return rows.dequeue() + 1


def staged(x: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        return ((x @ w["a"]) @ w["b"]).mean()

    w = {"a": np.eye(4, dtype=np.float32), "b": np.ones((4, 2), np.float32)}
    return gc.parallel.pipeline(loss, ["cpu:0", "cpu:1"], chunks=3)(w, x)


def counted(x: Any) -> Any:
    return gc.fori(0, 3, lambda _, c: c + np.sort(c[c > 0])[::2].sum(), x)


PROGRAMS: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
    (chosen, (X, np.int64(1))),
    (differentiated, (X,)),
    (told, (X,)),
    (mapped, (X,)),
    (kept, (X,)),
    (queued, (X,)),
    (staged, (X,)),
    (counted, (X,)),
)


@cache
def texts() -> tuple[str, ...]:
    """The graphs that are changed."""
    traced = (gc.show(gc.compile(f).graph(*given)) for f, given in PROGRAMS)
    plain = (re.sub(r' loc\("[^"]*":\d+\)', "", text) for text in traced)
    return (*(f"gir 1\n{text}" for text in WRITTEN), *plain)


def not_attacked() -> list[str]:
    """Ops that have no samples, no text here, and are in no dump of a late stage, which
    `benchmarks.hostile` changes."""
    from benchmarks.hostile import models

    dumped = [d.text for name in (*models.FUNCTIONS, *models.OPEN) for d in models.dumps(name)]
    held = re.findall(r"^ *%\d+ = (\w+)\(", "\n".join([*texts(), *dumped]), re.MULTILINE)
    return sorted({name for name, op in OPS.items() if op.samples is None}.difference(held))


def hostile_texts() -> Iterator[str]:
    """Graphs in whose attributes one value is another."""
    for text in texts():
        for attrs in re.finditer(ATTRIBUTES, text):
            if "value=" in attrs[1] and "batch" not in attrs[1]:
                continue
            for first, end, value in _changed(attrs[1]):
                start = attrs.start(1)
                yield text[: start + first] + value + text[start + end :]


def _changed(attrs: str) -> Iterator[tuple[int, int, str]]:
    """Parts of attributes, and what takes their place."""
    for number in re.finditer(r"(?<![\w.-])-?\d+(?![\w.])", attrs):
        for value in (*NUMBERS, int(number[0]) - 1, int(number[0]) + 1):
            yield *number.span(), str(value)
    for word in re.finditer(WORD, attrs):
        for new in (*(f'"{w}"' for w in WORDS), "3", "[]"):
            yield *word.span(), new
    for flag in re.finditer(r"\b(true|false)\b", attrs):
        for new in ("true", "false", "2", '"true"'):
            yield *flag.span(), new
    for entries in re.finditer(r"\[([^\[\]]*)\]", attrs):
        inner = entries[1]
        for new in ("", f"{inner},{inner}", inner.rpartition(",")[0], "1," * 100_000 + "1", '"a"'):
            yield *entries.span(), f"[{new}]"


def arrays_of(made: Any) -> Iterator[Any]:
    if isinstance(made, tuple | dict):
        for part in made.values() if isinstance(made, dict) else made:
            yield from arrays_of(part)
    else:
        yield made


def attempt_text(text: str) -> str | None:
    """None if the text is refused with a GraphError, or computes what the interpreter does."""
    try:
        graph = parse(text)
        assert isinstance(graph, Graph)
        verify(graph)
    except GraphError:
        return None
    if any(n.attrs["length"] > LONGEST for n in graph.nodes if n.op.name == "scan"):
        return None  # it would run as long as it says
    if any(n.op.name == "resource" for n in graph.nodes):
        return None  # it would wait for items of a queue that nobody fills
    rng = np.random.default_rng(0)
    kinds = [p.type for p in graph.params if isinstance(p.type, Type)]
    arguments = [rng.normal(size=k.dims).astype(k.dtype.numpy) for k in kinds]
    try:
        expected = interpret(graph, arguments)
        made = LoadedGraph(graph)(*[guarded(a, "behind") for a in arguments])
    except GraphError:
        return None
    for got, wanted in zip(arrays_of(made), expected, strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)
    return None


if __name__ == "__main__":
    print(*not_attacked())
