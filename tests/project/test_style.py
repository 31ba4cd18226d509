"""House rules that a linter does not know: sizes of files and functions, files named in texts."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import nodes_of

HOME = Path(__file__).parents[2]
ROOT = HOME / "graphc"
FOLDERS = ("graphc", "tests", "docs", "benchmarks", "examples")
MOST_FILE_LINES = 600  # a file is one idea; beyond this ask why
MOST_FUNCTION_LINES = 60
MOST_ANY = 0.095
MOST_NAMES_ASKED = 38  # where an op is known by its name
INSTRUCTIONS = {"define", "declare", "br", "ret", "icmp", "load", "store", "getelementptr", "phi"}
NAMED_FILE = re.compile(r"""(?<![\w/.{}"])[a-z_]+(?:/[a-z_]+)*\.py\b""")


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function from its first statement, heads of inner functions left out."""
    heads = (
        node.body[0].lineno - node.lineno - 1
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1 - sum(heads)


def functions() -> list[tuple[str, int]]:
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", body_lines(node))
        for path in ROOT.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_are_short() -> None:
    long = {
        p: n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > MOST_FILE_LINES
    }
    assert not long, long


@pytest.mark.slow
def test_functions_are_short() -> None:
    made = functions()
    long = [(name, lines) for name, lines in made if lines > MOST_FUNCTION_LINES]
    assert not long, long
    lengths = sorted(lines for _, lines in made)
    assert statistics.median(lengths) <= 8
    assert lengths[len(lengths) * 9 // 10] <= 25


def test_no_text_is_evaluated() -> None:
    """eval, exec, pickle and marshal read nothing; exec runs only source that graphc generated."""
    allowed_exec = {"codegen/numba/route.py", "base/record.py"}
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "eval", name
                assert node.func.id != "exec" or name in allowed_exec, name
            if isinstance(node, ast.Import):
                modules = {alias.name.split(".")[0] for alias in node.names}
                assert not modules & {"pickle", "marshal", "shelve"}, name


def test_files_named_in_texts_exist() -> None:
    """Code and prose that name a file by (the end of) its path name one that is there."""
    texts = [
        p for folder in FOLDERS for p in (HOME / folder).rglob("*") if p.suffix in (".py", ".md")
    ]
    texts += HOME.glob("*.md")
    ends = {"/".join(p.parts[-k:]) for p in texts for k in range(1, 6)}
    named = {(p.name, name) for p in texts for name in NAMED_FILE.findall(p.read_text())}
    assert not {(text, name) for text, name in named if name not in ends}


def test_llvm_text_is_written_not_typed() -> None:
    """No string of graphc holds a function of LLVM IR: `graphc.codegen.llvm.writer` writes them."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                lines = [line.split(" = ")[-1].split() for line in node.value.splitlines()]
                if sum(bool(words) and words[0] in INSTRUCTIONS for words in lines) > 2:
                    found.add(str(path.relative_to(ROOT)))
    assert not found


def test_few_arguments_of_ops_are_of_any_type() -> None:
    """Counted are arguments whose annotation is Any alone."""
    kinds = [
        ast.unparse(argument.annotation)
        for path in (ROOT / "ops").rglob("*.py")
        for argument in nodes_of(path)
        if isinstance(argument, ast.arg) and argument.annotation is not None
    ]
    share = kinds.count("Any") / len(kinds)
    assert share < MOST_ANY, f"{share:.1%} of {len(kinds)}"


def is_op_name(node: ast.AST, known: set[str]) -> bool:
    """Is it `node.op.name`, `op.name` or a variable that holds one?"""
    if isinstance(node, ast.Name):
        return node.id in known
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "name" else None
    is_op = isinstance(owner, ast.Attribute) and owner.attr == "op"
    return is_op or (isinstance(owner, ast.Name) and owner.id == "op")


def holds_op_name(node: ast.AST, known: set[str]) -> bool:
    return any(is_op_name(part, known) for part in (node, *getattr(node, "elts", ())))


def names_asked(function: ast.AST) -> Iterator[int]:
    """The lines where a function compares an op's name with others, or looks it up."""
    given = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    pairs = [(n.targets[0], n.value) for n in given if isinstance(n.targets[0], ast.Name)]
    for node in given:
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs += zip(node.targets[0].elts, node.value.elts)
    known = {t.id for t, value in pairs if isinstance(t, ast.Name) and is_op_name(value, set())}
    for node in ast.walk(function):
        match node:
            case ast.Compare():
                asked = any(holds_op_name(n, known) for n in (node.left, *node.comparators))
                yield from [node.lineno] * asked
            case ast.Match() if is_op_name(node.subject, known):
                yield from (case.pattern.lineno for case in node.cases)
            case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]) if is_op_name(key, known):
                yield node.lineno
            case ast.Subscript(value=ast.Dict()) if is_op_name(node.slice, known):
                yield node.lineno


@pytest.mark.slow
def test_traits_are_asked_in_place_of_names() -> None:
    """Outside `ops`, the text form and tables of another format's words: an op that is added is
    known by what it is."""
    exporters = ("exporting.py", "onnx/export", "stablehlo")
    tables = [ROOT / "formats" / name for name in exporters]
    texts = (ROOT / "ops", ROOT / "ir" / "reader.py", ROOT / "ir" / "op.py", *tables)
    paths = [p for p in ROOT.rglob("*.py") if not any(p.is_relative_to(t) for t in texts)]
    asked = {
        (str(path.relative_to(ROOT)), line)
        for path in paths
        for function in nodes_of(path)
        if isinstance(function, ast.FunctionDef)
        for line in names_asked(function)
    }
    assert len(asked) <= MOST_NAMES_ASKED, sorted(asked)


def test_no_folder_of_tests_stands_for_a_package() -> None:
    """pytest puts the folder of a test file on the path: what is beside it is found by imports of
    packages that are not installed."""
    files = (ROOT.parent / "tests").rglob("test_*.py")
    beside = {each.name for folder in {file.parent for file in files} for each in folder.iterdir()}
    assert not beside & {"jax", "keras", "onnx", "tensorflow", "torch"}


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports test files by name alone, so that of two of one name it finds one."""
    names = Counter(file.name for file in (ROOT.parent / "tests").rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]
