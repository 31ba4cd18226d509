"""Families of ops can be imported in any order, and bring what is said of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


# The first calls of a process, all at once: each asks for other families.
THREADS = """
import threading
import numpy as np
import graphc as gc
x = np.eye(8, dtype=np.float32) * 4 + 0.5
functions = [
    lambda x: np.exp(x) * 2, lambda x: np.sort(x).sum(axis=0), lambda x: np.linalg.inv(x),
    lambda x: np.maximum(x @ x, 0), lambda x: np.cumsum(x, axis=1), lambda x: gc.softmax(x),
    gc.grad(lambda x: (np.tanh(x) ** 2).sum()), lambda x: np.fft.fft(x).real,
    lambda x: np.median(x, axis=0), lambda x: len(dir(gc)) and np.where(x > 0, x, 0),
]
ready = threading.Barrier(len(functions))
def call(function):
    ready.wait()
    made = gc.compile(function)(x)
    np.testing.assert_allclose(made, function(x), rtol=1e-4, atol=1e-5)
    done.append(function)
done = []
threads = [threading.Thread(target=call, args=(f,)) for f in functions]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == len(functions)
"""


@pytest.mark.slow
def test_threads_may_ask_for_families_at_once() -> None:
    made = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_every_family_brings_something() -> None:
    known = {family for title in TABLES for family in getattr(contents, title.upper())}
    assert set(FAMILIES) <= known
