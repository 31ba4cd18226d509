"""The sizes of a program that serves arrays of many sizes: formulas over what arrives.

A program is compiled once; where a number depends on the arrays, the image has the number for some
sizes and a `Hole` names the formula.  `filled_image` fills the holes for a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.base.record import record
from graphc.base.size_arithmetic import KINDS
from graphc.errors import FeedError

Polynomial = tuple[tuple[int, tuple[int, ...]], ...]  # coefficients, and the unknowns they multiply
Hole = tuple[int, int]  # where, and the number of the formula
RELATIONS = ("positive", "not positive", "zero", "not zero")
MOST_UNKNOWNS = 1 << 16


@record(frozen=True)
class Guard:
    """What must hold of a polynomial; the text says it in the names of the sizes."""

    polynomial: Polynomial
    relation: str
    text: str

    def holds(self, values: Sequence[int]) -> bool:
        """Whether it holds for these unknowns."""
        value = value_of(self.polynomial, values)
        is_so = value > 0 if "positive" in self.relation else value == 0
        return is_so != self.relation.startswith("not")


@record(frozen=True)
class Source:
    """Where a symbol is read: slope * symbol + rest is an extent of a parameter."""

    param: int
    axis: int
    slope: int
    rest: int

    def value(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """The symbol for arrays of these shapes; -1 if there is none."""
        symbol, left = divmod(shapes[self.param][self.axis] - self.rest, self.slope)
        return -1 if left else symbol


@record(frozen=True)
class Holes:
    """What an image leaves open: words of the table and of the parameters of its steps, extents of
    its slots (slot, axis, formula), the size of its arena, the bytes of the program's channels by
    number and of its stacks (of the first image alone), and extents of what its host calls take and
    give, in the order of these (call, slot, axis, formula)."""

    table: tuple[Hole, ...] = ()
    words: tuple[Hole, ...] = ()
    params: tuple[tuple[int, int, int], ...] = ()
    results: tuple[tuple[int, int, int], ...] = ()
    arena: int = -1
    channels: tuple[Hole, ...] = ()
    hosts: tuple[tuple[int, int, int, int], ...] = ()
    stacks: int = -1


@record(frozen=True)
class Formulas:
    """The sizes of a program.  Unknowns are its symbols, then quotients and extremes of earlier
    polynomials, by number; `formulas` are what holes are filled with."""

    symbols: tuple[str, ...]
    sources: tuple[Source, ...]
    unknowns: tuple[tuple[str, tuple[Polynomial, ...]], ...]
    formulas: tuple[Polynomial, ...]
    guards: tuple[Guard, ...]
    extents: tuple[tuple[int, int, Polynomial], ...]  # of parameters, by number and axis

    def symbols_of(self, shapes: Sequence[tuple[int, ...]]) -> list[int] | None:
        """The values of the symbols in the shapes of the parameters, None if there are none."""
        values = [source.value(shapes) for source in self.sources]
        return values if min(values, default=0) >= 0 else None

    def known(self, symbols: Sequence[int]) -> list[int]:
        """Every unknown, the symbols first."""
        values = list(symbols)
        for kind, polynomials in self.unknowns:
            parts = [value_of(polynomial, values) for polynomial in polynomials]
            values.append(KINDS[kind][1](parts))
        return values

    def broken(self, values: Sequence[int]) -> Guard | None:
        """The first guard that these values break."""
        for guard in self.guards:
            if not guard.holds(values):
                return guard
        return None

    def broken_by(self, symbols: Mapping[str, int]) -> str:
        """The first guard that is broken by these symbols, of those that depend on no other."""
        if not self.guards:
            return ""
        values = self.known([symbols.get(name, 0) for name in self.symbols])
        known = [name in symbols for name in self.symbols]
        for _, polynomials in self.unknowns:
            known.append(all(known[k] for p in polynomials for _, m in p for k in m))
        for guard in self.guards:
            is_known = all(known[k] for _, monomial in guard.polynomial for k in monomial)
            if is_known and not guard.holds(values):
                return guard.text
        return ""

    def is_plain(self, polynomial: Polynomial) -> bool:
        """Whether it is one of the symbols alone, which a number of values of them can make zero:
        a remainder is zero for many.
        """
        return all(k < len(self.symbols) for _, unknowns in polynomial for k in unknowns)

    def fits(self, shapes: Sequence[tuple[int, ...]]) -> list[int] | None:
        """The unknowns for arrays of these shapes; None if the program is not for them."""
        symbols = self.symbols_of(shapes)
        if symbols is None:
            return None
        values = self.known(symbols)
        if not self.are_extents(values, shapes) or self.broken(values) is not None:
            return None
        return values

    def are_extents(self, values: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether these shapes, of all parameters or of the first, are what the unknowns say."""
        return all(
            value_of(polynomial, values) == shapes[param][axis]
            for param, axis, polynomial in self.extents
            if param < len(shapes)
        )

    def explain(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> FeedError:
        """Why arrays of these shapes do not fit."""
        symbols = self.symbols_of(shapes)
        if symbols is not None:
            values = self.known(symbols)
            given = ", ".join(f"{n} = {v}" for n, v in zip(self.symbols, symbols, strict=True))
            for param, axis, polynomial in self.extents:
                wanted = value_of(polynomial, values)
                if wanted != shapes[param][axis]:
                    return FeedError(
                        f"{names[param]}: axis {axis} is {shapes[param][axis]}, not {wanted},"
                        f" where {given}"
                    )
            guard = self.broken(values)
            if guard is not None:
                return FeedError(
                    f"the program is compiled for {guard.text}, and {given}",
                    hint="compile it again for such sizes",
                )
        listed = ", ".join(str(list(shape)) for shape in shapes)
        return FeedError(f"arrays of the shapes {listed} do not fit the program")


def listed(value: object) -> object:
    """Formulas, holes and what they are made of as lists of numbers and texts."""
    if isinstance(value, tuple):
        return [listed(part) for part in value]
    if isinstance(value, int | str):
        return value
    names: tuple[str, ...] = type(value).__match_args__  # type: ignore[attr-defined]
    return [listed(getattr(value, name)) for name in names]


class Reader:
    """Reads what `listed` has written. Raises TypeError or ValueError for anything else."""

    known = 0  # unknowns so far

    def formulas(self, rows: Any) -> Formulas:
        symbols, sources, unknowns, formulas, guards, extents = rows
        if len(unknowns) > MOST_UNKNOWNS:
            raise ValueError(len(unknowns))
        names = tuple(map(text_of, symbols))
        found = [Source(*map(whole, row)) for row in sources]
        if len(found) != len(names) or any(source.slope <= 0 for source in found):
            raise ValueError(sources)
        self.known, made = len(names), []
        for kind, polynomials in unknowns:
            parts = tuple(map(self.polynomial, polynomials))
            if kind not in KINDS or len(parts) < KINDS[kind][0]:
                raise ValueError(kind)
            made.append((text_of(kind), parts))
            self.known += 1
        return Formulas(
            names,
            tuple(found),
            tuple(made),
            tuple(map(self.polynomial, formulas)),
            tuple(self.guard(*row) for row in guards),
            tuple((whole(p), whole(axis), self.polynomial(rows)) for p, axis, rows in extents),
        )

    def guard(self, polynomial: Any, relation: Any, text: Any) -> Guard:
        if relation not in RELATIONS:
            raise ValueError(relation)
        return Guard(self.polynomial(polynomial), text_of(relation), text_of(text))

    def polynomial(self, rows: Any) -> Polynomial:
        made = tuple((whole(factor), tuple(map(whole, parts))) for factor, parts in rows)
        if any(not 0 <= part < self.known for _, parts in made for part in parts):
            raise ValueError(rows)
        return made


def holes_of(rows: Any) -> Holes | None:
    """The holes that `listed` has written."""
    if rows is None:
        return None
    table, words, params, results, arena, channels, hosts, stacks = rows
    first, second, third = [[(whole(a), whole(b)) for a, b in r] for r in (table, words, channels)]
    extents = [[(whole(a), whole(b), whole(c)) for a, b, c in e] for e in (params, results)]
    slots = tuple(extents[0]), tuple(extents[1])
    called = tuple([(whole(a), whole(b), whole(c), whole(d)) for a, b, c, d in hosts])
    carried = whole(arena), tuple(third)
    return Holes(tuple(first), tuple(second), *slots, *carried, called, whole(stacks))


def text_of(value: object) -> str:
    """A value of a file that has to be a text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def whole(value: object) -> int:
    """One that has to be a whole number. Raises TypeError."""
    if type(value) is not int:
        raise TypeError(value)
    return value


def value_of(polynomial: Polynomial, values: Sequence[int]) -> int:
    """A polynomial of known unknowns."""
    total = 0
    for product, unknowns in polynomial:
        for k in unknowns:
            product *= values[k]
        total += product
    return total
