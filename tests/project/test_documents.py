"""The pages under docs/ whose Python blocks are a program: it runs. Commands run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

DOCS = ROOT / "docs"
PROGRAMS = [p for p in sorted(DOCS.glob("*.md")) if "```python" in p.read_text()]
GUIDES = sorted((DOCS / "guides").glob("*.md"))


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


HEAD = """
from runpy import run_path
import graphc
from graphc.runtime.devices.registry import Link
graphc.measure_links = lambda cluster: Link(1e-5, 1e9)  # other work of the machine hides links
"""


def run_pages(pages: list[Path], folder: Path) -> None:
    """All in one process, each as a program of its own and with its own variables."""
    script = HEAD
    for page in pages:
        (folder / f"{page.stem}_page.py").write_text("\n".join(blocks_of(page)))
        script += f"run_path('{page.stem}_page.py', run_name='__main__')\n"
        script += "graphc.reset_container()\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def needs_onnx(page: Path) -> bool:
    return "import onnx" in page.read_text()


@pytest.mark.slow
def test_blocks_run(tmp_path: Path) -> None:
    run_pages([p for p in (*PROGRAMS, *GUIDES) if not needs_onnx(p)], tmp_path)


@pytest.mark.slow
def test_blocks_about_onnx_run(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
    run_pages([p for p in (*PROGRAMS, *GUIDES) if needs_onnx(p)], tmp_path)


COMMANDS = [p for p in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))) if "```sh" in p.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """The blocks of a page one after another, in a folder with the example network."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(("python examples/mlp.py", *blocks))
    script = re.sub(r"^graphc diff .*$", r"\g<0> || [ $? = 3 ]", script, flags=re.M)  # they differ
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euc", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_environment_variable_is_explained() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "graphc").rglob("*.py"))
    names = set(re.findall(r"\bGRAPHC_[A-Z_]+\b", source))
    page = (DOCS / "settings.md").read_text()
    assert not {name for name in names if f"`{name}`" not in page}


def test_where_is_what_names_what_is_there() -> None:
    """The questions of the architecture page: their files exist, and hold what was asked for."""
    page = (DOCS / "architecture.md").read_text()
    rows = re.findall(r"^\| ([^|]*\?) \| (.*) \|$", page, re.MULTILINE)
    found = {question: re.findall(r"`(graphc/[\w/.]+)`", answer) for question, answer in rows}
    assert len(found) >= 24
    assert all(paths and all((ROOT / p).exists() for p in paths) for paths in found.values()), found
    holds = {
        "Where is tanh's polynomial?": "def tanh",
        "Where is a recv delayed?": "def schedule",
        "Where does an error find the user's line?": "def locate",
        "Where does a `.gir` get read?": "def graph_of_text",
        "What does `gc.print` become?": '"print"',
        "Which file reads ONNX's Resize?": '"Resize"',
        "Why do two nodes run in two kernels?": "def apart",
        "Where does a GPU find the elements that are true?": "def nonzero_kernels",
        "Where is a `.gcx` written, and read?": "def save",
        "Where does a queue put what it holds into a checkpoint?": "def contents",
    }
    for question, definition in holds.items():
        assert definition in (ROOT / found[question][0]).read_text(), question


def test_every_page_is_in_the_site() -> None:
    """The contents of mkdocs.yml list every page; the site's own are made when it is built."""
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    outside = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("*.md")} - {"README.md"}
    made = {name for name in listed if name.startswith(("reference/", "benchmarks/"))}
    assert set(listed) - made == pages | outside | {"index.md"}


def test_pictures_of_pages_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"!\[.*?\]\((.*?)\)", page.read_text()):
            assert (page.parent / name).exists(), f"{page.name}: {name}"


def test_the_page_of_functions_lists_a_name_of_numpy_once() -> None:
    text = (DOCS / "functions.md").read_text().partition("\n## NumPy\n")[2]
    listed = {
        f"{module}.{name}"
        for module, names in re.findall(r"^\*\*(np[\w.]*)\*\*: (.*)$", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    refused = re.findall(r"^\| `(np\.[\w.*]+)` \| (.+) \|$", text, re.MULTILINE)
    names = [name for name, _ in refused]
    assert len(listed) > 300
    assert len(names) > 10
    assert len(set(names)) == len(names)
    assert not listed & set(names)
    assert all(reason.startswith("it") and len(reason.split()) > 5 for _, reason in refused)
