"""Variant: a compiled function for one signature of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import TraceError
from graphc.frontend.compile.baked import Baked
from graphc.frontend.compile.build import Built, build
from graphc.frontend.compile.data_sizes import build_counted
from graphc.frontend.compile.making import Making
from graphc.frontend.compile.nesting import Form, builds_of, fetches_of
from graphc.frontend.compile.open_sizes import USUAL, build_open, build_traced
from graphc.frontend.compile.signature import (
    Binder,
    Identity,
    Signature,
    Static,
    feed,
    parameter_type,
)
from graphc.frontend.trace.spec import symbols_of
from graphc.frontend.trace.trace import Traced
from graphc.frontend.trace.tree import LEAF, unflatten
from graphc.ir.graph import Graph
from graphc.ir.sizes import Scope
from graphc.ir.specialise import specialise
from graphc.ir.types import Type
from graphc.runtime.call.array import Array

UNKNOWN: Any = object()  # the answer to a call that a variant is not made for


def no_entry(*args: Any) -> None:
    """Stands for a native entry where there is none."""


@record(frozen=True)
class Compile:
    """One line of the ledger `fn.compiles`.

    `reason` says which argument changed and how; `compiled` counts the kernels that were built and
    `cached` those that the object-code cache already held; `interpreted` calls did not wait for it.
    """

    signature: Signature
    reason: str
    seconds: float
    compiled: int
    cached: int
    interpreted: int = 0

    def __str__(self) -> str:
        kernels = f"{self.compiled} kernels compiled, {self.cached} from the cache"
        meanwhile = f"; {self.interpreted} calls interpreted meanwhile" if self.interpreted else ""
        return f"{self.reason} ({self.seconds:.3f} s, {kernels}{meanwhile})"


class Variant:
    """The graph of one signature and, once it has been called, its executable."""

    def __init__(
        self,
        signature: Signature,
        traced: Traced,
        baked: Baked,
        reason: str,
        symbols: Mapping[str, int] | None = None,
    ) -> None:
        self.signature = signature
        self.baked = baked
        self.reason = reason  # why it was traced, if that was not for its signature
        self._graph, self._symbols = traced.graph, symbols
        self.traced = traced
        self.tree = traced.tree
        self.trace_seconds = traced.seconds
        self.built: Built | None = None
        self.making: Making | None = None  # the thread that compiles it, if calls do not wait
        self.plain_key: tuple[Any, ...] = ()  # of calls with arrays that are like the latest
        self.is_flat = all(
            child is LEAF and isinstance(key, Type)
            for child, key in zip(signature.tree.children, signature.keys)
        )
        kinds = enumerate(map(parameter_type, signature.keys))
        self._feeds = [(position, kind) for position, kind in kinds if kind is not None]
        plain = self.tree.kind is tuple and self.tree.count > 1
        self._bare = self.tree is LEAF or (plain and all(c is LEAF for c in self.tree.children))
        self._builds = None if self._bare else builds_of(self.tree)
        self.is_finished = self._bare or self._builds is not None  # native entries nest results
        self._entries: dict[Form, Callable[..., Any]] = {}
        self.places = baked.places()  # None where Python has to look at what was read
        self.by_counts = [self]  # those of this signature for one or other counts of a run

    @property
    def graph(self) -> Graph:
        """The traced graph; of a compilation that serves many sizes, for those of this variant."""
        symbols = self._symbols
        if symbols:  # of two threads that fill them in, each makes the same
            self._graph, self._symbols = specialise(self._graph, symbols), None
        return self._graph

    def build(self, config: Config) -> Built:
        """Compile if that has not happened yet."""
        if self.built is None:
            kinds = [p.type for p in self.graph.params if isinstance(p.type, Type)]
            if self.traced.counts:
                self.built = build_counted(self.traced, config)
            elif all(kind.is_static for kind in kinds):
                self.built = build(self.graph, config, self.trace_seconds)
            else:
                usual = dict.fromkeys(sorted(symbols_of(kinds)), USUAL)
                self.built = build_open(self.graph, config, usual, self.trace_seconds)
        return self.built

    def require_no_counts(self, problem: str) -> None:
        """Raise TraceError where its data decides sizes."""
        if self.traced.counts:
            raise TraceError(
                f"{self.graph.name} has sizes that its data decides: {problem}",
                location=next(iter(self.traced.counts.values())).loc,
                hint="give the sizes (size=), or call the function itself, not the compiled one",
            )

    def build_open(self, scope: Scope, config: Config) -> Built:
        """Compile with the sizes of its scope left open."""
        if self.traced.counts:
            self.built = build_counted(self.traced, config)
        else:
            self.built = build_traced(self.graph, scope, config, self.trace_seconds)
        return self.built

    def run(self, leaves: Sequence[Any]) -> Any:
        """Feed the array leaves, run, and nest the results."""
        assert self.built is not None
        return self.nest(self.built.executable(*self.feeds(leaves)))

    def run_resident(self, leaves: Sequence[Any]) -> Any:
        """As `run`, with results that stay on the device."""
        assert self.built is not None
        results = self.built.executable.run_resident(self.feeds(leaves))
        return self.nest(results[0] if len(results) == 1 else tuple(results))

    def feeds(self, leaves: Sequence[Any]) -> list[np.ndarray[Any, Any] | Array]:
        """The array leaves as the executable takes them."""
        return [feed(leaves[position], kind) for position, kind in self._feeds]

    def nest(self, results: Any) -> Any:
        """What the function returns, from what its executable does: an array or a tuple of them."""
        if self._bare:
            return results
        return unflatten(self.tree, results if self.tree.count != 1 else (results,))

    def entry(self, binder: Binder, form: Form, plain: bool) -> Callable[..., Any]:
        """The native entry for calls of this form, all arguments `plain` arrays or not.

        It answers None to calls of another signature, else what `answer` takes; it does not look at
        what the trace has read.
        """
        assert self.built is not None
        flat = plain and self.is_flat and self._builds is None and not form[1]
        if flat and not self.baked:
            return self.built.executable.entry
        found = self._entries.get(form)
        if found is None:
            found = self.built.executable.entry if flat else self._make_entry(binder, form)
            self._entries[form] = found
        return found

    def guarded(self, entry: Callable[..., Any]) -> Callable[..., Any]:
        """An entry that answers None, too, once what the trace has read is not what it was."""
        return _guarded(entry, self.baked.holds) if self.baked else entry

    def _make_entry(self, binder: Binder, form: Form) -> Callable[..., Any]:
        assert self.built is not None
        on_host = not any(each.on_gpu for each in self.built.image.images)
        fetches = fetches_of(binder, self.signature, form, on_host)
        if fetches is None:
            return no_entry
        arguments = form[0] + 2 * bool(form[1])
        return self.built.executable.nested_entry(arguments, fetches, self._builds or ())

    def answer(self, outcome: Any) -> Any:
        """What the function returns, from what its native entry does. Raises RunError.

        A failed run is not done again: what it wrote to variables and arguments is written.
        """
        if outcome.__class__ is int:
            assert self.built is not None
            raise self.built.executable.failed(outcome)
        return outcome if self.is_finished else self.nest(outcome)

    def operands(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves that become operands of a `call` node."""
        return [leaves[position] for position, _ in self._feeds]


def _guarded(entry: Callable[..., Any], holds: Callable[[], bool]) -> Callable[..., Any]:
    """The entry, for calls while what the trace read is what it was."""

    def guarded(*args: Any) -> Any:
        return entry(*args) if holds() else None

    return guarded


def static_leaf(key: Any) -> Any:
    """What a static leaf was, for the traced call."""
    assert isinstance(key, Static | Identity)
    return key.value
