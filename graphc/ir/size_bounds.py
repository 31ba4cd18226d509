"""What a size is never below and never above, whatever its symbols are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.ir.sizes import Scope, Size
    from graphc.ir.unknowns import Monomial

Bounds = tuple[int | None, int | None]  # None where it is open

FEWEST = 2  # what kernels that are written for any size assume of one; they hold for fewer, too
EXTENTS = ("symbol", "extent")  # the kinds of which they assume it
VALUES = 27  # of extremes within extremes, of which bounds are looked for: of three, three deep


def polynomial_bounds(size: Size, generic: bool) -> Bounds:
    """With every unknown written as its least value and something more, a polynomial without
    negative coefficients is least where all of them are."""
    shifted: dict[tuple[int, ...], int] = {}
    for monomial, coefficient in size.terms:
        parts = _shifted(size.scope, monomial, generic)
        if parts is None:
            return None, None
        for key, value in parts.items():
            shifted[key] = shifted.get(key, 0) + value * coefficient
    constant = shifted.pop((), 0)
    rises = all(value >= 0 for value in shifted.values())
    falls = all(value <= 0 for value in shifted.values())
    return constant if rises else None, constant if falls else None


def _shifted(scope: Scope, monomial: Monomial, generic: bool) -> dict[tuple[int, ...], int] | None:
    """A product of unknowns with each as its least value and something more; None if one has none.

    Few products make up all formulas of a program: each is written out once.
    """
    key = (monomial, generic)
    if key not in scope.shifted:
        known = all(atom.low is not None for atom in monomial)
        scope.shifted[key] = _multiplied(monomial, generic) if known else None
    return scope.shifted[key]


def _multiplied(monomial: Monomial, generic: bool) -> dict[tuple[int, ...], int]:
    parts: dict[tuple[int, ...], int] = {(): 1}
    for atom in monomial:
        low = atom.low or 0
        low = max(low, FEWEST) if generic and atom.kind in EXTENTS else low
        grown: dict[tuple[int, ...], int] = {}
        for known, value in parts.items():
            more = tuple(sorted((*known, atom.number)))
            grown[more] = grown.get(more, 0) + value
            grown[known] = grown.get(known, 0) + value * low
        parts = grown
    return parts


def bounds_by_rests(size: Size, generic: bool, low: int | None, high: int | None) -> Bounds:
    """The bounds where a floor stands for what it is made of: by * (over // by) is over less a rest
    of 0 to by - 1."""
    scope = size.scope
    for monomial, times in size.terms:
        if len(monomial) != 1 or monomial[0].kind != "floor":
            continue
        over, by = monomial[0].args
        if type(by) is not int or by <= 0:
            continue
        whole = (size - scope.made({monomial: times})) * by + over * times
        ends = (whole, whole) if type(whole) is int else scope.bounds(whole, generic)
        rests = sorted((0, times * (by - 1)))
        if low is None and ends[0] is not None:
            low = -((rests[1] - ends[0]) // by)
        if high is None and ends[1] is not None:
            high = (ends[1] - rests[0]) // by
    return low, high


def bounds_by_values(size: Size, generic: bool, low: int | None, high: int | None) -> Bounds:
    """The bounds where an extreme stands for each of its values: what rises with the greatest of
    some numbers is the greatest of what it is with each of them."""
    least, most = _by_values(size, generic, VALUES)
    return least if low is None else low, most if high is None else high


def _by_values(size: Size, generic: bool, most_values: int) -> Bounds:
    """The bounds by the values of the latest extreme, where there are not too many."""
    extremes = [m for m, _ in size.terms if len(m) == 1 and m[0].kind in ("max", "min")]
    if not extremes:
        return None, None
    monomial = max(extremes, key=lambda m: m[0].number)
    each = most_values // len(monomial[0].args)
    if not each:
        return None, None
    times = dict(size.terms)[monomial]
    if any(monomial[0] in m for m, _ in size.terms if m != monomial):
        return None, None
    rest = size - size.scope.made({monomial: times})
    ends = [_ends(rest + v * times, generic, each) for v in monomial[0].args]
    lows, highs = ([end[k] for end in ends] for k in (0, 1))
    if (monomial[0].kind == "max") is (times > 0):  # it is the greatest
        return max(_known(lows), default=None), None if None in highs else max(_known(highs))
    return None if None in lows else min(_known(lows)), min(_known(highs), default=None)


def _ends(value: Any, generic: bool, most_values: int) -> Bounds:
    if type(value) is int:
        return value, value
    low, high = polynomial_bounds(value, generic)
    if low is not None and high is not None:
        return low, high
    least, most = _by_values(value, generic, most_values)
    return least if low is None else low, most if high is None else high


def _known(ends: list[int | None]) -> list[int]:
    return [end for end in ends if end is not None]
