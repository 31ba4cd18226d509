"""Every public name documents itself, and the site shows tables of arguments as lists."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

import graphc as gc

MODULES = ("cluster", "data", "linalg", "nn", "optim", "parallel", "random", "sparse")


def public() -> Iterator[tuple[str, Any]]:
    for name in dir(gc):
        yield name, getattr(gc, name)
    for module in MODULES:
        for name in getattr(gc, module).__all__:
            yield f"{module}.{name}", getattr(getattr(gc, module), name)


def test_every_public_name_has_a_docstring() -> None:
    made = ((name, one) for name, one in public() if isinstance(one, type | FunctionType))
    missing = {name for name, one in made if not own_docstring(one)}
    assert not missing


def own_docstring(made: Any) -> str | None:
    return made.__dict__.get("__doc__") if isinstance(made, type) else inspect.getdoc(made)


def test_public_methods_have_docstrings() -> None:
    missing = set()
    for name, made in public():
        for title, member in vars(made).items() if isinstance(made, type) else ():
            is_method = inspect.isfunction(member) and not title.startswith("_")
            if is_method and not inspect.getdoc(getattr(made, title)):
                missing.add(f"{name}.{title}")
    assert not missing


def test_tables_of_arguments_become_lists() -> None:
    pytest.importorskip("griffe")
    from tools.docstrings import listed

    text = "First.\n\nx, y   two\n       arrays\nstep   a number\n\nEnds here.  Not a table."
    expected = "First.\n\n- `x, y`: two\n  arrays\n- `step`: a number\n\nEnds here.  Not a table."
    assert listed(text) == expected
