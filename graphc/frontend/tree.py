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
from operator import itemgetter
from typing import Any

from graphc.errors import TraceError

MAX_DEPTH = 100


class TreeDef:
    """One level of a nesting: the container type, its keys (or auxiliary data) and its children."""

    __slots__ = ("children", "count", "getter", "is_shallow", "keys", "kind", "names")

    def __init__(self, kind: Any, keys: Any, children: tuple[TreeDef, ...], count: int) -> None:
        self.kind = kind
        self.keys = keys
        self.children = children
        self.count = count
        self.names: tuple[str, ...] | None = None
        self.is_shallow = all(child is LEAF for child in children)
        self.getter = itemgetter(*keys) if kind is dict and len(keys) > 1 else None

    def __repr__(self) -> str:
        if self is LEAF:
            return "*"
        if self is NONE:
            return "None"
        inside = ", ".join(f"{k}: {c!r}" for k, c in zip(_key_names(self), self.children))
        return f"{self.kind.__name__}({inside})"


@dataclasses.dataclass(frozen=True)
class Custom:
    """How a registered class is taken apart: `flatten(x) -> (children, aux)` with hashable aux."""

    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Hashable, Sequence[Any]], Any]


LEAF: TreeDef = TreeDef(None, (), (), 1)
NONE = TreeDef(None, (), (), 0)
_CUSTOM: dict[type, Custom] = {}
_INTERNED: dict[Any, TreeDef] = {}


def treedef(kind: Any, keys: Any, children: tuple[TreeDef, ...]) -> TreeDef:
    key = (kind, keys, children)
    found = _INTERNED.get(key)
    if found is None:
        found = _INTERNED[key] = TreeDef(kind, keys, children, sum(c.count for c in children))
    return found


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


def refill(tree: TreeDef, value: Any, leaves: list[Any]) -> bool:
    """Append the leaves of a nesting that is expected to have this TreeDef; False if it has not.

    What stands in the place of a leaf is taken as it is.  Much faster than `flatten` on big dicts.
    """
    kind = tree.kind
    if tree is LEAF:
        leaves.append(value)
        return True
    if type(value) is not kind and tree is not NONE:
        return False
    if kind is tuple or kind is list:
        children = value
    elif kind is dict:
        try:
            children = tree.getter(value) if tree.getter else [value[key] for key in tree.keys]
        except KeyError:
            return False
    else:
        found, given = flatten(value)
        leaves += found
        return given is tree
    if len(value) != len(tree.children):
        return False
    if tree.is_shallow:
        leaves += children
        return True
    return all(map(refill, tree.children, children, repeat(leaves)))


# ------------------------------------------------------------------------------------ unflattening


def unflatten(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """The nesting with these leaves. Raises TraceError when their number is wrong."""
    if len(leaves) != tree.count:
        raise TraceError(f"a tree of {tree.count} leaves was given {len(leaves)}")
    return _build(tree, iter(leaves))


def _build(tree: TreeDef, leaves: Iterator[Any]) -> Any:
    if tree is LEAF:
        return next(leaves)
    if tree is NONE:
        return None
    kind = tree.kind
    children = [_build(child, leaves) for child in tree.children]
    if kind is list:
        return children
    if kind is tuple:
        return tuple(children)
    if kind in _CUSTOM:
        return _CUSTOM[kind].unflatten(tree.keys, children)
    if issubclass(kind, tuple):
        return kind(*children)
    if kind is defaultdict:
        return defaultdict(None, zip(tree.keys, children))
    if issubclass(kind, dict):
        return kind(zip(tree.keys, children))
    made = object.__new__(kind)  # a dataclass: __post_init__ must not run on tracers a second time
    for name, child in zip(tree.keys, children):
        object.__setattr__(made, name, child)
    return made


# ------------------------------------------------------------------------------------ names


def leaf_names(tree: TreeDef) -> tuple[str, ...]:
    """The path of every leaf, joined with dots: "params.w1", "layers.0.w"; "" for a single leaf."""
    if tree.names is None:
        tree.names = tuple(_names(tree))
    return tree.names


def _key_names(tree: TreeDef) -> Sequence[str]:
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
    for key, child in zip(_key_names(tree), tree.children):
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
