"""Calls of programs for a GPU whose arguments lie there, at least the large ones, once their
variant is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.frontend.compile.signature import Binder, Identity, Weak
from graphc.frontend.compile.variant import UNKNOWN, Variant
from graphc.frontend.trace.tree import refill, treedef
from graphc.ir.types import Type
from graphc.runtime.call.array import Array
from graphc.runtime.call.execute import Executable

MOST_KNOWN = 8
_Given = Callable[[list[Array]], list[Any]]  # what a caller gets for the results


class Launches:
    """The latest variants of a function that were called so: further calls like theirs are neither
    bound nor looked up."""

    def __init__(self, binder: Binder) -> None:
        self.binder = binder
        self.known: tuple[_Launch, ...] = ()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results of a call with positional arguments, launched; or UNKNOWN."""
        return self._first(args, kwargs, list)

    def fetched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As arrays of the host."""
        return self._first(args, kwargs, _fetched)

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: _Given) -> Any:
        for launch in self.known if not kwargs else ():
            made = launch(args, given)
            if made is not UNKNOWN:
                return made
        return UNKNOWN

    def remember(self, variant: Variant, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Know calls like one again, where its arguments are arrays that need no binding."""
        is_plain = self.binder.plain and len(args) == len(self.binder.names) and not kwargs
        kinds = Type | Identity if self.binder.literals is not None else Type | Identity | Weak
        if not is_plain or not all(isinstance(key, kinds) for key in variant.signature.keys):
            return
        executable = variant.built.executable if variant.built is not None else None
        if isinstance(executable, Executable) and executable.is_left:
            others = [launch for launch in self.known if launch.variant is not variant]
            self.known = (_Launch(variant, executable), *others[: MOST_KNOWN - 1])


class _Launch:
    """Launches one variant for arguments that it is made for."""

    def __init__(self, variant: Variant, executable: Executable) -> None:
        self.variant, self.executable = variant, executable
        self.arguments = treedef(tuple, (), variant.signature.tree.children)
        keys = variant.signature.keys
        self.numbers = [(k, key) for k, key in enumerate(keys) if isinstance(key, Weak)]
        self.instance = keys[0] if keys and isinstance(keys[0], Identity) else None

    def __call__(self, args: tuple[Any, ...], given: _Given) -> Any:
        variant = self.variant
        leaves: list[Any] = []
        if not refill(self.arguments, args, leaves):
            return UNKNOWN
        if self.instance is not None and leaves[0] is not self.instance.value:
            return UNKNOWN
        for k, key in self.numbers:
            if type(leaves[k]) is not key.kind:
                return UNKNOWN
            leaves[k] = np.asarray(leaves[k], key.dtype.numpy)
        if variant.baked and not variant.baked.holds():
            return UNKNOWN
        launched = self.executable.launch(leaves[1:] if self.instance is not None else leaves)
        if launched is None:
            return UNKNOWN
        made = given(launched)
        return variant.nest(made[0] if len(made) == 1 else tuple(made))


def _fetched(arrays: list[Array]) -> list[np.ndarray[Any, Any]]:
    return [array.fetched() for array in arrays]
