"""The pages under docs/ whose Python blocks are a program: it runs. Commands run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

DOCS = ROOT / "docs"
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


COMMANDS = [p for p in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))) if "```sh" in p.read_text()]


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """The blocks of a page one after another, in a folder with the example network."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(("python examples/mlp.py", *blocks))
    script = re.sub(r"^graphc diff .*$", r"\g<0> || [ $? = 3 ]", script, flags=re.M)  # they differ
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_environment_variable_is_explained() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "graphc").rglob("*.py"))
    names = set(re.findall(r"\bGRAPHC_[A-Z_]+\b", source))
    page = (DOCS / "settings.md").read_text()
    assert not {name for name in names if f"`{name}`" not in page}
