"""Control flow by hand: what is copied, dropped, hoisted and refused, and how failures read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_graphs import EYE, STACK, compiled, equal

import graphc as gc
from graphc.cli.commands import main
from graphc.codegen.table.carries import Carry, layout_of
from graphc.config import Config
from graphc.errors import GraphError, ParseError, RunError, VerifyError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.parse import parse
from graphc.ir.regions import scheduled_graphs
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.runtime.load.table import COPY, rows

PARAMS = "%0 n: i64[], %1 x: f32[4]"


def region(name: str, params: str, body: str, result: str) -> str:
    lines = "".join(f"  {line.strip()}\n" for line in body.strip().split("\n") if line.strip())
    return f"graph @{name}({params}) {{\n{lines}  return {result}\n}}\n"


def counted(carries: str, body: str, results: str, inits: str, more: str = "") -> Graph:
    """A graph (n, x) that runs a body n times; it counts in the carry %0."""
    kinds = [c.split(": ")[1] for c in carries.split("; ")]
    params = ", ".join([f"%{k} c{k}: {kind}" for k, kind in enumerate(["i64[]", *kinds])])
    count = len(kinds) + 1
    params += f", %{count} n: i64[]"
    test = region("test", params, f"%90 = lt(%0, %{count}) : bool[]", "%90")
    step = "%90 = const() {value=i64[](1)} : i64[]\n%91 = add(%0, %90) : i64[]\n"
    inside = region("body", params, step + body, f"%91, {results}")
    items = "\n".join(
        f"%{30 + k} = item(%20) {{index={k + 1}}} : {kind}" for k, kind in enumerate(kinds)
    )
    loop = f"%20 = while(%19, {inits}, %0) {{carries={count}}} : (i64[], {', '.join(kinds)})"
    last = ", ".join(f"%{30 + k}" for k in range(len(kinds)))
    text = region(
        "g", PARAMS, f"%19 = const() {{value=i64[](0)}} : i64[]\n{more}\nLOOP\n{items}", last
    )
    made = parse(text.replace("LOOP", f"{loop} {{\n{test}{inside}}}"))
    assert isinstance(made, Graph)
    return made


def planned(g: Graph, **options: Any) -> list[Node]:
    value = pipeline.run(g, Config(threads=1, verify=3, **options))[-1].value
    assert isinstance(value, Program)
    return [n for graph in scheduled_graphs(value.graphs[0]) for n in graph.nodes]


def kinds_of(g: Graph) -> list[Carry]:
    loops = [n for n in planned(g) if n.op.name in ("while", "scan")]
    return [kind for loop in loops for kind in layout_of(loop, loop.regions).carries]


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_carries_that_change_places(n: int, opt: int) -> None:
    g = counted("%1: f32[4]; %2: f32[4]", "", "%2, %1", "%1, %18", "%18 = neg(%1) : f32[4]")
    arrays = [np.int64(n), EYE]
    equal(compiled(g, opt=opt, threads=1).run(arrays), interpret(g, arrays))
    assert kinds_of(g)[-2:] == [Carry.SWAPPED] * 2


def test_a_carry_that_only_its_own_kernel_reads_is_updated_in_place() -> None:
    g = counted("%1: f32[4]", "%5 = add(%1, %1) : f32[4]", "%5", "%1")
    assert kinds_of(g) == [Carry.IN_PLACE, Carry.IN_PLACE]
    executable = compiled(g, threads=1)
    equal(executable.run([np.int64(5), EYE]), [EYE * 32])
    words = executable.image.table.tolist()
    assert sum(words[row] == COPY for row in rows(words)) == 2  # both initial values, once


def test_a_large_carry_is_not_copied_at_the_start() -> None:
    text = """graph @g(%0 x: f32[4096], %1 xs: f32[3,4096]) {
      %2 = scan(%0, %1) {carries=1, scanned=1, length=3, reverse=false} : f32[4096] {
        graph @body(%0 c: f32[4096], %1 x: f32[4096]) {
          %2 = add(%0, %1) : f32[4096]
          return %2
        }
      }
      return %2
    }"""
    executable = compiled(parse(text), threads=1)  # type: ignore[arg-type]
    words = executable.image.table.tolist()
    assert COPY not in [words[row] for row in rows(words)]
    x, xs = np.ones(4096, np.float32), np.ones((3, 4096), np.float32)
    equal(executable.run([x, xs]), [x * 4])
    equal([x], [np.ones(4096, np.float32)])  # the argument is as it was


def test_a_carry_that_is_also_stacked_is_read_from_the_stack() -> None:
    text = """graph @g(%0 x: f32[4], %1 xs: f32[3,4]) {
      %2 = scan(%0, %1) {carries=1, scanned=1, length=3, reverse=true} : (f32[4], f32[3,4]) {
        graph @body(%0 c: f32[4], %1 x: f32[4]) {
          %2 = add(%0, %1) : f32[4]
          return %2, %2
        }
      }
      %3 = item(%2) {index=0} : f32[4]
      %4 = item(%2) {index=1} : f32[3,4]
      return %3, %4
    }"""
    g = parse(text)
    assert isinstance(g, Graph)
    assert kinds_of(g) == [Carry.FOLLOWS]
    arrays = [EYE, np.arange(12, dtype=np.float32).reshape(3, 4)]
    equal(compiled(g, threads=1).run(arrays), interpret(g, arrays))


FILL = """graph @g(%0 n: i64[], %1 x: f32[SIZE]) {
  %2 = const() {value=i64[](0)} : i64[]
  %3 = while(%2, %1, %0) {carries=2} : (i64[], f32[SIZE]) {
    graph @test(%0 i: i64[], %1 x: f32[SIZE], %2 n: i64[]) {
      %4 = lt(%0, %2) : bool[]
      return %4
    }
    graph @body(%0 i: i64[], %1 x: f32[SIZE], %2 n: i64[]) {
      %4 = dynamic_slice(%1, %0) {sizes=[1]} : f32[1]
      %5 = const() {value=i64[](1)} : i64[]
      %6 = add(%0, %5) : i64[]
      %7 = add(%4, %4) : f32[1]
      %8 = dynamic_update_slice(%1, %7, %6) : f32[SIZE]
      return %6, %8
    }
  }
  %4 = item(%3) {index=1} : f32[SIZE]
  return %4
}"""


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("size", [8, 5000])  # a small carry is copied first, a large one is not
def test_an_update_writes_what_changes(size: int, opt: int) -> None:
    g = parse(FILL.replace("SIZE", str(size)))
    assert isinstance(g, Graph)
    executable = compiled(g, opt=opt, threads=2)
    x = np.ones(size, np.float32)
    for n in (0, 1, 2, 7):
        equal(executable.run([np.int64(n), x]), interpret(g, [np.int64(n), x]))
    assert np.all(x == 1)


# ------------------------------------------------------------------------------------ narrowing


def test_what_nothing_reads_leaves_a_loop() -> None:
    g = counted(
        "%1: f32[4]; %2: f32[4]; %3: f32[4]",
        "%5 = exp(%2) : f32[4]\n%6 = neg(%1) : f32[4]",
        "%6, %5, %3",
        "%1, %18, %1",
        "%18 = sin(%1) : f32[4]",
    )
    g = g.replace(results=(g.results[0], g.results[2]), result_names=())
    final = pipeline.run(g, Config(threads=1))[-1].value
    assert isinstance(final, Program)
    names = {n.op.name for f in planned(g) for r in f.regions for n in r.nodes}
    assert "neg" in names and "exp" not in names and "sin" not in names
    assert final.results[1] is final.params[1]  # the carry that the body passes on
    (loop,) = [n for n in planned(g) if n.op.name == "while"]
    assert loop.attrs["carries"] == 2 and len(loop.inputs) == 3
    equal(compiled(g, threads=1).run([np.int64(3), EYE]), [-EYE, EYE])


def test_hoisted_work_runs_once() -> None:
    text = """graph @g(%0 x: f32[8,8], %1 w: f32[8,8], %2 rows: f32[3,8]) {
      %3 = scan(%0, %2, %1) {carries=1, scanned=1, length=3, reverse=false} : f32[8,8] {
        graph @body(%0 c: f32[8,8], %1 row: f32[8], %2 w: f32[8,8]) {
          %3 = transpose(%2) {perm=[1,0]} : f32[8,8]
          %4 = matmul(%2, %3) : f32[8,8]
          %5 = matmul(%0, %4) : f32[8,8]
          %6 = add(%5, %1) : f32[8,8]
          return %6
        }
      }
      return %3
    }"""
    hoisted = next(r.value for r in pipeline.run(parse(text), Config()) if r.name == "remat")
    assert isinstance(hoisted, Graph)
    assert [n.op.name for n in hoisted.nodes] == ["transpose", "matmul", "scan"]
    assert [n.op.name for n in hoisted.nodes[-1].regions[0].nodes] == ["matmul", "add"]


# ------------------------------------------------------------------------------------ failures


def test_a_kernel_that_fails_in_a_loop_is_named() -> None:
    text = """graph @g(%0 x: f32[4], %1 at: i64[3]) {
      %2 = scan(%0, %1) {carries=1, scanned=1, length=3, reverse=false} : f32[4] {
        graph @body(%0 c: f32[4], %1 i: i64[]) {
          %2 = gather(%0, %1) {axes=[0]} : f32[] loc("model.py":42)
          %3 = add(%0, %2) : f32[4] loc("model.py":42)
          return %3
        }
      }
      return %2
    }"""
    executable = compiled(parse(text), threads=1)  # type: ignore[arg-type]
    executable.run([EYE, np.array([0, 3, 1])])
    with pytest.raises(RunError) as caught:
        executable.run([EYE, np.array([0, 4, 1])])
    assert caught.value.location == ("model.py", 42)


def endless() -> Graph:
    text = """graph @g(%0 x: f32[]) {
      %1 = while(%0) {carries=1} : f32[] {
        graph @test(%0 x: f32[]) {
          %1 = isfinite(%0) : bool[]
          return %1
        }
        graph @body(%0 x: f32[]) {
          %1 = neg(%0) : f32[]
          return %1
        }
      }
      return %1
    }"""
    made = parse(text)
    assert isinstance(made, Graph)
    return made


def test_a_loop_can_be_cancelled() -> None:
    executable = compiled(endless(), threads=1)
    equal(executable.run([np.float32("inf")]), [np.float32("inf")])
    caught: list[BaseException] = []

    def work() -> None:
        try:
            executable.run([np.float32(1)])
        except RunError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        executable.cancel()
        thread.join(0.01)
    assert "cancelled" in str(caught[0])


@pytest.mark.slow
def test_stacks_grow_and_are_checked() -> None:
    g = parse(STACK)
    assert isinstance(g, Graph)
    executable = compiled(g, threads=1)
    for n, m in ((0, 0), (3, 3), (40, 40), (5000, 4000), (2, 2)):
        arrays = [np.int64(n), np.int64(m), EYE]
        equal(executable.run(arrays), interpret(g, arrays))
    assert 5000 * 16 <= executable.stack_bytes <= 4 * 5000 * 16
    with pytest.raises(RunError, match="empty stack") as caught:
        executable.run([np.int64(2), np.int64(3), EYE])
    assert caught.value.location == ("model.py", 9)
    with pytest.raises(GraphError, match="empty stack"):
        interpret(g, [np.int64(2), np.int64(3), EYE])


def test_runs_at_once_have_stacks_of_their_own() -> None:
    g = parse(STACK)
    assert isinstance(g, Graph)
    executable = compiled(g, threads=1)
    wrong: list[int] = []

    def work(n: int) -> None:
        arrays = [np.int64(n), np.int64(n), EYE]
        (want,) = interpret(g, arrays)
        wrong.extend(n for _ in range(50) if not np.array_equal(executable(*arrays), want))

    threads = [threading.Thread(target=work, args=(10 * k,)) for k in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "%6 = push(%1, %2)",
            "%6 = push(%1, %2) : stack<f32[4]>\n%17 = push(%1, %2)",
            "read twice",
        ),
        (
            "%6 = push(%1, %2)",
            "%17 = stack() {type=f32[4]} : stack<f32[4]>\n%6 = push(%17, %2)",
            "cannot leave",
        ),
    ],
)
def test_stacks_are_linear(old: str, new: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        pipeline.run(parse(STACK.replace(old, new)), Config())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return %5, %6, %8", "return %5, %6", "returns 2 value"),
        ("return %5, %6, %8", "return %8, %6, %8", "carry 0 .i. is i64.. but the body returns f32"),
        ("carries=3", "carries=9", "9 carries of 4"),
        ("      return %4\n", "      return %0\n", "must return one bool"),
        ("%6 = push(%1, %2)", "%6 = push(%1, %0)", "cannot hold"),
        ("%2 x: f32[4], %3 n", "%2 x: f32[5], %3 n", "takes"),
    ],
)
def test_wrong_loops_are_refused(old: str, new: str, message: str) -> None:
    assert old in STACK
    with pytest.raises(ParseError, match=message):
        parse(STACK.replace(old, new, 1))


def test_an_artifact_carries_loops_and_stacks(tmp_path: Path) -> None:
    source, target = tmp_path / "m.gir", tmp_path / "m.gcx"
    source.write_text("gir 1\n" + STACK)
    main(["compile", str(source), "-o", str(target)])
    arrays = [np.int64(7), np.int64(7), EYE]
    equal([gc.load(target)(*arrays)], interpret(gc.parse(STACK), arrays))
