"""Specs: a dtype and a shape in place of an array, and the small language of symbolic dimensions.

dimension = {"-"} term {("+" | "-") term}     term = factor {"*" factor}
factor = number | name
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphc.base.hints import meant
from graphc.base.refusing import refusing
from graphc.errors import FeedError, GraphError
from graphc.ir.types import AnyType, Dim, Dimension, Type, dtype, symbol, tensor

_TOKEN = re.compile(r"\s*(?:(\d{1,18})|([A-Za-z_]\w{0,63})|([-+*]))")


@refusing
def spec(shape: int | str | Iterable[int | str | Dim], dtype_: Any = "f32") -> Type:
    """A stand-in for an array: `gc.spec((32, 784), "f32")`, `gc.spec(("N", "2*N+1"), "f64")`.

    A string in the shape is a polynomial over named symbols.  Raises GraphError for anything else.
    """
    given = (shape,) if isinstance(shape, int | str | Dim) else tuple(shape)
    return tensor(dtype(dtype_), (_extent(extent) for extent in given))


def _extent(extent: Any) -> Dimension:
    if isinstance(extent, str):
        return parse_dimension(extent)
    if isinstance(extent, Dim):
        return extent
    if isinstance(extent, int | np.integer) and not isinstance(extent, bool):
        return int(extent)
    raise GraphError(
        f"a dimension must be an int or a string such as 'N' or '2*N+1', got {extent!r}"
    )


def parse_dimension(text: str) -> Dimension:
    """The dimension that a text such as "2*N+1" names. Raises GraphError with the column."""
    tokens = _tokens(text)
    total: Dimension = 0
    sign, k = 1, 0
    while True:
        while k < len(tokens) and tokens[k] in ("+", "-"):
            sign = -sign if tokens[k] == "-" else sign
            k += 1
        term, k = _term(text, tokens, k)
        total = total + term * sign
        if k == len(tokens):
            return total
        if tokens[k] not in ("+", "-"):
            raise GraphError(f"dimension {text!r}: expected + or - before {tokens[k]!r}")
        sign = 1


def _tokens(text: str) -> list[str]:
    if len(text) > 200:
        raise GraphError("a dimension of more than 200 characters")
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise GraphError(
                f"dimension {text!r}: unexpected character at column {position + 1}",
                hint="a dimension is made of numbers, names, +, - and *",
            )
        tokens.append(match[match.lastindex or 0])
        position = match.end()
    return tokens


def _term(text: str, tokens: list[str], k: int) -> tuple[Dimension, int]:
    product: Dimension = 1
    while True:
        if k >= len(tokens) or tokens[k] in ("+", "-", "*"):
            raise GraphError(f"dimension {text!r}: a number or a name is missing")
        factor = tokens[k]
        product = product * (int(factor) if factor.isdigit() else symbol(factor))
        k += 1
        if k >= len(tokens) or tokens[k] != "*":
            return product, k
        k += 1


# ------------------------------------------------------------------------------------ binding


def symbols_of(types: Iterable[AnyType]) -> set[str]:
    return {s for kind in types if isinstance(kind, Type) for s in kind.symbols()}


def require_symbols(binding: Iterable[str], known: Iterable[str]) -> None:
    """Raise GraphError for a bound name that is no dimension symbol."""
    names = sorted(known)
    for name in binding:
        if name not in names:
            there = f"its symbols are {', '.join(names)}" if names else "its sizes are all known"
            hint = meant(name, names) or there
            raise GraphError(f"there is no dimension symbol {name!r}", hint=hint)


def bind(
    names: Iterable[str], declared: Iterable[Type], given: Iterable[tuple[int, ...]]
) -> dict[str, int]:
    """The value of every symbol, from the shapes of the feeds.

    Plain symbols are read off first; what is left (`2*N+1`) is solved when it is linear in one
    unknown symbol and checked otherwise.  Raises FeedError naming the feed that does not fit.
    """
    binding: dict[str, int] = {}
    later: list[tuple[str, Dim, int]] = []
    for name, kind, shape in zip(names, declared, given):
        if len(kind.shape) != len(shape):
            raise FeedError(f"{name} has rank {len(shape)}, the graph takes {kind}")
        for extent, size in zip(kind.shape, shape):
            if isinstance(extent, Dim):
                later.append((name, extent, size))
            elif extent != size:
                raise FeedError(f"{name} has shape {list(shape)}, the graph takes {kind}")
    later.sort(key=lambda item: item[1].terms[0] != ((repr(item[1]),), 1))
    told: dict[str, str] = {}  # the feed that each symbol was read off
    for name, extent, size in later:
        _solve(name, extent, size, binding, told)
    return binding


def _solve(
    name: str, extent: Dim, size: int, binding: dict[str, int], told: dict[str, str]
) -> None:
    unknown = sorted(extent.symbols() - binding.keys())
    if not unknown:
        _check(name, extent, size, binding, told)
        return
    rest, slope = _linear(extent, unknown[0], binding) if len(unknown) == 1 else (0, 0)
    if slope == 0:
        raise FeedError(f"{name}: dimension {extent} = {size} does not determine {unknown[0]}")
    if (size - rest) % slope or (size - rest) // slope < 0:
        raise FeedError(f"{name}: no {unknown[0]} makes {extent} equal to {size}")
    binding[unknown[0]], told[unknown[0]] = (size - rest) // slope, name


def _linear(extent: Dim, unknown: str, binding: Mapping[str, int]) -> tuple[int, int]:
    """(rest, slope) of the dimension as a linear function of one symbol; slope 0 if it is none."""
    rest = slope = 0
    for monomial, coefficient in extent.terms:
        power = monomial.count(unknown)
        if power > 1:
            return 0, 0
        for symbol_name in monomial:
            coefficient *= 1 if symbol_name == unknown else binding[symbol_name]
        slope, rest = (slope + coefficient, rest) if power else (slope, rest + coefficient)
    return rest, slope


def _check(
    name: str, extent: Dim, size: int, binding: Mapping[str, int], told: Mapping[str, str]
) -> None:
    expected = extent.value(binding)
    if expected != size:
        known = ", ".join(f"{s} is {binding[s]} in {told[s]}" for s in sorted(extent.symbols()))
        raise FeedError(f"{name}: dimension {extent} is {size}, not {expected}: {known}")
