"""Families: calls that differ in sizes alone, and the compilations that serve many of them.

call of (3, 16)     first call: compiled for this shape
call of (5, 16)     a dimension has changed: compiled with it open
call of (9, 16)     served: its sizes are filled in
call of (1, 16)     maybe not served: a decision does not hold; compiled again, open, too
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphc.base.record import replace
from graphc.errors import GraphError, GraphHint
from graphc.frontend.compile.build import Built
from graphc.frontend.compile.open_sizes import (
    OpenBuilds,
    changing_shapes,
    examples_of,
    named_shapes,
)
from graphc.frontend.compile.signature import Signature, Static, difference, parameter_type
from graphc.frontend.compile.variant import Variant
from graphc.ir.sizes import Scope
from graphc.ir.types import Dim, Type
from graphc.ir.user_lines import locate
from graphc.runtime.call.open_executable import Shapes

MOST_SEEN = 8  # calls that are compared
EXACT = "exact"  # the option that leaves no size open

NamedSizes = Mapping[str, Iterable[int | str | Dim]]


def family_of(signature: Signature) -> Any:
    """What calls that differ in sizes alone have in common."""
    keys = ((k.dtype, k.rank) if isinstance(k, Type) else k for k in signature.keys)
    return signature.tree, tuple(keys)


def sizes_option(given: Any) -> NamedSizes | str | None:
    """The option sizes=: names of dimensions, "exact", or nothing."""
    if given is None or (isinstance(given, str) and given == EXACT):
        return given
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return {name: (s,) if isinstance(s, int | str) else tuple(s) for name, s in given.items()}
    raise GraphError(
        f"sizes takes the shapes of arguments by name, or {EXACT!r}, got {given!r:.80}",
        hint='sizes={"x": ("n", 16)}',
    )


class Family:
    """The calls of one family, and what serves them."""

    def __init__(self) -> None:
        self.seen: list[Signature] = []
        self.open: OpenBuilds[Variant] = OpenBuilds(lambda v: not v.baked or v.baked.holds())

    def serving(self, signature: Signature) -> Variant | None:
        """A variant for a call, of a compilation that is for its sizes, too."""
        found = self.open.serving(_shapes(signature))
        return _served(signature, *found) if found is not None else None

    def extended(
        self,
        opened: Signature,
        signature: Signature,
        make: Callable[[Scope], tuple[Built, Variant]],
        allow: Callable[[], None],
    ) -> Variant | None:
        """A variant for a call, of a compilation that is made for it and further sizes."""
        shapes = _shapes(signature)
        given = examples_of(_parameters(opened), shapes)
        found = self.open.extended(given, shapes, make, allow)
        return _served(signature, *found) if found is not None else None

    def opening(self, signature: Signature, named: NamedSizes | None) -> Signature | None:
        """The signature with symbols to compile for a call; None if its sizes are taken as they
        are.

        Raises GraphError for named sizes that the arguments do not have.
        """
        if not self.open.may_grow:
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
        return Signature(signature.tree, keys)

    @property
    def reason(self) -> str:
        """Why there is one more compilation."""
        return f"the sizes break {self.open.refused}" if self.open.refused else ""

    def difference(self, signature: Signature, earlier: Sequence[Signature]) -> str:
        """What a signature has that none before had, and why no compilation serves it as well."""
        closed = self.open.closed.partition("\n")[0]
        return f"{difference(signature, earlier)}{f'; {closed}' if closed else ''}"

    def note(self, signature: Signature) -> None:
        """A call that gets a compilation of its own."""
        if signature not in self.seen:
            self.seen = [*self.seen, signature][-MOST_SEEN:]


def _served(signature: Signature, built: Built, opened: Variant) -> Variant:
    """The variant of a call that is served by a compilation, of which it is `built`."""
    assert opened.built is not None
    traced = replace(opened.traced, graph=opened.graph)
    values = opened.built.symbols_of(_shapes(signature))
    made = Variant(signature, traced, opened.baked, opened.reason, values)
    made.built = built
    return made


def hint_closed(name: str, reason: str) -> None:
    """Say why sizes that were named are compiled one by one."""
    reason = reason.partition("\n")[0]
    _hint(f"{name} is compiled for every size of its own, as one of sizes= is needed: {reason}")


def hint_alike(name: str, times: int, reason: str) -> None:
    """Say what makes one compilation after the other."""
    reason = reason.partition("\n")[0]
    _hint(f"{name} was compiled {times} times, the last time for {reason}; {_advice(reason)}")


def _advice(reason: str) -> str:
    if ": value " in reason:
        return "a number that changes often should be an argument that static= does not name"
    if ": shape " in reason:
        return "arrays could be padded to a few sizes"
    return "arrays of one shape could be stacked: one array of any length is one argument"


def alike(signature: Signature, by_shape: bool) -> Any:
    """What calls have in common that differ in values of static arguments and in the lengths of
    lists and, unless `by_shape`, in sizes."""

    def kind(key: Any) -> Any:
        if isinstance(key, Static):
            return type(key.value)
        return (key.dtype, key.rank) if isinstance(key, Type) and not by_shape else key

    names = (re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name) for name in signature.names)
    return frozenset(zip(names, map(kind, signature.keys)))


def hint_changing(name: str, times: int, reason: str) -> None:
    """Say what makes one trace after the other."""
    _hint(
        f"{name} was traced {times} times for one signature, the last time for {reason}; what "
        "changes often should be an argument or a gc.Variable"
    )


def _hint(text: str) -> None:
    warnings.warn_explicit(text, GraphHint, *(locate() or ("<unknown>", 1)))


def _shapes(signature: Signature) -> Shapes:
    return tuple(kind.dims for kind in _parameters(signature))


def _parameters(signature: Signature) -> Sequence[Type]:
    kinds = map(parameter_type, signature.keys)
    return [kind for kind in kinds if kind is not None]
