"""Families of ops can be imported in any order, and bring what is said of them."""

from __future__ import annotations

import subprocess
import sys

from graphc.ops import FAMILIES, TABLES, contents

# Each family in a process of its own that has imported no other.
SCRIPT = """
import os, sys, traceback
from importlib import import_module
from graphc.ops import TABLES, contents
from graphc.ops.record.value import NUMPY
from graphc.base.late_table import name_in_numpy
import graphc.passes.pipeline
names = {title: getattr(contents, title.upper()) for title in TABLES}
for family in sorted({family for families in names.values() for family in families}):
    if (child := os.fork()) == 0:
        try:
            for table in TABLES.values():
                table.forget()
            import_module(f"graphc.ops.{family}")
            for title, table in TABLES.items():
                there = set(map(name_in_numpy, table)) if table is NUMPY else set(table)
                missing = set(names[title].get(family, "").split()) - there
                assert not missing, (title, missing)
        except BaseException:
            print(family, traceback.format_exc())
            sys.stdout.flush()
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_every_family_brings_its_names_whatever_was_imported_before() -> None:
    made = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (made.returncode, made.stdout) == (0, ""), made.stdout + made.stderr


def test_every_family_brings_something() -> None:
    known = {family for title in TABLES for family in getattr(contents, title.upper())}
    assert set(FAMILIES) <= known
