"""Constraints for pip: the lowest or the newest versions that docs/versions.md says were tried.

python -m tools.versions lowest > constraints.txt
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/versions.md"
ROW = re.compile(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| `(.*?)` \|", re.MULTILINE)


def tried() -> dict[str, tuple[str, str, str]]:
    """Library: lowest version tried, newest, and what pyproject.toml allows."""
    return {
        name: (low, high, allowed) for name, low, high, allowed in ROW.findall(PAGE.read_text())
    }


def main() -> None:
    which = ("lowest", "newest").index(sys.argv[1])
    for name, row in tried().items():
        print(f"{name}=={row[which]}")


if __name__ == "__main__":
    main()
