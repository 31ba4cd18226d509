"""What sizes are written in: unknowns, sums of their products, and guards about those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.ir.sizes import Size

Location = tuple[str, int]
Monomial = tuple["Atom", ...]
Terms = tuple[tuple[Monomial, int], ...]


class Atom:
    """An unknown of polynomials: a symbol, or one of KINDS of other sizes. It is never less than
    `low`, which is None where that is not known."""

    __slots__ = ("args", "hint", "kind", "low", "name", "number")

    def __init__(
        self,
        kind: str,
        args: tuple[int | Size, ...],
        hint: int,
        low: int | None,
        name: str,
        number: int,
    ) -> None:
        self.kind = kind
        self.args = args
        self.hint = hint
        self.low = low
        self.name = name
        self.number = number


class Guard:
    """What must hold for a program: the difference is positive (or not), is zero (or not)."""

    __slots__ = ("difference", "holds", "relation", "where")

    def __init__(
        self, difference: Size, relation: str, holds: bool, where: Location | None
    ) -> None:
        self.difference = difference
        self.relation = relation  # ">" or "=="
        self.holds = holds
        self.where = where

    def is_met(self, symbols: Mapping[str, int]) -> bool:
        """Whether it holds for these values of the symbols."""
        value = self.difference.value(symbols)
        return (value > 0 if self.relation == ">" else value == 0) is self.holds

    @property
    def asked(self) -> str:
        """What must hold, and which line of the user's asks for it."""
        return f"{self!r} ({self.where[0]}:{self.where[1]})" if self.where else repr(self)

    def __repr__(self) -> str:
        plus = [(m, c) for m, c in self.difference.terms if c > 0]
        minus = [(m, -c) for m, c in self.difference.terms if c < 0]
        relation = {(">", True): ">", (">", False): "<=", ("==", True): "=", ("==", False): "!="}
        shown = relation[self.relation, self.holds]
        return f"{text_of(tuple(plus)) or 0} {shown} {text_of(tuple(minus)) or 0}"


def text_of(terms: Terms) -> str:
    parts = []
    for monomial, coefficient in terms:
        factors = [atom.name for atom in monomial]
        if not factors or abs(coefficient) != 1:
            factors = [str(abs(coefficient)), *factors]
        parts.append(("-" if coefficient < 0 else "+") + "*".join(factors))
    return "".join(parts).removeprefix("+")


def order_of(term: tuple[Monomial, int]) -> tuple[int, list[int]]:
    """Longer products come first."""
    return -len(term[0]), [atom.number for atom in term[0]]


def number_of(atom: Atom) -> int:
    return atom.number
