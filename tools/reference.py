"""Writes docs/functions.md: every public name, what it takes and what it says of itself first."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.frontend.trace import dispatch
from graphc.frontend.trace.standins import STANDINS
from graphc.ops.record.families import signature_of
from graphc.ops.record.value import NUMPY, PUBLIC

ROOT = Path(__file__).parents[1]
HEAD = """# Functions

Every public name, with the first sentence of its documentation; `help(gc.scan)` shows the rest.
Written by `python -m tools`.

Arguments and results are arrays unless the name says otherwise. Functions of arrays take what
NumPy's take (arrays, numbers, lists), also outside of compiled functions, where they return NumPy
arrays at once. What cannot be is a `GraphError`.
"""
# Where the names of graphc itself come from, in the order of the page.
SECTIONS = (
    ("nn", "`gc.nn`", "Layers, losses, metrics and initialisers: [learning.md](learning.md)."),
    ("optim", "`gc.optim`", "Optimisers and schedules: [learning.md](learning.md)."),
    ("data", "`gc.data`", "Loaders, images and text: [learning.md](learning.md)."),
    ("random", "`gc.random`", "Random numbers as pure functions of an explicit key."),
    ("linalg", "`gc.linalg`", "Products of matrices, norms, factors and solvers."),
    ("sparse", "`gc.sparse`", "Sparse matrices times dense ones: [sparse.md](sparse.md)."),
    ("parallel", "`gc.parallel`", "Several devices at once: [parallel.md](parallel.md)."),
    ("summary", "`gc.summary`", "What a model records of itself: [summaries.md](summaries.md)."),
    ("cluster", "`gc.cluster`", "Several processes: [cluster.md](cluster.md)."),
)


def first_sentence(made: Any) -> str:
    """The first sentence of a docstring, in one line of a table."""
    paragraph = (inspect.getdoc(made) or f"`{made}`").split("\n\n")[0]
    line = " ".join(paragraph.split()).replace("|", "\\|")
    return re.split(r"(?<=[.]) (?=[A-Z`])", line)[0]


def arguments(made: Any) -> str:
    """The names of the arguments in order; those with a default stand in brackets."""
    try:
        signature = signature_of(made) if inspect.isfunction(made) else inspect.signature(made)
    except (TypeError, ValueError):
        return ""
    kinds = inspect.Parameter
    stars: dict[Any, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
    shown = [p for p in signature.parameters.values() if p.name != "self"]
    parts = []
    for optional, group in groupby(shown, key=lambda p: p.default is not p.empty):
        names = ", ".join(stars.get(p.kind, "") + p.name for p in group)
        parts.append(f"[{names}]" if optional else names)
    return f"({', '.join(parts)})"


def row(name: str, made: Any) -> str:
    return f"| `{name}{arguments(made) if callable(made) else ''}` | {first_sentence(made)} |"


def table(rows: Iterable[str]) -> str:
    return "\n".join(("| name | what it is |", "|---|---|", *rows)) + "\n"


def of_graphc() -> str:
    """Classes and transforms first, then the functions of arrays."""
    names = [n for n in dir(graphc) if not n.startswith("_")]
    found = {n: getattr(graphc, n) for n in names if not inspect.ismodule(getattr(graphc, n))}
    own = [row(n, made) for n, made in found.items() if n not in PUBLIC]
    arrays = [row(n, made) for n, made in found.items() if n in PUBLIC]
    return "\n".join(
        (
            "## `graphc`: compiling, transforms, state, learning\n",
            table(own),
            "## `graphc`: functions of arrays\n",
            table(arrays),
        )
    )


def of_module(name: str, title: str, about: str) -> str:
    module = getattr(graphc, name)
    rows = [row(n, getattr(module, n)) for n in sorted(module.__all__)]
    rows = [
        r for r, n in zip(rows, sorted(module.__all__)) if not inspect.ismodule(getattr(module, n))
    ]
    return f"## {title}\n\n{about}\n\n{table(rows)}"


def of_numpy() -> str:
    """What of NumPy works on traced arrays, by module, and what is refused."""
    listed = defaultdict(set)
    for function in (*NUMPY, *dispatch.KNOWN_FROM_TYPES, *STANDINS):
        module, _, name = dispatch.numpy_name(function).rpartition(".")
        listed[module].add(name)
    parts = []
    for module in sorted(listed):
        title = f"np.{module}" if module else "np"
        names = ", ".join(f"`{name}`" for name in sorted(listed[module]))
        parts.append(f"**{title}**: {names}\n")
    refused = (
        f"| `np.{name}{'.*' if inspect.ismodule(_found(name)) else ''}` | {reason} |"
        for name, reason in dispatch.REFUSED.items()
    )
    return "\n".join(
        (
            "## NumPy\n",
            "On traced arrays `np.<name>` and `graphc.numpy.<name>` are what "
            "NumPy's functions are,",
            "with the same arguments. Where the size of a result depends on data (`nonzero`,",
            "`unique`, `intersect1d` ...), `size=` fixes it.\n",
            *parts,
            "These have no answer while tracing; on arrays, `graphc.numpy` has them all.\n",
            "| function | why |",
            "|---|---|",
            *refused,
            "",
        )
    )


def _found(name: str) -> Any:
    if name == "lib.recfunctions":
        return importlib.import_module("numpy.lib.recfunctions")
    return getattr(np, name, None)


def reference() -> dict[Path, str]:
    """The page and its text."""
    sections = (of_module(*section) for section in SECTIONS)
    return {ROOT / "docs/functions.md": "\n".join((HEAD, of_graphc(), *sections, of_numpy()))}
