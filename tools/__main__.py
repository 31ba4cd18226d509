"""Writes every file of the project that is made from its code.

python -m tools           write those that are out of date
python -m tools --check   name them; exit 1 if there are any
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.contents import contents
from tools.picture import pictures
from tools.reference import reference
from tools.stubs import stubs


def main() -> int:
    made = {**contents(), **stubs(), **pictures(), **reference()}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(path.relative_to(Path(__file__).parents[1]))
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path])
    return bool(stale) and "--check" in sys.argv


if __name__ == "__main__":
    sys.exit(main())
