"""Changes of a dump's text: numbers, kinds, orders, sizes, places, types."""

from __future__ import annotations

import random
import re

from graphc.ir.op import OPS

NUMBERS = (0, 1, 2, 3, 5, 7, 8, 16, 63, 64, 65, 4096, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 64, -1)
DTYPES = ("f32", "f64", "i64", "i32", "u8", "bool", "bf16", "c64")
KINDS = ("loop", "contract", "staged", "nest", "library")
_NUMBER = re.compile(r"(?<![\w.%])-?\d+(?![\w.])")
_ID = re.compile(r"%\d+")
_TYPE = re.compile(r"\b(?:f32|f64|i64|i32|u8|bool|u32)\[[\d,]*\]")
_OP = re.compile(r"= (\w+)\(")
_PLACE = re.compile(r"\[(?:[\w+:,;]*)\](?= ?(?:\{|$|,|\)))", re.MULTILINE)


def put(text: str, found: re.Match[str], new: str) -> str:
    return text[: found.start()] + new + text[found.end() :]


def some(draw: random.Random, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return draw.choice(found) if found else None


def a_number(draw: random.Random, text: str) -> str:
    found = some(draw, _NUMBER, text)
    if found is None:
        return text
    old = int(found[0])
    near = (old + 1, old - 1, 2 * old, old // 2, -old)
    return put(text, found, str(draw.choice(near if draw.random() < 0.6 else NUMBERS)))


def an_id(draw: random.Random, text: str) -> str:
    found, other = some(draw, _ID, text), some(draw, _ID, text)
    return put(text, found, other[0]) if found and other else text


def a_type(draw: random.Random, text: str) -> str:
    """One type of the text in place of another, everywhere or once."""
    found, other = some(draw, _TYPE, text), some(draw, _TYPE, text)
    if not found or not other:
        return text
    new = other[0]
    if draw.random() < 0.3:
        new = re.sub(r"^\w+", draw.choice(DTYPES), found[0])
    return text.replace(found[0], new) if draw.random() < 0.5 else put(text, found, new)


def a_kind(draw: random.Random, text: str) -> str:
    found = some(draw, re.compile(r'kind="\w+"'), text)
    return put(text, found, f'kind="{draw.choice(KINDS)}"') if found else text


def an_op(draw: random.Random, text: str) -> str:
    found = some(draw, _OP, text)
    return put(text, found, f"= {draw.choice(list(OPS))}(") if found else text


def a_place(draw: random.Random, text: str) -> str:
    found, other = some(draw, _PLACE, text), some(draw, _PLACE, text)
    if not found or not other:
        return text
    base = draw.choice(("", "p0+", "p1+", "r0+", "r1+", "c+", "v0+"))
    region = f"{base}{draw.choice(NUMBERS[:-1])}:{draw.choice(NUMBERS[:-1])}"
    new = draw.choice((other[0], f"[{region}]", f"[{region};{region}]", "", "[;0:8]"))
    return put(text, found, new)


def lines(draw: random.Random, text: str) -> str:
    """A line left out, doubled or moved."""
    rows = text.split("\n")
    k, j = draw.randrange(len(rows)), draw.randrange(len(rows))
    kind = draw.random()
    if kind < 0.3:
        del rows[k]
    elif kind < 0.5:
        rows.insert(j, rows[k])
    else:
        rows.insert(j, rows.pop(k))
    return "\n".join(rows)


def a_result(draw: random.Random, text: str) -> str:
    found, other = some(draw, re.compile(r"return (.*)"), text), some(draw, _ID, text)
    if not found or not other:
        return text
    parts = found[1].split(", ")
    draw.shuffle(parts)
    if draw.random() < 0.5:
        parts[draw.randrange(len(parts))] = other[0]
    return put(text, found, f"return {', '.join(parts)}")


def an_edge(draw: random.Random, text: str) -> str:
    rows = text.split("\n")
    k, other = draw.randrange(len(rows)), some(draw, _ID, text)
    if " = " in rows[k] and other and not rows[k].endswith("{"):
        rows[k] += f" after {other[0]}"
    return "\n".join(rows)


def a_word(draw: random.Random, text: str) -> str:
    """true for false, and one quoted word for another."""
    found = some(draw, re.compile(r"\b(true|false)\b"), text)
    if found and draw.random() < 0.5:
        return put(text, found, "true" if found[0] == "false" else "false")
    quoted = re.compile(r'"[^"\n]*"')
    found, other = some(draw, quoted, text), some(draw, quoted, text)
    return put(text, found, other[0]) if found and other else text


TEXTUAL = (
    a_number,
    a_number,
    an_id,
    a_type,
    a_kind,
    an_op,
    a_place,
    lines,
    a_result,
    an_edge,
    a_word,
)
