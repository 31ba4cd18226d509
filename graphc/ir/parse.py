"""`parse`: graph text to Graph or Program; canonical lines by regular expression, the rest by
lark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from graphc.errors import GraphError, ParseError
from graphc.ir.canonical import attrs_of_text, header_of_text, type_of_text
from graphc.ir.graph import Graph, Program
from graphc.ir.place import parse_place
from graphc.ir.reader import (
    STRING,
    Assembler,
    NodeLine,
    _place_of,
    attr_pairs,
    grammar_tree,
    has_formulas,
    header_of,
    loc_of,
    name_of,
    string_of,
    value_of,
)
from graphc.ir.text import FORMAT
from graphc.limits import check_within, exceeded

_IDS = r"%\d{1,18}(?:, %\d{1,18})*+"
_NODE = re.compile(
    rf" *+%(\d{{1,18}}) = (\w++)\(({_IDS}|)\)"
    rf"(?: (\{{(?:[^\"{{}}\n]++|{STRING})*+\}}))?"
    r" : ([a-z]\w*+\[[^\]\s]*+\]|\((?:[^()\n]++|\([^()\n]*+\))*+\))"
    rf"(?: @(\S++))?(?: after ({_IDS}))?"
    rf"(?: loc\(({STRING}):(\d{{1,18}})\))?( \{{)?"
)
_HEADER = re.compile(r" *(graph @.* \{)")
_ALIAS = re.compile(rf" *name ({STRING}|[A-Za-z_][\w.]*) = %(\d{{1,18}})")
_FORMULA = re.compile(r"^ *mark \w+\.", re.MULTILINE)
_MARK = re.compile(rf" *mark ([\w.]++) = ({_IDS})")
_RETURN = re.compile(r" *return((?: .*)?)")
_RESULT = re.compile(rf"(?:({STRING}|[A-Za-z_][\w.]*): )?%(\d{{1,18}})(?:, |$)")


class _NotCanonical(Exception):
    """The fast layer met a line it does not know; lark decides."""


def parse(text: str, tensors: Mapping[str, Any] | None = None) -> Graph | Program:
    """The graph or program a text denotes. `tensors` maps digests to the arrays of big constants.

    Raises ParseError with line and column for anything that is not well formed and well typed.
    """
    _check_version(text)
    check_within("text_lines", text.count("\n"))
    try:
        return _read(text, tensors)
    except RecursionError:
        raise exceeded("region_depth", "types, lists or regions nest too deeply") from None


def _read(text: str, tensors: Mapping[str, Any] | None) -> Graph | Program:
    token = has_formulas.set(_FORMULA.search(text) is not None)
    try:
        return _Fast(text, tensors).read()
    except _NotCanonical:
        return _Slow(text, tensors).read()
    finally:
        has_formulas.reset(token)


def _check_version(text: str) -> None:
    # Text without a version line is read as the current version, so that snippets can be pasted.
    found = re.match(r"(?:\s|#[^\n]*\n)*gir (\d+)", text)
    if found and found[1] != str(FORMAT):
        raise ParseError(
            f"this is graph text of version {found[1][:12]}; this graphc reads version {FORMAT}",
            hint="save the graph again with a matching version of graphc",
        )


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple([int(p[1:]) for p in text.split(", ")]) if text else ()


class _Fast:
    """One pass over canonical lines with a stack of open graphs."""

    def __init__(self, text: str, tensors: Mapping[str, Any] | None) -> None:
        self.lines = text.split("\n")
        self.tensors = tensors
        self.files: dict[str, str] = {}
        self.program: str | None = None
        self.graphs: list[Graph] = []

    def read(self) -> Graph | Program:
        open_graphs: list[Assembler] = []
        waiting: list[tuple[NodeLine, list[Graph]]] = []  # region nodes whose block is open
        in_node: list[bool] = []  # for each open brace: does it belong to a node?
        for number, line in enumerate(self.lines, 1):
            found = _NODE.fullmatch(line)
            if found is not None and open_graphs:
                record = self.record(number, found)
                if found[10] is None:
                    open_graphs[-1].add(record)
                else:
                    waiting.append((record, []))
                    in_node.append(True)
                continue
            body = line.strip()
            if not body or body.startswith("#"):
                continue
            if (header := _HEADER.fullmatch(line)) is not None:
                depth = len(in_node) // 2
                check_within("region_depth", depth, f"line {number}: regions nest deeper")
                opened = self.located(number, header_of_text, header[1])
                open_graphs.append(Assembler(opened, number, self.tensors, bool(open_graphs)))
                in_node.append(False)
            elif (alias := _ALIAS.fullmatch(line)) is not None and open_graphs:
                name = self.located(number, string_of, alias[1])
                open_graphs[-1].alias(number, name, int(alias[2]))
            elif (mark := _MARK.fullmatch(line)) is not None and open_graphs:
                open_graphs[-1].mark(number, mark[1], _numbers(mark[2]))
            elif (result := _RETURN.fullmatch(line)) is not None and open_graphs:
                graph = open_graphs.pop().finish(
                    number, self.located(number, self.results, result[1].strip())
                )
                if not in_node or in_node.pop() or self.next_is_not_brace(number):
                    raise _NotCanonical
                (waiting[-1][1] if waiting and in_node else self.graphs).append(graph)
            elif body == "}":
                if in_node and in_node[-1] and waiting:
                    in_node.pop()
                    record, regions = waiting.pop()
                    open_graphs[-1].add(record, tuple(regions))
                elif open_graphs or in_node:
                    raise _NotCanonical
            elif not self.prologue(body):
                raise _NotCanonical
        return self.finish(bool(open_graphs or waiting))

    def next_is_not_brace(self, number: int) -> bool:
        # `return` closes its graph; its brace must be the next line.
        closing = self.lines[number].strip() if number < len(self.lines) else ""
        if closing == "}":
            self.lines[number] = ""
        return closing != "}"

    def prologue(self, body: str) -> bool:
        found = re.fullmatch(rf"program (@(?:{STRING}|[A-Za-z_][\w.]*)) \{{", body)
        if found and self.program is None and not self.graphs:
            self.program = string_of(found[1][1:])
            return True
        return re.fullmatch(r"gir \d+", body) is not None and not self.graphs

    def finish(self, unclosed: bool) -> Graph | Program:
        if unclosed or not self.graphs or (self.program is None and len(self.graphs) != 1):
            raise _NotCanonical
        if self.program is not None:
            return Program(self.program, tuple(self.graphs))
        return self.graphs[0]

    def record(self, number: int, found: re.Match[str]) -> NodeLine:
        id, op, inputs, attrs, kind, place, after, file, line, _ = found.groups()
        loc = None
        if file is not None:
            name = self.files.get(file)
            if name is None:
                name = self.files[file] = self.located(number, string_of, file)
            loc = (name, int(line))
        return NodeLine(
            number,
            int(id),
            op,
            _numbers(inputs),
            self.located(number, attrs_of_text, attrs) if attrs else (),
            self.located(number, type_of_text, kind),
            self.located(number, parse_place, place) if place else None,
            _numbers(after),
            loc,
        )

    def located(self, number: int, read: Callable[[str], Any], text: str) -> Any:
        """Read a piece of a line; lark gives the position of a syntax error in the whole text."""
        try:
            return read(text)
        except ParseError:
            raise _NotCanonical from None
        except GraphError as error:
            raise ParseError(f"line {number}: {error.message}", hint=error.hint) from None

    def results(self, text: str) -> list[tuple[str | None, int]]:
        made, position = [], 0
        while position < len(text):
            found = _RESULT.match(text, position)
            if found is None:
                raise _NotCanonical
            made.append((string_of(found[1]) if found[1] else None, int(found[2])))
            position = found.end()
        return made


class _Slow:
    """The whole text through lark."""

    def __init__(self, text: str, tensors: Mapping[str, Any] | None) -> None:
        has_version = re.match(r"(?:\s|#[^\n]*\n)*gir \d+", text)
        begins = re.match(r"(?:\s|#[^\n]*\n)*(?:graph|program)\b", text)
        first = re.search(r"\S[^\n]{,60}", text)
        if first and first[0].isprintable() and not has_version and not begins:
            hint = "a graph begins with gir, graph or program; fn.save writes one"
            raise ParseError(f"this is no graph: it begins with {first[0]!r}", hint=hint)
        self.text = text if has_version else f"gir {FORMAT} {text}"
        self.tensors = tensors

    def read(self) -> Graph | Program:
        tree = grammar_tree(self.text, "file").children[1]
        if tree.data == "program":
            name, *graphs = tree.children
            return Program(string_of(name[1:]), tuple(self.graph(g) for g in graphs))
        return self.graph(tree)

    def graph(self, tree: Any, is_region: bool = False) -> Graph:
        header, *statements = tree.children
        line = header.meta.line
        opened = self.located(header_of, header)
        assembler = Assembler(opened, line, self.tensors, is_region)
        results = []
        for child in statements:
            if child is None:
                continue
            if child.data == "node":
                self.node(assembler, child)
            elif child.data == "alias":
                name = self.located(name_of, child.children[0])
                assembler.alias(child.meta.line, name, _id(child.children[1]))
            elif child.data == "mark":
                name, ids = child.children
                assembler.mark(child.meta.line, str(name), _ids(ids))
            else:
                name, id = child.children
                known = self.located(name_of, name) if name is not None else None
                results.append((known, _id(id)))
        return assembler.finish(tree.meta.end_line, results)

    def located(self, read: Any, tree: Any) -> Any:
        try:
            return read(tree)
        except ParseError as error:
            raise error if error.message.startswith("line") else _at(tree, error) from None
        except GraphError as error:
            raise _at(tree, error) from None

    def node(self, assembler: Assembler, tree: Any) -> None:
        id, op, inputs, attrs, kind, place, after, loc, regions = tree.children
        record = NodeLine(
            tree.meta.line,
            _id(id),
            str(op),
            _ids(inputs),
            self.located(attr_pairs, attrs) if attrs is not None else (),
            self.located(value_of, kind),
            self.located(_place_of, place) if place is not None else None,
            _ids(after),
            self.located(loc_of, loc) if loc is not None else None,
        )
        inner = regions.children if regions is not None else ()
        assembler.add(record, tuple(self.graph(g, is_region=True) for g in inner))


def _id(token: str) -> int:
    return int(token[1:])


def _ids(tree: Any) -> tuple[int, ...]:
    return tuple(_id(t) for t in tree.children) if tree is not None else ()


def _at(tree: Any, error: GraphError) -> ParseError:
    where = getattr(tree, "meta", tree)  # a rule or a single token
    line, column = where.line, where.column
    return ParseError(f"line {line}, column {column}: {error.message}", hint=error.hint)
