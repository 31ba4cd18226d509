"""What a file may take of the machine: time, stacks, gradients, kernels, files, code in memory."""

from __future__ import annotations

import gc as collector
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from project import ROOT

import graphc as gc
from graphc import limits
from graphc.cli import common as cli_common
from graphc.cli.commands import cli
from graphc.codegen.cache import Cache
from graphc.config import Config
from graphc.errors import GraphError, LimitError
from graphc.frontend.files.gir_files import parse
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.runtime.files import files
from graphc.runtime.load import load

PUSHES = """graph @f(%0 x: f32[1000]) {
  %1 = stack() {type=f32[1000]} : stack<f32[1000]>
  %9 = const() {value=i64[](0)} : i64[]
  %2 = while(%0, %1, %9) {carries=3} : (f32[1000], stack<f32[1000]>, i64[]) {
    graph @t(%0 a: f32[1000], %1 s: stack<f32[1000]>, %3 i: i64[]) {
      %2 = const() {value=i64[](TURNS)} : i64[]
      %4 = lt(%3, %2) : bool[]
      return %4
    }
    graph @b(%0 a: f32[1000], %1 s: stack<f32[1000]>, %3 i: i64[]) {
      %2 = push(%1, %0) : stack<f32[1000]>
      %4 = neg(%0) : f32[1000]
      %5 = const() {value=i64[](1)} : i64[]
      %6 = add(%3, %5) : i64[]
      return %4, %2, %6
    }
  }
  %3 = item(%2) {index=1} : stack<f32[1000]>
  %4 = pop(%3) : (stack<f32[1000]>, f32[1000])
  %5 = item(%4) {index=1} : f32[1000]
  return %5
}
"""


def nested(depth: int) -> str:
    seed = "%9 = const() {value=f32[](1.0)} : f32[]\n"
    opening = "%1 = grad(%0, %9) {wrt=[0], seeds=1} : (f32[], f32[]) {\ngraph @g(%0 x: f32[]) {\n"
    inner = "%2 = item(%1) {index=1} : f32[]\nreturn %2\n}\n"
    body = "%1 = sin(%0) : f32[]\n%2 = mul(%1, %0) : f32[]\nreturn %2\n}\n"
    head = f"graph @f(%0 x: f32[]) {{\n{seed}" + (opening + seed) * (depth - 1) + opening
    return head + body + ("}\n" + inner) * depth


@pytest.mark.parametrize("turns", [1, 10, 100, 120])
def test_stacks_count_within_the_memory_limit(turns: int) -> None:
    graph = LoadedGraph(parse(PUSHES.replace("TURNS", str(turns))))
    x = np.arange(1000, dtype=np.float32)
    planned = sum(i.arena_bytes for i in graph.build().image.images) + x.nbytes
    room = 120 * x.nbytes
    limited = LoadedGraph(graph.graph, Config.create(memory_limit=planned + room))
    np.testing.assert_array_equal(limited(x), x if turns % 2 else -x)
    assert limited.build().stack_bytes <= room
    too_little = Config.create(memory_limit=planned + turns * x.nbytes - 1)
    for _ in range(2):
        with pytest.raises(LimitError, match="stacks of loops"):
            LoadedGraph(graph.graph, too_little)(x)


def test_run_limits_stacks_of_files(tmp_path: Path) -> None:
    path = tmp_path / "push.gir"
    path.write_text(PUSHES.replace("TURNS", "1000000000"))
    options = [str(path), "--seed", "0", "--limit", "stack_bytes=1000000"]
    before = limits.limit("stack_bytes")
    try:
        done = CliRunner().invoke(cli, ["run", *options])
    finally:
        limits.set_limit("stack_bytes", before)
    assert isinstance(done.exception, LimitError)
    assert "1000000 bytes" in str(done.exception)


@pytest.mark.slow
def test_nested_gradients_are_exact_or_refused() -> None:
    x, s, c = 0.5, np.sin(0.5), np.cos(0.5)
    results = [float(LoadedGraph(parse(nested(depth)))(np.float32(0.5))) for depth in (1, 2, 3)]
    np.testing.assert_allclose(results, [s + x * c, 2 * c - x * s, -3 * s - x * c], rtol=1e-5)
    with pytest.raises(LimitError, match="gradient_growth"):
        LoadedGraph(parse(nested(20).replace("sin", "tanh"))).build()


def test_kernels_of_one_compilation_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    before = limits.limit("kernels")
    limits.set_limit("kernels", 2)
    try:
        with pytest.raises(LimitError, match="--limit kernels=N"):
            gc.compile(lambda x: [np.cumsum(x[:k]) for k in range(11, 15)])(np.ones(20))
    finally:
        limits.set_limit("kernels", before)


ENDLESS = """graph @f(%0 x: f64[]) {
  %1 = while(%0) {carries=1} : f64[] {
    graph @t(%0 a: f64[]) {
      %1 = isnan(%0) : bool[]
      %2 = not(%1) : bool[]
      return %2
    }
    graph @b(%0 a: f64[]) {
      %1 = neg(%0) : f64[]
      return %1
    }
  }
  return %1
}
"""


def test_time_limit_stops_native_loops(tmp_path: Path) -> None:
    path = tmp_path / "endless.gir"
    path.write_text(ENDLESS)
    done = CliRunner().invoke(cli, ["run", str(path), "--seed", "0", "--time-limit", "0.5"])
    assert isinstance(done.exception, LimitError)
    assert "time limit of 0.5 seconds" in str(done.exception)


def test_time_limit_leaves_what_is_fast_and_other_errors_alone() -> None:
    with cli_common.seconds_limited(60):
        pass
    with pytest.raises(GraphError, match="another"), cli_common.seconds_limited(60):
        raise GraphError("another")


def test_uncomputable_numbers_name_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse('graph @f(%0 x: f32[4]) {\n  %1 = neg(%0) : f32[4] loc("m.py":7)\n  return %1\n}')
    node = graph.nodes[0]

    def overflow(*_: object, **__: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(type(node.op), "result_type", overflow)
    with pytest.raises(GraphError, match="the type of neg cannot be computed: too large"):
        gc.ir.graph.infer(node.op, (), node.attrs)
    with pytest.raises(GraphError) as caught:
        gc.ir.graph.rebuild(graph, overflow)
    assert caught.value.location == ("m.py", 7)


def test_new_files_follow_no_link_and_replace_what_killed_writers_left(tmp_path: Path) -> None:
    target, victim = tmp_path / "a.txt", tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".a.txt.tmp").symlink_to(victim)
    files.write_atomically(target, [b"new"])
    assert (target.read_text(), victim.read_text()) == ("new", "mine")
    (tmp_path / ".a.txt.tmp").unlink()
    (tmp_path / ".a.txt.tmp").write_text("half of a file")
    with files.new_file(target) as (first, name), files.new_file(target) as (second, other):
        assert name.name == ".a.txt.tmp" != other.name
        first.write(b"1")
        second.write(b"2")
        name.replace(target)
        other.replace(target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "victim"]
    with pytest.raises(ZeroDivisionError), files.new_file(target):
        raise ZeroDivisionError
    assert len(list(tmp_path.iterdir())) == 2


def test_pipes_are_no_files(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put(b"code", {"k": "symbol"})
    (tmp_path / "cache" / "keys" / "k").unlink()
    os.mkfifo(tmp_path / "cache" / "keys" / "k")
    assert Cache(tmp_path / "cache").get(["k"]) == {}
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(GraphError, match="no ordinary file"):
        cli_common.read_feeds((f"x={tmp_path / 'x.npy'}",))


def test_archives_hold_arrays(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("notes.txt", "no array")
    deep = b"(" * 50_000
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x02\x00" + len(deep).to_bytes(4, "little") + deep)
    for name in ("x.npz", "x.npy"):
        with pytest.raises(GraphError, match="plain arrays"):
            cli_common.read_feeds((f"x={tmp_path / name}",))


@pytest.mark.usefixtures("frozen")
def test_code_goes_with_the_last_program_that_uses_it() -> None:
    def run(k: int) -> None:
        gc.compile(lambda x: np.tanh(x) * k, threads=1)(np.ones(100 + k))

    run(0)
    collector.collect()
    before = len(load._linked)
    for k in range(1, 8):
        run(k)
    collector.collect()
    assert len(load._linked) <= before
    kept = gc.compile(lambda x: np.tanh(x) * 9, threads=1)
    x = np.ones(109)
    first = kept(x)
    entry = kept.executable(x).entry
    del kept
    collector.collect()
    np.testing.assert_array_equal(np.tanh(x) * 9, first)
    assert entry is not None


def test_the_settings_page_lists_every_limit() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    for name, value in limits.DEFAULTS.items():
        assert f"| `{name}` | {value:,} | {limits.MEANING[name]} |" in page


def test_names_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    name = '"a\\u001b[31m\\nb"'
    text = f"graph @{name}(%0 {name}: f32[4]) {{\n  %1 = neg(%0) : f32[4]\n  return %1\n}}\n"
    LoadedGraph(parse(text), Config.create(dump=str(tmp_path))).build()
    index = (tmp_path / "index.txt").read_text()
    assert all(line.isprintable() for line in index.split("\n"))
    assert r"a\x1b[31m\nb: 1 nodes" in index
