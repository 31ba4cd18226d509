"""What editors and type checkers read says what Python does."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from project import ROOT

import graphc as gc
from graphc.ops.record.families import signature_of
from graphc.ops.record.value import PUBLIC
from tools.stubs import function, stubs

STUBS = stubs()


@pytest.mark.parametrize("path", STUBS, ids=lambda path: str(path.relative_to(ROOT)))
def test_stubs_are_current(path) -> None:
    assert path.read_text() == STUBS[path], "write them again: python -m tools.stubs"


def test_every_public_name_is_in_the_stub() -> None:
    text = (ROOT / "graphc/__init__.pyi").read_text()
    found = set(re.findall(r"^def (\w+)| as (\w+)$|^(\w+): ", text, re.M))
    assert set(dir(gc)) == {name for row in found for name in row if name}


@pytest.mark.parametrize("name", sorted(filter(str.isidentifier, PUBLIC)))
def test_functions_return_what_the_stub_says(name: str) -> None:
    """Where a call with square matrices works."""
    made, square = getattr(gc, name), np.eye(3) + 1
    required = [
        p for p in signature_of(made).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    try:
        with np.errstate(all="ignore"):
            result = made(*(square for _ in required))
    except (gc.GraphError, TypeError, ValueError, IndexError):
        return
    said = re.search(r"-> (.*):$", function(name, PUBLIC[name]), re.M)
    assert said is not None
    kinds = {"NDArray[Any]": np.ndarray, "int": int, "bool": bool, "None": type(None)}
    kind = said[1].partition("[")[0]
    expected = kinds.get(said[1]) or {"tuple": tuple, "list": list, "Any": object}[kind]
    assert isinstance(result, expected), type(result)


def test_help_shows_what_an_element_wise_function_takes() -> None:
    assert str(inspect.signature(gc.arctan2)) == "(x, y, /, *, dtype=None)"
    assert str(inspect.signature(gc.celu)) == "(x, /, alpha: 'float' = 1.0, *, dtype=None)"
    assert "indices_or_sections" in inspect.signature(gc.split).parameters


def test_namespaces_are_modules_that_know_what_was_meant() -> None:
    import graphc.linalg
    import graphc.random

    assert graphc.linalg is gc.linalg
    with pytest.raises(gc.GraphError, match=r"did you mean graphc\.random\.normal"):
        _ = gc.random.normale
