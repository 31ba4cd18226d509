"""Our calls of cuBLASLt answered by a stub of it, in a process of its own; and what there is where
it is not installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import SUPPORT, environment

from graphc.errors import GraphError
from graphc.runtime.cuda import cublas

PROGRAM = """
import sys

import numpy as np
from product_reference import image_of
from product_cases import PRODUCTS, TOLERANCES, X, f32, values

import graphc as gc
from graphc.errors import RunError
from graphc.ops.reference.interpreter import interpret
from graphc.runtime.cuda.autotune import Trial
from graphc.runtime.call.execute import Executable
from graphc.runtime.cuda.cublas import described
from graphc.runtime.observe.profile import profile

Trial.near = lambda *_: True  # the kernels of the stub do nothing


if len(sys.argv) > 1:
    try:
        Executable(image_of(lambda x, w: x @ w, X, f32(64, 48)))
    except RunError as error:
        sys.exit(print(error))
for name, (function, specs, _) in PRODUCTS.items():
    image = image_of(function, *specs)
    random = np.random.default_rng(5)
    arrays = [values(spec, random) for spec in specs]
    (wanted,) = interpret(gc.compile(function).graph(*specs), arrays)
    executable = Executable(image)
    assert executable.part.products.plans, name
    assert {event.kernel for event in profile(executable, arrays)} == {"cublasLt"}, name
    for _ in range(3):
        found = executable(*arrays)
        slack = TOLERANCES[image.results[0].dtype] * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(
            found.astype(float), wanted.astype(float), rtol=0, atol=slack, err_msg=name
        )
image = image_of(lambda x, w: x @ w, X, f32(64, 13))
assert Executable(image).part.products.routes[0].name == "kernel", "there is no way to make it"
print("done", len(PRODUCTS), described())
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cuda.pathfinder", reason="cuda-pathfinder is not installed")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("libraries")
    for source, name in (("stub_cuda.c", "libcuda.so.1"), ("stub_cublaslt.c", "libcublasLt.so.13")):
        command = [compiler, "-w", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o"]
        subprocess.run([*command, folder / name, SUPPORT / source, "-ldl", "-lm"], check=True)
    return folder


def run(libraries: Path, *arguments: str, **variables: str) -> str:
    variables = {"LD_LIBRARY_PATH": str(libraries), "GRAPHC_CUBLAS": "always", **variables}
    own = environment(**variables)
    own.pop("NUMBA_ENABLE_CUDASIM", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, env=own
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_our_calls_are_what_the_library_takes(libraries: Path) -> None:
    output = run(libraries)
    assert "graph of" in output and "done" in output
    assert "products of matrices: kernels, and cuBLASLt 13.1.0" in output


@pytest.mark.slow
def test_errors_name_status_and_line(libraries: Path) -> None:
    output = run(libraries, "failing", STUB_FAILS="1")
    first, *others = output.splitlines()
    assert "refuses Matmul: CUBLAS_STATUS_EXECUTION_FAILED" in first
    assert "f32[32,48]" in "".join(others), output


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    cublas.loaded.cache_clear()
    with pytest.raises(GraphError, match="cuBLASLt cannot be used") as caught:
        cublas.loaded()
    assert "graphc[cublas]" in str(caught.value)
    assert "kernels alone; cuBLASLt cannot be used; " in cublas.described()
    cublas.loaded.cache_clear()
