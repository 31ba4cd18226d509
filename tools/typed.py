"""Checks the types of what a user reads and copies: the programs of the README, of the guides in
docs/guides/ and of examples/.

    python -m tools.typed           mypy, then pyright where it is installed
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs() -> Iterator[tuple[str, str]]:
    """(file name, source): the blocks of a page are one program, each at the line where it is."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md"))):
        source, line = "", 0
        text = page.read_text()
        for block in BLOCK.finditer(text):
            if "def k" in block[1]:
                continue  # a kernel as graphc prints it
            start = text.count("\n", 0, block.start(1))
            source += "\n" * (start - line) + block[1]
            line = start + block[1].count("\n")
        if source:
            yield f"{page.stem.lower().replace('-', '_')}_page.py", source
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text()


def check(folder: Path) -> int:
    files = sorted(path.name for path in folder.glob("*.py"))
    here = [sys.executable, "-m"]
    mypy = [
        *here,
        "mypy",
        "--config-file=",
        "--check-untyped-defs",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        f"--cache-dir={ROOT / '.mypy_cache/users'}",
    ]
    known = {**os.environ, "MYPYPATH": str(ROOT)}
    status = subprocess.run([*mypy, *files], cwd=folder, env=known).returncode
    if find_spec("pyright") is None:
        print("pyright is not installed: pip install 'pyright[nodejs]'")
        return status
    (folder / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{ROOT}"]}}')
    pyright = [*here, "pyright", "--pythonpath", sys.executable, "-p", str(folder)]
    return subprocess.run(pyright, cwd=folder).returncode or status


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, source in programs():
            (folder / title).write_text(source)
        return check(folder)


if __name__ == "__main__":
    sys.exit(main())
