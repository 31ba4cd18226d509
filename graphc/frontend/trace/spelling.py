"""How NumPy's arguments are spelled in the words of graphc's functions.

    np.roll(a=x, shift=1)         roll(x, 1)       the parameter has another name
    np.median(x, 0, None, True)   median(x, 0)     out= and overwrite_input= have a place
    np.isin(x, y, kind="sort")    isin(x, y)       an option that changes no result

What ours cannot say is left as it is; the call then says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from graphc.base.record import record

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# What NumPy may do to save time or memory, and what says where arrays lie.
_IDLE: dict[str, tuple[Any, ...]] = {
    "overwrite_input": (False, True),
    "device": (None, "cpu"),
    "like": (None,),
    "kind": (None, "sort", "table"),
    "subok": (False, True),
}


@record(frozen=True)
class Spelling:
    """NumPy's positional names, of which the first `same` are ours too; ours for each of NumPy's;
    values of NumPy's options that need not be said; whether ours takes any number by position."""

    positional: tuple[str, ...]
    same: int
    names: dict[str, str]
    idle: dict[str, tuple[Any, ...]]
    first: str
    spread: bool
    shared: frozenset[str]  # names that mean the same in both

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if 0 < len(args) <= self.same and self.shared.issuperset(kwargs):
            return args, kwargs
        if len(args) > self.same:
            count = len(self.positional)
            if len(args) > count or (self.spread and "out" not in self.positional[: len(args)]):
                return args, kwargs
            kwargs = {**dict(zip(self.positional[self.same :], args[self.same :])), **kwargs}
            args = args[: self.same]
        if self.spread:
            return self._by_position(args, kwargs)
        made = {self.names.get(k, k): v for k, v in kwargs.items() if not self._is_idle(k, v)}
        if not args and self.first in made:
            args = (made.pop(self.first),)
        return args, made

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        rest = dict(kwargs)
        for name in self.positional[len(args) :]:
            own = self.names.get(name)
            if name == "out" or name not in rest or (own is not None and own != self.first):
                break
            args = (*args, rest.pop(name))
        return args, {k: v for k, v in rest.items() if not self._is_idle(k, v)}

    def _is_idle(self, name: str, value: Any) -> bool:
        known = self.idle.get(name, ())
        return any(
            value is one or (type(value) is type(one) in (str, bool, int, float) and value == one)
            for one in known
        )


def _parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


@functools.lru_cache(4096)
def spelling(function: Any, ours: Callable[..., Any]) -> Spelling | None:
    """How calls of a function of NumPy become calls of ours; None where they are the same."""
    theirs, own = _parameters(function), _parameters(ours)
    if theirs is None or own is None:
        return None
    kinds = {p.kind for p in own.values()}
    places = [k for k, p in theirs.items() if p.kind in _POSITIONAL]
    mine = [k for k, p in own.items() if p.kind in _POSITIONAL]
    names = {k: k for k in theirs if k in own}
    for given, have in zip(places, mine):
        is_required = theirs[given].default is own[have].default is inspect.Parameter.empty
        if given not in own and have not in theirs and (is_required or given.lower() == have):
            names[given] = have
    agree = [names.get(k) == m and k != "out" for k, m in zip(places, mine)]
    same = agree.index(False) if False in agree else len(agree)
    spread = inspect.Parameter.VAR_POSITIONAL in kinds
    if inspect.Parameter.VAR_POSITIONAL in {p.kind for p in theirs.values()}:
        same, spread = 1 << 30, False
    idle = {
        k: (p.default, *_IDLE.get(k, ()))
        for k, p in theirs.items()
        if k not in names and k != "out"
    }
    if same == len(places) and all(k == v for k, v in names.items()) and not idle:
        return None
    shared = frozenset(k for k, v in names.items() if k == v)
    return Spelling(tuple(places), same, names, idle, mine[0] if mine else "", spread, shared)


def spelled(function: Any, ours: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Arguments of a function of NumPy as ours takes them."""
    if not kwargs and len(args) < 2:
        return args, kwargs
    found = spelling(function, ours)
    return (args, kwargs) if found is None else found.apply(args, kwargs)


def translated(function: Any, ours: Any) -> Iterable[str]:
    """The arguments of ours that have another name in NumPy."""
    found = spelling(function, ours)
    return () if found is None else found.names.values()
