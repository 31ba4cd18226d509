"""How large a size can become that a run counts: a formula of the sizes that are known before.

y = x[x > 0]            count0 is at most n
np.concatenate([y, y])  2 * count0, so at most 2 * n
x[len(y):]              n - count0, so at most n, as no count is negative
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphc.ir.sizes import Size, extent_of, greatest, least
from graphc.ir.unknowns import Atom, Monomial

Extent: TypeAlias = int | Size
Most: TypeAlias = Mapping[str, Extent | None]  # of each count, by its name; None: nobody knows


def ceiling(extent: Extent, most: Most) -> Extent | None:
    """What an extent never exceeds, without the counts in `most`; None where that is not known."""
    if not isinstance(extent, Size) or extent.symbols().isdisjoint(most):
        return extent
    total: Extent = 0
    for monomial, times in extent.terms:
        is_counted = any(not atom_symbols(atom).isdisjoint(most) for atom in monomial)
        if is_counted and times < 0:
            if (low := _low_quotient(monomial, most)) is not None:
                total = total + times * low
                continue
            if any(atom.low is None or atom.low < 0 for atom in monomial):
                return None
            continue  # no count is negative
        product: Extent = times
        for atom in monomial:
            factor = _ceiling_of(atom, extent, most)
            if factor is None:
                return None
            product = product * factor
        total = total + product
    return total


def _low_quotient(monomial: Monomial, most: Most) -> Extent | None:
    """What a rounded quotient never falls below where it is all there is and may be negative, as
    in what is rounded up: -((1 - count) // 2); None for others, and where that is not known."""
    (atom, *others) = monomial
    if others or atom.kind != "floor" or (atom.low is not None and atom.low >= 0):
        return None
    over, by = atom.args
    below = ceiling(-over, most) if isinstance(by, int) and by > 0 else None
    return None if below is None else -below // by


def atom_symbols(atom: Atom) -> set[str]:
    """The symbols that an unknown depends on."""
    if atom.kind == "symbol":
        return {atom.name}
    return {n for part in atom.args if isinstance(part, Size) for n in part.symbols()}


def _ceiling_of(atom: Atom, extent: Size, most: Most) -> Extent | None:
    if atom_symbols(atom).isdisjoint(most):
        return extent.scope.made({(atom,): 1})
    if atom.kind == "symbol":
        found = most[atom.name]
        is_known = not isinstance(found, Size) or found.symbols() == {atom.name}
        return found if is_known or found is None else ceiling(found, most)
    ends = [ceiling(part, most) for part in atom.args if isinstance(part, int | Size)]
    known = [end for end in ends if end is not None]
    made: Extent | None = None
    if atom.kind == "min" and known:
        made = least(*known)
    elif None in ends:
        return None
    elif atom.kind in ("max", "choice"):
        made = greatest(*(known if atom.kind == "max" else known[1:]))
    elif atom.kind == "extent":
        made = extent_of(known[0])
    elif atom.kind == "floor" and isinstance(by := atom.args[1], int) and by > 0:
        made = known[0] // by
    return made
