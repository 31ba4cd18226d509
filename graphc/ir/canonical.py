"""Pieces of canonical text (types, attributes, headers) by regular expression, the rest by lark.

What graphc prints is read here, in linear time and little memory however long a list, a literal or
a header is: lark takes 25 us and half a kilobyte per token.  A piece that no expression matches
goes to lark's rules, which `graph.lark` states; both give the same values.

All repetitions are possessive (`*+`): a match that fails gives nothing back, so none takes more
than linear time, and none keeps a record per repetition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from graphc.ir.literal import Literal
from graphc.ir.place import parse_place
from graphc.ir.reader import (
    STRING,
    Header,
    Word,
    attr_pairs,
    grammar_tree,
    header_of,
    integer,
    make_literal,
    string_of,
    value_of,
)
from graphc.ir.types import AnyType, dtype, stack_type, tensor, tuple_type
from graphc.limits import check_within

Made = TypeVar("Made")

_SHORT = 200  # characters of a piece that is worth remembering
_REMEMBERED = 1024  # pieces

INT = r"-?\d{1,40}"
FLOAT = r"-?(?:\d++\.\d*+(?:[eE][+-]?\d++)?|\d++[eE][+-]?\d++|inf\b|nan\b)"
_TENSOR = r"[A-Za-z_]\w*+\[[^\]\s()]*+\]"
_STACK = rf"stack<{_TENSOR}>"
_NAME = r"[A-Za-z_][\w.]*+"

_STATIC = re.compile(r"([A-Za-z_]\w*+)\[((?:\d{1,40}(?:,\d{1,40})*+)?)\]")
_ONE_STACK = re.compile(rf"stack<({_TENSOR})>")
_TUPLE = re.compile(rf"\(((?:{_TENSOR}|{_STACK})(?:, (?:{_TENSOR}|{_STACK}))*+)?\)")
_VALUE = re.compile(
    rf"(?P<data>(?P<kind>{_TENSOR})\(sha256:(?P<digest>[0-9a-f]{{32}})\))"
    rf"|(?P<literal>(?P<type>{_TENSOR})\((?P<elements>[-\w.,]*+)\))"
    rf"|(?P<tensor>{_TENSOR})"
    rf"|(?P<strings>\[{STRING}(?:,{STRING})*+\])"
    rf"|(?P<ints>\[(?:{INT}(?:,{INT})*+)?\])"
    rf"|(?P<string>{STRING})"
    rf"|(?P<float>{FLOAT})|(?P<int>{INT})|(?P<word>{_NAME})"
)
_KEY = re.compile(r"([A-Za-z_][\w.]*+)=")
_NUMBERS = re.compile(rf"(?:(?:{FLOAT}|{INT})(?:,(?:{FLOAT}|{INT}))*+)?")
_GRAPH = re.compile(rf"graph (@(?:{_NAME}|{STRING}))\(")
_PARAM = re.compile(
    rf"%(\d{{1,18}}) ({_NAME}|{STRING}): "
    rf"({_TENSOR}|{_STACK}|\((?:[^()\s]|, )*+\))"
    rf"(?: @([\w/:?~*.\-]++(?:\[[^\]\s]*+\])?))?(?: loc\(({STRING}):(\d{{1,18}})\))?"
)
_HEADER_END = re.compile(r"\)(?: on @([\w/:?~*.\-]++(?:\[[^\]\s]*+\])?))? \{")


class _Loose(Exception):
    """A piece that is not canonical: lark reads it."""


def _remembering(read: Callable[[str], Made]) -> Callable[[str], Made]:
    """The function with its last answers kept for short texts, which repeat a great deal."""
    remembered = lru_cache(_REMEMBERED)(read)
    return lambda text: remembered(text) if len(text) <= _SHORT else read(text)


def _or_lark(
    read: Callable[[str], Made], rule: str, convert: Callable[[Any], Made]
) -> Callable[[str], Made]:
    def either(text: str) -> Made:
        try:
            return read(text)
        except _Loose:
            return convert(grammar_tree(text, rule))

    return either


def _type(text: str) -> AnyType:
    if (found := _STATIC.fullmatch(text)) is not None:
        return tensor(dtype(found[1]), map(int, found[2].split(",")) if found[2] else ())
    if (found := _TUPLE.fullmatch(text)) is not None:
        return tuple_type(map(type_of_text, found[1].split(", ")) if found[1] else ())
    if (found := _ONE_STACK.fullmatch(text)) is not None:
        return stack_type(type_of_text(found[1]))  # type: ignore[arg-type]
    raise _Loose


def _attrs(text: str) -> tuple[tuple[str, Any], ...]:
    pairs: list[tuple[str, Any]] = []
    position, end = 1, len(text) - 1
    while position < end:
        key = _KEY.match(text, position)
        value = _VALUE.match(text, key.end()) if key is not None else None
        if key is None or value is None:
            raise _Loose
        position = value.end()
        if position < end:
            if not text.startswith(", ", position) or position + 2 >= end:
                raise _Loose
            position += 2
        pairs.append((key[1], _READ[str(value.lastgroup)](value)))
    return tuple(pairs)


def _literal(found: re.Match[str]) -> Literal:
    texts = found["elements"].split(",") if found["elements"] else []
    check_within("inline_elements", len(texts), f"a literal of {len(texts)} elements")
    if all(text in ("true", "false") for text in texts):
        return make_literal(type_of_text(found["type"]), tuple(map(Word, texts)))
    if _NUMBERS.fullmatch(found["elements"]) is None:
        raise _Loose
    elements = tuple([integer(t) if t.lstrip("-").isdigit() else float(t) for t in texts])
    return make_literal(type_of_text(found["type"]), elements)


def _stored(found: re.Match[str]) -> Literal:
    return Literal(None, type_of_text(found["kind"]), found["digest"])  # type: ignore[arg-type]


_STRINGS = re.compile(STRING)
_READ: dict[str, Callable[[re.Match[str]], Any]] = {
    "literal": _literal,
    "data": _stored,
    "tensor": lambda m: type_of_text(m["tensor"]),
    "strings": lambda m: tuple(map(string_of, _STRINGS.findall(m["strings"]))),
    "ints": lambda m: tuple(map(integer, m["ints"][1:-1].split(","))) if m["ints"] != "[]" else (),
    "string": lambda m: string_of(m["string"]),
    "float": lambda m: float(m["float"]),
    "int": lambda m: integer(m["int"]),
    "word": lambda m: Word(m["word"]),
}


def _header(text: str) -> Header:
    opening = _GRAPH.match(text)
    if opening is None:
        raise _Loose
    params = []
    position = opening.end()
    while (found := _PARAM.match(text, position)) is not None:
        id, name, kind, place, file, line = found.groups()
        loc = (string_of(file), int(line)) if file is not None else None
        where = parse_place(place) if place is not None else None
        params.append((int(id), string_of(name), type_of_text(kind), where, loc))
        position = found.end()
        check_within("parameters", len(params))
        if not text.startswith(", ", position):
            break
        position += 2
    closing = _HEADER_END.fullmatch(text, position)
    if closing is None or text.startswith(", ", position - 2):
        raise _Loose
    device = parse_place(closing[1]) if closing[1] is not None else None
    return Header(string_of(opening[1][1:]), tuple(params), device)


Pairs = tuple[tuple[str, Any], ...]
type_of_text: Callable[[str], AnyType] = _remembering(_or_lark(_type, "type", value_of))
attrs_of_text: Callable[[str], Pairs] = _remembering(_or_lark(_attrs, "attrs", attr_pairs))
header_of_text: Callable[[str], Header] = _or_lark(_header, "header", header_of)
