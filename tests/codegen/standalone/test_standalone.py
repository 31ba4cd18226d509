"""Programs without Python: what they compute on this machine, on emulated ones and in Node is what
graphc computes, and what they cannot hold is refused with the node."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_graphs import control_graphs, equal, whole_numbers
from effort import EFFORT, rounds
from hypothesis import given, settings
from op_samples import SAMPLED, check, expected, good_samples, samples_function
from other_machines import made, made_of, need, run

import graphc as gc
from graphc.codegen.standalone.build import Standalone, standalone
from graphc.codegen.standalone.build import settings as standalone_settings
from graphc.codegen.standalone.entry import MISALIGNED
from graphc.codegen.standalone.header import header, identifier
from graphc.codegen.standalone.web import loader
from graphc.config import SYSTEMS, Config
from graphc.errors import INDEX
from graphc.frontend.compile.build import stages_of
from graphc.ir.op import OPS
from graphc.ops.reference.interpreter import interpret

RNG = np.random.default_rng(5)
TARGETS = ("cpu", "aarch64-linux", "wasm32")


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


FILTERS, DENSE = floats(8, 3, 3, 3) * 0.3, floats(8 * 6 * 5, 10) * 0.1
CELL, INTO = floats(8, 8) * 0.3, floats(4, 8)


def convnet(x: Any) -> Any:
    h = np.maximum(gc.conv(x, FILTERS, padding="same"), 0)
    return gc.softmax(gc.max_pool(h, 2).reshape(x.shape[0], -1) @ DENSE)


def recurrent(x: Any) -> Any:
    def step(h: Any, now: Any) -> Any:
        h = np.tanh(h @ CELL + now @ INTO)
        return h, h

    return gc.scan(step, np.zeros(8, np.float32), x)


def grown(x: Any) -> Any:
    return gc.while_loop(lambda s: np.sum(s) < 1000, lambda s: s * np.float32(1.5) + 1, x)


def squared(x: Any) -> Any:
    return gc.while_loop(lambda s: np.sum(s) < 1000, lambda s: s * s + 1, x)


def elsewhere(x: Any) -> Any:
    with gc.device("cpu:1"):
        return x + 1


def trained(w: Any, x: Any, y: Any) -> Any:
    return w - np.float32(0.1) * gc.grad(lambda w: np.mean((np.tanh(x @ w) - y) ** 2))(w)


def chosen(x: Any) -> Any:
    return gc.cond(np.sum(x) > 0, lambda: x * 2, lambda: x - 1)


def drawn(x: Any) -> Any:
    return x + gc.random.normal(gc.random.key(3), (6, 8))


def ordered(x: Any) -> Any:
    return np.sort(x), np.argmax(x, axis=-1), np.cumsum(x), np.isnan(x)


CASES: dict[str, tuple[Any, list[Any]]] = {
    "convnet": (convnet, [floats(2, 3, 12, 10)]),
    "recurrent": (recurrent, [floats(20, 4)]),
    "grown": (grown, [floats(5)]),
    "trained": (trained, [floats(30, 7), floats(64, 30), floats(64, 7)]),
    "chosen": (chosen, [floats(6)]),
    "drawn": (drawn, [floats(6, 8)]),
    "ordered": (ordered, [np.append(floats(32), [np.nan, np.inf]).astype(np.float32)]),
    "f64": (
        lambda a, b: (a @ b, np.exp(a), np.sin(a)),
        [RNG.random((65, 70)), RNG.random((70, 9))],
    ),
    "product": (lambda a, b: a @ b, [floats(150, 200), floats(200, 131)]),
    "empty": (lambda a: (a + 1, np.sum(a)), [floats(0, 4)]),
    "scalar": (lambda a: a * 2, [np.float32(3)]),
    "bool": (lambda a: ~a, [np.array([True, False])]),
    "half": (lambda a: a * 2, [floats(9).astype(np.float16)]),
    "complex": (lambda a: a * a.conj() + a, [floats(9) + 1j * floats(9)]),
    "whole": (lambda a: (a * 3 - 1, a // 7), [RNG.integers(-(2**62), 2**62, 50)]),
    "spectrum": (lambda a: np.fft.rfft(a), [floats(100)]),
    "solved": (lambda a, b: np.linalg.solve(a, b), [floats(5, 5), floats(5)]),
    "powers": (lambda a, b: (a**b, np.float64(3) ** b), [RNG.random(40), RNG.random(40) * 9]),
    "whole powers": (lambda a: a ** np.int64(3), [RNG.integers(-9, 9, 20)]),
    "in order": (lambda a: (np.argsort(a), a[np.argsort(a)]), [RNG.integers(-99, 99, 300)]),
    "counted": (lambda a: np.bincount(a, minlength=9), [RNG.integers(0, 9, 50)]),
    "itself": (lambda a: (a, a, a + 1), [floats(3)]),
    "constant": (lambda a: (a, np.arange(3.0), np.ones(4096)), [floats(3)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_programs_compute_what_graphc_computes(name: str, target: str, tmp_path: Path) -> None:
    need(target)
    function, arrays = CASES[name]
    compiled = gc.compile(function)
    want = compiled(*arrays)
    flat = [np.asarray(v) for v in (want if isinstance(want, tuple) else (want,))]
    program = made(compiled, arrays, target, tmp_path)
    got = run(program, [np.asarray(a) for a in arrays], target, tmp_path)
    for a, b in zip(got, flat, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
        else:
            np.testing.assert_array_equal(a, b)


# Of the ops that WebAssembly and AArch64 do in their own ways; `make test-full` tries all.
SOME = ["attention", "cast", "cumsum", "erf", "exp", "fmod", "gcd", "nextafter", "packed_matmul"]
SOME += ["popcount", "random_bits", "tan"]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("name", SAMPLED if EFFORT > 1 else SOME)
def test_ops_compute_their_samples(name: str, target: str, tmp_path: Path) -> None:
    need(target)
    op = OPS[name]
    samples = good_samples(op)
    function = samples_function(op, samples)
    operands = [list(s.operands) for s in samples]
    program = made_or_refused(lambda: made(function, [operands], target, tmp_path), "calls LAPACK")
    if program is None:
        return
    got = run(program, [np.asarray(a) for each in operands for a in each], target, tmp_path)
    at = 0
    for sample in samples:
        kinds, wants = expected(op, sample)
        tolerance = 4 * max(1.0, sample.tolerance)
        check(got[at : at + len(kinds)], kinds, wants, tolerance, f"{name} {sample.attrs}")
        at += len(kinds)


def made_or_refused(make: Callable[[], Standalone], reason: str) -> Standalone | None:
    """The program, or None where it is refused for this reason."""
    try:
        return make()
    except gc.GraphError as error:
        if reason not in str(error):
            raise
        return None


@pytest.mark.slow
@settings(max_examples=rounds(8))
@given(graph=control_graphs())
def test_random_control_flow(graph: Any, tmp_path_factory: Any) -> None:
    need("cpu")
    folder = tmp_path_factory.mktemp("random")
    arrays = whole_numbers(graph)
    program = made_or_refused(lambda: made_of(graph, Config(), "cpu", folder), "remembers each")
    if program is None:
        return
    equal(run(program, arrays, "cpu", folder), interpret(graph, arrays))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_variables_live_in_the_callers_memory(target: str, tmp_path: Path) -> None:
    need(target)
    count, total = gc.Variable(np.int32(5)), gc.Variable(floats(33))
    first = np.array(total.value)

    @gc.compile
    def step(x: Any) -> Any:
        count.assign(count + 1)
        total.assign(total + x)
        return count, total

    x = floats(33)
    program = made(step, [x], target, tmp_path)
    got = run(program, [x], target, tmp_path, calls=3)
    assert got[0] == 8
    np.testing.assert_allclose(got[1], first + 3 * x, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_failed_kernel_gives_its_status(target: str, tmp_path: Path) -> None:
    need(target)
    function = gc.compile(lambda table, at: table[at])
    arrays = [floats(9, 4), np.array([1, 50], np.int32)]
    program = made(function, arrays, target, tmp_path)
    assert run(program, arrays, target, tmp_path) == INDEX


def test_many_programs_in_one(tmp_path: Path) -> None:
    """Only the entries of an object are seen outside it."""
    need("cpu")
    for name in ("first", "second"):
        (tmp_path / f"{name}.o").write_bytes(program_of(lambda a: np.tanh(a @ a), name).code)
    main = f'#include "stdint.h"\n{declared("first")}{declared("second")}int main(void) {{\n'
    main += "  return first_call(0, 0, 0, (void *)1) + second_call(0, 0, 0, (void *)1); }\n"
    (tmp_path / "main.c").write_text(main)
    command = ["cc", "main.c", "first.o", "second.o", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], check=False)
    assert done.returncode == 2 * MISALIGNED % 256


def declared(name: str) -> str:
    return f"int32_t {name}_call(const void *const *, void *const *, void *, void *);\n"


def program_of(function: Any, name: str = "program", target: str = "cpu", *arrays: Any) -> Any:
    compiled = gc.compile(function)
    graph = compiled.graph(*(arrays or (floats(4, 4),)))
    config = standalone_settings(Config(target=target))
    return standalone(stages_of(graph, config)[-1].value, config, name)


def test_headers_are_c(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")

    def function(int: Any, I: Any) -> Any:  # noqa: E741
        return {"a b": int + 1, "for": I, "é": I * 2, "A_B": I, "model_call": I, "stdin": I}

    program = program_of(function, "model", "cpu", floats(3), np.array([True, False]))
    (tmp_path / "model.h").write_text(header(program))
    lines = [f"#include <{name}.h>" for name in ("stdio", "complex", "math", "errno")]
    lines += ['#include "model.h"', "int main(void) { return 0; }", ""]
    (tmp_path / "main.c").write_text("\n".join(lines))
    for command in (["cc", "-std=c11"], ["cc", "-std=gnu17"], ["c++", "-x", "c++"]):
        options = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "main.c"]
        subprocess.run([*command, *options], cwd=tmp_path, check=True)
    names = re.search(r"inline int32_t model_run\((.*)\)", header(program))
    assert names is not None
    words = [word.split()[-1].lstrip("*") for word in names[1].split(", ")]
    assert len({word.lower() for word in words}) == 9 and words[0] == "int_"


@pytest.mark.parametrize("name", ["main", "exp", "PROGRAM", "NAME", "uint8_t"])
def test_a_program_of_any_name(name: str, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    name = identifier(name, "model")
    program = program_of(lambda x: x + 1, name)
    (tmp_path / "it.o").write_bytes(program.code)
    (tmp_path / "it.h").write_text(header(program))
    (tmp_path / "main.c").write_text(f"""
#include <math.h>
#include "it.h"
int main(void) {{ float x[16] = {{0}}, y[16]; return {name}_run(x, y, 0) || y[3] != 1; }}
""")
    command = ["cc", "-Wall", "-Wextra", "-Werror", "main.c", "it.o", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], check=True)
    told = loader(program)
    assert f'"name": "{name}"' in told and f'"{name}.wasm"' in told


@pytest.mark.slow
def test_what_numba_compiles_needs_no_fused_addition_either(tmp_path: Path) -> None:
    need("wasm32")
    function, x = gc.compile(np.tanh, backend="numba"), floats(9)
    program = made(function, [x], "wasm32", tmp_path)
    np.testing.assert_allclose(run(program, [x], "wasm32", tmp_path)[0], np.tanh(x), rtol=1e-6)


def test_variables_need_a_first_value_if_they_are_read() -> None:
    late = gc.Variable(gc.spec((4, 4), "f32"))
    with pytest.raises(gc.GraphError, match="is read before it has a value"):
        program_of(lambda x: x + late)


@pytest.mark.parametrize("text", ["*/ system(1) /*", '"; x', "for", "1st", "", "a\nb", "ü" * 200])
def test_names_of_files_become_identifiers(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", identifier(text, "value"))
    assert "*/" not in identifier(text, "value")


def test_loaders_hold_names_as_json() -> None:
    assert '"name": "x"' in loader(program_of(lambda x: x + 1, "p", "wasm32"))


def test_systems_are_targets() -> None:
    for name in SYSTEMS:
        assert program_of(lambda x: x + 1, "p", name).code


def test_code_for_another_machine_does_not_run_here() -> None:
    function = gc.compile(lambda x: x + 1, target="wasm32")
    with pytest.raises(gc.GraphError, match="the code is for wasm32, this machine is"):
        function(floats(3))


def test_what_needs_python_is_refused_with_its_node() -> None:
    def printed(x: Any) -> Any:
        gc.print("{}", x)
        return x

    with pytest.raises(gc.GraphError, match="calls Python") as told:
        program_of(printed)
    assert told.value.location is not None and told.value.location[0].endswith("test_standalone.py")
    with pytest.raises(gc.GraphError, match="calls LAPACK"):
        program_of(lambda x: np.linalg.svd(x)[1])
    with pytest.raises(gc.GraphError, match="remembers each step"):
        program_of(gc.grad(lambda x: np.sum(squared(x))), "p", "cpu", floats(3))
    split = gc.compile(elsewhere, devices=["cpu:0", "cpu:1"]).stages(floats(3))[-1].value
    with pytest.raises(gc.GraphError, match="devices"):
        standalone(split, Config(), "p")
