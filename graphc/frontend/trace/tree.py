"""Pytrees: arguments and results as nestings of dicts, lists, tuples, dataclasses and None.

A `TreeDef` is the shape of a nesting without its leaves.  It is interned, so it hashes and compares
by identity and can be part of a call signature.

    {"w": a, "layers": [b, c]}   ->   leaves [b, c, a]   TreeDef(dict, ("layers", "w"), ...)

Dicts of arguments are read in sorted key order, so that insertion order never causes a retrace;
dicts of results keep the order the function built them in.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import repeat
from operator import call, itemgetter
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import TraceError

MAX_DEPTH = 100
_Fill = Callable[[Any, list[Any]], bool]
_Build = Callable[[Sequence[Any], int], Any]


class TreeDef:
    """One level of a nesting: the container type, its keys (or auxiliary data) and its children."""

    __slots__ = ("build", "children", "count", "fill", "is_shallow", "keys", "kind", "names")

    def __init__(self, kind: Any, keys: Any, children: tuple[TreeDef, ...], count: int) -> None:
        self.kind = kind
        self.keys = keys
        self.children = children
        self.count = count
        self.names: tuple[str, ...] | None = None
        self.is_shallow = all(child is LEAF for child in children)
        self.fill: _Fill | None = None
        self.build: _Build | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A copy is itself, and what another process reads is interned there."""
        if self is LEAF or self is NONE:
            return "LEAF" if self is LEAF else "NONE"
        return treedef, (self.kind, self.keys, self.children)

    def __repr__(self) -> str:
        if self is LEAF:
            return "*"
        if self is NONE:
            return "None"
        inside = ", ".join(f"{k}: {c!r}" for k, c in zip(key_names(self), self.children))
        return f"{self.kind.__name__}({inside})"


@record(frozen=True)
class Custom:
    """How a registered class is taken apart: `flatten(x) -> (children, aux)` with hashable aux."""

    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Hashable, Sequence[Any]], Any]


LEAF: TreeDef = TreeDef(None, (), (), 1)
NONE = TreeDef(None, (), (), 0)
_CUSTOM: dict[type, Custom] = {}
_INTERNED: dict[Any, TreeDef] = {}


def treedef(kind: Any, keys: Any, children: tuple[TreeDef, ...]) -> TreeDef:
    key = (kind, exact(keys) if kind in _CUSTOM else keys, children)
    found = _INTERNED.get(key)
    if found is None:
        made = TreeDef(kind, keys, children, sum(c.count for c in children))
        found = _INTERNED.setdefault(key, made)  # another thread may have been here
    return found


def exact(value: Any) -> Hashable:
    """What equals that of another value only if both compute the same: 2 is not 2.0 here, nor 0.0
    -0.0, inside tuples neither; not-a-number is itself.
    """
    kind: Any = type(value)
    if kind is slice:  # which Python hashes from 3.12 on
        return kind, exact((value.start, value.stop, value.step))
    if isinstance(value, tuple | frozenset):
        inside = map(exact, value)
        return kind, tuple(inside) if isinstance(value, tuple) else frozenset(inside)
    return kind, repr(value) if isinstance(value, float | complex | np.inexact) else value


@refusing
def register_pytree(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Hashable, Sequence[Any]], Any],
) -> None:
    """Let instances of `kind` be taken apart into arrays: flatten(x) -> (children, auxiliary data).

    The auxiliary data must be hashable: it is part of every signature.  unflatten(aux, children)
    builds the instance again.  Raises TraceError if the class is registered already.
    """
    if kind in _CUSTOM:
        raise TraceError(f"{kind.__name__} is already registered as a pytree")
    _CUSTOM[kind] = Custom(flatten, unflatten)


def is_registered(kind: type) -> bool:
    """Whether a class has been registered as a pytree."""
    return kind in _CUSTOM


# ------------------------------------------------------------------------------------ flattening


def flatten(value: Any, *, keep_order: bool = False) -> tuple[list[Any], TreeDef]:
    """The leaves of a nesting, in order, and its TreeDef; `keep_order` leaves dicts unsorted."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, keep_order, 0)


def _flatten(value: Any, leaves: list[Any], keep_order: bool, depth: int) -> TreeDef:
    kind = type(value)
    take = _TAKE.get(kind) or _taker(kind)
    if take is None:
        if value is None:
            return NONE
        leaves.append(value)
        return LEAF
    if depth > MAX_DEPTH:
        raise TraceError(f"a nesting deeper than {MAX_DEPTH} levels (does it contain itself?)")
    keys, children = take(value, keep_order)
    made = tuple([_flatten(child, leaves, keep_order, depth + 1) for child in children])
    return treedef(kind, keys, made)


def _sorted_keys(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(mapping))
    except TypeError:  # keys of several types have no order of their own
        return tuple(sorted(mapping, key=lambda k: (type(k).__name__, repr(k))))


def _take_dict(value: dict[Any, Any], keep_order: bool) -> tuple[Any, Sequence[Any]]:
    ordered = keep_order or type(value) is OrderedDict
    keys = tuple(value) if ordered else _sorted_keys(value)
    return keys, [value[key] for key in keys]


def _take_sequence(value: Sequence[Any], keep_order: bool) -> tuple[Any, Sequence[Any]]:
    return (), value


def _take_dataclass(value: Any, keep_order: bool) -> tuple[Any, Sequence[Any]]:
    names = tuple(field.name for field in dataclasses.fields(value))
    return names, [getattr(value, name) for name in names]


def _take_custom(value: Any, keep_order: bool) -> tuple[Any, Sequence[Any]]:
    children, auxiliary = _CUSTOM[type(value)].flatten(value)
    return auxiliary, children


_Take = Callable[[Any, bool], tuple[Any, Sequence[Any]]]
_TAKE: dict[type, _Take] = {
    dict: _take_dict,
    OrderedDict: _take_dict,
    defaultdict: _take_dict,
    list: _take_sequence,
    tuple: _take_sequence,
}


def _taker(kind: type) -> _Take | None:
    if kind in _CUSTOM:
        take: _Take = _take_custom
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        take = _take_sequence
    elif dataclasses.is_dataclass(kind):
        take = _take_dataclass
    else:
        return None
    _TAKE[kind] = take
    return take


def children_of(tree: TreeDef, value: Any) -> tuple[Any, ...]:
    """The children of a container of the kind of `tree`. Raises KeyError for one with other keys
    or auxiliary data, or with more or fewer children.
    """
    keys, children = _TAKE[tree.kind](value, False)
    if not _same_keys(tree, keys) or len(children) != len(tree.children):
        raise KeyError(keys)
    return tuple(children)


def _same_keys(tree: TreeDef, keys: Any) -> bool:
    if tree.kind in _CUSTOM:
        return keys is tree.keys or exact(keys) == exact(tree.keys)
    return bool(keys == tree.keys)


def refill(tree: TreeDef, value: Any, leaves: list[Any]) -> bool:
    """Append the leaves of a nesting that is expected to have this TreeDef; False if it has not.

    What stands in the place of a leaf is taken as it is.  Much faster than `flatten` on big dicts.
    """
    if tree.fill is None:
        tree.fill = _filler(tree)
    return tree.fill(value, leaves)


def _filler(tree: TreeDef) -> _Fill:
    kind, count = tree.kind, len(tree.children)
    if tree is LEAF:
        return _fill_leaf
    if tree is NONE:
        return lambda value, leaves: value is None
    if kind not in (dict, list, tuple):
        return lambda value, leaves: _fill_flat(tree, value, leaves)
    shallow = tree.is_shallow
    fills = [_filler(child) for child in tree.children]
    take = _children_of(tree)

    def fill(value: Any, leaves: list[Any]) -> bool:
        if type(value) is not kind or len(value) != count:
            return False
        try:
            children = take(value)
        except KeyError:
            return False
        if shallow:
            leaves += children
            return True
        return all(map(call, fills, children, repeat(leaves)))

    return fill


def _fill_leaf(value: Any, leaves: list[Any]) -> bool:
    leaves.append(value)
    return True


def _fill_flat(tree: TreeDef, value: Any, leaves: list[Any]) -> bool:
    found, given = flatten(value)
    leaves += found
    return given is tree


def _children_of(tree: TreeDef) -> Callable[[Any], Sequence[Any]]:
    """How to get at the children of a dict, list or tuple."""
    if tree.kind is not dict:
        return lambda value: value
    keys = tree.keys
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda value: [value[key] for key in keys]


# ------------------------------------------------------------------------------------ unflattening


def unflatten(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """The nesting with these leaves. Raises TraceError when their number is wrong."""
    if len(leaves) != tree.count:
        raise TraceError(f"a tree of {tree.count} leaves was given {len(leaves)}")
    if tree.build is None:
        tree.build = _builder(tree)
    return tree.build(leaves, 0)


def _builder(tree: TreeDef) -> _Build:
    """Builds a nesting from the leaves that begin at a position."""
    if tree is LEAF:
        return lambda leaves, start: leaves[start]
    if tree is NONE:
        return lambda leaves, start: None
    make = maker(tree)
    count, keys = len(tree.children), tree.keys
    if tree.is_shallow and tree.kind is dict:
        return lambda leaves, start: dict(zip(keys, leaves[start : start + count]))
    if tree.is_shallow:
        return lambda leaves, start: make(leaves[start : start + count])
    parts = []
    position = 0
    for child in tree.children:
        parts.append((_builder(child), position))
        position += child.count

    def build(leaves: Sequence[Any], start: int) -> Any:
        return make([inner(leaves, start + offset) for inner, offset in parts])

    def build_dict(leaves: Sequence[Any], start: int) -> Any:
        return {key: inner(leaves, start + offset) for key, inner, offset in named}

    named = [(key, *part) for key, part in zip(keys, parts)]
    return build_dict if tree.kind is dict else build


def maker(tree: TreeDef) -> Callable[[Sequence[Any]], Any]:
    """Makes the container of one level from its children."""
    kind, keys = tree.kind, tree.keys
    if kind is list or kind is tuple:
        return lambda children: kind(children)
    if kind in _CUSTOM:
        return lambda children: _CUSTOM[kind].unflatten(keys, children)
    if issubclass(kind, tuple):
        return lambda children: kind(*children)
    if kind is defaultdict:
        return lambda children: defaultdict(None, zip(keys, children))
    if issubclass(kind, dict):
        return lambda children: kind(zip(keys, children))
    return lambda children: _instance(kind, keys, children)


def _instance(kind: Any, names: Sequence[str], children: Sequence[Any]) -> Any:
    """A dataclass: __post_init__ must not run on tracers a second time."""
    made = object.__new__(kind)
    for name, child in zip(names, children):
        object.__setattr__(made, name, child)
    return made


# ------------------------------------------------------------------------------------ names


def leaf_names(tree: TreeDef) -> tuple[str, ...]:
    """The path of every leaf, joined with dots: "params.w1", "layers.0.w"; "" for a single leaf."""
    if tree.names is None:
        tree.names = tuple(_names(tree))
    return tree.names


def key_names(tree: TreeDef) -> Sequence[str]:
    kind = tree.kind
    if kind in (list, tuple) or kind in _CUSTOM:
        return [str(k) for k in range(len(tree.children))]
    if issubclass(kind, tuple):
        return tuple(kind._fields)
    return [str(key) for key in tree.keys]


def _names(tree: TreeDef) -> Iterator[str]:
    if tree is LEAF:
        yield ""
        return
    if tree is NONE:
        return
    for key, child in zip(key_names(tree), tree.children):
        for rest in leaf_names(child):
            yield f"{key}.{rest}" if rest else key


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names with a number appended where one repeats ({"a.b": x, "a": {"b": y}})."""
    if len(set(names)) == len(names):
        return tuple(names)
    taken = set(names)
    seen: set[str] = set()
    made = []
    for name in names:
        candidate, number = name, 1
        while candidate in seen or (number > 1 and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        made.append(candidate)
    return tuple(made)
