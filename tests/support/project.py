"""Where the project lies, its code as trees, and the environment of programs that tests start."""

from __future__ import annotations

import ast
import os
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent
GOLDEN = ROOT / "tests" / "golden"


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file's tree; tests of several rules go over the same ones."""
    return list(ast.walk(ast.parse(path.read_text())))


def environment(**more: str) -> dict[str, str]:
    """The variables of a process that imports what this one imports: graphc, harnesses, tests."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**os.environ, "PYTHONPATH": path, **more}
