"""The pages under docs/ whose Python blocks are a program: it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PROGRAMS = [p for p in sorted(DOCS.glob("*.md")) if "```python" in p.read_text()]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"  # named like no package that it imports
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=240
    )
    assert done.returncode == 0, done.stderr
