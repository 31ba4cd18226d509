"""Writes which names each family of ops brings: `graphc/ops/contents.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
HEAD = '''"""Which names each family brings: of ops, functions, methods, and functions of NumPy.

Written by `python -m tools`."""

# fmt: off
'''
WIDTH = 100
Names = dict[str, dict[str, list[str]]]  # by tables, then by families


def contents() -> dict[Path, str]:
    """The file and its text: of what another process finds, which has imported nothing yet."""
    asked = [sys.executable, "-m", "tools.contents"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found: Names = json.loads(told)
    tables = (table_text(title, families) for title, families in found.items())
    return {ROOT / "graphc/ops/contents.py": HEAD + "".join(tables)}


def table_text(title: str, families: dict[str, list[str]]) -> str:
    """A table as Python: a string of names by family."""
    rows = []
    for family, names in sorted(families.items()):
        rows.append(f'    "{family}":\n')
        line = ""
        for name in sorted(set(names)):
            if len(line) + len(name) > WIDTH - 12:
                rows.append(f'        "{line}"\n')
                line = ""
            line += f"{name} "
        rows.append(f'        "{line.rstrip()}",\n')
    return f"{title.upper()} = {{\n{''.join(rows)}}}\n"


def found() -> Names:
    """What every family writes into the tables when it is imported."""
    from graphc.base.late_table import LateTable, name_in_numpy
    from graphc.ops import FAMILIES, TABLES
    from graphc.ops.record.value import NUMPY

    brought: dict[str, dict[str, list[str]]] = {title: defaultdict(list) for title in TABLES}
    titles = {id(table): title for title, table in TABLES.items()}

    def write(table: LateTable[object, object], key: object, entry: object) -> None:
        name = name_in_numpy(key) if table is NUMPY else str(key)
        brought[titles[id(table)]][importing(sys._getframe(1))].append(name)
        dict.__setitem__(table, key, entry)

    LateTable.__setitem__ = write  # type: ignore[method-assign, assignment]
    for table in TABLES.values():
        table.forget()
    for family in FAMILIES:
        import_module(f"graphc.ops.{family}")
    return brought


def importing(frame: FrameType | None) -> str:
    """The module of ops that is being imported."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    assert frame is not None
    return str(frame.f_globals["__name__"]).removeprefix("graphc.ops.")


if __name__ == "__main__":
    print(json.dumps(found()))
