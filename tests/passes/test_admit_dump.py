"""A dumped stage is anybody's file: its memory is planned anew, and its kernels are checked."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from project import ROOT

import graphc as gc
from graphc.codegen.lowering.check_kernels import covered
from graphc.config import Config
from graphc.errors import GraphError, VerifyError
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.ir.parse import parse
from graphc.ir.text import literals, show
from graphc.ops.reference.interpreter import interpret

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def scanned(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = np.tanh(h + row @ w)
        return h, h

    return gc.scan(step, 0 * x[0], x)[1]


def looped(x: Any, w: Any) -> Any:
    def body(state: Any) -> Any:
        k, y = state
        return k + 1, np.sort(np.where(y > 0, y @ w, y), axis=0)

    return gc.while_loop(lambda state: state[0] < 3, body, (0, x))[1]


MODELS = {
    "product": lambda x, w: np.tanh(x @ w) @ w,
    "centred": lambda x, w: (x - x.mean(), x[1:] - x[:-1].sum(), w - w.max(axis=1)[:, None]),
    "softmax": lambda x, w: gc.nn.softmax(x @ w, axis=-1),
    "sums": lambda x, w: (np.exp(x).sum(0), (x - x.max(1, keepdims=True)).sum(1), x @ W),
    "scan": scanned,
    "while": looped,
    "gradient": gc.grad(lambda x, w: (scanned(x, w) ** 2).sum(), wrt=(0, 1)),
    "branch": lambda x, w: gc.cond(x.sum() > 0, lambda a, b: a @ b, lambda a, b: a * 2, x, w),
}
W = normal(64, 64)
ARGUMENTS = normal(64, 64), normal(64, 64)


def reread(value: Any, stage: str, **options: Any) -> LoadedGraph:
    """A stage as it comes back from a file."""
    tensors = {found.digest: found.array for found in literals(value)}
    return LoadedGraph(parse(show(value), tensors), Config.create(**options), stage)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("devices", [("cpu:0",), ("cpu:0", "cpu:1")], ids=len)
def test_every_late_stage_runs_bit_for_bit(name: str, devices: tuple[str, ...]) -> None:
    model = gc.compile(MODELS[name], threads=1, devices=devices)
    wanted = model(*ARGUMENTS)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for record in model.stages(*ARGUMENTS):
        if record.name in ("schedule", "fuse", "block", "pack_constants", "add_workspace", "plan"):
            made = reread(record.value, record.name, threads=1, devices=devices).run(ARGUMENTS)
            for got, want in zip(made, wanted, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=record.name)


@pytest.mark.parametrize("name", MODELS)
def test_a_stage_runs_with_another_number_of_threads(name: str) -> None:
    model = gc.compile(MODELS[name], threads=1)
    wanted = model(*ARGUMENTS)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for record in model.stages(*ARGUMENTS):
        if record.name in ("add_workspace", "plan"):
            made = reread(record.value, record.name, threads=3).run(ARGUMENTS)
            for got, want in zip(made, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_no_number_of_a_plan_is_believed(name: str) -> None:
    """Offsets, sizes, base registers and scratch memory of a file change nothing."""
    model = gc.compile(MODELS[name], threads=1)
    wanted = model(*ARGUMENTS)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    planned = model.lower(*ARGUMENTS)
    tensors = {found.digest: found.array for found in literals(planned)}
    random = np.random.default_rng(1)

    def wrong(_: Any) -> str:
        base = random.choice(["", "p0+", "r0+", "c+", "r9+", "v3+"])
        return f"{base}{random.integers(0, 1 << 50)}:{random.integers(0, 1 << 40)}"

    text = re.sub(r"(?:[prv]\d+\+|c\+)?\b\d+:\d+(?=[,;\]])", wrong, show(planned))
    assert text != show(planned)
    for level in (0, 2):
        made = LoadedGraph(parse(text, tensors), Config.create(threads=1, verify=level), "plan")
        for got, want in zip(made.run(ARGUMENTS), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


# ------------------------------------------------------------------------------------ kernels

REFUSED = {
    "results of other dims than the loops": (
        "loop", "%0: f32[8], %1: f32[4]",
        "%2 = neg(%0) : f32[8]\n%3 = neg(%1) : f32[4]", "%2, %3",
    ),
    "a store beyond the result": (
        "loop", "%0: f32[4], %1: f32[8]",
        "%2 = neg(%0) : f32[4]\n%3 = neg(%1) : f32[8]", "%2, %3",
    ),
    "reductions over different axes": (
        "loop", "%0: f32[4,4]",
        "%1 = sum(%0) {axes=[0], keepdims=false} : f32[4]\n"
        "%2 = sum(%0) {axes=[1], keepdims=false} : f32[4]", "%1, %2",
    ),
    "reductions of different arrays": (
        "loop", "%0: f32[4,4], %1: f32[4,8]",
        "%2 = sum(%0) {axes=[1], keepdims=false} : f32[4]\n"
        "%3 = sum(%1) {axes=[1], keepdims=false} : f32[4]", "%2, %3",
    ),
    "a reduction along the axis that it lacks": (
        "loop", "%0: f32[4,4]",
        "%1 = sum(%0) {axes=[1], keepdims=false} : f32[4]\n%2 = sub(%0, %1) : f32[4,4]", "%2",
    ),
    "a view of what is computed": (
        "loop", "%0: f32[4,4]",
        "%1 = sum(%0) {axes=[1], keepdims=true} : f32[4,1]\n"
        "%2 = transpose(%1) {perm=[1,0]} : f32[1,4]\n%3 = sub(%0, %2) : f32[4,4]", "%3",
    ),
    "columns that are not complete": (
        "loop", "%0: f32[4,4]",
        "%1 = sum(%0) {axes=[0], keepdims=true} : f32[1,4]\n%2 = sub(%0, %1) : f32[4,4]", "%2",
    ),
    "an operand as a result": ("loop", "%0: f32[4]", "%1 = neg(%0) : f32[4]", "%1, %0"),
    "sums in two orders": (
        "contract", "%0: f32[4,4], %1: f32[4,4]",
        "%2 = matmul(%0, %1) : f32[4,4]\n%3 = transpose(%2) {perm=[1,0]} : f32[4,4]", "%2, %3",
    ),
    "a view of sums": (
        "contract", "%0: f32[4,4], %1: f32[4,4]",
        "%2 = matmul(%0, %1) : f32[4,4]\n"
        "%3 = slice(%2) {starts=[0,0], stops=[4,1], steps=[1,1]} : f32[4,1]\n"
        "%4 = add(%2, %3) : f32[4,4]", "%4",
    ),
    "results larger than the sums": (
        "contract", "%0: f32[4,4], %1: f32[4,4], %2: f32[2,4,4]",
        "%3 = matmul(%0, %1) : f32[4,4]\n%4 = add(%3, %2) : f32[2,4,4]", "%4",
    ),
    "half of what an op makes": (
        "library", "%0: f32[8]",
        "%1 = sort(%0) {descending=false} : f32[8]\n%2 = neg(%1) : f32[8]", "%2",
    ),
    "two ops in one kernel": (
        "nest", "%0: f32[8]",
        "%1 = cumsum(%0) {axis=0, reverse=false} : f32[8]\n"
        "%2 = cumsum(%1) {axis=0, reverse=false} : f32[8]", "%2",
    ),
    "running totals of what is computed": (
        "nest", "%0: f32[8]",
        "%1 = neg(%0) : f32[8]\n%2 = cumsum(%1) {axis=0, reverse=false} : f32[8]", "%2",
    ),
}  # fmt: skip


def kernel(kind: str, params: str, nodes: str, results: str) -> str:
    """A graph around one fused node."""
    named = re.sub(r"%(\d+)", r"%\1 x\1", params)
    region = f"graph @f({named}) {{\n{nodes}\nreturn {results}\n}}"
    kinds = [str(r.type) for r in parse(f"{region}\n").results]
    made = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
    given = ", ".join(re.findall(r"%\d+", params))
    lines = [f'%50 = fused({given}) {{kind="{kind}"}} : {made} {{', region, "}"]
    if len(kinds) > 1:
        lines += [f"%{51 + k} = item(%50) {{index={k}}} : {one}" for k, one in enumerate(kinds)]
    out = "%50" if len(kinds) == 1 else ", ".join(f"%{51 + k}" for k in range(len(kinds)))
    return "\n".join([f"graph @g({named}) {{", *lines, f"return {out}", "}", ""])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_kernel_is_refused(name: str) -> None:
    graph = parse(kernel(*REFUSED[name]))
    loaded = LoadedGraph(graph, Config.create(threads=1, verify=0))
    with pytest.raises(VerifyError, match="cannot run as it is fused"):
        loaded.build()


@pytest.mark.parametrize(
    "body",
    [
        "%1 = workspace() {nbytes=16} : u8[16]\nreturn %1",
        "%1 = workspace() {nbytes=16} : u8[16]\n%2 = neg(%1) : u8[16]\nreturn %2",
        "%1 = workspace() {nbytes=16} : u8[16]\n%2 = neg(%0) : u8[16] after %1\nreturn %2",
        "%1 = workspace() {nbytes=16} : u8[16]\n"
        '%2 = fused(%0, %1) {kind="loop"} : u8[16] {\ngraph @f(%0 a: u8[16], %1 b: u8[16]) {\n'
        "%2 = add(%0, %1) : u8[16]\nreturn %2\n}\n}\nreturn %2",
    ],
)
def test_scratch_memory_is_no_value(body: str) -> None:
    loaded = LoadedGraph(parse(f"graph @f(%0 x: u8[16]) {{\n{body}\n}}\n"))
    with pytest.raises(GraphError, match="scratch memory"):
        loaded.build()


@pytest.mark.parametrize("stage", ["partition", "schedule", "plan"])
def test_only_the_first_device_returns_values(stage: str) -> None:
    def placed(x: Any) -> Any:
        with gc.device("cpu:1"):
            return np.abs(x)

    devices = ("cpu:0", "cpu:1")
    stages = gc.compile(placed, devices=devices, threads=1).stages(ARGUMENTS[0])
    text = show(next(record.value for record in stages if record.name == stage))
    *_, last = re.finditer(r"(%\d+) = send.*\n(    return)", text)
    changed = f"{text[: last.end()]} {last[1]}{text[last.end() :]}"
    loaded = LoadedGraph(parse(changed), Config.create(devices=devices, verify=0), stage)
    with pytest.raises(VerifyError, match="only the first device"):
        loaded.build()


@pytest.mark.parametrize("opt", [0, 1])
def test_what_waits_for_a_view_waits_for_what_it_shows(opt: int) -> None:
    text = """graph @g(%0 x: f32[4,8]) {
      %1 = neg(%0) : f32[4,8]
      %2 = transpose(%1) {perm=[1,0]} : f32[8,4]
      %3 = reshape(%2) {dims=[32]} : f32[32]
      %4 = sort(%0) {descending=false} : f32[4,8] after %2, %3
      %5 = exp(%4) : f32[4,8] after %2
      %6 = exp(%2) : f32[8,4]
      return %5, %6
    }
    """
    x = normal(4, 8)
    made = LoadedGraph(parse(text), Config.create(threads=1, opt=opt)).run([x])
    np.testing.assert_allclose(made[0], np.exp(np.sort(x)), rtol=1e-5)
    np.testing.assert_allclose(made[1], np.exp(-x.T), rtol=1e-5)


def test_tuples_of_tuples_and_of_nothing_are_interpreted() -> None:
    text = """graph @g(%0 x: f32[4]) {
      %1 = tuple() : ()
      %2 = tuple(%1, %0) : ((), f32[4])
      %3 = neg(%0) : f32[4]
      %4 = tuple(%3, %2, %1) : (f32[4], ((), f32[4]), ())
      %5 = item(%4) {index=1} : ((), f32[4])
      %6 = item(%5) {index=1} : f32[4]
      %7 = item(%4) {index=0} : f32[4]
      return %6, %7
    }
    """
    x = normal(4)
    same, less = interpret(parse(text), [x])
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(less, -x)


@pytest.mark.slow
def test_mutated_stages_are_refused_or_right() -> None:
    """In children with fenced memory; `python -m benchmarks.hostile` makes as many as one likes."""
    models = "product,scan,attention,devices"
    command = [sys.executable, "-m", "benchmarks.hostile", "--count", "60", "--models", models]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"60 in .*'refused'", done.stdout)


def test_blocks_cover_the_result() -> None:
    assert covered(4, (2, 3), (12, 4)) == 24
    assert covered(4, (3,), (3,)) == 10  # blocks may overlap
    assert covered(4, (3,), (5,)) == 4  # there is a gap after the first
    assert covered(4, (2, 2), (0, 4)) == 8


CPU = "@/job:localhost/device:cpu:0"
CALLED = f"""program @f {{
graph @f(%0 p: bool[] {CPU}, %1 x: f32[4] {CPU}) on {CPU} {{
  %2 = cond(%0, %1) : f32[4] {CPU} {{
    graph @a(%0 q: f32[4] {CPU}) {{
      %1 = call(%0) {{name="g"}} : f32[4] {CPU} {{
        graph @g(%0 z: f32[4]) {{
          %1 = fused(%0) {{kind="loop"}} : f32[4] {{
            graph @h(%0 y: f32[4]) {{
              %1 = neg(%0) : f32[4]
              return %1
            }}
          }}
          return %1
        }}
      }}
      return %1
    }}
    graph @b(%0 q: f32[4] {CPU}) {{
      return %0
    }}
  }}
  return %2
}}
}}
"""


def test_what_has_no_rows_is_refused() -> None:
    """Its value would be memory that nothing wrote."""
    with pytest.raises(VerifyError, match="nothing that runs"):
        LoadedGraph(parse(CALLED), Config.create(), "plan").build()


def kernel_of(id: int, op: str, *inputs: int) -> str:
    """An element-wise kernel of 1000 elements."""
    params = ", ".join(f"%{k} p{k}: f32[1000]" for k in range(len(inputs)))
    given = ", ".join(f"%{k}" for k in inputs)
    inside = ", ".join(f"%{k}" for k in range(len(inputs)))
    return (
        f'%{id} = fused({given}) {{kind="loop"}} : f32[1000] {CPU} {{\n'
        f"graph @f({params}) {{\n%9 = {op}({inside}) : f32[1000]\nreturn %9\n}}\n}}\n"
    )


def test_an_item_of_a_tuple_lives_as_long_as_it_is_read() -> None:
    text = "".join(
        [
            f"program @f {{\ngraph @f(%0 x: f32[1000] {CPU}) on {CPU} {{\n",
            kernel_of(1, "neg", 0),
            kernel_of(2, "exp", 0),
            f"%3 = tuple(%1, %2) : (f32[1000], f32[1000]) {CPU}\n",
            f"%6 = item(%3) {{index=0}} : f32[1000] {CPU}\n",
            f"%7 = item(%3) {{index=1}} : f32[1000] {CPU}\n",
            kernel_of(4, "sin", 0),
            kernel_of(5, "cos", 4),
            kernel_of(10, "add", 4, 5),
            kernel_of(8, "sub", 6, 7),
            kernel_of(11, "sub", 8, 10),
            "return %11\n}\n}\n",
        ]
    )
    x = np.linspace(0, 1, 1000, dtype="f4")
    (made,) = LoadedGraph(parse(text), Config.create(threads=1), "plan").run([x])
    np.testing.assert_allclose(made, -x - np.exp(x) - np.sin(x) - np.cos(np.sin(x)), rtol=1e-5)


def test_a_tuple_holds_no_tuples() -> None:
    """Its parts are counted one by one: the next would be read where the one before lies."""
    text = (
        f"program @f {{\ngraph @f(%0 x: f32[4] {CPU}) on {CPU} {{\n"
        f"%1 = tuple(%0) : (f32[4]) {CPU}\n%2 = tuple(%1, %0) : ((f32[4]), f32[4]) {CPU}\n"
        f"%3 = item(%2) {{index=1}} : f32[4] {CPU}\nreturn %3\n}}\n}}\n"
    )
    with pytest.raises(VerifyError, match="a tuple in a tuple"):
        LoadedGraph(parse(text), Config.create(), "schedule").build()


def test_a_variable_has_one_type() -> None:
    """Else a kernel that knows the one would write over the end of the other."""
    text = (
        "graph @f(%0 x: f32[1000]) {\n"
        '  %1 = read() {name="w", container="main", type=f32[4]} : f32[4]\n'
        "  %2 = neg(%0) : f32[1000]\n"
        '  %3 = assign(%2) {name="w", container="main"} : f32[1000] after %1\n  return %1\n}\n'
    )
    for level in (0, 2):
        with pytest.raises(VerifyError, match="as another type"):
            LoadedGraph(parse(text), Config.create(verify=level)).build()
