"""What Numba's CUDA target does over and over for kernels, done once; as long as it is asked to.

Numba asks dozens of overloads what an operation on two numbers is, each time it sees one, and runs
two dozen passes over every function, many of them for what generated code has none of: closures,
comprehensions, array expressions, functions that are inlined in Python.  The code that comes out
is the same.  The names of what is replaced here are those of the numba-cuda that is asked for.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.numba.passes import unneeded

MOST_SIGNATURES = 1 << 16  # that are remembered: a few hundred bytes each

Replacement = tuple[Any, str, Any]


@contextmanager
def quickly() -> Iterator[None]:
    """Compile kernels in less time. Whoever enters holds the lock of Numba's compilers."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _replacements()]
    thresholds = gc.get_threshold()
    _put(_replacements())
    gc.set_threshold(
        max(tuned.young_objects, thresholds[0]) if thresholds[0] else 0, *thresholds[1:]
    )
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _put(before)


def _put(replacements: list[Replacement]) -> None:
    for owner, name, value in replacements:
        setattr(owner, name, value)


@cache
def _replacements() -> list[Replacement]:
    """What takes the place of which attribute; made once, so that what they remember stays."""
    from numba.core.types.functions import BaseFunction
    from numba.cuda.compiler import CUDACompiler
    from numba.cuda.core import base
    from numba.cuda.typing.context import BaseContext

    return [
        (BaseFunction, "get_call_type", _signatures(BaseFunction.get_call_type)),
        (BaseContext, "resolve_getattr", _constructors(BaseContext.resolve_getattr)),
        (CUDACompiler, "define_pipelines", _pipelines(CUDACompiler.define_pipelines)),
        (base, "_has_loc", lru_cache(maxsize=1 << 12)(base._has_loc)),
    ]


def _signatures(original: Callable[..., Any]) -> Callable[..., Any]:
    """The types of a call of a built-in function or operator: they follow from those it is given.

    Types of one kind are one object; those whose identity is a key are kept with what it is for.
    """
    from numba.cuda.core.targetconfig import ConfigStack

    known: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        flags = ConfigStack.top_or_none()
        if kws or flags is None or flags.fastmath or flags.debuginfo:
            return original(self, context, args, kws)
        key = (id(self), id(context), flags.compute_capability, *map(id, args))
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_SIGNATURES:
                known.clear()
            made = original(self, context, args, kws)
            found = known[key] = made, self._impl_keys[made.args], (self, context, args)
        signature, implementation, _ = found
        self._impl_keys[signature.args] = implementation
        return signature

    return get_call_type


def _constructors(original: Callable[..., Any]) -> Callable[..., Any]:
    """What makes a number of a type: one function, whose signatures are remembered then."""
    from numba.core.types import NumberClass

    known: dict[Any, Any] = {}

    def resolve_getattr(self: Any, typ: Any, attr: str) -> Any:
        if attr != "__call__" or not isinstance(typ, NumberClass):
            return original(self, typ, attr)
        if typ not in known:
            known[typ] = original(self, typ, attr)
        return known[typ]

    return resolve_getattr


def _pipelines(original: Callable[..., Any]) -> Callable[..., Any]:
    """For code of ours few passes, then all of them if those do not get through."""
    from numba.cuda.core import typed_passes, untyped_passes
    from numba.cuda.utils import _dynamic_modname

    dropped = unneeded(typed_passes, untyped_passes)

    def define_pipelines(self: Any) -> Any:
        (full,) = original(self)
        module = self.state.func_id.modname
        if module != _dynamic_modname and not module.startswith("graphc."):
            return [full]
        short = copy.copy(full)
        short.passes = [item for item in full.passes if item[0] not in dropped]
        short._ENFORCING = False  # does not have every pass leave all that any pass could ask for
        return [short, full]

    return define_pipelines
