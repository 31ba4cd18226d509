"""Code for GPUs without a GPU: modules, their cache, files, the command line, what is missing."""

from __future__ import annotations

import gc as collector
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from project import ROOT

import graphc as gc
from graphc.cli.commands import main
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import ARCHITECTURES, chip_of
from graphc.codegen.gpu.build import CudaCompiler, _device_code, packed, unpacked
from graphc.codegen.gpu.compile import compile_ptx
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.numba.route import execute
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.build import build
from graphc.ir.types import BOOL, F32
from graphc.runtime.files import gcx_files, gcx_writer

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

TEXT = """
import numpy as np
from numba import float32
from graphc.gpu import cuda
def kernel(a0, a1, count, status, row):
    near = cuda.shared.array(64, float32)
    i = cuda.grid(1)
    near[cuda.threadIdx.x] = a0[i]
    cuda.syncthreads()
    if near[0] < np.float32(0) and status[0] == 0:
        status[0] = (row << 32) | 2
    if i < count:
        a1[i] = near[63 - cuda.threadIdx.x] * a0[i] + np.float32({0}) > np.float32(0)
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def launch(number: int, **changes: Any) -> Launch:
    text = TEXT.format(number)
    fields: dict[str, Any] = {
        "text": text,
        "make": lambda: execute(text, "kernel", {})["kernel"],
        "buffers": ((F32, 64), (BOOL, 64)),
        "operands": (("in", 0, 0), ("out", 0, 0)),
        "blocks": 1,
        "threads": 64,
        "params": (64,),
    }
    return Launch(**{**fields, **changes})


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def model(x: Any) -> Any:
    return np.tanh(x * 2).sum(axis=1)


def built(**options: Any) -> Any:
    options = {"target": "cuda:sm_80", **options}
    return build(gc.compile(model).graph(X), Config.create(**options))


# ------------------------------------------------------------------------------------ compiling


def test_kernels_are_entries_of_one_module() -> None:
    chip = chip_of("cuda:sm_75")
    ptx = compile_ptx({"one": launch(1), "two": launch(2)}, chip)
    assert ".visible .entry one(" in ptx and ".visible .entry two(" in ptx
    assert "NumbaEnv" not in ptx and ".target sm_75" in ptx and ".maxntid 64" in ptx
    for name in ARCHITECTURES:
        cubin, reports = toolkit.assemble(ptx, chip_of(f"cuda:{name}"))
        assert cubin[:4] == b"\x7fELF" and reports.keys() == {"one", "two"}
        for report in reports.values():
            assert 0 < report.registers < 64 and report.spills == report.stack == 0
            assert 256 <= report.shared <= 256 + 1024  # some chips keep a kilobyte


def test_exact_kernels_are_not_contracted() -> None:
    chip = chip_of("cuda:sm_80")
    assert "fma.rn.f32" in compile_ptx({"k": launch(3)}, chip)
    exact = compile_ptx({"k": launch(3, exact=True)}, chip)
    assert "fma" not in exact and "mul.rn.f32" in exact


def test_registers_are_those_that_the_blocks_of_a_launch_leave() -> None:
    chip = chip_of("cuda:sm_80")
    ptx = compile_ptx({"k": launch(4, threads=1024, resident=2)}, chip)
    assert ".maxntid 1024" in ptx and ".minnctapersm 2" in ptx
    assert toolkit.assemble(ptx, chip)[1]["k"].registers <= 32


DEVICE = """
import numpy as np
from graphc.gpu import device
@device
def once(x):
    return np.{}(x)
@device
def twice(x):
    return once(once(x))
"""


def test_device_functions_are_made_once() -> None:
    first, again, other = (execute(DEVICE.format(t), "d", {}) for t in ("int8", "int8", "int16"))
    for name in ("once", "twice"):
        assert first[name] is again[name] and first[name] is not other[name]


CLOSURE = """
def kernel(a0, a1, count, status, row):
    def twice(x):
        return x + x
    a1[row] = twice(a0[row]) > a0[0]
"""


def test_kernels_are_compiled_quickly_to_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """By fewer passes, but by all of them where those do not get through; and nothing stays."""
    from numba.core.types.functions import BaseFunction

    from graphc.seams import numba_cuda

    chip, before = chip_of("cuda:sm_75"), (BaseFunction.get_call_type, collector.get_threshold())
    closure = launch(10, text=CLOSURE, make=lambda: execute(CLOSURE, "kernel", {})["kernel"])
    made = {"one": launch(11), "two": closure}
    quick = [compile_ptx(made, chip) for _ in range(2)]
    assert (BaseFunction.get_call_type, collector.get_threshold()) == before
    monkeypatch.setattr(numba_cuda, "replacements", list)  # as where their private parts are gone
    slow = compile_ptx(made, chip)
    assert len({re.sub(r"_ZN\w+|smem_\d+", "", ptx) for ptx in (*quick, slow)}) == 1


LOG = """\
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 1 barriers, 16 bytes smem
ptxas info    : Function properties for helper
ptxas         .     8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
info    : Function properties for 'k':
info    : used 30 registers, used 4 barriers, 8 stack, 16 bytes smem, 568 bytes cmem[0]
"""


def test_spills_of_what_a_kernel_calls_are_its_own() -> None:
    assert toolkit.reports(LOG) == {"k": toolkit.Report(30, 28, 8, 16)}


def test_an_older_chip_is_refused() -> None:
    ptx = compile_ptx({"k": launch(5)}, chip_of("cuda:sm_90"))
    with pytest.raises(GraphError, match="cannot assemble kernels for sm_75"):
        toolkit.assemble(ptx, chip_of("cuda:sm_75"))


def test_newer_ptx_is_a_mismatch_of_the_packages() -> None:
    chip = chip_of("cuda:sm_90")
    version = compile_ptx({"k": launch(6)}, chip).replace(".version ", ".version 9")
    with pytest.raises(GraphError, match="newer CUDA toolkit") as caught:
        toolkit.assemble(version, chip)
    assert "nvidia-nvvm" in str(caught.value) and "graphc[cuda]" in str(caught.value)


def test_the_error_is_about_the_kernel_that_fails() -> None:
    compiler = CudaCompiler(Config.create(target="cuda:sm_80"))
    compiler.launch(launch(7))
    text = TEXT.format(8).replace("a0[i]", "a0.nowhere[i]")
    symbol = compiler.launch(launch(8, text=text, make=lambda: execute(text, "k", {})["kernel"]))
    with pytest.raises(GraphError, match=f"Numba cannot compile {symbol}") as caught:
        compiler.finish()
    assert len(str(caught.value).splitlines()) <= 12


def test_kernels_that_have_no_room_in_one_module_have_their_own(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = toolkit.assemble

    def alone(ptx: str, chip: Any) -> Any:
        if ptx.count(".visible .entry") > 1:
            raise GraphError("too much shared data")
        return assemble(ptx, chip)

    monkeypatch.setattr(toolkit, "assemble", alone)
    for compiled, cached in ((2, 0), (0, 2)):
        compiler = CudaCompiler(Config.create(target="cuda:sm_80"))
        symbols = [compiler.launch(launch(number)) for number in (11, 12)]
        made = compiler.finish()
        assert sorted(made.modules.values()) == [[symbol] for symbol in sorted(symbols)]
        assert (made.compiled, made.cached) == (compiled, cached)


def test_too_much_shared_memory_names_the_kernel(own_cache: Path) -> None:
    compiler = CudaCompiler(Config.create(target="cuda:sm_80"))
    text = TEXT.format(9).replace("array(64,", "array(64 << 10,")
    symbol = compiler.launch(launch(9, text=text, make=lambda: execute(text, "k", {})["kernel"]))
    with pytest.raises(GraphError, match=symbol):
        compiler.finish()


# ------------------------------------------------------------------------------------ absent


def test_numba_cuda_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_present", lambda module: module != "numba_cuda")
    with pytest.raises(GraphError, match="needs numba-cuda") as caught:
        toolkit.check.__wrapped__()
    assert "pip install 'graphc[cuda]'" in str(caught.value)


@pytest.mark.parametrize("version", ["0.3", "0.29.1", "0.300.1", "1.0"])
def test_another_numba_cuda_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_version", lambda package: version)
    with pytest.raises(GraphError, match=f"needs numba-cuda 0.30, not {version}") as caught:
        toolkit.check.__wrapped__()
    assert "pip install 'graphc[cuda]'" in str(caught.value)


@pytest.mark.parametrize("version", ["?", "0.30", "0.30.4", toolkit._version("numba-cuda")])
def test_numba_cuda_of_the_extra_is_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_version", lambda package: version)
    toolkit.check.__wrapped__()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = " ".join(project["optional-dependencies"]["cuda"])
    assert f"numba-cuda[cu13]>={toolkit.NUMBA_CUDA}," in wanted


def test_a_damaged_numba_cuda(tmp_path: Path) -> None:
    (tmp_path / "numba_cuda").mkdir()
    (tmp_path / "numba_cuda" / "__init__.py").write_text("raise ImportError('damaged')")
    done = subprocess.run(
        [sys.executable, "-c", "import graphc.gpu"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}"},
    )
    assert "GraphError: GPU code needs Numba's CUDA target" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["nvvm", "nvjitlink"])
def test_a_library_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise RuntimeError(f"Failure finding lib{name}\nand where it was looked for")

    monkeypatch.setattr(import_module(f"cuda.bindings.{name}"), "version", absent)
    with pytest.raises(GraphError, match=f"{name} cannot be loaded") as caught:
        toolkit.check.__wrapped__()
    assert "graphc[cuda]" in str(caught.value) and "Failure finding" in str(caught.value)


# ------------------------------------------------------------------------------------ cache


def test_the_cache_keeps_cubin_and_ptx(own_cache: Path) -> None:
    first = built()
    assert (first.compiled, first.cached) == (len(first.image.kernels), 0)
    again = built()
    assert (again.compiled, again.cached) == (0, len(first.image.kernels))
    assert again.image.objects == first.image.objects
    assert again.image.portable == first.image.portable
    assert built(target="cuda:sm_75").compiled == first.compiled  # other code
    for code, text in zip(first.image.objects, first.image.portable, strict=True):
        assert unpacked(packed(code[0], text.decode())) == (code[0], text)


SECOND = """
import sys, numpy as np, graphc as gc
from graphc.config import Config
from graphc.frontend.compile.build import build
def model(x):
    return np.tanh(x * 2).sum(axis=1)
graph = gc.compile(model).graph(gc.spec((3, 4), "f32"))
made = build(graph, Config.create(target="cuda:sm_80"))
print(made.compiled, made.cached, "numba" in sys.modules)
"""


@pytest.mark.slow
def test_a_second_process_needs_no_numba(own_cache: Path) -> None:
    kernels = len(built().image.kernels)
    done = subprocess.run([sys.executable, "-c", SECOND], capture_output=True, text=True)
    assert done.stdout.split() == ["0", str(kernels), "False"], done.stderr


# ------------------------------------------------------------------------------------ images, files


def test_the_image_of_a_gpu(own_cache: Path) -> None:
    image = built().image
    assert (image.triple, image.cpu, image.device, image.on_gpu) == ("cuda", "sm_80", "gpu:0", True)
    assert len(image.arity) == len(image.kernels) > 0
    for (code, symbols), text in zip(image.objects, image.portable, strict=True):
        assert code[:4] == b"\x7fELF" and all(f".entry {s}(".encode() in text for s in symbols)


def test_a_program_of_both_keeps_their_code_apart(own_cache: Path) -> None:
    def both(x: Any) -> Any:
        with gc.device("/device:gpu:0"):
            y = np.tanh(x)
        with gc.device("/device:cpu:0"):
            return y * 3

    config = Config.create(devices=["cpu:0", "gpu:0"], target="cuda:sm_90")
    made = build(gc.compile(both).graph(X), config)
    kinds = {image.device: image.triple for image in made.image.images}
    assert kinds["gpu:0"] == "cuda" and kinds["cpu:0"] != "cuda"
    gcx_writer.save(made.image, own_cache / "both.gcx")
    back = gcx_files.read(own_cache / "both.gcx")
    for mine, other in zip(made.image.images, back.images, strict=True):
        for name in ("objects", "portable", "kernels", "arity", "cpu", "triple", "device"):
            assert getattr(mine, name) == getattr(other, name), name


def test_programs_for_the_simulator_are_not_saved(own_cache: Path) -> None:
    image = built(target="cuda:simulator").image
    with pytest.raises(GraphError, match="cannot be saved") as caught:
        gcx_writer.save(image, own_cache / "simulated.gcx")
    assert "--target cuda:sm_90" in str(caught.value)


# ------------------------------------------------------------------------------------ command line


@pytest.fixture
def graphc(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command line in this process: (exit status, stdout, stderr)."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        status: Any = 0
        try:
            main([str(a) for a in arguments])
        except SystemExit as request:
            status = request.code or 0
        streams = capsys.readouterr()
        return status, streams.out, streams.err

    return call


def without_gpu(*arguments: Any) -> Any:
    """The command line in a process of its own that sees no GPU."""
    return subprocess.run(
        [sys.executable, "-m", "graphc", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )


def test_compiled_files_hold_cubins_and_ask_for_a_gpu(graphc: Any, own_cache: Path) -> None:
    path, target = own_cache / "m.gir", own_cache / "m.gcx"
    gc.compile(model).save(path, X)
    np.save(own_cache / "x.npy", X)
    feed = ("--feed", f"x={own_cache / 'x.npy'}")
    status, _, errors = graphc("compile", path, "-o", target, "--target", "cuda:sm_90")
    assert status == 0, errors
    image = gcx_files.read(target)
    assert image.cpu == "sm_90" and image.objects[0][0][:4] == b"\x7fELF"
    done = without_gpu("run", target, *feed)
    assert done.returncode == 1 and len(done.stderr.splitlines()) <= 4
    assert "no GPU" in done.stderr or "no NVIDIA driver" in done.stderr
    status, _, errors = graphc("run", target, "--rebuild", "--devices", "cpu:0", *feed)
    assert status == 0, errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "cuda:sm_70"), "sm_75"),
        (("--target", "cuda"), "sm_90"),
        (("--target", "rocm"), "cuda:sm_90"),
        (("--target", "cuda:sm_90", "--devices", "cpu:0"), "gpu:0"),
    ],
)
def test_bad_targets_have_hints(
    graphc: Any, options: tuple[str, ...], words: str, own_cache: Path
) -> None:
    gc.compile(model).save(own_cache / "m.gir", X)
    arguments = ("compile", own_cache / "m.gir", "-o", own_cache / "m.gcx")
    status, _, errors = graphc(*arguments, *options)
    assert status == 1 and words in errors.partition("hint:")[2]
    assert not (own_cache / "m.gcx").exists()


def test_sources_and_ptx_can_be_read(graphc: Any, own_cache: Path) -> None:
    path, dump = own_cache / "m.gir", own_cache / "dump"
    gc.compile(model).save(path, X)
    arguments = ("show", path, "--kernels", "--target", "cuda:sm_80")
    _, shown, _ = graphc(*arguments)
    assert "def kernel(a0, a1" in shown and "cuda.threadIdx" in shown
    texts = json.loads(graphc(*arguments, "--json")[1])
    assert {Path(name).suffix for name in texts} == {".py", ".ptx"}
    options = ("-o", own_cache / "m.gcx", "--target", "cuda:sm_80", "--dump", dump)
    assert graphc("compile", path, *options)[0] == 0
    for ptx in (dump / "kernels").glob("*.ptx"):
        assert "registers" in ptx.read_text().splitlines()[0]
        assert ".target sm_80" in ptx.read_text() and ptx.with_suffix(".py").exists()
    assert {p.name for p in (dump / "kernels").iterdir()} == texts.keys()


def test_devices_says_why_there_is_no_gpu() -> None:
    shown = without_gpu("devices").stdout
    assert "no GPU: " in shown and "compiler for GPUs: numba" in shown


def test_the_key_of_a_kernel_holds_the_modules_of_device_functions_that_it_imports() -> None:
    modules = ("graphc.ops.index.scatter_cuda", "graphc.ops.sort.sort_cuda", "graphc.gpu")
    keys = {_device_code(f"from {module} import kernel\n") for module in modules}
    assert len(keys | {_device_code("")}) == len(modules) + 1
