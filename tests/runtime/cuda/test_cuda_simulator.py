"""The tests for GPUs without one: tiny sizes on simulated GPUs.

Whether GPUs are simulated is decided when Numba is imported, so each file runs in a process of its
own; what fails there is reported here, with all that pytest said about it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

pytest.importorskip("greenlet", reason="greenlet is not installed")

FILES = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_in_the_simulator(path: Path) -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900
    )
    assert done.returncode == 0, f"in the simulator:\n{done.stdout[-20_000:]}{done.stderr[-2000:]}"
    assert re.search(r"\d+ passed", done.stdout), done.stdout
