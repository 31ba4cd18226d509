"""Records: classes of named fields, like dataclasses with slots, but ten times cheaper to define.

The compiler defines sixty of them whenever it is imported; `dataclasses` writes and compiles six
functions for each.  Users' dataclasses are trees of arrays; a record is never one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(cls: type[T], /) -> type[T]: ...
@overload
def record(*, frozen: bool = ..., eq: bool = ...) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=False, field_specifiers=(field,))
def record(cls: Any = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
    """Turn annotated names into slots, with `__init__`, `__repr__` and, if `eq`, `__eq__`.

    `frozen` refuses assignment, and makes equal records hash alike.  Defaults are values or
    `dataclasses.field(default_factory=..., compare=..., repr=...)`; a record may inherit from
    another.  `__post_init__`, if there is one, is called in the end.
    """
    if cls is None:
        return lambda made: _slotted(made, frozen, eq)
    return _slotted(cls, frozen, eq)


def _slotted(cls: type, frozen: bool, eq: bool) -> type:
    body = dict(cls.__dict__)
    own = tuple(body.get("__annotations__", {}))
    defaults = dict(getattr(cls, "_defaults", {}))
    defaults |= {name: body.pop(name) for name in own if name in body}
    inherited = getattr(cls, "__match_args__", ())
    names = (*inherited, *(name for name in own if name not in inherited))
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body |= {"__slots__": own, "__match_args__": names, "_defaults": defaults}
    body["_shown"] = tuple(name for name in names if _is(defaults, name, "repr"))
    if all("__repr__" not in kind.__dict__ for kind in cls.__mro__[:-1]):
        body["__repr__"] = _repr
    if "__reduce__" not in body:
        body["__reduce__"] = _reduce  # copies and pickles are made by `__init__`
    if frozen:
        body |= {"__setattr__": _refuse, "__delattr__": _refuse}
    if eq and "__eq__" not in body:
        compared = tuple(name for name in names if _is(defaults, name, "compare"))
        body = _comparison(compared, frozen) | body
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__init__ = _Initialiser(made, names, defaults)  # type: ignore[misc]
    return made


def _is(defaults: dict[str, Any], name: str, option: str) -> bool:
    """An option of a field, which holds unless it was given as False."""
    found = defaults.get(name)
    return bool(getattr(found, option)) if isinstance(found, Field) else True


def replace(value: T, /, **changes: Any) -> T:
    """A record like this one but for some fields. Raises TypeError for one that it has not."""
    names: tuple[str, ...] = type(value).__match_args__  # type: ignore[attr-defined]
    return type(value)(**{name: getattr(value, name) for name in names} | changes)


class _Initialiser:
    """`__init__` of a kind of record until somebody asks for it: of most kinds nobody ever does."""

    def __init__(self, made: Any, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
        self.of = made, names, defaults

    def __get__(self, instance: Any, owner: Any) -> Any:
        made = self.of[0]
        if made.__dict__["__init__"] is self:  # still, for all threads that came here
            made.__init__ = _written(*self.of)
        return made.__init__.__get__(instance, owner)


def _written(made: Any, names: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """`__init__` over slots, as code of its own because it is called very often."""
    space: dict[str, Any] = {f"_set_{name}": getattr(made, name).__set__ for name in names}
    formal, lines = [], []
    for name in names:
        value = name
        if name in defaults:
            default = defaults[name]
            if isinstance(default, Field):
                if default.default_factory is not MISSING:
                    space[f"_make_{name}"] = default.default_factory
                    value = f"_make_{name}() if {name} is _missing else {name}"
                default = default.default
            space[f"_default_{name}"] = default
            formal.append(f"{name}=_default_{name}")
        else:
            formal.append(name)
        lines.append(f" _set_{name}(self, {value})")
    if hasattr(made, "__post_init__"):
        lines.append(" self.__post_init__()")
    space |= {"_missing": MISSING, "__name__": made.__module__}
    exec(f"def __init__(self, {', '.join(formal)}):\n" + "\n".join(lines or [" pass"]), space)
    return space["__init__"]


def _comparison(names: tuple[str, ...], frozen: bool) -> dict[str, Any]:
    """`__eq__` over all fields, and a `__hash__` that agrees with it."""
    values = attrgetter(*names) if names else type

    def equal(self: Any, other: Any) -> Any:
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    def hashed(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
    return f"{self.__class__.__qualname__}({fields})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple([getattr(self, name) for name in self.__match_args__])


def _refuse(self: Any, name: str, value: Any = None) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")
