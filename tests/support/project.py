"""Where the project lies, and the environment of programs that tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent
GOLDEN = ROOT / "tests" / "golden"


def environment(**more: str) -> dict[str, str]:
    """The variables of a process that imports what this one imports: graphc, harnesses, tests."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**os.environ, "PYTHONPATH": path, **more}
