"""Files made from the code are current; what editors and type checkers read is what Python does."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest
from cases import case
from project import ROOT

import graphc as gc
from tools.contents import contents
from tools.picture import pictures
from tools.reference import reference
from tools.stubs import stubs


def test_files_made_from_the_code_are_current() -> None:
    for path, text in {**contents(), **stubs(), **pictures(), **reference()}.items():
        with case(path.relative_to(ROOT)):
            assert path.read_text() == text, "write them again: python -m tools"


def test_every_public_name_is_in_the_stub() -> None:
    text = (ROOT / "graphc/__init__.pyi").read_text()
    found = set(re.findall(r"^def (\w+)| as (\w+)$|^(\w+): ", text, re.M))
    assert set(dir(gc)) == {name for row in found for name in row if name}


def test_help_shows_what_an_element_wise_function_takes() -> None:
    assert str(inspect.signature(gc.arctan2)) == "(x, y, /, *, dtype=None)"
    assert str(inspect.signature(gc.celu)) == "(x, /, alpha: 'float' = 1.0, *, dtype=None)"
    assert "indices_or_sections" in inspect.signature(gc.split).parameters


def test_namespaces_are_imported_as_modules() -> None:
    names = ("cluster", "data", "linalg", "nn", "numpy", "optim", "parallel", "random", "sparse")
    imports = "".join(f"import graphc.{name}; " for name in names)
    same = " and ".join(f"graphc.{name} is getattr(gc, {name!r})" for name in names)
    script = f"{imports}import graphc as gc; assert {same}; from graphc.nn import Dense"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert set(names) <= set(dir(gc))


def test_namespaces_are_modules_that_know_what_was_meant() -> None:
    import graphc.linalg
    import graphc.random

    assert graphc.linalg is gc.linalg
    with pytest.raises(gc.GraphError, match=r"did you mean graphc\.random\.normal"):
        _ = gc.random.normale  # type: ignore[attr-defined]
