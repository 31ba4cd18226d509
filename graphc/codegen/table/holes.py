"""Formulas and holes of an image: what is left to sizes (`runtime.load.size_formulas`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.sizes import Scope, Size, hint_of, unknowns_behind
from graphc.ir.unknowns import Atom
from graphc.runtime.load.size_formulas import Formulas, Guard, Hole, Polynomial, Source

Shapes = Sequence[Sequence[Any]]  # extents are sizes or ints
_RELATIONS = {
    (">", True): "positive",
    (">", False): "not positive",
    ("==", True): "zero",
    ("==", False): "not zero",
}


class Openings:
    """Collects the formulas of a program, each once."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        known = [name for name in scope.symbols if name not in scope.inner]
        self.symbols = {name: k for k, name in enumerate(known)}
        self.unknowns: list[tuple[str, tuple[Polynomial, ...]]] = []
        self.numbers: dict[Atom, int] = {}
        self.formulas: dict[Size, int] = {}
        self.polynomials: list[Polynomial] = []

    def polynomial(self, value: int | Size) -> Polynomial:
        """A size over numbered unknowns; new ones get the next numbers."""
        if not isinstance(value, Size):
            return ((int(value), ()),)
        for atom in unknowns_behind(value, self.numbers):
            self.number(atom)
        return tuple((c, tuple(self.numbers[a] for a in monomial)) for monomial, c in value.terms)

    def number(self, atom: Atom) -> None:
        """Number an unknown whose parts have numbers."""
        if atom.kind == "symbol":
            self.numbers[atom] = self.symbols[atom.name]
            return
        parts = tuple(map(self.polynomial, atom.args))
        self.numbers[atom] = len(self.symbols) + len(self.unknowns)
        self.unknowns.append((atom.kind, parts))

    def formula(self, size: Size) -> int:
        """The number of a formula."""
        if size not in self.formulas:
            self.formulas[size] = len(self.polynomials)
            self.polynomials.append(self.polynomial(size))
        return self.formulas[size]

    def words(self, words: Sequence[Any]) -> tuple[np.ndarray[Any, Any], tuple[Hole, ...]]:
        """Words as numbers, and which of them are open."""
        holes = [(k, self.formula(w)) for k, w in enumerate(words) if isinstance(w, Size)]
        return np.array([hint_of(w) for w in words], np.int64), tuple(holes)

    def extents(self, shapes: Shapes) -> tuple[tuple[int, int, int], ...]:
        """The open extents of shapes."""
        return tuple(
            (number, axis, self.formula(extent))
            for number, shape in enumerate(shapes)
            for axis, extent in enumerate(shape)
            if isinstance(extent, Size)
        )

    def finish(self, params: Shapes) -> Formulas:
        """All formulas of a program that takes these shapes."""
        guards = tuple(
            Guard(self.polynomial(g.difference), _RELATIONS[g.relation, g.holds], g.asked)
            for g in self.scope.guards.values()
            if self.scope.inner.isdisjoint(g.difference.symbols())
        )
        extents = tuple(
            (number, axis, self.polynomial(extent))
            for number, shape in enumerate(params)
            for axis, extent in enumerate(shape)
        )
        sources = tuple(source_of(name, params) for name in self.symbols)
        return Formulas(
            tuple(self.symbols),
            sources,
            tuple(self.unknowns),
            tuple(self.polynomials),
            guards,
            extents,
        )


def source_of(name: str, params: Shapes) -> Source:
    """Where a symbol is read. Raises GraphError for one that no extent determines."""
    found = []
    for number, shape in enumerate(params):
        for axis, extent in enumerate(shape):
            if isinstance(extent, Size) and len(extent.terms) <= 2:
                (monomial, slope), rest = extent.terms[0], extent.terms[1:]
                alone = len(monomial) == 1 and monomial[0].name == name
                if alone and slope > 0 and all(not m for m, _ in rest):
                    found.append(Source(number, axis, slope, rest[0][1] if rest else 0))
    if not found:
        raise GraphError(
            f"no argument says what {name} is",
            hint=f"a dimension of an argument must be {name}, or a multiple of it plus a number",
        )
    return min(found, key=lambda source: (source.slope, abs(source.rest)))
