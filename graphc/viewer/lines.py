"""Which lines of a kernel's texts belong to which nodes.

Lowering notes which expressions it makes for which node (`Scalars.own`), and the emitters tell what
they call each expression.  A line belongs to the nodes of the expressions in it; a line that names
none, to those of the lines that use what it makes, or whose values it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm.target import Target
from graphc.codegen.nest_walk import told
from graphc.codegen.python import source
from graphc.ir.types import I64
from graphc.loops.nest import Expr, Kernel

Lines = list[list[int]]  # for each line the ids of its nodes, in the region of the kernel
_NAME = re.compile(r"%[\w.]+")
_CALLED = re.compile(r"@([\w.]+)\(|\b([A-Za-z_]\w*)\(")
_LLVM_HEAD = re.compile(r"define .*?@([\w.]+)\(")
_PYTHON_HEAD = re.compile(r"def (\w+)\(")
_WRITTEN = re.compile(r"(?:np\.\w+\()?([prtx]\d+)\)?")  # names that a line of their own sets
_WORD = re.compile(r"[A-Za-z_]\w*")
_PLAIN = re.compile(r"\w{0,3}|np\.\w+\(r\d+\)")  # text that says little of where it stands


def llvm_lines(kernel: Kernel, text: str, target: Target) -> Lines:
    """The nodes of each line of the LLVM text of a kernel; nothing if it is not of that one."""
    found: list[tuple[Expr, Any]] = []
    token = told.set(found)
    try:
        if llvm.emit(kernel, target) != text:
            return []
    finally:
        told.reset(token)
    owners = {name: node for expr, name in found for node in _owner(expr)}
    lines = text.split("\n")
    bodies = list(_bodies(lines, _LLVM_HEAD))
    made: Lines = [[] for _ in lines]
    for start, end in (body for name, *body in bodies if name == kernel.name):
        for at, node in _by_use(lines[start:end], owners):
            made[start + at] = [node]
    return _with_called(lines, made, bodies, kernel.name)


def python_lines(kernel: Kernel, text: str) -> Lines:
    """The nodes of each line of the readable text of a kernel; nothing if it is not of that one."""
    found: list[tuple[Expr, Any]] = []
    token = told.set(found)
    try:
        if source.emit(kernel) != text:
            return []
    finally:
        told.reset(token)
    lines = text.split("\n")
    texts = {(spelt[0], node) for expr, spelt in found for node in _owner(expr)}
    names: dict[str, int] = {m[1]: n for spelt, n in texts if (m := _WRITTEN.fullmatch(spelt))}
    texts = {(spelt, node) for spelt, node in texts if not _PLAIN.fullmatch(spelt)}
    bodies = list(_bodies(lines, _PYTHON_HEAD))
    made: Lines = [[] for _ in lines]
    for start, end in (body for name, *body in bodies if name == kernel.name):
        for at in range(start, end):
            own = {node for spelt, node in texts if spelt in lines[at]}
            used = _WORD.findall(lines[at])
            own |= {names[name] for name in used[:1] if name in names}
            made[at] = sorted(own or {names[name] for name in used if name in names})
    return _with_called(lines, made, bodies, kernel.name)


def _owner(expr: Expr) -> Iterator[int]:
    """The node of an expression; index arithmetic is everybody's."""
    is_index = expr.dtype is I64 and expr.op not in ("load", "select", "call", "reg")
    if expr.builder is not None and not is_index and expr.op not in ("const", "param", "var"):
        node = expr.builder.owner(expr)
        if node is not None:
            yield node


def _by_use(lines: list[str], owners: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """(line, node) of a function in LLVM IR: what is used for a node, and what takes its values."""
    names = [_NAME.findall(line.partition(", !")[0]) for line in lines]
    found = [owners.get(n[0]) if n and _defines(line) else None for n, line in zip(names, lines)]
    for _ in range(2):
        users: dict[str, int] = {}  # name -> the node of the line that uses it first
        for at in range(len(lines) - 1, -1, -1):
            if found[at] is None and names[at] and _defines(lines[at]):
                found[at] = users.get(names[at][0])
            if (node := found[at]) is not None:
                users.update(dict.fromkeys(names[at][1:], node))
        known: dict[str, int] = {}
        for at, line in enumerate(lines):
            stores = line.startswith("  store")
            if found[at] is None and (stores or _defines(line)):
                taken = names[at][::-1] if stores else names[at][1:]  # the slot tells most
                found[at] = next((known[name] for name in taken if name in known), None)
            if (node := found[at]) is not None and _defines(line):
                known[names[at][0]] = node
    yield from ((at, node) for at, node in enumerate(found) if node is not None)


def _defines(line: str) -> bool:
    return line.startswith("  %")


def _bodies(lines: list[str], head: re.Pattern[str]) -> Iterator[tuple[Any, ...]]:
    """(name, first line, line behind the last) of every function."""
    starts = [(match[1], at) for at, line in enumerate(lines) if (match := head.match(line))]
    for (name, start), (_, end) in zip(starts, [*starts[1:], ("", len(lines))]):
        yield name, start, end


def _with_called(
    lines: list[str], made: Lines, bodies: list[tuple[Any, ...]], kernel: str
) -> Lines:
    """What a function is called for, its lines are for; callers before what they call."""
    calls: dict[str, set[int]] = {}
    order = sorted(bodies, key=lambda body: body[0] != kernel)
    for _ in range(3):  # math functions call one another
        for name, start, end in order:
            inside = calls.get(name, set()) if name != kernel else None
            for at in range(start, end):
                if inside:
                    made[at] = sorted(inside)
                for match in _CALLED.finditer(lines[at]) if made[at] else ():
                    calls.setdefault(match[1] or match[2], set()).update(made[at])
    return made
