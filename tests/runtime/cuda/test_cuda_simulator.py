"""The tests for GPUs without one: tiny sizes on simulated GPUs, and what only those can show.

Whether GPUs are simulated is decided when Numba is imported, so they run in processes of their own;
what fails there is reported here, with all that pytest said about it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from project import ROOT, SUPPORT

pytest.importorskip("greenlet", reason="greenlet is not installed")

FILES = sorted(map(str, (ROOT / "tests" / "gpu").glob("test_*.py")))
FILES += [str(SUPPORT / f"simulated_{name}.py") for name in ("runs", "library", "contractions")]
PROCESSES = 2


@pytest.mark.slow
@pytest.mark.parametrize("process", range(PROCESSES))
def test_in_the_simulator(process: int) -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]
    command += FILES[process::PROCESSES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, f"in the simulator:\n{done.stdout[-20_000:]}{done.stderr[-2000:]}"
    assert re.search(r"\d+ passed", done.stdout), done.stdout
