"""The tests for GPUs without one: tiny sizes in Numba's CUDA simulator.

The simulator has to be chosen before Numba is imported, so each file runs in a process of its own;
what fails there is reported here, with all that pytest said about it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
SHARES = {"test_gpu_ops": ("opt0", "opt2")}  # files that take long, by names of their cases


def shares() -> list[tuple[Path, str]]:
    return [(path, share) for path in FILES for share in SHARES.get(path.stem, ("",))]


@pytest.mark.parametrize(("path", "share"), shares(), ids=lambda x: getattr(x, "stem", x))
def test_in_the_simulator(path: Path, share: str) -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", str(path)]
    done = subprocess.run(
        [*command, "-k", share] if share else command,
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, f"in the simulator:\n{done.stdout[-20_000:]}{done.stderr[-2000:]}"
    assert re.search(r"\d+ passed", done.stdout), done.stdout
