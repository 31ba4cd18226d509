"""The variants of a function: one for each signature, or for the many sizes of one.

of a signature    found: it was traced before, and what the trace has read is there still
                  served: by a compilation for many sizes, which is made where sizes change
                  traced
of a call         those, or one whose sizes are what the run of this call counts
`compiled`        its code, made when it is first needed, once
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from graphc.base.garbage_collection import collector_paused
from graphc.config import Config
from graphc.errors import GraphError, TraceError
from graphc.forks import fork_safe_lock
from graphc.frontend.compile.baked import Baked, attributes_of, baked, called_object
from graphc.frontend.compile.build import Built
from graphc.frontend.compile.call_cache import MOST_RECENT
from graphc.frontend.compile.open_sizes import can_be_open
from graphc.frontend.compile.recount import Counts, trace_for_counts
from graphc.frontend.compile.signature import (
    Binder,
    Signature,
    Weak,
    not_arrays,
    owner_of,
    parameter_names,
    parameter_type,
)
from graphc.frontend.compile.size_families import (
    EXACT,
    Family,
    NamedSizes,
    alike,
    family_of,
    hint_alike,
    hint_changing,
    hint_closed,
)
from graphc.frontend.compile.variant import Compile, Variant, static_leaf
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.recording import is_recording, noticing
from graphc.frontend.trace.trace import Parameter, trace_function, traced_before
from graphc.frontend.trace.tree import unflatten
from graphc.ir.sizes import Scope
from graphc.ir.types import substitute_dim, tensor
from graphc.ir.user_lines import defined_at
from graphc.runtime.call.open_executable import Latest


class Variants:
    """What a function was traced and compiled for.

    `compiles` is the ledger, `newest` its latest compilation; `forget` is told of a variant that
    has been served longest ago, and is served no more.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        binder: Binder,
        config: Config,
        sizes: NamedSizes | str | None,
        max_compiles: int | None,
        forget: Callable[[Variant], None],
    ) -> None:
        self.function, self.binder, self.config = function, binder, config
        self.sizes, self.max_compiles = sizes, max_compiles
        self._forget = weakref.WeakMethod(forget)  # of who holds this
        self.compiles: list[Compile] = []
        self.newest: Built | None = None
        self.lock = fork_safe_lock()
        self._known: dict[Signature, tuple[Variant, ...]] = {}
        self._families: dict[Any, Family] = {}
        self._served: Latest[Signature, Variant] = Latest()
        self._alike: Counter[Any] = Counter()  # compilations, by what their calls have in common

    def for_call(self, signature: Signature, leaves: list[Any], called: bool) -> Variant:
        """As `of`; sizes that only a run can tell are those of this call, if need be."""
        try:
            return self.of(signature, called)
        except Exception as error:
            if not called or traced_before(error) is None:
                raise
        made = self.counted(signature, leaves, {})
        self._known[signature] = (made,)
        return made

    def counted(self, signature: Signature, leaves: Sequence[Any], counts: Counts) -> Variant:
        """A variant whose sizes are what a run of these arguments counts."""
        with self.lock, collector_paused():
            return trace_for_counts(self.trace, signature, leaves, counts, self.config)

    def of(self, signature: Signature, called: bool = False) -> Variant:
        """The variant of a signature; of one that is `called` the sizes may be left open."""
        found = self._found(signature)
        if found is not None:
            return found
        with self.lock, collector_paused():
            found = self._found(signature)
            if found is None and called:
                found = self._serve(signature)
            if found is None:
                known = self._known.get(signature, ())
                reason = known[0].baked.change() if known else ""
                found = self.trace(signature, reason)
                self._known[signature] = (found, *known[: MOST_RECENT - 1])
                if len(known) == MOST_RECENT - 1:
                    hint_changing(self.binder.title, MOST_RECENT, reason)
        return found

    def _found(self, signature: Signature) -> Variant | None:
        """The variant of a signature whose trace read what is there now."""
        known = [*self._known.get(signature, ())]
        served = self._served.get(signature)
        if served is not None:
            known.append(served)
        for variant in known:
            if not variant.baked or variant.baked.holds():
                return variant
        return None

    def _serve(self, signature: Signature) -> Variant | None:
        """A variant of a compilation that serves many sizes, which is made where sizes change."""
        if self.sizes == EXACT or not can_be_open(self.config):
            return None
        family = self._families.setdefault(family_of(signature), Family())
        found = family.serving(signature) or self._open(family, signature)
        if found is None:
            family.note(signature)
            return None
        assert found.built is not None
        for oldest in self._served.add(signature, found, found.built.image):
            if (forget := self._forget()) is not None:
                forget(oldest)
        return found

    def _open(self, family: Family, signature: Signature) -> Variant | None:
        """Compile for the sizes of a call and others, if that can be done."""
        named = None if isinstance(self.sizes, str) else self.sizes
        opened = family.opening(signature, named)
        if opened is None:
            return None

        def make(scope: Scope) -> tuple[Built, Variant]:
            variant = self.trace(opened, family.reason, scope)
            built = variant.build_open(scope, self.config)
            self._note(variant, built)
            family.note(signature)
            return built, variant

        found = family.extended(
            opened, signature, make, lambda: self.check_budget(opened, family.reason)
        )
        if found is None and named is not None and not family.open:
            hint_closed(self.binder.title, family.open.closed)
        return found

    def trace(self, signature: Signature, reason: str, scope: Scope | None = None) -> Variant:
        """The variant of a signature; its symbols, if it has any, are those of the scope."""
        names = iter(parameter_names(signature))
        parameters = []
        for key in signature.keys:
            kind = parameter_type(key)
            if kind is not None:
                if scope is not None:
                    dims = (substitute_dim(d, scope.symbols) for d in kind.shape)
                    kind = tensor(kind.dtype, dims)
                parameters.append(Parameter(next(names), kind, isinstance(key, Weak)))

        def call(tracers: list[Any]) -> Any:
            arrays = iter(tracers)
            leaves = [
                static_leaf(key) if parameter_type(key) is None else next(arrays)
                for key in signature.keys
            ]
            return self.binder.call(seen(self.function), unflatten(signature.tree, leaves))

        name = getattr(self.function, "__name__", "f")
        place = defined_at(self.function)
        owner = owner_of(signature)
        kept = attributes_of(called_object(self.function) if owner is None else owner)
        before = dict(kept)
        try:
            scope = Scope() if scope is None else scope
            with noticing() as answers:
                traced = trace_function(name, parameters, call, place, scope)
            read = self._baked(owner, kept, before)
            if answers:
                read.values.append((is_recording, answers[-1], "whether summaries are recorded"))
            return Variant(signature, traced, read, reason)
        except (TypeError, AttributeError) as error:  # the user's own, or NumPy's
            note = not_arrays(signature)
            if note and not isinstance(error, GraphError):
                error.add_note(note)
            raise
        except RecursionError:
            raise TraceError(
                f"{name} calls itself deeper than Python's stack while it is traced",
                location=place,
                hint="a recursion must end after a number of steps that is known when tracing",
            ) from None

    def _baked(self, owner: Any, kept: Any, before: dict[str, Any]) -> Baked:
        """What the trace has read. Raises TraceError for a traced array that it left behind; the
        attributes that were `kept` by the object it was called of are what they were `before` then.
        """
        try:
            return baked(self.function, owner, self.config.watch)
        except TraceError:
            if type(kept) is dict:
                kept.clear()
                kept.update(before)
            raise

    def compile(self, variant: Variant) -> Built:
        """The code of a variant. Raises GraphError for more compilations than are allowed."""
        making = variant.making
        with self.lock if making is None else making.lock, collector_paused():
            if variant.built is None:
                self.check_budget(variant.signature, variant.reason)
                self._note(variant, variant.build(self.config))
            assert variant.built is not None
            return variant.built

    def _note(self, variant: Variant, built: Built) -> None:
        self.newest, given = built, variant.signature
        why = variant.reason or self._difference(given)
        calls = variant.making.calls if variant.making is not None else 0
        numbers = built.seconds, built.compiled, built.cached, calls
        self.compiles.append(Compile(given, why, *numbers))
        if given not in (entry.signature for entry in self.compiles[:-1]):
            kind = alike(given, by_shape=self.sizes == EXACT)
            self._alike[kind] += 1
            if self._alike[kind] == MOST_RECENT:
                hint_alike(self.binder.title, MOST_RECENT, why)

    def _difference(self, signature: Signature) -> str:
        """What a signature has that none before had, and why no compilation serves it as well."""
        family = self._families.get(family_of(signature), Family())
        return family.difference(signature, [entry.signature for entry in self.compiles])

    def check_budget(self, signature: Signature, reason: str) -> None:
        """Raise GraphError for one compilation more than the user has allowed."""
        if self.max_compiles is not None and len(self.compiles) >= self.max_compiles:
            why = reason or self._difference(signature)
            raise GraphError(
                f"{self.binder.title} was compiled {len(self.compiles)} times, as often as"
                f" max_compiles= allows; now {why}",
                location=defined_at(self.function),
                hint="name the dimensions that change: sizes=" if "shape (" in why else None,
            )
