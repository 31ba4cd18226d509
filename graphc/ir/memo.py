"""Operations of sizes that are done once for what they are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")
KEYS: set[type] = {int, str}  # and sizes: of what results are kept


def once(made: Callable[..., R]) -> Callable[..., R]:
    """What a scope makes of sizes, or a size of another one: formulas are immutable, and passes ask
    for the same ones again and again."""
    name = made.__name__

    @functools.wraps(made)
    def known(self: Any, *given: Any) -> R:
        if not KEYS.issuperset(map(type, given)):
            return made(self, *given)
        results = getattr(self, "scope", self).results
        key = (name, self, *given)
        found: R | None = results.get(key)
        if found is None:
            found = results[key] = made(self, *given)
        return found

    return known


def once_for_two(made: Callable[[Any, Any], R]) -> Callable[[Any, Any], R]:
    """The same of an operator of a size and a number. Sizes are told by identity: a scope keeps all
    of its own, and asking them for a hash takes longer than what is looked up."""
    name = made.__name__

    @functools.wraps(made)
    def known(self: Any, other: Any) -> R:
        kind = type(other)
        key: tuple[Any, ...] = (name, id(self), other)
        if kind is not int:
            if kind is not type(self) or other.scope is not self.scope:
                return made(self, other)
            key = name, id(self), id(other), kind
        results = self.scope.results
        found: R | None = results.get(key)
        if found is None:
            found = results[key] = made(self, other)
        return found

    return known
