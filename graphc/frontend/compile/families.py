"""Families: calls that differ in sizes alone, and the compilations that serve many of them.

call of (3, 16)     first call: compiled for this shape
call of (5, 16)     a dimension has changed: compiled with it open
call of (9, 16)     served: its sizes are filled in
call of (1, 16)     maybe not served: a decision does not hold; compiled again, open, too
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphc.errors import GraphError
from graphc.frontend.compile.open_sizes import (
    FEWEST,
    MOST_OPEN,
    USUAL,
    changing_shapes,
    examples_of,
    named_shapes,
)
from graphc.frontend.compile.signature import Signature, parameter_type
from graphc.frontend.compile.variant import Variant
from graphc.frontend.trace.trace import Traced
from graphc.ir.types import Dim, Type

MOST_SEEN = 8  # calls that are compared
EXACT = "exact"  # the option that leaves no size open

NamedSizes = Mapping[str, Iterable[int | str | Dim]]


def family_of(signature: Signature) -> Any:
    """What calls that differ in sizes alone have in common."""
    keys = ((k.dtype, k.rank) if isinstance(k, Type) else k for k in signature.keys)
    return signature.tree, tuple(keys)


def sizes_option(given: Any) -> NamedSizes | str | None:
    """The option sizes=: names of dimensions, "exact", or nothing."""
    if given is None or given == EXACT:
        return given  # type: ignore[no-any-return]
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return {name: (s,) if isinstance(s, int | str) else tuple(s) for name, s in given.items()}
    raise GraphError(
        f"sizes takes the shapes of arguments by name, or {EXACT!r}, got {given!r}",
        hint='sizes={"x": ("n", 16)}',
    )


class Family:
    """The calls and compilations of one family.  `closed` says why none leaves sizes open."""

    def __init__(self) -> None:
        self.seen: list[Signature] = []
        self.open: list[Variant] = []
        self.closed = ""
        self.refused = ""  # what does not hold for the last call
        self._examples: list[dict[str, int]] = []

    def serving(self, signature: Signature) -> Variant | None:
        """A variant for a call, of a compilation that is for its sizes, too."""
        shapes = tuple(kind.dims for kind in _parameters(signature))
        self.refused = ""
        for opened in self.open:
            if opened.baked and not opened.baked.holds():
                continue
            assert opened.built is not None
            built = opened.built.bound(shapes)
            if built is not None:
                traced = Traced(opened.graph, opened.tree, opened.trace_seconds)
                values = opened.built.symbols_of(shapes)
                made = Variant(signature, traced, opened.baked, opened.reason, values)
                made.built = built
                return made
            self.refused = self.refused or opened.built.refusal(shapes)
        return None

    def opening(self, signature: Signature, named: NamedSizes | None) -> Signature | None:
        """The signature with symbols to compile for a call; None if its sizes are taken as they
        are.

        Raises GraphError for named sizes that the arguments do not have.
        """
        kinds = _parameters(signature)
        if self.closed or len(self.open) >= MOST_OPEN:
            return None
        names = [n for n, k in zip(signature.names, signature.keys) if isinstance(k, Type)]
        arrays = [k for k in signature.keys if isinstance(k, Type)]
        if named is not None:
            made = named_shapes(named, names, arrays)
        else:
            seen = [[k for k in s.keys if isinstance(k, Type)] for s in (*self.seen, signature)]
            made = changing_shapes(names, seen)
        if not any(kind.symbols() for kind in made):
            return None
        rest = iter(made)
        keys = tuple(next(rest) if isinstance(k, Type) else k for k in signature.keys)
        assert len(kinds) >= len(arrays)
        return Signature(signature.tree, keys)

    def new_examples(self, opened: Signature, signature: Signature) -> Iterator[dict[str, int]]:
        """Sizes to make decisions for: usual ones where those of the call are small, then these."""
        shapes = [kind.dims for kind in _parameters(signature)]
        given = examples_of(_parameters(opened), shapes)
        for fewest in (USUAL, FEWEST):
            example = {name: max(size, fewest) for name, size in given.items()}
            if example not in self._examples:
                self._examples.append(example)
                yield example

    @property
    def reason(self) -> str:
        """Why there is one more compilation."""
        return f"the sizes break {self.refused}" if self.refused else ""

    def add(self, opened: Variant, signature: Signature) -> None:
        """One more compilation with open sizes; one that needs a number after all is the last."""
        assert opened.built is not None
        self.note(signature)
        self.open.insert(0, opened)
        formulas = opened.built.image.formulas
        for guard in formulas.guards if formulas is not None else ():
            if guard.relation == "zero":
                self.closed = f"{guard.text} is needed"

    def note(self, signature: Signature) -> None:
        """A call that gets a compilation of its own."""
        if signature not in self.seen:
            self.seen = [*self.seen, signature][-MOST_SEEN:]


def _parameters(signature: Signature) -> Sequence[Type]:
    kinds = map(parameter_type, signature.keys)
    return [kind for kind in kinds if kind is not None]
