"""Sizes: extents that one compilation leaves open.

A `Size` stands where an `int` would in shapes, strides, offsets and loop bounds.  It is a formula
over symbols, and has a value for the arrays at hand (its `hint`).  Passes compute with it as with a
number; what is written into kernels and tables stays a formula, evaluated when arrays come.

    n = 20, a symbol            n * 4 + 64       a polynomial, in normal form
    (n + 15) // 16              a floor, kept as one more unknown
    n * 4 > 1000                true or false for n = 20; the answer is written down as a guard

A decision holds where its guard does: for other sizes the program is compiled again.  So whatever
a pass does with a size is right, be it to ask for the number itself (`int(n)`, `range(n)`), which
is the guard n = 20.  What follows for all sizes needs no guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from numbers import Integral, Number
from typing import Any

import numpy as np

from graphc.base.size_arithmetic import KINDS, even_parts
from graphc.errors import GraphError
from graphc.ir.memo import KEYS, once, once_for_two
from graphc.ir.size_answers import (
    FORMULAS,
    AsNumber,
    any_size,
    as_numbers,
    checking,
    lifting,
    value_of,
    whole_of,
)
from graphc.ir.size_bounds import bounds_by_rests, bounds_by_values, polynomial_bounds
from graphc.ir.unknowns import Atom, Guard, Location, Monomial, Terms, number_of, order_of, text_of
from graphc.ir.user_lines import asking

LONGEST = 60  # characters of a formula in a text; others are shown by a number
USUAL_COUNT = 32  # what is taken for a size that only a run can tell where decisions are made
FAR = 1024  # a size for which all pays that pays for large ones


class Scope:
    """The symbols of one compilation, what is known of them, and the guards of its decisions.

    `typing`: types are being inferred, where an extent of 0 or 1 may mean something else
    (broadcasting).  Later decisions are about what to write, and what is written for any number
    holds for 0 and 1, too: nothing is asked then.
    """

    def __init__(self, examples: Mapping[str, int] | None = None) -> None:
        self.typing = True
        self.for_any = False  # what asks for a number is refused
        self.examples = dict(examples or {})  # of symbols that are not made yet
        self.symbols: dict[str, Size] = {}
        self.inner: set[str] = set()  # those that a region counts, which nobody else knows
        self.most: dict[str, int | Size | None] = {}  # what counted ones never exceed, if known
        self.guards: dict[tuple[Size, str], Guard] = {}
        self._atoms: dict[tuple[str, tuple[Any, ...]], Size] = {}
        self._sizes: dict[Terms, Size] = {}
        self.results: dict[tuple[Any, ...], Any] = {}  # of operations, by what they were made of
        self._signs: dict[tuple[int, bool], tuple[int | None, int | None]] = {}
        self.shifted: dict[tuple[Monomial, bool], dict[tuple[int, ...], int] | None] = {}

    def symbol(self, name: str, hint: int) -> Size:
        """A new symbol; an example of it that is known beforehand goes before the hint."""
        made = self._unknown("symbol", (), 0, name, self.examples.get(name, hint))
        self.symbols[name] = made
        return made

    @once
    def floor(self, over: int | Size, by: int | Size) -> int | Size:
        """The quotient, rounded down."""
        if not isinstance(by, Size):
            assert isinstance(over, Size)
            if self.bounds(over, False)[0] is None and at_most(over, 0):
                return -self.floor(by - 1 - over, by)  # rounded up
            parts = {m: c // by for m, c in over.terms if c % by == 0 or not m}
            whole = {m: c for m, c in parts.items() if c}
            rest = self.made({m: c if m else c % by for m, c in over.terms if c % by})
            if not isinstance(rest, Size):
                return self.made(whole) + rest // by
            if whole:
                return self.made(whole) + self.floor(rest, by)
            over = rest
        elif isinstance(over, Size) and (exact := self._exact(over, by)) is not None:
            return exact
        low = self.bounds(over, False)[0] if isinstance(over, Size) else over
        if low is None and at_most(0, by) and at_most(over, 0):
            return -self.floor(by - 1 - over, by)  # rounded up
        name = f"(({over})//{f'({by})' if isinstance(by, Size) else by})"
        fewest = None
        if low is not None:
            fewest = low // by if not isinstance(by, Size) else 0 if low >= 0 else None
        if fewest is None and at_most(0, by) and at_most(by, over + 1):
            fewest = 0  # a quotient that is rounded up
        return self._unknown("floor", (over, by), fewest, name)

    def _exact(self, over: Size, by: Size) -> int | Size | None:
        """The quotient by a product, where that is in every term."""
        if over is by:
            return 1
        (divisor, factor), *more = by.terms
        made = {}
        for monomial, coefficient in over.terms:
            rest = list(monomial)
            for atom in divisor:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if more or coefficient % factor:
                return None
            made[tuple(rest)] = coefficient // factor
        return self.made(made)

    @once
    def extreme(self, kind: str, *given: int | Size) -> int | Size:
        """The greatest or least of several, as a formula."""
        pick = max if kind == "max" else min
        numbers = [v for v in given if not isinstance(v, Size)]
        rest = list(dict.fromkeys(v for v in given if isinstance(v, Size)))
        values = [*rest, *([pick(numbers)] if numbers else [])]
        kept: list[int | Size] = []  # of equal ones, which are as extreme as each other, the last
        for number, value in enumerate(values):
            others = (*kept, *values[number + 1 :])
            if not any(self._beats(kind, other, value) for other in others):
                kept.append(value)
        if len(kept) == 1:
            return kept[0]
        args = tuple(sorted(kept, key=str))
        lows = self._lows(args)
        known = [low for low in lows if low is not None]
        if kind == "max":
            low = max(known, default=None)
        else:
            low = min(known) if len(known) == len(lows) else None
        return self._unknown(kind, args, low, f"{kind}({', '.join(map(str, args))})")

    @once
    def choice(self, condition: Size, yes: int | Size, no: int | Size) -> int | Size:
        """The first value where the condition is positive, else the second."""
        if yes is no or (not isinstance(yes, Size) and not isinstance(no, Size) and yes == no):
            return yes
        low, high = self.bounds(condition, False)
        if low is not None and low > 0:
            return yes
        if high is not None and high <= 0:
            return no
        lows = [low for low in self._lows((yes, no)) if low is not None]
        fewest = min(lows) if len(lows) == 2 else None
        name = f"({yes} if {condition} > 0 else {no})"
        return self._unknown("choice", (condition, yes, no), fewest, name)

    def _lows(self, values: Iterable[int | Size]) -> list[int | None]:
        return [self.bounds(v, False)[0] if isinstance(v, Size) else v for v in values]

    @once
    def parts(self, extent: int | Size, most: int | Size, start: int) -> int | Size:
        """How many parts of at most about so many cover an extent, at least one."""
        if extent is most:
            return 1
        return self._unknown("parts", (extent, most, start), 1, f"parts({extent}, {most})")

    @once
    def extent(self, formula: Size) -> int | Size:
        """A formula that stands for an extent as a symbol does."""
        return self._unknown("extent", (formula,), 0, f"extent({formula})")

    def _beats(self, kind: str, other: int | Size, value: int | Size) -> bool:
        """Whether another one is certainly as extreme."""
        difference = other - value if kind == "max" else value - other
        if not isinstance(difference, Size):
            return difference >= 0
        if difference.hint < 0:  # it is not with the sizes at hand
            return False
        low = self.bounds(difference, False)[0]
        return low is not None and low >= 0

    def _unknown(
        self, kind: str, args: tuple[Any, ...], low: int | None, name: str, hint: int = 0
    ) -> Size:
        key = (kind, args or (name,))
        found = self._atoms.get(key)
        if found is None:
            hint = KINDS[kind][1]([hint_of(a) for a in args]) if args else hint
            number = len(self._atoms)
            shown = name if kind == "symbol" or len(name) <= LONGEST else f"u{number}"
            atom = Atom(kind, args, hint, low, shown, number)
            made = self.made({(atom,): 1})
            assert isinstance(made, Size)
            found = self._atoms[key] = made
        return found

    def made(self, terms: Mapping[Monomial, int]) -> int | Size:
        """The polynomial; equal ones are one object."""
        key = tuple(sorted(((m, c) for m, c in terms.items() if c), key=order_of))
        if not key or not key[0][0]:
            return key[0][1] if key else 0
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = Size(self, key)
        return found

    # -- what is known

    def bounds(self, size: Size, generic: bool) -> tuple[int | None, int | None]:
        """What a size is never below and never above, None where that is open; where it is
        `generic`, for extents that kernels are written for.
        """
        key = (id(size), generic)
        found = self._signs.get(key)
        if found is None:
            found = polynomial_bounds(size, generic)
            if None in found:
                found = bounds_by_rests(size, generic, *found)
            if None in found:
                found = bounds_by_values(size, generic, *found)
            self._signs[key] = found
        return found

    def decide(self, difference: int | Size, relation: str, where: Location | None = None) -> bool:
        """Whether the difference is positive or zero; what depends on the sizes becomes a guard,
        of the line that asks (`where`, if another one has asked)."""
        if not isinstance(difference, Size):
            return difference > 0 if relation == ">" else difference == 0
        if checking.get():
            return difference.hint > 0 if relation == ">" else difference.hint == 0
        typing = self.typing or lifting.get() is not None
        low, high = self.bounds(difference, not typing)
        if relation == ">" and ((low is not None and low > 0) or (high is not None and high <= 0)):
            return low is not None and low > 0
        if relation == "==" and ((low is not None and low > 0) or (high is not None and high < 0)):
            return False
        if relation == "==" and not typing:
            # What is written for any size holds for equal ones, too, unless a type rests on it.
            return self._is_granted(difference)
        return self._guarded(difference, relation, where)

    def _is_granted(self, difference: Size) -> bool:
        """Whether a guard says that it is zero: then an extent was taken for 1 and broadcast."""
        granted = (self.guards.get((d, "==")) for d in (difference, -difference))
        return any(guard is not None and guard.holds for guard in granted)

    def _guarded(self, difference: Size, relation: str, where: Location | None = None) -> bool:
        """The answer for the sizes at hand, which is written down."""
        common = math.gcd(*(c for _, c in difference.terms))
        plain = self.made({m: c // common for m, c in difference.terms})
        assert isinstance(plain, Size)
        found = self.guards.get((plain, relation))
        if found is None and relation == ">":  # d > 0 is the opposite of 1 - d > 0
            opposite = self.guards.get((1 - plain, relation))
            if opposite is not None:
                return not opposite.holds
        if found is None:
            holds = plain.hint > 0 if relation == ">" else plain.hint == 0
            found = Guard(plain, relation, holds, where or asking(self.typing))
            self.guards[plain, relation] = found
            self.learn(found)
        return found.holds

    def learn(self, guard: Guard) -> None:
        """A guard about one unknown may say how small it can be."""
        terms = guard.difference.terms
        if guard.relation != ">" or len(terms[0][0]) != 1 or (len(terms) > 1 and terms[1][0]):
            return
        (atom,), slope = terms[0]
        rest = terms[1][1] if len(terms) > 1 else 0
        if guard.holds != (slope > 0):  # it says how large
            return
        # slope * atom > -rest, or |slope| * atom >= rest
        fewest = -rest // slope + 1 if slope > 0 else -(-rest // -slope)
        if atom.low is None or fewest > atom.low:
            atom.low = fewest
            self._signs.clear()
            self.shifted.clear()

    def fix(self, size: Size) -> int:
        """The number itself, from now on the only one that the program is for."""
        difference = size - size.hint
        if isinstance(difference, Size) and not checking.get():
            if size.for_any:
                raise any_size(size)
            self._guarded(difference, "==")
        return size.hint


class Size(AsNumber):
    """An extent that depends on symbols; immutable, and equal ones are one object."""

    __slots__ = ("__weakref__", "hint", "scope", "terms")

    def __init__(self, scope: Scope, terms: Terms) -> None:
        self.scope = scope
        self.terms = terms
        self.hint = sum(c * math.prod(a.hint for a in m) for m, c in terms)

    __hash__ = AsNumber.__hash__

    # -- arithmetic

    @once_for_two
    def __add__(self, other: Any) -> Any:
        more = _terms(other)
        if more is None:
            return self._value() + other if isinstance(other, float | complex) else NotImplemented
        merged = dict(self.terms)
        for monomial, coefficient in more:
            merged[monomial] = merged.get(monomial, 0) + coefficient
        return self.scope.made(merged)

    @once_for_two
    def __mul__(self, other: Any) -> Any:
        more = _terms(other)
        if more is None:
            return self._value() * other if isinstance(other, float | complex) else NotImplemented
        product: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in more:
                key = tuple(sorted(left + right, key=number_of))
                product[key] = product.get(key, 0) + a * b
        return self.scope.made(product)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    @once_for_two
    def __sub__(self, other: Any) -> Any:
        if isinstance(other, float | complex):
            return self._value() - other
        return self + other * -1 if _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    @once_for_two
    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, float):
            return self._value() // other
        if not _is_number(other):
            return NotImplemented
        other = _plain(other)
        if not isinstance(other, Size) and other < 0:
            return self.scope.floor(-self, -other)
        if not isinstance(other, Size) and other == 0:
            raise ZeroDivisionError(f"{self} // 0")
        return self.scope.floor(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        if not _is_number(other):
            return other // self._value()
        return self.scope.floor(int(other), self) if other else 0

    def __mod__(self, other: Any) -> Any:
        if isinstance(other, float):
            return self._value() % other
        return self - self // other * other if _is_number(other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        if not _is_number(other):
            return other % self._value()
        return other - other // self * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pow__(self, power: Any, modulo: Any = None) -> Any:
        whole = isinstance(power, int | np.integer) and power >= 0
        return math.prod([self] * int(power)) if whole else self._value() ** value_of(power)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **options: Any) -> Any:
        """NumPy's function of the value; of sizes and whole numbers alone it is a formula."""
        formula = FORMULAS.get(ufunc)
        if formula and method == "__call__" and not options and all(map(_is_number, given)):
            return formula(*map(_plain, given))
        return getattr(ufunc, method)(*map(value_of, given), **options)

    # -- decisions

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, float):
            return self > math.floor(other) if math.isfinite(other) else self.hint > other
        return self.scope.decide(self - other, ">") if _is_number(other) else NotImplemented

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, float):
            return self < math.ceil(other) if math.isfinite(other) else self.hint < other
        return self.scope.decide(other - self, ">") if _is_number(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return _not(self.__lt__(other))

    def __le__(self, other: Any) -> bool:
        return _not(self.__gt__(other))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Size):
            if other.scope is not self.scope:
                return False  # of another compilation
        elif type(other) is not int:
            if isinstance(other, Number) and not isinstance(other, Integral):
                whole = whole_of(other)
                return whole is not None and self == whole
            if not _is_number(other):
                return NotImplemented
        return self.scope.decide(self - other, "==")

    def __ne__(self, other: object) -> bool:
        return _not(self.__eq__(other))

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        return self.scope.fix(self)

    __int__ = __index__

    def __repr__(self) -> str:
        return str(self.hint) if as_numbers.get() else text_of(self.terms)

    @property
    def for_any(self) -> bool:
        """Whether no example decides for it, as nothing is traced again for another value."""
        scope = self.scope
        return scope.for_any or not scope.inner.isdisjoint(self.symbols())

    def symbols(self) -> set[str]:
        """The symbols that it depends on."""
        return {atom.name for atom in unknowns_behind(self) if atom.kind == "symbol"}

    def value(self, symbols: Mapping[str, int]) -> int:
        """The number for these values of the symbols, or the size for other sizes."""
        known: dict[Atom, int] = {}
        for atom in unknowns_behind(self):
            parts = [_value(part, known) for part in atom.args]
            is_symbol = atom.kind == "symbol"
            known[atom] = symbols[atom.name] if is_symbol else _made_of(atom.kind, parts)
        return _value(self, known)

    def __reduce__(self) -> Any:
        raise GraphError(f"the size {self} belongs to one compilation")


KEYS.add(Size)


def _made_of(kind: str, parts: Sequence[int]) -> int:
    """What an unknown of this kind is of these parts: a formula where one of them is a size, as
    its example decides nothing."""
    if not any(isinstance(part, Size) for part in parts) or kind == "floor":
        return KINDS[kind][1](parts)
    made: dict[str, Callable[..., int]] = {
        "max": greatest,
        "min": least,
        "choice": either,
        "parts": parts_of,
        "extent": extent_of,
    }
    return made[kind](*parts)


def unknowns_behind(size: Size, known: Container[Atom] = ()) -> list[Atom]:
    """All that a size is made of but what is known, the oldest first: parts come before what is
    made of them, however deep a formula is."""
    found: set[Atom] = set()
    pending = [size]
    while pending:
        atoms = {atom for monomial, _ in pending.pop().terms for atom in monomial}
        new = {atom for atom in atoms - found if atom not in known}
        found |= new
        pending += [part for atom in new for part in atom.args if isinstance(part, Size)]
    return sorted(found, key=number_of)


def _value(size: int | Size, known: Mapping[Atom, int]) -> int:
    """The number of a size whose unknowns are known."""
    if not isinstance(size, Size):
        return size
    return sum(c * math.prod(known[atom] for atom in m) for m, c in size.terms)


def _is_number(value: object) -> bool:
    if isinstance(value, int | Size | Integral):
        return True
    return (
        isinstance(value, np.ndarray | np.bool_) and value.ndim == 0 and value.dtype.kind in "biu"
    )


def _not(answer: bool) -> bool:
    return answer if answer is NotImplemented else not answer


def _plain(value: Any) -> Any:
    return value if isinstance(value, Size) else int(value)


def _terms(value: Any) -> Terms | None:
    if isinstance(value, Size):
        return value.terms
    return (((), int(value)),) if _is_number(value) else None


def hint_of(value: Any) -> Any:
    """The number that a size is now; any other value is itself."""
    return value.hint if isinstance(value, Size) else value


def far_of(value: Any) -> Any:
    """A size as large as it may well be, where a decision is for all; any other value is itself."""
    if not isinstance(value, Size):
        return value
    return value.value({n: max(FAR, s.hint) for n, s in value.scope.symbols.items()})


def is_open(values: Iterable[object]) -> bool:
    """Whether any of the values is a size."""
    return any(isinstance(value, Size) for value in values)


def bounds_of(value: int) -> tuple[int | None, int | None]:
    """What a number is never below and never above, whatever the sizes; None where it is open."""
    return value.scope.bounds(value, False) if isinstance(value, Size) else (value, value)


def alike(first: Sequence[object], second: Sequence[object]) -> bool:
    """Whether two shapes are equal for all sizes: where they may differ, nothing is asked."""
    differ = (a is not b and (is_open((a, b)) or a != b) for a, b in zip(first, second))
    return len(first) == len(second) and not any(differ)


def at_most(a: int, b: int) -> bool:
    """Whether one number is never more than another, whatever the sizes."""
    low = bounds_of(b - a)[0]
    return low is not None and low >= 0


def greatest(*values: Any) -> Any:
    """The greatest of numbers and sizes, as a formula where that is open: `max` would decide."""
    return _extreme("max", values)


def least(*values: Any) -> Any:
    """The least of numbers and sizes, as a formula where that is open: `min` would decide."""
    return _extreme("min", values)


def _extreme(kind: str, values: tuple[Any, ...]) -> Any:
    found = scope_of(values)
    if found is None:
        return max(values) if kind == "max" else min(values)
    return found.extreme(kind, *values)


def either(condition: int, yes: int, no: int) -> int:
    """The first value where the condition is positive, else the second, as a formula."""
    if isinstance(condition, Size):
        return condition.scope.choice(condition, yes, no)
    return yes if condition > 0 else no


def parts_of(extent: int, most: int, start: int) -> int:
    """How many parts of at most about `most` cover an extent (`even_parts`), as a formula."""
    scope = scope_of((extent, most))
    return even_parts(extent, most, start) if scope is None else scope.parts(extent, most, start)


def extent_of(formula: int) -> int:
    """The formula as the extent of something new, which kernels are written for as for a symbol."""
    return formula.scope.extent(formula) if isinstance(formula, Size) else formula


def scope_of(values: Iterable[object]) -> Scope | None:
    """The scope of the first size among the values."""
    return next((v.scope for v in values if isinstance(v, Size)), None)
