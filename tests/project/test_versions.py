"""The version stands once; the bounds of libraries are the versions that were tried."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import version

import pytest
from project import ROOT, nodes_of

from tools.versions import tried

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TRIED = tried()
REQUIRED = dict(re.findall(r"^(\w+)(.*)$", "\n".join(PROJECT["project"]["dependencies"]), re.M))


def parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_the_version_stands_once() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    home = PROJECT["tool"]["hatch"]["version"]["path"]
    (found,) = re.findall(r'^__version__ = "(.*)"$', (ROOT / home).read_text(), re.M)
    others = [p for p in (ROOT / "graphc").rglob("*.py") if f'"{found}"' in p.read_text()]
    assert others == [ROOT / home]


def test_bounds_are_what_the_table_says() -> None:
    assert {name: allowed for name, (_, _, allowed) in TRIED.items()} == REQUIRED


@pytest.mark.parametrize("name", TRIED)
def test_versions_tried_lie_within_their_bounds(name: str) -> None:
    lowest, newest, allowed = TRIED[name]
    bounds = dict(re.findall(r"(>=|<)([\d.]+)", allowed))
    assert parts(bounds[">="]) <= parts(lowest) <= parts(newest)
    assert "<" not in bounds or parts(newest) < parts(bounds["<"])
    here = parts(re.match(r"[\d.]*\d", version(name)).group())  # type: ignore[union-attr]
    assert parts(bounds[">="]) <= here


def test_every_library_that_is_imported_is_declared() -> None:
    """At any depth of graphc; extras are imported where they are there."""
    extras = str(PROJECT["project"]["optional-dependencies"])
    found: set[str] = set()
    for path in (ROOT / "graphc").rglob("*.py"):
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {str(node.module).partition(".")[0]}
    strangers = found - set(sys.stdlib_module_names) - {"graphc"} - set(REQUIRED)
    known = {"cuda": "numba-cuda", "PIL": "pillow", "functorch": "torch", "jaxlib": "jax"}
    known |= {"prometheus_client": "prometheus-client"}
    assert not {name for name in strangers if known.get(name, name) not in extras}
    assert not set(REQUIRED) - found
