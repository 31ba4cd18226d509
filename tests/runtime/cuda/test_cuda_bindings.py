"""The real cuda.bindings between our driver and a stub of NVIDIA's, in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import SUPPORT, environment

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

PROGRAM = """
import numpy as np
import graphc as gc
from gpu_programs import X, choosing_rounds, chosen_rounds, pair, twice
from graphc.runtime.observe.trace import trace

executable = twice("sm_90")
for _ in range(3):
    np.testing.assert_array_equal(executable(X), 2 * X + 1)
given = gc.to_device(X, "gpu:0")
assert given.device == "gpu:0 (Stub, sm_90)", given.device
(made,) = executable.run_resident([given])
np.testing.assert_array_equal(made, 2 * X + 1)
results, _ = trace(executable, [X])
np.testing.assert_array_equal(results[0], 2 * X + 1)
deciding = choosing_rounds("sm_90")
for start in (X, X + 99, X + 200):
    for _ in range(2):
        np.testing.assert_array_equal(deciding(start), chosen_rounds(start))
for devices in (("gpu:0", "cpu:0"), ("cpu:0", "gpu:0"), ("gpu:0", "gpu:1")):
    for rounds in (0, 3):
        there = pair("sm_90", devices, rounds=rounds)
        wanted = pair("sm_90", ("cpu:0", "cpu:1"), rounds=rounds)(X)
        for _ in range(3):
            np.testing.assert_array_equal(there(X), wanted)
print("done")
"""


def test_our_calls_are_what_the_bindings_take(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "libcuda.so.1"
    command = [compiler, "-w", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o"]
    subprocess.run([*command, library, SUPPORT / "stub_cuda.c", "-ldl"], check=True)
    own = environment(LD_LIBRARY_PATH=str(tmp_path))
    own.pop("NUMBA_ENABLE_CUDASIM", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=own, timeout=300
    )
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr
    assert "graph of 2" in done.stdout
