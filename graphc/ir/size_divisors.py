"""Divisors that sizes have whatever their symbols are."""

from __future__ import annotations

import math

from graphc.ir.sizes import Size


def common(*values: int) -> int:
    """A divisor of all values, for any sizes: the greatest one that shows."""
    return math.gcd(*(_divisor(v) if isinstance(v, Size) else v for v in values))


def _divisor(size: Size) -> int:
    """A divisor of a size; where that is one of several values, of all of them."""
    found = 0
    for monomial, coefficient in size.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        several = atom is not None and atom.kind in ("choice", "max", "min")
        values = atom.args[atom.kind == "choice" :] if atom is not None and several else (1,)
        found = math.gcd(found, coefficient * common(*values))
    return found
