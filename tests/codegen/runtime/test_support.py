"""The support object: what its key covers, and the layouts that it shares with Python."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from graphc.base.memory_layout import Layout
from graphc.base.record import replace
from graphc.codegen.llvm.target import host
from graphc.codegen.runtime import support
from graphc.runtime.load import layouts

FOLDER = Path(support.__file__).parent
PACKAGE = FOLDER.parents[1]


def test_the_key_covers_all_that_the_text_is_written_by() -> None:
    known = {f"codegen/runtime/{path.name}" for path in FOLDER.glob("*.py")} | set(support.SOURCES)
    for path in FOLDER.glob("*.py"):
        if path.name == "support.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("graphc."):
                name = (node.module or "").removeprefix("graphc.").replace(".", "/")
                files = {f"{name}.py", *(f"{name}/{alias.name}.py" for alias in node.names)}
                assert files & known, f"{path.name} reads {name}"
    assert all((PACKAGE / name).exists() for name in support.SOURCES)


def test_the_text_is_the_key_where_there_are_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "SOURCES", ("nowhere.py",))
    assert support._sources(support.SOURCES) == ""
    assert support.support_object(host())[:4] == b"\x7fELF"


def test_the_text_is_the_same_each_time() -> None:
    assert support.support_ir(host()) == support.support_ir(host())


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-pc-windows-msvc"])
def test_each_system_gets_what_it_has(triple: str) -> None:
    text = support.support_ir(replace(host(), triple=triple))
    assert ("pthread_create" in text) == ("windows" not in triple)
    assert ("aarch64.isb" in text) == ("aarch64" in triple)


@pytest.mark.parametrize(
    "layout", [v for v in vars(layouts).values() if isinstance(v, type) and issubclass(v, Layout)]
)
def test_fields_of_a_layout_do_not_overlap(layout: Any) -> None:
    taken = [
        byte
        for start, kind in getattr(layout, "fields", {}).values()
        for byte in range(start, start + (4 if kind == "i32" else 8))
    ]
    assert len(taken) == len(set(taken))
    assert max(taken, default=-1) < getattr(layout, "nbytes", 1)
