"""How the native entry takes the arguments of a call apart and nests its results.

A form is how a call is written: how many arguments go by position and which by name.  Calls with
names are handed over as `entry(*args, kwargs, NAMED)`; the last argument tells them from calls
whose last argument is a dict.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter
from itertools import count
from typing import Any

import numpy as np

from graphc.frontend.compile.signature import Binder, LeafKey, Signature, Weak
from graphc.frontend.trace.tree import LEAF, NONE, TreeDef, children_of, is_registered, maker
from graphc.ir.types import Type
from graphc.runtime.call.array import Array
from graphc.runtime.call.nesting import (
    ARGUMENT,
    ARRAY,
    ATTRIBUTE,
    CALL,
    CONTAINER,
    DICT,
    FOREIGN,
    ITSELF,
    LIST,
    NOTHING,
    NUMBER,
    OF_DICT,
    OF_LIST,
    OF_TUPLE,
    RESULT,
    TUPLE,
    Build,
    Fetch,
)

Form = tuple[int, tuple[str, ...]]
NAMED: Any = object()

_BUILT = {dict: DICT, list: LIST, tuple: TUPLE}


class _Unknown(Exception):
    """An argument that only Python can take apart."""


def fetches_of(
    binder: Binder, signature: Signature, form: Form, on_host: bool
) -> list[Fetch] | None:
    """The fetches of calls of this form, their arrays in the order of the parameters; None where
    only Python can take an argument apart.

    NumPy's numbers and, if what runs is `on_host`, a `gc.Array` stand for arrays.
    """
    by_position, names = form
    walk = _Walk(signature.keys, _plain if on_host else _plain_number)
    if names:
        walk.fetches.append(Fetch(0, ARGUMENT, by_position, CONTAINER, dict, len(names)))
        walk.fetches.append(Fetch(0, ARGUMENT, by_position + 1, ITSELF, NAMED))
    given = dict(zip(signature.tree.keys, signature.tree.children))
    try:
        for position, parameter in enumerate(binder.signature.parameters.values()):
            tree = given.get(parameter.name, NONE)
            parts = _parts(parameter, position, tree, form)
            for child, how, key in parts:
                walk.take(child, 0, how, key)
            if not parts:  # left to its default, which is static
                walk.skip(tree.count)
    except _Unknown:
        return None
    return walk.fetches


def _parts(
    parameter: Parameter, position: int, tree: TreeDef, form: Form
) -> list[tuple[TreeDef, int, Any]]:
    """What a parameter of the function is made of: trees, and where each is found."""
    by_position, names = form
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        if tree is LEAF:  # a static argument that every call makes anew
            raise _Unknown
        if parameter.kind is Parameter.VAR_KEYWORD:
            return [(child, OF_DICT, key) for key, child in zip(tree.keys, tree.children)]
        return [(child, ARGUMENT, position + k) for k, child in enumerate(tree.children)]
    if parameter.kind is not Parameter.KEYWORD_ONLY and position < by_position:
        return [(tree, ARGUMENT, position)]
    if parameter.kind is not Parameter.POSITIONAL_ONLY and parameter.name in names:
        return [(tree, OF_DICT, parameter.name)]
    return []  # left to its default


class _Walk:
    """Makes fetches depth first, so that arrays come in the order of the keys of a signature."""

    def __init__(self, keys: Sequence[LeafKey], plain: Callable[[Any], Any]) -> None:
        self.keys = iter(keys)
        self.plain = plain
        self.fetches: list[Fetch] = []

    def skip(self, count: int) -> None:
        """Pass over the keys of so many leaves."""
        for _ in range(count):
            next(self.keys)

    def take(self, tree: TreeDef, parent: int, how: int, key: Any) -> None:
        """Append the fetches of a nesting. Raises _Unknown."""
        here = len(self.fetches)
        if tree is NONE or tree is LEAF:
            wanted = self._test(next(self.keys)) if tree is LEAF else (ITSELF, None, 0)
            self.fetches.append(Fetch(parent, how, key, *wanted))
            return
        inside, detail = _how(tree)
        test = FOREIGN if callable(detail) else CONTAINER
        self.fetches.append(Fetch(parent, how, key, test, tree.kind, detail))
        by_name = inside in (OF_DICT, ATTRIBUTE)
        for name, child in zip(tree.keys if by_name else count(), tree.children):
            self.take(child, here, inside, name)

    def _test(self, key: LeafKey) -> tuple[int, Any, Any]:
        if isinstance(key, Type):
            return ARRAY, np.ndarray, self.plain
        if not isinstance(key, Weak):
            return ITSELF, key.value, 0
        if key.dtype.name == "u64":  # the value of an int decides whether it needs that
            raise _Unknown
        return NUMBER, key.kind, partial(np.array, dtype=key.dtype.numpy)


def _plain_number(leaf: Any) -> Any:
    """The array of a NumPy number; other objects as they are."""
    return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf


def _plain(leaf: Any) -> Any:
    return leaf.numpy() if isinstance(leaf, Array) else _plain_number(leaf)


def _how(tree: TreeDef) -> tuple[int, Any]:
    """How the children of a container are reached, and its length (-1: none) or the function that
    makes a tuple of them.
    """
    kind, length = tree.kind, len(tree.children)
    if kind is dict or kind is defaultdict:
        return OF_DICT, length
    if kind is list:
        return OF_LIST, length
    if not is_registered(kind) and issubclass(kind, tuple) and kind.__iter__ is tuple.__iter__:
        return OF_TUPLE, length
    if not is_registered(kind) and dataclasses.is_dataclass(kind):
        return ATTRIBUTE, -1
    return OF_TUPLE, partial(children_of, tree)


def builds_of(tree: TreeDef) -> list[Build] | None:
    """The steps that nest results; None where Python must (the entry may not answer None)."""
    if tree.kind not in _BUILT:
        return None
    made: list[Build] = []
    _build(tree, made)
    return made


def _build(tree: TreeDef, made: list[Build]) -> None:
    if tree is LEAF or tree is NONE:
        made.append(Build(RESULT if tree is LEAF else NOTHING))
        return
    for child in tree.children:
        _build(child, made)
    how = _BUILT.get(tree.kind, CALL)
    made.append(Build(how, len(tree.children), tree.keys if how == DICT else _caller(tree)))


def _caller(tree: TreeDef) -> Callable[..., Any] | None:
    """A function of the children that makes the container; None where none is needed."""
    if tree.kind in _BUILT:
        return None
    if issubclass(tree.kind, tuple) and not is_registered(tree.kind):
        return tree.kind  # type: ignore[no-any-return]
    make = maker(tree)
    return lambda *children: make(children)
