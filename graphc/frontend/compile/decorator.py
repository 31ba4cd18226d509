"""`gc.compile`: a Python model function becomes a compiled one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

import graphc.frontend.trace.higher_order  # noqa: F401  (its stand-ins)
from graphc.base.record import replace
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import FeedError, GraphError, RunError, TraceError
from graphc.frontend.compile.bound_function import BoundFunction
from graphc.frontend.compile.build import Built
from graphc.frontend.compile.call_cache import CallCache
from graphc.frontend.compile.gpu_launches import Launches
from graphc.frontend.compile.making import Making
from graphc.frontend.compile.nesting import NAMED
from graphc.frontend.compile.recount import Counts, Run, run_for_counts
from graphc.frontend.compile.signature import (
    Binder,
    Literals,
    Signature,
    argument_names,
    signature_of,
)
from graphc.frontend.compile.size_families import NamedSizes, sizes_option
from graphc.frontend.compile.tiered import can_be_tiered, interpreted
from graphc.frontend.compile.variant import UNKNOWN, Variant
from graphc.frontend.compile.variants import Variants
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.trace import raised_by_user, without_internal_frames
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.ir.graph import Graph, Program
from graphc.ir.op import OPS
from graphc.ir.user_lines import defined_at
from graphc.ops.record.value import _ACTIVE, Value, current, lift, trace_of
from graphc.runtime.call.direct_call import DirectEntries
from graphc.seams.cpython import pickles_by_value

if TYPE_CHECKING:
    from graphc.frontend.diagnosis.why import Why
    from graphc.passes.pipeline import StageResult
    from graphc.viewer.page import Page

P = ParamSpec("P")
R = TypeVar("R")


class CompiledFunction(CallCache, Generic[P, R]):
    """A model function that compiles itself for every new signature of its arguments.

    `compiles` is the ledger: one `Compile` per compilation, with the reason for it.
    """

    def __init__(
        self,
        function: Callable[P, R],
        config: Config,
        static: Iterable[str] = (),
        donate: Iterable[str] = (),
        bound: bool = False,
        literals: Literals | None = None,
        sizes: NamedSizes | str | None = None,
        max_compiles: int | None = None,
        tiered: bool = False,
    ) -> None:
        self.function = function
        self.static = argument_names("static", static)
        self.donate = argument_names("donate", donate)
        # Who looks for what is not finite wants the arguments as they were.
        self.config = replace(config, donate=() if config.check_finite else self.donate)
        self.sizes = sizes_option(sizes)
        if not (max_compiles is None or (type(max_compiles) is int and max_compiles > 0)):
            raise GraphError(f"max_compiles must be a number from 1, got {max_compiles!r}")
        if not isinstance(tiered, bool):
            raise GraphError(f"tiered must be True or False, got {tiered!r}")
        self.tiered = tiered
        super().__init__(Binder(function, self.static, bound, literals))
        self._variants = Variants(
            function, self._binder, self.config, self.sizes, max_compiles, self._forget
        )
        self.compiles = self._variants.compiles
        self._launches = Launches(self._binder)
        functools.update_wrapper(self, function, updated=())
        for name in self.donate:
            if name not in self._binder.names:
                raise FeedError(
                    f"donate names {name!r}, which is no argument of {self._binder.title}",
                    location=defined_at(function),
                )

    @property
    def max_compiles(self) -> int | None:
        """How many compilations there may be; None for any number."""
        return self._variants.max_compiles

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its name, where that leads to it; else by its function and options."""
        title: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for name in title.split("."):
            found = getattr(found, name, None)
        if found is self and not (self.__module__ == "__main__" and pickles_by_value()):
            return title
        config = replace(self.config, dump=None, sample=None)
        options = self.static, self.donate, self._binder.bound, None, self.sizes, self.max_compiles
        return CompiledFunction, (self.function, config, *options, self.tiered)

    def __deepcopy__(self, memo: Any) -> CompiledFunction[P, R]:
        return self

    def __repr__(self) -> str:
        return f"<graphc function {getattr(self, '__name__', '?')}, {len(self.compiles)} compiled>"

    # -------------------------------------------------------------------------------- calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run on arrays, compiling first if the signature is new; inside a trace, a `call` node."""
        try:
            if not _ACTIVE.stack:
                entry, variant, _, _ = self._last
                made = entry(*args, kwargs, NAMED) if kwargs else entry(*args)
                if made is not None:  # a call like the latest one
                    if variant.is_finished and made.__class__ is not int:
                        return made  # type: ignore[no-any-return]
                    return variant.answer(made)  # type: ignore[no-any-return]
                made = self._known(args, kwargs)
                if made is UNKNOWN:
                    made = self._launches.fetched(args, kwargs)
                if made is not UNKNOWN:
                    return made  # type: ignore[no-any-return]
            return self._call(args, kwargs)  # type: ignore[no-any-return]
        except GraphError as error:
            cause, shown = error.__cause__, self._explained(error, args, kwargs)
            raise without_internal_frames(shown) from cause
        except Exception as error:
            if raised_by_user(error):
                without_internal_frames(error)
            raise

    def _failed(self, code: int, entries: DirectEntries, number: int, *args: Any) -> None:
        """Raise the error of a run that native code has called."""
        try:
            entries.keep[number].variant.answer(code)
        except GraphError as error:
            cause, shown = error.__cause__, self._explained(error, args, {})
            raise without_internal_frames(shown) from cause

    def _explained(
        self, error: GraphError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> GraphError:
        """An error of a run says which value made it; donated arguments may be overwritten, and
        variables written, unless the run was to be checked."""
        if not isinstance(error, RunError) or current() is not None:
            return error
        from graphc.codegen.table.donation import is_named
        from graphc.frontend.compile.postmortem import explained
        from graphc.frontend.files.saved_variables import arrays_of

        variant, leaves = self._variant_of(args, kwargs)
        if variant.traced.counts:  # the sizes of its graph are open
            return error
        state = functools.partial(arrays_of, variant.graph) if self.config.check_finite else None
        gone = [is_named(p.attrs["name"], self.config.donate) for p in variant.graph.params]
        return explained(error, variant.graph, variant.feeds(leaves), state, gone)

    def resident(self, *args: Any, **kwargs: Any) -> Any:
        """As a call, but every result is a `gc.Array`: it stays on the device until it is read, and
        is an argument of this and other functions without a copy.  A GPU may still be at work when
        the call returns: who reads a result waits for it.
        """
        try:
            if (made := self._launches(args, kwargs)) is not UNKNOWN:
                return made
            signature, leaves = self._signature(args, kwargs)
            variant = self._variants.of(signature, called=True)
            if variant.built is None:
                self._variants.compile(variant)
            self._launches.remember(variant, args, kwargs)
            return self._for_counts(variant, leaves, lambda found: found.run_resident(leaves))
        except GraphError as error:
            raise without_internal_frames(error) from error.__cause__
        except Exception as error:
            if raised_by_user(error):
                without_internal_frames(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variant, leaves = self._variant_of(args, kwargs)
        if current() is not None and variant.traced.counts:
            return seen(self.function)(*args, **kwargs)  # its sizes are the enclosing trace's
        if current() is not None or any(isinstance(leaf, Value) for leaf in leaves):
            return self._inline(variant, leaves)
        if variant.built is None:
            if self.tiered and (made := self._meanwhile(variant, leaves)) is not UNKNOWN:
                return made
            self._variants.compile(variant)
        run = functools.partial(self._run, variant)
        self._remember(variant, args, kwargs, run)
        self._launches.remember(variant, args, kwargs)
        return run(leaves)

    def _run(self, variant: Variant, leaves: Sequence[Any]) -> Any:
        return self._for_counts(variant, leaves, lambda found: found.run(leaves))

    def _meanwhile(self, variant: Variant, leaves: list[Any]) -> Any:
        """The results by the interpreter, while a thread compiles; or UNKNOWN."""
        with self._variants.lock:
            if variant.making is None and can_be_tiered(variant, self.config):
                self._variants.check_budget(variant.signature, variant.reason)
                compile = functools.partial(self._variants.compile, variant)
                variant.making = Making(variant.graph.name, compile)
                variant.making.start()
        return interpreted(variant, leaves)

    def _for_counts(self, variant: Variant, leaves: Sequence[Any], run: Run) -> Any:
        """Run a variant, or the one for what its run counts."""

        def make(counts: Counts) -> Variant:
            made = self._variants.counted(variant.signature, leaves, counts)
            self._variants.compile(made)
            return made

        return run_for_counts(variant, run, make)

    def _variant_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Variant, list[Any]]:
        """The variant for a call, and the leaves of its arguments."""
        signature, leaves = self._signature(args, kwargs)
        called = current() is None and not any(isinstance(leaf, Value) for leaf in leaves)
        try:
            return self._variants.for_call(signature, leaves, called), leaves
        except TraceError:  # it may be that a number was needed in Python
            self._binder.need_numbers()
            if (again := self._signature(args, kwargs))[0] == signature:
                raise
        return self._variants.for_call(*again, called), again[1]

    def _signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Signature, list[Any]]:
        return signature_of(self._binder, self._binder.bind(args, kwargs))

    def _inline(self, variant: Variant, leaves: list[Any]) -> Any:
        """The call inside a trace: one node whose region is the traced function."""
        variant.require_no_counts("it is called from Python")
        trace = trace_of(*leaves)
        assert trace is not None
        operands = []
        for leaf, param in zip(variant.operands(leaves), variant.graph.params):
            element = param.type.dtype  # type: ignore[union-attr]
            operands.append(lift(leaf, trace, None if isinstance(leaf, Value) else element).node)
        made = trace.emit(
            OPS["call"], tuple(operands), {"name": variant.graph.name}, regions=(variant.graph,)
        )
        return unflatten(variant.tree, made if isinstance(made, tuple) else (made,))

    def prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Built, list[Any]]:
        """The compilation for a call, and the arrays that its executable takes."""
        signature, leaves = self._signature(args, kwargs)
        variant = self._variants.of(signature, called=True)
        return self._variants.compile(variant), variant.feeds(leaves)

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Variant:
        try:
            return self._variants.of(self._signature(args, kwargs)[0])
        except GraphError as error:
            raise without_internal_frames(error) from error.__cause__
        except Exception as error:
            if raised_by_user(error):
                without_internal_frames(error)
            raise

    # -------------------------------------------------------------------------------- inside

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The traced graph for these arrays or specs."""
        return self._traced(args, kwargs).graph

    def stages(self, *args: Any, **kwargs: Any) -> tuple[StageResult, ...]:
        """Every stage of the compilation: (name, Graph or Program, seconds, note), in order."""
        return self._variants.compile(self._traced(args, kwargs)).stages

    def lower(self, *args: Any, **kwargs: Any) -> Graph | Program:
        """The planned program for these arrays or specs: the last stage."""
        return self.stages(*args, **kwargs)[-1].value

    def executable(self, *args: Any, **kwargs: Any) -> Any:
        """The executable for these arrays or specs: `.run(list of arrays) -> list of arrays`."""
        return self._variants.compile(self._traced(args, kwargs)).executable

    def save(self, path: str | PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save the traced graph as text, big constants in a .safetensors file beside it."""
        from graphc.frontend.files.gir_files import save
        from graphc.frontend.files.marked_sizes import text_graph

        save(path, text_graph(self, args, kwargs))

    def view(self, *args: Any, **kwargs: Any) -> Page:
        """A page of the compilation for these arrays or specs, or of the latest one: its graph,
        stages, kernels, memory and timeline (see `gc.view`, which measures runs, too).
        """
        return self._view(args, kwargs, 0)

    def _view(self, args: tuple[Any, ...], kwargs: dict[str, Any], runs: int) -> Page:
        from graphc.frontend.files.page_sources import own_sources, page_of, traced_runs

        measured = []
        built = self._latest(args, kwargs)
        if runs:
            built, arrays = self.prepared(args, kwargs)
            measured = traced_runs(built, arrays, runs)
        return page_of(built, self.config, measured, own_sources(built.stages[0].value))

    def why(self, *args: Any, **kwargs: Any) -> Why:
        """Why the compilation for these arguments, or the latest, is as it is (see `gc.why`)."""
        from graphc.frontend.diagnosis.why import Why

        built = self._latest(args, kwargs)
        return Why(built.stages, self.config, compiles=self.compiles)

    def _latest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Built:
        """The compilation for these arguments; without any, the latest there is."""
        if args or kwargs or self._variants.newest is None:
            return self._variants.compile(self._traced(args, kwargs))
        return self._variants.newest

    # -------------------------------------------------------------------------------- methods

    def __set_name__(self, owner: type, name: str) -> None:
        self._binder.bound = True
        self._binder.simple = False

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        self.__set_name__(type(instance), "")
        return BoundFunction(self, instance)


@overload
def compile(
    function: Callable[P, R],
    *,
    static: str | Iterable[str] = (),
    donate: str | Iterable[str] = (),
    sizes: NamedSizes | str | None = None,
    max_compiles: int | None = None,
    tiered: bool = False,
    **options: Any,
) -> CompiledFunction[P, R]: ...
@overload
def compile(
    function: None = None,
    *,
    static: str | Iterable[str] = (),
    donate: str | Iterable[str] = (),
    sizes: NamedSizes | str | None = None,
    max_compiles: int | None = None,
    tiered: bool = False,
    **options: Any,
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...


@refusing
def compile(
    function: Callable[..., Any] | None = None,
    *,
    static: str | Iterable[str] = (),
    donate: str | Iterable[str] = (),
    sizes: NamedSizes | str | None = None,
    max_compiles: int | None = None,
    tiered: bool = False,
    **options: Any,
) -> Any:
    """Compile a model function: `@gc.compile`, `@gc.compile(...)` or `gc.compile(fn, ...)`.

    static    names of arguments whose values specialise the compiled code (they must be hashable)
    donate    names of arguments whose memory results may reuse
    sizes     shapes of arguments with names for the dimensions that change, {"x": ("n", 16)}: one
              compilation serves all their values.  Without it a dimension becomes such a name when
              it changes; "exact" compiles for every shape
    max_compiles   how many compilations there may be: one more raises GraphError
    tiered    first calls do not wait for their code: NumPy computes them, node by node, while a
              thread compiles.  They differ from later ones by rounding; `compiles` counts them
    options   see `graphc.config.Config`: devices, threads, opt, backend, dump, compress,
              error_budget, sample, memory_limit, check_finite, fast_math, parity, watch

    Arguments are values: a write to one inside the function is not seen by the caller.  What the
    function reads from outside (attributes of self, globals, cells) becomes constant when it is
    traced; where it has changed since, the next call traces again, and `compiles` says what it was.
    A few elements of a large array may change unseen: `watch="all"` has each call compare every
    one.  A self that is named in `static` is not watched.

    Results are NumPy arrays of the dtypes that NumPy 2 would give, in the nesting that the function
    returns.  Raises GraphError for an option that does not exist.  A call raises TraceError or
    TypeRuleError for what cannot be compiled, FeedError for arguments that do not fit, RunError for
    what only a run can see (an index out of range), LimitError where memory does not suffice.
    """
    if function is not None and not callable(function):
        raise GraphError(f"compile takes a function, got {type(function).__name__}")
    if isinstance(options.get("sample"), Iterable):  # arguments, nested as in a call
        options["sample"] = [np.asarray(leaf) for leaf in flatten(tuple(options["sample"]))[0]]
    config = Config.create(**options)
    config.require_use_of_budget()
    rest: dict[str, Any] = {"sizes": sizes, "max_compiles": max_compiles, "tiered": tiered}
    if function is None:
        return lambda f: compile(f, static=static, donate=donate, **rest, **options)
    if isinstance(function, CompiledFunction):
        static, rest["sizes"] = static or function.static, sizes or function.sizes
        rest["tiered"] = tiered or function.tiered
        function = function.function
    return CompiledFunction(function, config, static, donate, **rest)
