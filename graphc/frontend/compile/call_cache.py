"""`CallCache`: a compiled function knows calls like recent ones, without binding their arguments.

in native code      an entry of the latest four kinds of calls takes the arguments
in Python           the entry of the latest call does, keywords or not
                    that of a shape that was called before, of one of the latest nestings
else                the arguments are bound, and a signature is made of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np

from graphc.frontend.compile.nesting import NAMED
from graphc.frontend.compile.signature import Binder, plain_key
from graphc.frontend.compile.variant import UNKNOWN, Variant, no_entry
from graphc.ops.record.value import traces_active
from graphc.runtime.call.direct_call import DirectEntries, call_natively
from graphc.seams.cpython import cells_are_known

_ndarray = np.ndarray
MOST_RECENT = 8  # calls with nested arguments that are known again
MOST_DIRECT = 4  # kinds of calls that native code knows again


class Known(NamedTuple):
    """A call that has been made: the entry for others like it.

    `native` is the part of it in native code, which does not look at what the trace has read. It is
    `direct` where it answers what the call returns, and native code can look at all that was read.
    """

    entry: Callable[..., Any]
    variant: Any
    native: Callable[..., Any] = no_entry
    direct: bool = False

    @property
    def places(self) -> Any:
        """The cells and dicts that hold what was read, and what they held."""
        return self.variant.places

    def is_like(self, other: Known) -> bool:
        """Whether both are for the same calls."""
        return self.native is other.native and self.variant is other.variant


class CallCache:
    """Calls that have been made, and what knows others like them."""

    __slots__ = ("__dict__", "__weakref__", "_direct")  # of these native code reads the last

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self._plain: dict[tuple[Any, ...], Known] = {}
        self._last = Known(no_entry, None)
        self._direct: DirectEntries | None = None
        self._recent: tuple[Known, ...] = ()

    def _known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call like one of the recent ones, without binding; or UNKNOWN."""
        if not kwargs and all(type(arg) is _ndarray for arg in args):
            known = self._plain.get(plain_key(args))
            if known is not None and known.variant.traced.counts:
                return known.entry(*args)
            if known is not None:
                self._be_latest(known)
                made = known.entry(*args)
                return known.variant.run(args) if made is None else known.variant.answer(made)
        given = (*args, kwargs, NAMED) if kwargs else args
        for latest in self._recent:
            made = latest.entry(*given)
            if made is not None:
                self._be_latest(latest)
                return latest.variant.answer(made)
        return UNKNOWN

    def _remember(
        self,
        variant: Variant,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[[Sequence[Any]], Any],
    ) -> None:
        """Let further calls like this one skip binding and hashing; `run` is for those that count
        sizes."""
        plain = not kwargs and all(type(arg) is _ndarray for arg in args)
        by_shapes = plain and variant.is_flat and self._binder.simple and not variant.baked
        if variant.traced.counts:
            if by_shapes:
                self._know_by_shapes(Known(lambda *args: run(args), variant), args)
            return
        native = variant.entry(self._binder, (len(args), tuple(kwargs)), plain)
        if native is no_entry:
            return
        is_direct = (
            (variant.is_finished and not kwargs)
            and (isinstance(native, BuiltinFunctionType) and variant.places is not None)
            and (not variant.places or cells_are_known())
        )
        if is_direct:
            call_natively(type(self), "_direct", traces_active)
        latest = Known(variant.guarded(native), variant, native, is_direct)
        self._be_latest(latest)
        if by_shapes:
            self._know_by_shapes(latest, args)
        elif not any(known.is_like(latest) for known in self._recent):
            self._recent = (latest, *self._recent[: MOST_RECENT - 1])

    def _know_by_shapes(self, known: Known, args: tuple[Any, ...]) -> None:
        known.variant.plain_key = key = plain_key(args)
        self._plain[key] = known

    def _be_latest(self, known: Known) -> None:
        self._last, held = known, self._direct.keep if self._direct is not None else ()
        if known.direct and not any(each.is_like(known) for each in held):
            self._direct = DirectEntries.of((known, *held[: MOST_DIRECT - 1]))

    def _forget(self, variant: Variant) -> None:
        """Let go of a variant that has been served longest ago."""
        self._plain.pop(variant.plain_key, None)
        if self._direct is not None:
            held = [each for each in self._direct.keep if each.variant is not variant]
            self._direct = DirectEntries.of(held)
